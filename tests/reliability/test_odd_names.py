"""Folders and files of any name: `::`, `#`, `%`, blanks, brackets."""

import shutil

import pytest
import xarray as xr
from realruns import command, config_path

ODD = ["a::b", "c #1", "e%20f [g]*?é"]  # a folder within another


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def odd(tmp_path, monkeypatch):
    folder = tmp_path.joinpath(*ODD)
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)  # relative names look most like URLs
    return folder.relative_to(tmp_path)


def test_a_store_in_an_odd_folder_is_the_same(store, odd):
    world = shutil.copytree(store.parent / "world", odd / "w::orld")
    command("prepare", world, odd / "s::tore", "--truth", world / "truth")
    assert content(odd / "s::tore").keys() == content(store).keys()
    command("inspect", odd / "s::tore", "--headers")
    command("verify", odd / "s::tore", "--source", world, "--sample", 2)
    command("export", odd / "s::tore", "--to", odd / "x::#1.nc", "--kind", "truth")
    with xr.open_dataset(store.parent / "store.zarr", engine="zarr", group="truth") as truth:
        exported = xr.open_dataset((odd / "x::#1.nc").absolute(), engine="netcdf4")
        assert exported["t2m"].equals(truth["t2m"].astype("float32"))
        exported.close()
    command("export", odd / "s::tore", "--to", odd / "x::#1.grib", "--kind", "truth")
    command("inspect", odd / "x::#1.grib")
    command("inspect", odd / "x::#1.nc")


def test_a_run_in_an_odd_folder_is_predicted_and_scored(whole, odd):
    run = shutil.copytree(whole, odd / "r::un")
    command("predict", "--run", run, "--quiet")
    command("score", run)
    assert (run / "scores.nc").is_file()


@pytest.mark.slow
def test_a_fit_and_a_report_in_an_odd_folder(store, odd):
    copy = shutil.copytree(store, odd / "s::tore")
    run = odd / "r::un"
    given = ["--config", config_path("mlp"), "--data.store", copy, "--run", run, "--quiet"]
    command("fit", *given, "--trainer.max_epochs", 1)
    command("fit", "--run", run, "--resume", "--quiet", "--trainer.max_epochs", 2)
    command("predict", "--run", run, "--quiet")
    command("score", run)
    command("report", run, "--out", odd / "re::port")
    assert (odd / "re::port" / "index.html").is_file()


def test_files_whose_names_are_not_utf8_are_told(store, odd, capsys):
    """A folder that holds one is inspected and prepared, or refused in one line."""
    world = shutil.copytree(store.parent / "world", odd / "world")
    file = sorted(world.glob("output.*"))[0]
    file.rename(world / "output\udcff.sfc")
    command("inspect", world, "--headers")
    command("prepare", world, odd / "store", "--truth", world / "truth")
    assert "Traceback" not in capsys.readouterr().err
