"""What a bare install lacks is told in one line, with what brings it."""

import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib import import_module, metadata
from pathlib import Path

import pytest

from ens10 import cli
from ens10.errors import ArgumentError
from ens10.extras import EXTRAS, MissingExtraError, pip_install, telling_extras
from ens10.inspection import inspect_path

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("module", EXTRAS)
def test_the_extra_brings_the_package(module):
    needs = PROJECT["optional-dependencies"][EXTRAS[module]]
    assert any(need.replace("-", "_").startswith(module) for need in needs)


def remedy(*extras):
    """What pyproject.toml asks for, in the words of a shell: no index needs to have ens10."""
    needs = [need for extra in extras for need in PROJECT["optional-dependencies"][extra]]
    return f"Install it with: pip install {shlex.join(needs)}"


def test_a_clone_that_is_not_installed_names_the_packages(monkeypatch):
    def fail(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", fail)
    assert pip_install("tables", "cloud") == "pip install pyarrow aiohttp gcsfs"


def test_one_line_names_the_extra():
    with pytest.raises(MissingExtraError) as raised, telling_extras("a figure", "train"):
        raise ModuleNotFoundError("No module named 'matplotlib.axes'", name="matplotlib.axes")
    told = f"a figure needs matplotlib, of the extra train, plot. {remedy('train', 'plot')}"
    assert str(raised.value) == told
    assert isinstance(raised.value, ImportError)
    assert raised.value.name == "matplotlib"


def of_fsspec():
    """What fsspec raises, in its own words."""
    told = ImportError("Please install gcsfs to access Google Storage")
    told.__cause__ = ModuleNotFoundError("No module named 'gcsfs'", name="gcsfs")
    return told


TOLD = {
    "the cause": (of_fsspec(), MissingExtraError, "needs gcsfs.*cloud"),
    "another import error, which is a bug": (
        ImportError("cannot import name 'x' from 'torch'", name="torch"),
        ImportError, "cannot import name",
    ),
    "what was told": (
        MissingExtraError("inner", "torch", "train"), MissingExtraError, "^inner needs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", TOLD)
def test_what_is_told(which):
    raised, error, words = TOLD[which]
    with pytest.raises(error, match=words), telling_extras("outer"):
        raise raised


def test_a_package_of_no_extra_is_a_bug():
    with pytest.raises(ModuleNotFoundError, match="'x'") as raised, telling_extras("this"):
        raise ModuleNotFoundError("No module named 'x'", name="x")
    assert not isinstance(raised.value, MissingExtraError)


def lacking(package):
    """A function that fails as an import does where the package is not installed.

    tests/packaging/road_without_torch.py does the same where nothing is installed.
    """

    def fail(*_, **__):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    return fail


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [
        ("pytorch_lightning", "loader", "EnsembleDataModule"),
        ("pytorch_lightning", "models", "PostProcessor"),
        ("torch", "models", "Normal"),
    ],
)
def test_a_class_names_the_extra(monkeypatch, package, module, name):
    home = import_module(f"ens10.{module}")
    monkeypatch.setattr(home, "import_module", lacking(package))
    told = rf"ens10\.{module}\.{name} needs {package}, of the extra train\. .*'torch>="
    with pytest.raises(MissingExtraError, match=told):
        getattr(home, name)


def test_figures():
    code = "import sys; sys.modules['matplotlib'] = None; import ens10.metrics.figures"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    told = f"ens10.metrics.figures needs matplotlib, of the extra plot. {remedy('plot')}"
    assert done.stderr.splitlines()[-1] == f"ens10.extras.MissingExtraError: {told}"


@pytest.mark.parametrize(("command", "extras"), [("report", ["plot"]), ("demo", ["train", "plot"])])
def test_a_command(monkeypatch, capsys, command, extras):
    without = replace(cli.COMMANDS[command], run=lacking("matplotlib"))
    monkeypatch.setitem(cli.COMMANDS, command, without)
    runs = ["run"] if command == "report" else []
    assert cli.main([command, *runs, "--out", "x"]) == 1
    told = f"of the extra {', '.join(extras)}. {remedy(*extras)}"
    assert capsys.readouterr().err == f"ens10: `ens10 {command}` needs matplotlib, {told}\n"


def test_an_address_is_not_inspected():
    with pytest.raises(ArgumentError, match=r"gs://a/b.zarr is an address.*open_source"):
        inspect_path("gs://a/b.zarr")
