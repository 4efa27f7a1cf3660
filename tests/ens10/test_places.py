"""Names of files and folders: any text works, and what is no text is refused before anything."""

import os

import pytest
import xarray as xr
import zarr

from ens10.cli import main
from ens10.errors import ArgumentError
from ens10.places import check_names, for_xarray, for_zarr, is_url

ODD = "a::b #1 %20 é [x]*?"


def test_urls_are_told_from_paths():
    assert is_url("simplecache::https://example.org/a.zarr")
    assert not is_url(ODD)
    assert for_zarr("gs://bucket/a") == for_xarray("gs://bucket/a") == "gs://bucket/a"


def test_zarr_and_xarray_take_any_local_name(tmp_path):
    path = tmp_path / ODD / "store.zarr"
    group = zarr.open_group(for_zarr(str(path)), mode="w")
    group.create_array("x", shape=(2,), dtype="f4", dimension_names=["time"])
    found = xr.open_zarr(for_xarray(str(path)), consolidated=False, chunks=None)
    assert list(found.data_vars) == ["x"]
    assert [p.name for p in tmp_path.iterdir()] == [ODD]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("synth", "a\udcff"), "is not UTF-8"),
        (("fit", "--run", "\udcff"), "is not UTF-8"),
        (("synth", "a\\b"), "has a backslash"),
    ],
)
def test_names_that_libraries_cannot_take_are_one_line(words, fault, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{fault}. Rename it" in said
    assert not list(tmp_path.iterdir())


def test_the_current_folder_is_looked_at_too(tmp_path, monkeypatch, capsys):
    odd = tmp_path / "a\udcff"
    odd.mkdir()
    monkeypatch.chdir(odd)
    assert main(["info"]) == 1
    assert "current folder" in capsys.readouterr().err
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert main(["info"]) == 1
    assert "the current folder is gone" in capsys.readouterr().err


def test_text_is_accepted():
    check_names([ODD, "日本"])
    with pytest.raises(ArgumentError):
        check_names(["fine", "\udcff"])
