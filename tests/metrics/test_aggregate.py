"""Additive states: what merges to the whole, and what does not merge."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import (
    finish_mean,
    mean_state,
    merge_states,
    score_states,
    summarise,
    total_over,
    verify,
)

N = 30  # dates of the world


@settings(deadline=None, max_examples=10)
@given(cut=st.integers(1, N - 1))
def test_states_of_parts_merge_to_the_whole(cut, world):
    ensemble, _, truth = world
    parts = [score_states(ensemble.isel(time=s), truth) for s in (slice(cut, None), slice(cut))]
    whole = score_states(ensemble, truth)
    merged = merge_states(parts)
    xr.testing.assert_allclose(merged, whole, rtol=1e-13)
    assert merged.attrs == whole.attrs
    np.testing.assert_array_equal(merged["rank_count"], whole["rank_count"])
    xr.testing.assert_allclose(summarise(merged), summarise(whole), rtol=1e-12)


def test_states_of_different_settings_do_not_merge(world):
    ensemble, normal, truth = world
    ours = score_states(ensemble, truth)
    for other in (
        score_states(ensemble, truth, weights="none"),
        score_states(normal, truth),
        ours.assign_coords(step=24.0),
    ):
        with pytest.raises(ArgumentError, match="states: different"):
            merge_states([ours, other])
    with pytest.raises(ArgumentError, match="none to merge"):
        merge_states([])


def test_states_and_scores_survive_netcdf(tmp_path, world):
    ensemble, normal, truth = world
    states = score_states(ensemble.chunk(time=7), truth)
    scores = verify(normal, truth, by=("season",), reference=ensemble)
    for name, made in (("states", states), ("scores", scores)):
        made.to_netcdf(tmp_path / f"{name}.nc")
        with xr.open_dataset(tmp_path / f"{name}.nc", decode_timedelta=False) as read:
            xr.testing.assert_identical(read.load(), made)


def test_means_are_sums_over_weights():
    field = xr.DataArray([[1.0, np.nan], [3.0, 5.0]], dims=("time", "x"))
    weights = xr.DataArray([1.0, 3.0], dims="x")
    state = mean_state("s", field, keep=("time",), weights=weights)
    assert state["s_count"].values.tolist() == [1, 2]
    assert finish_mean(state, "s").values.tolist() == [1.0, 4.5]
    assert float(finish_mean(total_over(state, "time"), "s")) == (1 + 3 + 15) / 5
    strict = mean_state("s", field, keep=("time",), weights=weights, nan="propagate")
    assert np.isnan(strict["s_sum"].values).tolist() == [True, False]
    empty = mean_state("s", field.where(False), weights=weights)
    assert np.isnan(finish_mean(empty, "s"))
    with pytest.raises(UnknownNameError, match="did you mean 'omit'"):
        mean_state("s", field, nan="omitt")


def test_names_that_are_not_there():
    score = xr.DataArray(np.ones((2, 3)), dims=("time", "a"))
    state = mean_state("x", score, keep="time")
    assert state["x_count"].to_numpy().tolist() == [3, 3]
    with pytest.raises(UnknownNameError, match="name: 'y' is not known"):
        finish_mean(state, "y")
    with pytest.raises(ArgumentError, match="dim: the state has no dimension 'b'"):
        total_over(state, ["time", "b"])
