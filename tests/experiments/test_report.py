import shutil
import struct
import subprocess
import sys

import pytest
from fakereports import Page, page_of, write_target
from fakeruns import write_run, write_world

from ens10.cli import main
from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.experiments.reporting.report import write_report
from ens10.experiments.scoring.run_results import read_run, read_runs
from ens10.experiments.scoring.tables import columns, markdown, score_table
from ens10.metrics import summarise

FIGURES = (
    "crps", "crpss-maps", "calibration", "learning-curves", "latitude", "card", "bias",
    "reliability", "roc",
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def out(folders, tmp_path_factory):
    out = tmp_path_factory.mktemp("reports") / "out"
    assert write_report(list(folders.values()), out, "Test world") == out / "index.html"
    return out


@pytest.fixture(scope="module")
def page(out):
    return Page((out / "index.html").read_text(encoding="utf-8"))


def test_all_files_are_written(out):
    found = {str(p.relative_to(out)) for p in out.rglob("*") if p.is_file()}
    tables = {"index.html", "table.md", "table.csv", "table.tex"}
    assert found == tables | {f"figures/{name}.png" for name in FIGURES}
    assert (out / "index.html").stat().st_size < 3e5
    for name in FIGURES:
        png = (out / "figures" / f"{name}.png").read_bytes()
        least = 450 if name in ("card", "roc") else 900  # pixels of width; these two are narrow
        assert struct.unpack(">I", png[16:20])[0] > least


def test_the_tables_numbers_are_those_of_summarise(page, folders):
    states = {name: read_run(folder).states for name, folder in folders.items()}
    head, lines = page.table(("Model", "Forecast"))
    assert list(lines) == ["raw", "emos", "unet", "optimum"]
    for name, line in lines.items():
        own = summarise(states[name], states["raw"])
        crps = [float(own[f"crps{part}"]) for part in ("", "_lower", "_upper")]
        assert line[head.index("CRPS (K)")] == "{:.4f} [{:.4f}, {:.4f}]".format(*crps)
        assert line[head.index("RMSE (K)")] == f"{float(own['rmse']):.4f}"
        if name != "raw":
            skill = line[head.index("CRPSS (%)")].split(" [")[0]
            assert skill == f"{100 * float(own['crpss']):.1f}"
    assert lines["unet"][head.index("Parameters")] == "636,002"


def test_the_page_tells_what_was_compared_and_what_came_out(page):
    for told in (
        "t2m (K)",
        "48 h",
        "280 (1998–2000, 2002)",
        "40 dates, valid 2004-01-03 to 2004-04-29",
        "exact cell areas",
        "clean",
        "6 × 12 (latitude × longitude), 75°N to 75°S, global",
        "Lowest CRPS of 2 models: unet",
        "The model with the lowest CRPS is unet",
        "It is clearly better than the next best, emos.",
        "Clearly better than raw: 2 of 2 models.",
        "that of raw is smaller than its error",
        "2.13.0",
        "0011aabb",
        "abc123",
    ):
        assert told in page.text


def test_cost_and_configuration_are_told(page):
    head, lines = page.table(("Model", "Time of the fit (s)"))
    assert lines["unet"] == ["unet", "12.3", "636,002"]
    assert head == ["Model", "Time of the fit (s)", "Parameters"]
    assert lines["optimum"] == ["optimum", "12.3", "–"]
    assert "Configuration of unet" in page.text
    assert "store: world.zarr" in page.text  # without the folders of somebody's machine
    assert "cache" not in page.text


def test_the_same_runs_give_the_same_files(folders, out, tmp_path):
    write_report(list(folders.values())[::-1], tmp_path, "Test world")
    for file in (p for p in out.rglob("*") if p.is_file()):
        assert (tmp_path / file.relative_to(out)).read_bytes() == file.read_bytes()


def test_table_md_is_the_table(folders, out):
    rows = score_table(read_runs(list(folders.values())))
    assert (out / "table.md").read_text(encoding="utf-8") == markdown(rows)


def test_names_and_title_are_escaped(folders, tmp_path):
    name = "<script>alert('x')</script> & \"y\""
    odd = write_run(tmp_path / "odd", read_run(folders["emos"]).states, {"name": name})
    text = page_of([folders["raw"], odd], title="<b>bold</b>")
    assert "<script>alert" not in text
    assert "<b>" not in text
    page = Page(text)
    assert "<b>bold</b>" in page.text
    assert name in page.table(("Forecast", "Against raw"))[1]


def test_a_file_in_the_place_of_the_report_is_refused(folders, tmp_path, capsys):
    (tmp_path / "report.html").write_text("mine")
    words = ["report", str(folders["raw"]), "--out", str(tmp_path / "report.html")]
    assert main(words) == 1
    assert "report.html: is no folder. Give another place" in capsys.readouterr().err
    assert (tmp_path / "report.html").read_text() == "mine"


def test_temporary_files_of_a_killed_report_are_removed(folders, tmp_path):
    out = tmp_path / "out"
    (out / "figures").mkdir(parents=True)
    names = [".index.html", ".table.md", ".table.csv", ".table.tex", "figures/.calibration.png"]
    for name in (*names, ".notes.md"):
        (out / f"{name}.0011aabb.tmp").write_text("half")
    write_report([folders["raw"], folders["emos"]], out)
    left = [path.relative_to(out).as_posix() for path in out.rglob(".*")]
    assert left == [".notes.md.0011aabb.tmp"]  # which no report writes
    assert not list(out.rglob("*.lock"))


def test_one_run_alone_is_a_report(folders, tmp_path):
    shutil.copytree(folders["emos"], tmp_path / "emos")
    stale = tmp_path / "out" / "figures" / "crpss-maps.png"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of an earlier report")
    page = Page(write_report([tmp_path / "emos"], tmp_path / "out").read_text(encoding="utf-8"))
    assert "No run is called raw" in page.text
    assert "No curves" in page.text
    assert not any("CRPSS" in cell for line in page.cells for cell in line)
    assert ["Forecast"] not in page.cells  # a score card of nothing
    assert not stale.exists()


def test_what_is_not_known_is_shown_as_a_dash(folders, tmp_path):
    bare = write_run(tmp_path / "bare", read_run(folders["emos"]).states)
    page = Page(page_of([bare]))
    assert ["bare", "model", "–", "–", "–", "–"] in page.cells
    assert "Training dates–" in page.text.replace("\n", "")


def test_runs_that_disagree_are_told_apart(folders, tmp_path):
    other = {"name": "other", "protocol": "paper", "target": "t2m"}
    odd = write_run(tmp_path / "odd", read_run(folders["emos"]).states, other)
    text = page_of([folders["raw"], odd])
    assert "clean (raw); paper (other)" in text
    assert "of different protocols (clean, paper)" in text


def test_bad_runs_are_refused_before_anything_is_written(folders, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    twin = write_run(tmp_path / "twin", read_run(folders["emos"]).states, {"name": "emos"})
    late = write_world(tmp_path / "late", ("unet",), start="2004-01-04")["unet"]
    for runs, error, told in (
        ([folders["raw"], tmp_path / "empty"], FileError, "ens10 score"),
        ([folders["emos"], twin], ArgumentError, "both called"),
        ([folders["raw"], late], MissingDataError, "2004-01-01"),
        ([], ArgumentError, "none"),
    ):
        with pytest.raises(error, match=told):
            write_report(runs, tmp_path / "out")
    given = [str(folders["raw"]), str(tmp_path / "empty"), "--out", str(tmp_path / "out")]
    assert main(["report", *given]) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "not scored yet" in said[0]
    assert not (tmp_path / "out").exists()


def test_reports_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import ens10.experiments.reporting.report;"
        "print('pytorch_lightning' in sys.modules)"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout) == (0, "False\n"), made.stderr


def test_seconds_are_no_part_of_the_table(folders):
    rows = score_table(read_runs(list(folders.values())))
    assert "Fit (s)" not in [c.heading for c in columns(rows)]
    assert "Fit (s)" in [c.heading for c in columns(rows, seconds=True)]
