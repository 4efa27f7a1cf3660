"""The command line: exit statuses, one-line errors, suggestions."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from ens10 import open_store
from ens10.cli import COMMANDS, main
from ens10.errors import (
    ArgumentError,
    DamagedFileError,
    FileError,
    MissingDataError,
    OverlapError,
    UnknownNameError,
)
from ens10.usage import Command

PREPARE = "Try: ens10 prepare --help"
WORLD = ["--grid", "8x16", "--years", "2000-2001", "--dates", "2", "--members", "2"]


def usage(arguments, capsys):
    """The two lines of an answer to bad usage."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert len(lines) == 2, shown.err
    assert not shown.out
    return lines


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "w"
    assert main(["synth", str(folder), *WORLD, "--variables", "t2m", "u10", "sst"]) == 0
    return folder


def test_synth_and_prepare(world, tmp_path, capsys):
    assert len(list(world.glob("output.sfc.*"))) == 2
    store = str(tmp_path / "s")
    assert main(["prepare", str(world), store, "--truth", str(world / "truth")]) == 0
    shown = capsys.readouterr().out
    assert f"{store}: " in shown
    assert "Truth: t2m at step 48, 4 dates" in shown
    assert set(open_store(store, "sfc").data_vars) == {"t2m", "u10", "sst"}
    assert main(["inspect", store]) == 0
    assert main(["prepare", str(world), store]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["prepare", str(world), store, "--force", "--variables", "2t",
                 "--codec", "lz4"]) == 0  # fmt: skip
    assert "No truth: a model needs it (--truth)" in capsys.readouterr().out
    part = open_store(store, "sfc")
    assert list(part.data_vars) == ["t2m"]
    assert "blosc" in str(part.t2m.encoding["compressors"]).lower()


def test_missing_fields(write, tmp_path, capsys):
    from gribfiles import cube

    source = str(write([f for f in cube() if f[2:] != (20160105, 24, 2)]))
    assert main(["prepare", source, str(tmp_path / "a")]) == 1
    error = capsys.readouterr().err
    assert "2016-01-05T00 step 24 h number 2" in error
    for how, dates in (("nan", 3), ("skip", 2)):
        assert main(["prepare", source, str(tmp_path / how), "--missing", how]) == 0
        assert open_store(tmp_path / how, "sfc").sizes["time"] == dates


def test_names(world, tmp_path, capsys):
    from ens10.source import open_source

    other = open_source(world).rename(t2m="warmth", number="m")[["warmth"]]
    other.to_netcdf(tmp_path / "a.nc")
    names = tmp_path / "names.yaml"
    names.write_text(
        yaml.safe_dump({"variables": {"warmth": "t2m"}, "dimensions": {"m": "number"}})
    )
    arguments = ["prepare", str(tmp_path / "a.nc"), str(tmp_path / "s"), "--names", str(names)]
    assert main(arguments) == 0
    assert list(open_store(tmp_path / "s", "sfc").data_vars) == ["t2m"]
    names.write_text("varibles: {}")
    assert main([*arguments, "--force"]) == 1
    assert "did you mean 'variables'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "first", "second"),
    [
        (["preprae"], "did you mean 'prepare'?", "Try: ens10 --help"),
        (["train"], "'train' is not a command; did you mean 'fit'?", "Try: ens10 --help"),
        (["prepare", "a", "b", "--trth", "c"], "did you mean '--truth'?", PREPARE),
        (["prepare", "a", "b", "--mis", "no"], "'error', 'nan', 'skip'", PREPARE),
        (["synth", "a", "--yaers=1998"], "did you mean '--years'?", "Try: ens10 synth --help"),
        (["prepare", "a", "b", "--codec", "lz5"], "choose from 'none', 'lz4'", PREPARE),
        (["inspect"], "required: path", "Try: ens10 inspect --help"),
        (["synth", "a", "--members", "ten"], '"members": Expected', "Try: ens10 synth --help"),
        (["verify", "a", "--sample", "x"], "Got value: x", "Try: ens10 verify --help"),
        ([], "a command is required", "Try: ens10 --help"),
        (["info", "zzzz"], "unrecognized arguments: zzzz", "Try: ens10 info --help"),
    ],
)  # fmt: skip
def test_bad_usage_is_two_lines(arguments, first, second, capsys):
    lines = usage(arguments, capsys)
    assert lines[0].startswith("ens10: ")
    assert lines[0].endswith(first) or first in lines[0]
    assert lines[1] == second


def test_options_may_be_abbreviated(tmp_path, capsys):
    source = str(tmp_path / "none")
    assert (
        main(["prepare", source, "s", "--truth", "t", "--mis", "nan", "--ens", "5", "--for"]) == 1
    )
    assert f"ens10: {source}: no such file" in capsys.readouterr().err
    first, _ = usage(["prepare", source, "s", "--climate-l", "x", "--t", "c"], capsys)
    assert "ambiguous option: --t could match --truth, --truth-names" in first


