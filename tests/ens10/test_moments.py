"""The kernels against numpy in double precision, bit for bit."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.convert.moments import Chunk, add_date, ensemble_moments
from ens10.packed16 import Packed, encode

ROWS, COLUMNS = 41, 57  # more points than a block of the kernel


def packed(rng, gaps, decimal, scale):
    codes = rng.integers(0, 65535, (ROWS, COLUMNS)).astype(np.uint16)
    return Packed(codes, float(rng.normal(250)), scale, decimal, 17 if gaps else None)


def field(kind, rng):
    if kind == "missing":
        return None
    if kind == "constant":
        return np.full((ROWS, COLUMNS), rng.normal(), np.float32)
    if kind == "float":
        values = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
        values[rng.random(values.shape) < 0.1] = np.nan
        return values
    return packed(rng, kind == "gaps", 0.01 if kind == "decimal" else 1.0, 2.0**-9)


def values_of(one):
    if one is None:
        return np.full((ROWS, COLUMNS), np.nan, np.float32)
    if not isinstance(one, Packed):
        return one
    values = ((one.codes * one.scale + one.reference) * one.decimal).astype(np.float32)
    if one.gap is not None:
        values[one.codes == one.gap] = np.nan
    return values


KINDS = st.sampled_from(["single", "decimal", "gaps", "float", "constant", "missing"])


@settings(max_examples=60, deadline=None)
@given(st.lists(KINDS, min_size=1, max_size=6), st.integers(0, 1000), st.data())
def test_chunks_of_all_kinds(kinds, seed, data):
    rng = np.random.default_rng(seed)
    fields = [field(kind, rng) for kind in kinds]
    values = np.stack([values_of(one) for one in fields])
    chunk = Chunk(encode(fields, ROWS, COLUMNS), len(fields), ROWS, COLUMNS)
    members = data.draw(st.integers(1, len(fields)))
    mean, spread = np.empty((2, ROWS * COLUMNS), np.float32)
    chunk.moments(mean, spread, members)
    want = ensemble_moments(values[:members], axis=0)
    np.testing.assert_array_equal(mean.reshape(ROWS, COLUMNS), want[0])
    np.testing.assert_array_equal(spread.reshape(ROWS, COLUMNS), want[1])
    for held, one in zip(chunk.ranges(), values, strict=True):
        assert held.gaps == np.isnan(one).sum()
        known = one[~np.isnan(one)]
        ends = (known.min(), known.max()) if known.size else (np.nan, np.nan)
        np.testing.assert_array_equal((held.minimum, held.maximum), ends)


def test_sums_over_dates():
    rng = np.random.default_rng(0)
    dates = rng.normal(size=(7, 300)).astype(np.float32)
    dates[rng.random(dates.shape) < 0.2] = np.nan
    count, total, square = np.zeros(300, np.int64), np.zeros(300), np.zeros(300)
    for date in dates:
        add_date(date, count, total, square)
    wide = dates.astype(np.float64)
    np.testing.assert_array_equal(count, (~np.isnan(dates)).sum(0))
    np.testing.assert_allclose(total, np.nansum(wide, 0), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(square, np.nansum(wide**2, 0), rtol=1e-14)
