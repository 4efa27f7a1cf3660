"""What a bare install lacks is told in one line, with the extra that brings it."""

import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from ens10.cli import main
from ens10.errors import ArgumentError
from ens10.extras import EXTRAS, MissingExtraError, telling_extras
from ens10.inspection import inspect_path

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("module", EXTRAS)
def test_the_extra_brings_the_package(module):
    needs = PROJECT["optional-dependencies"][EXTRAS[module]]
    assert any(need.replace("-", "_").startswith(module) for need in needs)


def test_one_line_names_the_extra():
    with pytest.raises(MissingExtraError) as raised, telling_extras("a figure", "train"):
        raise ModuleNotFoundError("No module named 'matplotlib.axes'", name="matplotlib.axes")
    told = "a figure needs matplotlib. Install it with: pip install 'ens10[train,plot]'"
    assert str(raised.value) == told
    assert isinstance(raised.value, ImportError)
    assert raised.value.name == "matplotlib"


def test_a_cause_is_told():
    """fsspec's own words."""
    told = ImportError("Please install gcsfs to access Google Storage")
    told.__cause__ = ModuleNotFoundError("No module named 'gcsfs'", name="gcsfs")
    with pytest.raises(MissingExtraError, match=r"needs gcsfs.*cloud"), telling_extras("this"):
        raise told


def test_other_import_errors_are_bugs():
    with pytest.raises(ImportError, match="cannot import name"), telling_extras("this"):
        raise ImportError("cannot import name 'x' from 'torch'", name="torch")


def test_what_was_told_is_not_told_again():
    with pytest.raises(MissingExtraError, match=r"^inner needs"), telling_extras("outer"):
        raise MissingExtraError("inner", "torch", "train")


def test_a_package_of_no_extra_is_a_bug():
    with pytest.raises(ModuleNotFoundError, match="'x'") as raised, telling_extras("this"):
        raise ModuleNotFoundError("No module named 'x'", name="x")
    assert not isinstance(raised.value, MissingExtraError)


@pytest.fixture
def without(monkeypatch):
    """Makes a package one that is not installed, and its users not imported yet."""

    def hide(package, *users):
        monkeypatch.setitem(sys.modules, package, None)
        for user in users:
            monkeypatch.delitem(sys.modules, user, raising=False)

    return hide


def test_a_class_of_the_loader(without):
    import ens10.loader

    without("pytorch_lightning", "ens10.loader.datamodule", "ens10.loader.tensors")
    with pytest.raises(MissingExtraError, match=r"EnsembleDataModule needs .*ens10\[train\]"):
        _ = ens10.loader.EnsembleDataModule


def test_a_class_of_the_models(without):
    models = import_module("ens10.models")
    without("torch", "ens10.models.heads", "ens10.models.predictive")
    with pytest.raises(MissingExtraError, match=r"ens10.models.Ensemble needs .*ens10\[train\]"):
        _ = models.Ensemble


def test_figures(without):
    users = [name for name in sys.modules if name.startswith("ens10.metrics.figures")]
    without("matplotlib", *users)
    with pytest.raises(MissingExtraError, match=r"figures needs matplotlib.*ens10\[plot\]"):
        import_module("ens10.metrics.figures")


def test_a_command(without, capsys):
    without("matplotlib", "ens10.experiments.report", "ens10.experiments.figures")
    assert main(["report", "run", "--out", "x"]) == 1
    told = "ens10: `ens10 report` needs matplotlib. Install it with: pip install 'ens10[plot]'\n"
    assert capsys.readouterr().err == told


def test_a_command_that_trains_and_draws(without, capsys):
    without("matplotlib", "ens10.experiments.demo", "ens10.experiments.report")
    assert main(["demo", "--out", "x"]) == 1
    assert "pip install 'ens10[train,plot]'" in capsys.readouterr().err


def test_an_address_is_not_inspected():
    with pytest.raises(ArgumentError, match=r"gs://a/b.zarr is an address.*open_source"):
        inspect_path("gs://a/b.zarr")
