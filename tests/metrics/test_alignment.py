"""Which truth belongs to which forecast, and what is refused."""

import numpy as np
import pytest
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics.verification import LeftOutWarning, checked_forecast, match_truth
from ens10.metrics.verification.block_scoring import blocks_of

N, H, W = 30, 6, 8


def values(one):
    """The truth of all dates, without the dimensions that it has not."""
    return one.observations(slice(0, one.forecast.sizes["time"])).squeeze(axis=(1, 2))


def test_dates_may_come_in_any_order_and_number(world):
    _, normal, truth = world
    np.testing.assert_array_equal(values(match_truth(normal, truth)), truth.values)
    mixed = truth.isel(time=np.random.default_rng(0).permutation(N))
    np.testing.assert_array_equal(values(match_truth(normal, mixed)), truth.values)
    some = normal.isel(time=[20, 3, 4])
    np.testing.assert_array_equal(values(match_truth(some, mixed)), truth.values[[20, 3, 4]])
    np.testing.assert_array_equal(values(match_truth(some, mixed.chunk(time=4))), values(match_truth(some, mixed)))  # noqa: E501  # fmt: skip
    part = match_truth(some, truth).part(slice(1, 3))
    np.testing.assert_array_equal(values(part), truth.values[[3, 4]])


def test_a_forecast_without_valid_time_is_dated_by_its_time_and_step(world):
    _, normal, truth = world
    bare = normal.drop_vars(("valid_time", "step"))
    with pytest.raises(MissingDataError, match="30 parts"):
        match_truth(bare, truth)
    with_step = bare.expand_dims(step=[48.0])
    np.testing.assert_array_equal(values(match_truth(with_step, truth)), truth.values)
    late = bare.assign_coords(time=truth["time"].values)
    np.testing.assert_array_equal(values(match_truth(late, truth)), truth.values)


def test_truth_on_starts_and_steps(world):
    _, normal, truth = world
    start, step = normal["time"].values, np.array([24, 48], dtype="timedelta64[h]")
    kept = xr.concat([truth * np.nan, truth], "step").transpose("time", "step", ...)
    kept = kept.assign_coords(time=start, step=step.astype("timedelta64[ns]"))
    np.testing.assert_array_equal(values(match_truth(normal, kept)), truth.values)
    mixed = truth.values.copy()
    # the truth of one date may lie at another step than that of its neighbour
    other = kept.isel(time=slice(None, None, 2))
    with pytest.warns(LeftOutWarning, match="15 of 30"):
        got = match_truth(normal, other, "inner")
    np.testing.assert_array_equal(values(got), mixed[::2])


def test_bad_forecasts_and_truths(world):
    ensemble, normal, truth = world
    with pytest.raises(ArgumentError, match="reference: dimensions"):
        checked_forecast(normal.isel(longitude=0), "reference")
    uneven = normal.assign(sigma=normal["sigma"].isel(time=0, drop=True))
    with pytest.raises(ArgumentError, match="forecast: dimensions"):
        checked_forecast(uneven)
    twice = ensemble.drop_vars("step").expand_dims(step=[24, 24])
    with pytest.raises(ArgumentError, match="a step occurs twice"):
        checked_forecast(twice)
    with pytest.raises(ArgumentError, match="truth: dimensions"):
        match_truth(normal, truth.expand_dims(number=2))
    with pytest.raises(ArgumentError, match="truth: dimensions"):
        match_truth(normal, truth.expand_dims(level=2))
    with pytest.raises(ArgumentError, match="holds no dates"):
        match_truth(normal.isel(time=slice(0)), truth)
    with pytest.raises(MissingDataError, match="order and number"):
        match_truth(normal, truth.isel(longitude=slice(None, None, -1)))
    with pytest.raises(MissingDataError, match='join="inner"'):
        match_truth(normal, truth.isel(time=slice(5)))


def test_blocks_are_whole_chunks(world):
    ensemble, _, _ = world
    one = 5 * H * W
    lengths = lambda *given: [b.stop - b.start for b in blocks_of(*given)]  # noqa: E731
    assert lengths(ensemble, one) == [1] * N
    assert lengths(ensemble, 7 * one) == [7] * 4 + [2]
    assert lengths(ensemble.chunk(time=4), 9 * one) == [8, 8, 8, 6]
    assert lengths(ensemble.chunk(time=11), one) == [11, 11, 8]
    assert lengths(ensemble) == [N]


def test_chunks_of_files_are_kept_whole(world, tmp_path):
    ensemble, _, _ = world
    ensemble.chunk(time=7).to_zarr(tmp_path / "e.zarr", consolidated=False)
    lazy = xr.open_zarr(tmp_path / "e.zarr", consolidated=False, chunks=None)
    assert [b.stop - b.start for b in blocks_of(lazy, 1)] == [7, 7, 7, 7, 2]
