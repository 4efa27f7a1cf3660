"""Stores are read strictly: what is missing or damaged is an error that says where."""

import pickle
import shutil

import dask
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore

from ens10 import open_store, prepare
from ens10.errors import DamagedFileError, FileError
from ens10.packed16.layout import DamagedChunkError
from ens10.store import FORMAT_VERSION, create_array, write_coordinates
from ens10.store.checked import StrictStore, _array_of

CODECS = ("none", "lz4")


@pytest.fixture(scope="module", params=CODECS)
def prepared(request, small, tmp_path_factory):
    path = tmp_path_factory.mktemp("strict") / "s.zarr"
    names = ["t2m", "z"]
    truth = small / "w" / "truth"
    return prepare(small / "w", path, truth=truth, variables=names, codec=request.param)


@pytest.fixture
def store(prepared, tmp_path):
    return shutil.copytree(prepared, tmp_path / "s.zarr")


def chunk_of(store, array="sfc/t2m"):
    """The file of the first step of the fourth date."""
    dims = zarr.open_array(store / array, mode="r").ndim
    return store / array / "c/3/0" / "/".join("0" * (dims - 2))


PLACES = {"sfc/t2m": "sfc", "truth/t2m": "truth", "statistics/ensemble_mean": "statistics"}


def everything(store, kind):
    return open_store(store, kind).compute(scheduler="synchronous")


@pytest.mark.parametrize("array", PLACES)
def test_a_missing_chunk(store, array):
    chunk = chunk_of(store, array)
    chunk.unlink()
    with pytest.raises(FileError, match="the chunk is missing") as caught:
        everything(store, PLACES[array])
    assert str(chunk) in str(caught.value)
    assert "ens10 verify STORE --repair" in str(caught.value)
    plain = xr.open_zarr(store, group=PLACES[array])  # which does not know
    name = array.split("/")[1]
    assert np.isnan(plain[name][3, 0]).all()
    other = open_store(store, PLACES[array])[name][2].to_numpy()  # the rest is there
    np.testing.assert_array_equal(other, plain[name][2])


