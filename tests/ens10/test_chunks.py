"""`ChunkReader` against zarr's own reading, and from several threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr
from chunkfiles import CODECS, COLUMNS, MEMBERS, ROWS, bits, empty, make
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, FileError
from ens10.store import create_array
from ens10.store.chunks import ChunkReader, _runs, open_reader


@pytest.fixture(params=CODECS, ids=str)
def made(request, tmp_path):
    return make(tmp_path / "s.zarr", request.param)


def test_the_same_bits_as_zarr(made):
    reader, array = made
    for place in np.ndindex(3, 2):
        out = empty()
        count = reader.read_into(place, out)
        np.testing.assert_array_equal(bits(out), bits(array[place]))
        assert count >= 32


@given(data=st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_fields_and_rows(made, data):
    """Any choice of fields, in any order and more than once, and any rows."""
    reader, array = made
    place = (data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1)))
    fields = data.draw(st.none() | st.lists(st.integers(0, MEMBERS - 1), max_size=8))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, ROWS)] * 2)))
    rows = data.draw(st.sampled_from([slice(first, last), slice(None), slice(first, None)]))
    chosen = array[place][slice(None) if fields is None else fields][:, rows]
    out = empty(*chosen.shape[:2])
    reader.read_into(place, out, fields, rows)
    np.testing.assert_array_equal(bits(out), bits(chosen))


def test_a_part_of_a_larger_buffer(made):
    """Members of two variables side by side in one kept buffer, the rest left alone."""
    reader, array = made
    buffer = np.full((MEMBERS, 3, ROWS, COLUMNS), 7.0, np.float32)
    reader.read_into((1, 1), buffer[:, 1])
    np.testing.assert_array_equal(bits(buffer[:, 1]), bits(array[1, 1]))
    assert (buffer[:, [0, 2]] == 7.0).all()


def test_bytes_read_are_those_wanted(tmp_path):
    reader, _ = make(tmp_path / "s.zarr", "none")
    row = COLUMNS * 2
    head = 384  # 32 + 5 * 64, aligned to 64
    assert reader.read_into((0, 0), empty(1, 3), [0], slice(2, 5)) == head + 3 * row
    assert reader.read_into((0, 0), empty(2), [1, 3]) == head
    plain, _ = make(tmp_path / "t.zarr", None)
    assert plain.read_into((0, 0), empty(1, 3), [2], slice(2, 5)) == 3 * COLUMNS * 4


def test_threads_share_a_reader(made):
    reader, array = made
    want = {place: bits(array[place]) for place in np.ndindex(3, 2)}

    def work(seed):
        rng = np.random.default_rng(seed)
        out = empty()
        for _ in range(60):
            place = (int(rng.integers(3)), int(rng.integers(2)))
            rows = slice(int(rng.integers(3)), int(rng.integers(3, 8)))
            part = out[:, rows]
            mine = np.empty_like(part)
            reader.read_into(place, mine, None, rows)
            np.testing.assert_array_equal(bits(mine), want[place][:, rows])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_what_cannot_be_read_into(made):
    reader, _ = made
    with pytest.raises(FileError, match=r"the chunk is missing.*--repair"):
        reader.read_into((3, 0), empty())
    with pytest.raises(FileError, match="the chunk is missing"):
        reader.read_into((-1, 0), empty())
    for place in ((0,), (0, 0, 0), ()):
        with pytest.raises(ArgumentError, match="expected 2 positions"):
            reader.read_into(place, empty())
    turned = np.empty((MEMBERS, COLUMNS, ROWS), np.float32).swapaxes(1, 2)
    for out in (empty(4), empty(rows=6), empty().astype("f8"), turned):
        with pytest.raises(ArgumentError, match="out: expected float32 of shape"):
            reader.read_into((0, 0), out)
    with pytest.raises(ArgumentError, match=r"fields: \[-1, 0\] of 5"):
        reader.read_into((0, 0), empty(2), [-1, 0])
    with pytest.raises(ArgumentError, match=r"fields: \[5\] of 5"):
        reader.read_into((0, 0), empty(1), [5])


def test_arrays_that_are_no_fields(tmp_path):
    group = zarr.open_group(tmp_path / "s", mode="w")
    group.create_array("zstd", shape=(2, 3, 4), chunks=(1, 3, 4), dtype="f4",
                       dimension_names=["time", "latitude", "longitude"])  # fmt: skip
    with pytest.raises(FileError, match=r"zstd.*not read here"):
        ChunkReader(tmp_path / "s/zstd")
    dims = ["time", "latitude", "longitude"]
    create_array(group, "parts", (2, 3, 4), dims, chunks=(1, 3, 2))
    with pytest.raises(FileError, match=r"chunks of \(1, 3, 2\)"):
        ChunkReader(tmp_path / "s/parts")
    create_array(group, "wide", (2, 3, 4), dims, chunks=(1, 3, 4), dtype="f8")
    with pytest.raises(FileError, match="float64"):
        ChunkReader(tmp_path / "s/wide")
    with pytest.raises(FileError, match="no array of a store"):
        ChunkReader(tmp_path / "s")
    with pytest.raises(FileError, match="no array of a store"):
        ChunkReader(tmp_path / "none")


def test_odd_shapes(tmp_path):
    """One row, one column, one point, no members; truth and channels."""
    group = zarr.open_group(tmp_path / "s", mode="w")
    rng = np.random.default_rng(3)
    for n, (rows, columns) in enumerate([(1, 1), (1, 5), (5, 1), (2, 3)]):
        for kind, lead in (("number", (3,)), ("channel", (2,)), (None, ())):
            for codec in CODECS:
                name = f"{kind}{n}{codec}"
                shape = (2, *lead, rows, columns)
                dims = ["time", *([kind] if kind else []), "latitude", "longitude"]
                chunks = (1, *shape[1:])
                array = create_array(group, name, shape, dims, chunks=chunks, codec=codec)
                array[...] = values = rng.normal(size=shape).astype(np.float32)
                reader = open_reader(tmp_path / "s", name)
                out = np.empty((reader.fields, rows, columns), np.float32)
                reader.read_into((1,), out)
                np.testing.assert_array_equal(out.reshape(shape[1:]), values[1])


def test_through_a_url(tmp_path):
    _, array = make(tmp_path / "s.zarr", "none")
    remote = open_reader(f"file://{tmp_path}/s.zarr", "a_none")
    out = empty(2, 4)
    remote.read_into((1, 0), out, [3, 4], slice(1, 5))
    np.testing.assert_array_equal(bits(out), bits(array[1, 0][[3, 4], 1:5]))


@given(st.lists(st.integers(0, 9), max_size=12))
@settings(max_examples=100, deadline=None)
def test_runs(fields):
    runs = _runs(fields)
    assert [n for first, last in runs for n in fields[first:last]] == fields
    for first, last in runs:
        assert fields[first:last] == list(range(fields[first], fields[first] + last - first))


def test_where_a_chunk_lies(made):
    reader, array = made
    assert reader.path_of((2, 1)).is_file()
    assert reader.path_of((2, 1)).relative_to(reader.folder) == Path("c/2/1/0/0/0")
    assert (reader.fields, reader.rows, reader.columns) == array.shape[2:]
