"""One order of variables and coordinates, however a file system lists folders."""

import hashlib
import os
import subprocess
import sys

import pytest
from zarr.storage import LocalStore

from ens10 import open_store, prepare
from ens10.export import export
from ens10.store import store_kinds

PART = {"dates": ["2003"], "steps": [24, 48]}
_EXPORT = "import sys, ens10; ens10.export(*sys.argv[1:], dates=['2003'], variables=['t2m', 'z'])"


@pytest.fixture
def list_folders(monkeypatch):
    """A function that makes Zarr list the folders of a store forward or backward."""
    listing = LocalStore.list_dir

    def set_order(backward):
        async def in_order(self, prefix):
            for name in sorted([name async for name in listing(self, prefix)], reverse=backward):
                yield name

        monkeypatch.setattr(LocalStore, "list_dir", in_order)

    return set_order


def test_variables_and_coordinates_are_in_the_order_of_their_names(store, list_folders):
    for backward in (False, True):
        list_folders(backward)
        for kind in store_kinds(store):
            part = open_store(store, kind)
            assert [*part.data_vars] == sorted(part.data_vars)
            assert [*part.coords] == sorted(part.coords)
            assert all(part[name].chunks for name in part.data_vars)  # still lazy


def test_a_zarr_source_gives_the_same_store(store, list_folders, tmp_path):
    """Also one without consolidated metadata, which zarr lists."""
    source = open_store(store, "sfc")[["t2m", "u10"]].isel(time=[0]).drop_encoding().load()
    source.attrs.pop("ens10_format", None)
    source.to_zarr(tmp_path / "in.zarr", consolidated=False)
    manifests = []
    for backward in (False, True):
        list_folders(backward)
        folder = prepare(tmp_path / "in.zarr", tmp_path / f"{backward}.zarr", workers=1)
        manifests.append((folder / "manifest/json/c/0").read_bytes())
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize("name", ["a.nc", "a.grib"])
def test_an_export_has_the_same_bytes_again(store, list_folders, tmp_path, name):
    made = []
    for backward in (False, False, True):
        list_folders(backward)
        made.append(export(store, tmp_path / name, **PART, force=True).read_bytes())
    assert made[0] == made[1] == made[2]


@pytest.mark.slow
def test_an_export_has_the_same_bytes_whatever_the_seed_of_hashes(store, tmp_path):
    digests = set()
    for seed in ("1", "2", "3"):
        path = tmp_path / f"{seed}.nc"
        words = [sys.executable, "-c", _EXPORT, str(store), str(path)]
        subprocess.run(words, check=True, env=os.environ | {"PYTHONHASHSEED": seed})
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1
