"""What the machine refuses: one line, exit status 1, and then the same command works again."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from realruns import command
from stops import no_file_above

from ens10.experiments import demo

NOBODYS = Path("/sys/kernel")  # of Linux: nobody can make a file there
DAY = "0101"


@pytest.fixture(scope="module")
def place(store, whole, tmp_path_factory):
    """A folder with a world, its store, and a run with predictions and scores."""
    folder = tmp_path_factory.mktemp("place")
    run = shutil.copytree(whole, folder / "mlp")
    command("predict", "--run", run, "--quiet")
    command("score", run)
    (folder / "store.zarr").symlink_to(store)
    (folder / "world").symlink_to(store.parent / "world")
    return folder


WORLD = ("--grid", "8x16", "--years", "2000-2000", "--dates", 1, "--steps", 48, "--members", 2)
EVENT = ("--date", "2005-01-03", "--region", "-90,-180,90,180")
WRITING = {
    "synth": lambda place, out: ("synth", out, *WORLD, "--variables", "t2m"),
    "download": lambda place, out: (
        *("download", out, "--kind", "sfc", "--dates", DAY),
        *("--base", (place / "world").resolve().as_uri()),
    ),
    "prepare": lambda place, out: (
        *("prepare", place / "world", out, "--truth", place / "world" / "truth"),
    ),
    "netcdf": lambda place, out: ("export", place / "store.zarr", "--to", out.with_suffix(".nc")),
    "grib": lambda place, out: ("export", place / "store.zarr", "--to", out.with_suffix(".grib")),
    "report": lambda place, out: ("report", place / "mlp", "--out", out),
    "case": lambda place, out: (
        *("case", place / "mlp", "--raw", place / "store.zarr", *EVENT, "--out", out),
    ),
}


def one_line(capsys, words):
    """The one line on stderr that says what happened, whatever a progress bar has drawn before."""
    said = capsys.readouterr().err
    assert said.count("ens10: ") == 1, said
    assert "Traceback" not in said
    assert words in said.rpartition("ens10: ")[2]
    assert said.endswith("\n")


SIZES = {"prepare": (50, 1000), "download": (50, 1000), "grib": (50, 1000)}
FULL = [(name, size) for name in WRITING for size in SIZES.get(name, (50,))]
RARE = (("prepare", 1000), ("download", 50), ("grib", 50), ("case", 50))


@pytest.mark.parametrize(
    ("name", "size"),
    [pytest.param(*one, marks=[pytest.mark.slow] if one in RARE else []) for one in FULL],
)
def test_a_full_disk_is_one_line_and_then_the_same_command_works(
    place, tmp_path, capsys, name, size
):
    words = WRITING[name](place, tmp_path / "out")
    with no_file_above(size):
        command(*words, status=1)
    one_line(capsys, "disk")
    command(*words)


@pytest.mark.skipif(not NOBODYS.is_dir(), reason="a folder that even root cannot write is needed")
@pytest.mark.parametrize("name", [name for name in WRITING if name != "case"])
def test_a_folder_that_cannot_be_written_is_one_line(place, capsys, name):
    command(*WRITING[name](place, NOBODYS / "made"), status=1)
    full = name in ("download", "netcdf", "grib")  # which first ask for the space there: none
    one_line(capsys, "disk" if full else "cannot be written")


@pytest.fixture(scope="module")
def demonstration(tmp_path_factory):
    """A demonstration of few dates and one model beside the raw ensemble."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "YEARS", range(2000, 2004))
        patch.setattr(demo, "DATES", 1)
        few = partial(demo.run_demo, models=("raw", "emos_global"), quiet=True)
        patch.setattr(demo, "run_demo", few)
        out = tmp_path_factory.mktemp("demonstration") / "demo"
        command("demo", "--out", out)
        yield out


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["", "store.zarr", "runs/emos_global", "runs/optimum", "report"])
def test_a_demonstration_without_room_is_gone_on_with(demonstration, tmp_path, capsys, lost):
    """At each of its parts: what is there stays, and the same command makes the rest."""
    out = shutil.copytree(demonstration, tmp_path / "demo")
    shutil.rmtree(out / lost)
    with no_file_above(100):
        command("demo", "--out", out, status=1)
    one_line(capsys, "disk")
    command("demo", "--out", out)
    names = [
        sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
        for folder in (out, demonstration)
    ]
    assert names[0] == names[1]


@pytest.mark.slow
@pytest.mark.skipif(not NOBODYS.is_dir(), reason="a folder that even root cannot write is needed")
def test_a_demonstration_that_cannot_be_written_is_one_line(demonstration, capsys):
    command("demo", "--out", NOBODYS / "demo", status=1)
    one_line(capsys, "cannot be written")
