"""Where a result comes from."""

import shutil
import subprocess

import numpy as np
import pytest
import xarray as xr
import zarr

from ens10.convert import prepare
from ens10.errors import FileError
from ens10.experiments.runs import provenance
from ens10.source import open_source


def test_the_checksum_is_of_the_content_not_of_the_place(store, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(store, copy)
    assert provenance.checksum(copy) == provenance.checksum(str(store))


def test_the_same_files_prepared_again_have_the_same_checksum(store, world, tmp_path):
    again = tmp_path / "store.zarr"
    prepare(world.folder, again, truth=world.folder / "truth")
    assert provenance.checksum(again) == provenance.checksum(store)


@pytest.mark.parametrize("what", ["forecast", "truth"])
def test_a_changed_field_changes_the_checksum(world, tmp_path, what):
    data = {"forecast": open_source(world.folder)[["t2m"]].isel(time=slice(6)).load()}
    data["truth"] = open_source(world.folder / "truth").load()
    changed = data[what]["t2m"]
    where = tuple(0 if dim in ("time", "step", "number") else 3 for dim in changed.dims)
    sums = []
    for difference in (0.0, 0.5):
        folder = tmp_path / str(difference)
        changed[where] += difference
        for name, part in data.items():
            for variable in part.variables.values():
                variable.encoding.clear()
            part.to_zarr(folder / name, zarr_format=3, consolidated=False)
        prepare(folder / "forecast", folder / "store.zarr", truth=folder / "truth")
        sums.append(provenance.checksum(folder / "store.zarr"))
    assert sums[0] != sums[1]


def test_a_field_overwritten_in_place_is_seen_in_truth(store, tmp_path):
    copy = tmp_path / "store.zarr"
    shutil.copytree(store, copy)
    truth = zarr.open_group(str(copy), mode="r+")["truth/t2m"]
    field = np.asarray(truth[3])
    truth[3] = field + 1
    assert provenance.checksum(copy) != provenance.checksum(store)
    truth[3] = field
    assert provenance.checksum(copy) == provenance.checksum(store)


def test_writing_completes_what_is_there(tmp_path):
    provenance.write(tmp_path / "run", {"a": 1, "b": [2]})
    provenance.write(tmp_path / "run", {"b": 3})
    assert provenance.read_provenance(tmp_path / "run") == {"a": 1, "b": 3}
    with pytest.raises(FileError, match="no run"):
        provenance.read_provenance(tmp_path)


def test_versions_name_what_a_result_depends_on():
    found = provenance.versions()
    assert {"python", "ens10", "torch", "numpy", "zarr"} <= found.keys()
    assert found["xarray"] == xr.__version__


def test_the_processor_is_named(monkeypatch, tmp_path):
    name = provenance.processor()
    assert name
    assert "\n" not in name
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: Some Processor 7\nmodel name\t: Another\n")
    monkeypatch.setattr(provenance, "Path", lambda _: info)
    assert provenance.processor() == "Some Processor 7"
    info.write_text("")  # as on some ARM machines
    monkeypatch.setattr(provenance.platform, "processor", lambda: "")
    monkeypatch.setattr(provenance.platform, "machine", lambda: "aarch64")
    assert provenance.processor() == "aarch64"


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    subprocess.run(command, check=True, capture_output=True)


def test_the_commit_tells_changes(tmp_path, monkeypatch):
    file = tmp_path / "experiments" / "runs" / "provenance.py"
    file.parent.mkdir(parents=True)
    file.write_text("one")
    monkeypatch.setattr(provenance, "__file__", str(file))
    assert provenance.commit() is None  # outside git
    git(tmp_path, "init")
    assert provenance.commit() is None  # nothing committed yet
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    clean = provenance.commit()
    assert len(clean) == 12
    file.write_text("two")
    assert provenance.commit() == f"{clean}+"
    monkeypatch.setenv("PATH", "")
    assert provenance.commit() is None  # no git
