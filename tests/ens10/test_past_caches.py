"""Fields that are written past the processor's caches have the values of ordinary ones."""

import importlib
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10 import past_caches
from ens10.packed16 import Packed, encode, parse

unpacking = importlib.import_module("ens10.packed16.unpack")


@settings(deadline=None)
@given(points=st.integers(0, 2000), shift=st.integers(0, 16), source=st.integers(0, 16))
def test_any_part_is_copied_and_nothing_beside_it(points, shift, source):
    values = np.random.default_rng(points).random(points + source, np.float32)[source:]
    out = np.full(points + 64, np.nan, np.float32)
    past_caches._write(values, out[shift : shift + points])
    np.testing.assert_array_equal(out[shift : shift + points], values)
    assert np.isnan(np.delete(out, np.s_[shift : shift + points])).all()


@settings(deadline=None)
@given(points=st.integers(0, 3000), shift=st.integers(0, 16))
def test_codes_are_unpacked_alike(points, shift):
    codes = np.random.default_rng(points).integers(0, 2**16, points, np.uint16)
    out, ordinary = np.full((2, points + 64), np.nan, np.float32)
    part = slice(shift, shift + points)
    numbers = (np.float32(2**-7), np.float32(230.25))
    unpacking.unpack_single(codes, *numbers, ordinary[part])
    unpacking._single_past_caches(codes, *numbers, out[part])
    np.testing.assert_array_equal(out, ordinary)


@pytest.mark.parametrize("rows", [255, 256, 257])
def test_small_and_large_fields_of_a_chunk_are_the_same(rows):
    """256 x 256 points are the first that are written past the caches."""
    codes = np.random.default_rng(rows).integers(0, 2**16, (rows, 256), np.uint16)
    chunk = np.frombuffer(encode([Packed(codes, 0.5, 2.0**-6)], rows, 256), np.uint8)
    record = parse(chunk.data, 1, rows, 256, chunk.size, "")[0]
    begin = int(record["offset"])
    fields = np.empty((2, rows * 256), np.float32)
    for read_soon, field in zip((True, False), fields, strict=True):
        unpacking.unpack(record, chunk[begin : begin + codes.nbytes], field, read_soon=read_soon)
    np.testing.assert_array_equal(fields[0], fields[1])
    np.testing.assert_array_equal(fields[0], codes.reshape(-1) * 2.0**-6 + 0.5)


def test_other_threads_see_a_field_once_it_is_written():
    values = np.random.default_rng(0).random((8, past_caches.MIN_POINTS), np.float32)
    out = np.empty_like(values)
    with ThreadPoolExecutor(2) as pool:
        for n in range(200):
            field, row = values[n % 8], out[n % 8]
            row[:] = np.nan
            pool.submit(past_caches.write, field, row).result()
            assert pool.submit(np.array_equal, field, row).result()


def test_the_compiled_code_has_such_stores():
    loop = numba.njit(past_caches._write.py_func)
    loop(np.ones(16, np.float32), np.empty(16, np.float32))
    (code,) = loop.inspect_llvm().values()
    assert "!nontemporal" in code
    assert "fence seq_cst" in code
