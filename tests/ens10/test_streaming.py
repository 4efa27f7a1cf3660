"""Loops past the caches against numpy, over sizes and places that leave no line whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.streaming import LINE, WORTH_IT, copy, standardise, unpack_single, unpack_with_gaps

SETTINGS = settings(max_examples=25, deadline=None)
SIZES = st.sampled_from([0, 1, LINE, WORTH_IT - 1, WORTH_IT]) | st.integers(
    WORTH_IT, WORTH_IT + 3 * LINE
)
OFFSETS = st.integers(0, LINE)  # numbers between a line's beginning and the first that is written
FENCE = np.float32(-12345)


def place(size, offset):
    """Memory (whole, its part to write) that begins at a line, with numbers on both sides."""
    held = np.full(size + 4 * LINE, FENCE, np.float32)
    first = (-held.ctypes.data % (4 * LINE)) // 4 + offset
    return held, held[first : first + size]


def check(held, out, want):
    """The part is as wanted, bit for bit, and nothing beside it was touched."""
    assert out.tobytes() == want.astype(np.float32).tobytes()
    assert (held == FENCE).sum() == held.size - out.size + (want == FENCE).sum()


@SETTINGS
@given(SIZES, OFFSETS, st.booleans(), st.integers(0, 65535))
def test_codes(size, offset, past_caches, gap):
    codes = np.random.default_rng(size).integers(0, 65536, size).astype(np.uint16)
    codes[: min(size, 3)] = gap
    scale, reference = np.float32(2.0**-7), np.float32(251.375)
    want = codes.astype(np.float32) * scale + reference
    held, out = place(size, offset)
    unpack_single(codes, scale, reference, out, past_caches)
    check(held, out, want)
    held, out = place(size, offset)
    unpack_with_gaps(codes, np.uint16(gap), scale, reference, out, past_caches)
    check(held, out, np.where(codes == gap, np.float32(np.nan), want))


@SETTINGS
@given(SIZES, OFFSETS, st.booleans())
def test_copies(size, offset, past_caches):
    values = np.random.default_rng(size).normal(size=size).astype(np.float32)
    held, out = place(size, offset)
    copy(values, out, past_caches)
    check(held, out, values)


@SETTINGS
@given(SIZES, OFFSETS, st.booleans())
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_standardising(size, offset, in_place):
    rng = np.random.default_rng(size)
    values = rng.normal(280, 30, size).astype(np.float32)
    odd = rng.choice(size, min(size, 40), replace=False)
    values[odd] = np.resize(np.float32([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0]), odd.size)
    mean = rng.normal(280, 20, size).astype(np.float32)
    scale = rng.uniform(0.01, 9, size).astype(np.float32)
    want = np.nan_to_num((values - mean) / scale, nan=0.0, posinf=0.0, neginf=0.0)
    held, out = place(size, offset)
    if in_place:
        out[:] = values
        values = out
    standardise(values, mean, scale, out)
    check(held, out, want)
