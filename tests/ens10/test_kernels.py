"""The compiled loops against numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ens10.climate import Normaliser
from ens10.loader.content import scatter_points, set_weights, standardise

FLOATS = st.floats(width=32, allow_subnormal=False)
SETTINGS = settings(max_examples=40, deadline=None)


@SETTINGS
@given(arrays(np.float32, (3, 4, 5), elements=FLOATS), st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_standardise_has_the_bits_of_the_normaliser(values, seed):
    rng = np.random.default_rng(seed)
    mean = rng.normal(280, 20, values.shape).astype(np.float32)
    scale = rng.uniform(0.01, 9, values.shape).astype(np.float32)
    want = values.copy()
    Normaliser(("a", "b", "c"), mean, scale).apply(want)
    got = values.copy()
    standardise(got, mean, scale, got)
    assert got.tobytes() == want.tobytes()


@SETTINGS
@given(arrays(np.float32, (4, 5), elements=FLOATS), arrays(np.float32, (4, 5), elements=FLOATS))
def test_set_weights(truth, raw_mean):
    rows = np.array([0.25, 1, 2, 0.5], np.float32)
    valid = np.isfinite(truth) & np.isfinite(raw_mean)
    target, weights = truth.copy(), np.full((4, 5), np.nan, np.float32)
    set_weights(target, raw_mean, rows, weights)
    np.testing.assert_array_equal(target, np.where(valid, truth, 0))
    np.testing.assert_array_equal(weights, np.where(valid, rows[:, None], 0))


@SETTINGS
@given(st.integers(1, 9), st.integers(1, 200), st.integers(0, 50), st.integers(0, 99))
def test_scatter_points(features, points, first, seed):
    rng = np.random.default_rng(seed)
    source = rng.normal(size=(features, points)).astype(np.float32)
    places = rng.permutation(first + points + 3)
    out = np.full((len(places), features), 7, np.float32)
    scatter_points(source, first, places, out)
    mine = places[first : first + points]
    np.testing.assert_array_equal(out[mine], source.T)
    assert (np.delete(out, mine, axis=0) == 7).all()