@pytest.mark.parametrize(
    "error",
    [
        ArgumentError("a", "b"),
        UnknownNameError("a", "t2n", ["t2m"]),
        MissingDataError("file", ["x", "y"]),
        OverlapError("val", "test", [2001]),
        FileError("file", "gone"),
        DamagedFileError("file", 17, "cut"),
    ],
)
def test_every_error_is_one_line_and_status_1(error, monkeypatch, capsys):
    def fail():
        raise error

    monkeypatch.setitem(COMMANDS, "info", Command("", fail))
    assert main(["info"]) == 1
    shown = capsys.readouterr()
    assert shown.err == f"ens10: {error}\n"
    assert not shown.out


def test_other_ends(monkeypatch, capsys):
    def end(error):
        def fail():
            raise error

        monkeypatch.setitem(COMMANDS, "info", Command("", fail))
        return main(["info"])

    assert end(KeyboardInterrupt()) == 130
    assert end(ModuleNotFoundError("No module named 'torch'", name="torch")) == 1
    assert "of the extra train. Install it with: pip install 'torch>=" in capsys.readouterr().err
    with pytest.raises(ModuleNotFoundError):
        end(ModuleNotFoundError("No module named 'x'", name="x"))
    with pytest.raises(RuntimeError):  # a bug keeps its traceback
        end(RuntimeError("bug"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "/none"], "ens10: /none: no such file or folder"),
        (["prepare", "/none", "s"], "ens10: /none: no such file or folder"),
        (["synth", "w", "--years", "last"], "ens10: --years: 'last' is no range"),
        (["synth", "w", "--years", "2003-1998"], "ens10: years: there are none"),
        (["synth", "w", "--grid", "big"], "ens10: grid: 'big' is not a grid"),
        (["synth", "w", "--variables", "t2n"], "did you mean 't2m'"),
        (["score", "/none"], "/none"),
    ],
)
def test_bad_input_is_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_light_commands_import_nothing_heavy():
    for arguments in (["info"], ["--help"], ["prepare", "--help"], ["--version"]):
        code = (
            "import sys\n"
            "for name in ('torch', 'xarray', 'zarr', 'dask', 'eccodes', 'pytorch_lightning'):\n"
            "    sys.modules[name] = None\n"
            f"from ens10.cli import main\nsys.exit(main({arguments!r}))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
        assert not done.stderr


@pytest.mark.parametrize(
    ("given", "found"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "active"}, "ACTIVE")]
)
def test_threads_of_openmp_sleep_while_they_wait_unless_the_user_says_otherwise(given, found):
    """OpenMP itself says which policy it reads when it is loaded."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_DISPLAY_ENV": "true", **given}
    code = "from ens10.cli import main; main(['info']); import torch"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert f"OMP_WAIT_POLICY = '{found}'" in done.stderr


def test_info_and_env(capsys):
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    for word in ("t2m", "361 x 720", "CC BY 4.0", "arXiv:2206.14786", "0101 to 1231"):
        assert word in shown
    assert main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ens10 ")
    versions = dict(line.split(" ", 1) for line in lines[2:])
    assert {"numpy", "xarray", "zarr", "torch", "eccodes"} <= set(versions)
    import numpy as np

    assert versions["numpy"] == np.__version__


def test_as_a_module_whose_reader_has_enough():
    running = subprocess.Popen(
        [sys.executable, "-m", "ens10", "env"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.close()  # before anything is printed
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait() == 1


def test_a_pipe_that_is_not_the_output_is_an_error(monkeypatch):
    def broken():
        raise BrokenPipeError

    monkeypatch.setitem(COMMANDS, "env", Command("", broken))
    with pytest.raises(BrokenPipeError):
        main(["env"])


@pytest.mark.parametrize(
    ("command", "flag"), [*((command, "--help") for command in COMMANDS), ("predict", "-h")]
)
def test_every_command_has_help(command, flag, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main([command, flag])
    assert caught.value.code == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("usage: ens10 ")
    assert f" {command} -" in " ".join(shown.out.split()).replace("[", "")
    if command in ("fit", "validate", "test", "predict"):
        for option in ("--config", "--run", "--data.store", "--trainer.max_epochs"):
            assert f"{option} " in shown.out
    assert not shown.err
    assert not list(tmp_path.iterdir())


def test_help_on_a_class_needs_no_run(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["fit", "--model.help", "ens10.models.PostProcessor"])
    assert caught.value.code == 0
    assert "--model.network NETWORK" in capsys.readouterr().out


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    listed = re.findall(r"^    (\w+)\s", capsys.readouterr().out, re.MULTILINE)
    assert set(listed) == set(COMMANDS)


def test_synth_says_what_its_truth_lacks(tmp_path, capsys):
    assert main(["synth", str(tmp_path / "w"), *WORLD, "--variables", "t2m", "sst"]) == 0
    wrote, *needs = capsys.readouterr().out.splitlines()
    folder = tmp_path / "w"
    assert wrote == f"Wrote forecasts in {folder}, with truth of no target in {folder / 'truth'}"
    assert needs == ["  the truth of t2m needs u10"]


def test_synth_refuses_a_place_below_a_file(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    place = tmp_path / "notes.txt" / "w"
    assert main(["synth", str(place), *WORLD, "--variables", "t2m", "u10"]) == 1
    assert capsys.readouterr().err.endswith("is a file, not a folder. Choose another place.\n")


def test_synth_refuses_a_full_folder(world, capsys):
    assert main(["synth", str(world), *WORLD]) == 1
    assert "Choose another one" in capsys.readouterr().err
