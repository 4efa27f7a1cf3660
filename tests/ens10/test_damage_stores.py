"""Damage to stores: what finds it, and what it says."""

import shutil

import damagefiles as made
import numpy as np
import pytest
from damagefiles import write
from damagetable import assert_told

from ens10 import open_store, prepare
from ens10.convert.verification import verify
from ens10.errors import Ens10Error
from ens10.inspection import inspect_path
from ens10.store.chunks import open_reader


def chunk_of(store, array="sfc/t2m", place="2/0"):
    return store / array / "c" / place / "0/0/0"


def unlink(store):
    chunk_of(store).unlink()
    return chunk_of(store), []


def truncate(store):
    path = chunk_of(store)
    path.write_bytes(path.read_bytes()[:-40])
    return path, ["byte"]


def flip(store):
    path = chunk_of(store)
    raw = bytearray(path.read_bytes())
    raw[-30] ^= 1
    path.write_bytes(raw)
    return path, ["byte"]


def swap(store):
    """A whole chunk, but of another date: its header says so, and the manifest."""
    path = chunk_of(store)
    shutil.copy(chunk_of(store, place="0/0"), path)
    return path, ["damaged"]


def flip_statistics(store):
    path = store / "statistics/ensemble_mean/c/1/0/0/0/0"
    raw = bytearray(path.read_bytes())
    raw[11] ^= 4
    path.write_bytes(raw)
    return path, ["checksum"]


def change_metadata(store):
    path = store / "sfc/t2m/zarr.json"
    path.write_text(path.read_text().replace("temperature", "temperatvre"))
    return path, ["checksum"]


BROKEN = {f.__name__: f for f in (unlink, truncate, flip, swap, flip_statistics, change_metadata)}


@pytest.fixture(scope="module", params=["none", "lz4"])
def prepared(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damage")
    write(folder / "a.grib", made.messages())
    return prepare(folder / "a.grib", folder / "s.zarr", codec=request.param)


@pytest.fixture
def store(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "s.zarr")


@pytest.mark.parametrize("name", BROKEN)
def test_inspect_finds_damage_in_a_store(store, name):
    assert {row.status for row in inspect_path(store)} == {"ok"}
    path, words = BROKEN[name](store)
    wrong = [row for row in inspect_path(store) if row.status != "ok"]
    assert len(wrong) == 1
    assert_told(wrong[0].status, [str(path), "--repair", *words])
    assert wrong[0].name == ("t2m" if "sfc/t2m/c" in str(path) else "s.zarr")
    if name in ("unlink", "truncate"):
        headers = [row for row in inspect_path(store, values=False) if row.status != "ok"]
        assert [row.name for row in headers] == ["t2m"]


@pytest.mark.parametrize("name", BROKEN)
def test_verify_finds_damage_in_a_store(store, name):
    """The same files are named by `ens10 verify`, and no others."""
    path, _ = BROKEN[name](store)
    found = verify(store, sample=0)
    named = [*(file for file, _ in found.damaged), *found.missing]
    assert named == [path.relative_to(store).as_posix()]
    assert not found.ok


@pytest.mark.parametrize("name", ["unlink", "truncate", "swap"])
def test_readers_of_a_store_find_damage(store, name):
    path, _ = BROKEN[name](store)
    reader = open_reader(store, "sfc/t2m")
    out = np.empty((reader.fields, reader.rows, reader.columns), np.float32)
    with pytest.raises(Ens10Error) as direct:
        reader.read_into((2, 0), out)
    with pytest.raises(Ens10Error) as lazy:
        open_store(store, "sfc")["t2m"].compute(scheduler="synchronous")
    for caught in (direct, lazy):
        assert_told(str(caught.value), [str(path), "--repair"])


def test_xarray_finds_a_flipped_bit(store):
    path, _ = flip(store)
    with pytest.raises(Ens10Error) as lazy:
        open_store(store, "sfc")["t2m"].compute(scheduler="synchronous")
    assert_told(str(lazy.value), [str(path), "damaged at byte", "--repair"])