@pytest.mark.parametrize("array", PLACES)
def test_every_way_to_cut_a_chunk(store, array):
    """Every length (in steps) is told from the whole one, or loses padding alone."""
    chunk = chunk_of(store, array)
    kind, name = array.split("/")
    field = open_store(store, kind)[name][3, 0]
    want, raw = field.to_numpy(), chunk.read_bytes()
    for length in {*range(0, len(raw), max(1, len(raw) // 60)), len(raw) - 1}:
        chunk.write_bytes(raw[:length])
        with pytest.raises(DamagedFileError, match="damaged at byte") as caught:
            field.to_numpy()
        assert str(chunk) in str(caught.value)
        assert "--repair" in str(caught.value)
        assert 0 <= caught.value.offset <= len(raw)
    chunk.write_bytes(raw)
    np.testing.assert_array_equal(field.to_numpy(), want)


def test_a_chunk_too_long(store):
    chunk = chunk_of(store, "truth/t2m")
    chunk.write_bytes(chunk.read_bytes() + b"\0\0\0\0")
    with pytest.raises(DamagedFileError, match="bytes instead of"):
        everything(store, "truth")


def test_large_chunks_are_checked_beside(store, monkeypatch):
    monkeypatch.setattr("ens10.store.checked._MIN_THREAD_BYTES", 0)
    want = xr.open_zarr(store, group="sfc").t2m[3, 0].to_numpy()
    np.testing.assert_array_equal(open_store(store, "sfc")["t2m"][3, 0], want)
    chunk = chunk_of(store)
    chunk.write_bytes(chunk.read_bytes()[:-40])
    with pytest.raises(DamagedFileError, match="damaged at byte"):
        open_store(store, "sfc")["t2m"][3, 0].load()


def test_flipped_bits(store):
    """A flipped bit is found, or changes no value (in padding and spare bytes)."""
    chunk = chunk_of(store)
    field = open_store(store, "sfc")["t2m"][3, 0]
    want, raw = field.to_numpy(), chunk.read_bytes()
    rng = np.random.default_rng(5)
    found = []
    for bit in rng.choice(8 * len(raw), 150, replace=False):
        broken = bytearray(raw)
        broken[bit // 8] ^= 1 << bit % 8
        chunk.write_bytes(broken)
        try:
            np.testing.assert_array_equal(field.to_numpy(), want)
        except DamagedFileError as error:
            found.append(str(chunk) in str(error))
    assert all(found)
    assert len(found) > 100


def test_plain_xarray_refuses_damage_too(store):
    chunk = chunk_of(store)
    if "blosc" in (store / "sfc/t2m/zarr.json").read_text():
        pytest.skip("blosc has no checksum of its own")
    raw = bytearray(chunk.read_bytes())
    raw[400] ^= 1
    chunk.write_bytes(raw)
    with pytest.raises(DamagedChunkError, match="damaged at byte"):
        xr.open_zarr(store, group="sfc").t2m[3, 0].load()


def test_an_array_without_its_description(store):
    field = open_store(store, "sfc")["t2m"][3, 0]
    (store / "sfc/t2m/zarr.json").unlink()
    with pytest.raises(FileError, match=r"lacks its zarr\.json"):
        field.load()
    with pytest.raises(FileError, match=r"sfc/t2m/zarr\.json: the metadata is missing.*--repair"):
        open_store(store, "sfc")  # where Zarr alone would leave the array out


@pytest.mark.parametrize("prepared", ["none"], indirect=True)
def test_processes_read_strictly(store):
    opened = open_store(store, "sfc")["t2m"]
    again = pickle.loads(pickle.dumps(opened))
    np.testing.assert_array_equal(again, opened)
    inner = StrictStore(LocalStore(store, read_only=True), str(store))
    assert pickle.loads(pickle.dumps(inner)) == inner
    assert dask.base.tokenize(inner) == dask.base.tokenize(pickle.loads(pickle.dumps(inner)))
    chunk_of(store).unlink()
    with pytest.raises(FileError, match="the chunk is missing"):
        again.compute(scheduler="processes", num_workers=1)


def test_stores_of_format_1_leave_chunks_out(store):
    root = zarr.open_group(store, mode="a")
    assert root.attrs["ens10_format"] == FORMAT_VERSION == 2
    root.attrs["ens10_format"] = 1
    chunk_of(store).unlink()
    assert np.isnan(open_store(store, "sfc")["t2m"][3, 0]).all()


def test_chunks_of_fill_values_are_written(tmp_path):
    """Zarr leaves out chunks full of the fill value; a strict reader would miss them."""
    root = zarr.open_group(tmp_path / "s", mode="w")
    root.attrs["ens10_format"] = FORMAT_VERSION
    group = root.create_group("sfc")
    coordinates = xr.Dataset(coords={"time": np.array(["1970-01-01"], "M8[ns]"), "number": [0]})
    write_coordinates(group, coordinates, ["time", "number"])
    for codec in (None, *CODECS):
        array = create_array(group, f"a{codec}", (1, 1, 2, 3), "tnyx", codec=codec)
        array[...] = np.nan
    dims = ["time", "number", "latitude", "longitude"]
    array = create_array(group, "t2m", (1, 1, 2, 3), dims, codec="none")
    array[...] = np.nan
    opened = open_store(tmp_path / "s", "sfc").load()
    assert np.isnan(opened["t2m"]).all()
    assert opened["number"].item() == 0


def store_of(folder, dates):
    """A store whose fields were never written: coordinates and metadata of many dates."""
    dims = ["time", "step", "number", "latitude", "longitude"]
    root = zarr.open_group(folder, mode="w")
    root.attrs["ens10_format"] = FORMAT_VERSION
    group = root.create_group("sfc")
    times = np.datetime64("1970-01-01", "ns") + np.arange(dates) * np.timedelta64(1, "D")
    valid = ("time", "step"), times[:, None].repeat(3, axis=1)
    dataset = xr.Dataset(coords={"time": times, "step": [0, 24, 48], "valid_time": valid})
    write_coordinates(group, dataset, ["time", "step", "valid_time"])
    for name in ("t2m", "tp", "sst"):
        shape, chunks = (dates, 3, 10, 361, 720), (1, 1, 10, 361, 720)
        create_array(group, name, shape, dims, chunks=chunks, codec="none")
    assert len(list((folder / "sfc/time/c").iterdir())) == 1
    return folder


def test_opening_makes_a_few_calls_of_dask_a_date(tmp_path, calls_of):
    few, many = store_of(tmp_path / "few", 200), store_of(tmp_path / "many", 20_000)
    assert open_store(many, "sfc").sizes["time"] == 20_000
    few_calls, many_calls = (calls_of(lambda s=s: open_store(s, "sfc")) for s in (few, many))
    assert many_calls - few_calls < 10 * (20_000 - 200)


@given(st.lists(st.from_regex("[a-z_0-9]{1,6}", fullmatch=True), max_size=3), st.data())
@settings(max_examples=50, deadline=None)
def test_keys_of_chunks(parts, data):
    place = data.draw(st.lists(st.integers(0, 20_000), max_size=6))
    array = "/".join(parts or ["a"])
    assert _array_of("/".join([array, "c", *map(str, place)])) == array
    assert _array_of(f"{array}/zarr.json") is None
    assert _array_of("zarr.json") is None
    assert _array_of(f"{array}/cc/0") is None
