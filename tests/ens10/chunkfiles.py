"""Chunks of every kind of field, for the tests of their reader."""

import numpy as np
import zarr
from numcodecs.blosc import compress

from ens10.packed16 import Packed, encode
from ens10.store import create_array
from ens10.store.chunks import ChunkReader

CODECS = (None, "none", "lz4")
MEMBERS, ROWS, COLUMNS = 5, 7, 9
DIMS = ("time", "level", "number", "latitude", "longitude")


def fields_of(rng):
    """A mixture: packed with and without gaps, constant, float32 with odd values, missing."""
    codes = rng.integers(0, 65536, (2, ROWS, COLUMNS)).astype(np.uint16)
    floats = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    floats.flat[:4] = [-0.0, np.inf, -np.inf, np.nan]
    return [
        Packed(codes[0], 271.5, 0.0625),
        None,
        Packed(codes[1], -3.3, 0.125, 0.1, gap=int(codes[1, 0, 0])),
        np.full((ROWS, COLUMNS), rng.normal(), np.float32),
        floats,
    ]


def make(folder, codec, times=3, levels=2, seed=0):
    """An array whose chunks hold such mixtures; plain ones hold the same values."""
    group = zarr.open_group(folder, mode="a")
    name = f"a_{codec}"
    shape = (times, levels, MEMBERS, ROWS, COLUMNS)
    chunks = (1, 1, *shape[2:])
    array = create_array(group, name, shape, DIMS, chunks=chunks, codec=codec)
    reader, rng = ChunkReader(folder / name), np.random.default_rng(seed)
    for place in np.ndindex(times, levels):
        raw = bytes(encode(fields_of(rng), ROWS, COLUMNS))
        path = reader.path_of(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        if codec == "lz4":
            raw = compress(raw, b"lz4", 1, 1, typesize=2)
        path.write_bytes(raw if codec else packed_values(raw).tobytes())
    return reader, array


def packed_values(raw):
    """A chunk's values through zarr's codec."""
    store = zarr.storage.MemoryStore()
    shape = (MEMBERS, ROWS, COLUMNS)
    group = zarr.open_group(store, mode="w")
    create_array(group, "a", shape, ("number", "latitude", "longitude"), codec="none")
    buffer = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(raw)
    zarr.core.sync.sync(store.set("a/c/0/0/0", buffer))
    return np.asarray(group["a"][...])


def bits(values):
    return np.ascontiguousarray(values).view(np.uint32)


def empty(fields=MEMBERS, rows=ROWS):
    return np.full((fields, rows, COLUMNS), 7.0, np.float32)
