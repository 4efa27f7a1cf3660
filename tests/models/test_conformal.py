"""Offsets of quantiles from past forecasts: guarantees, no look ahead, a model that changes."""

import numpy as np
import pytest
import xarray as xr
from conformalseries import PAGE, coverage, rows, series, with_table

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.conformal import QuantileOffsets, calibrate_quantiles

METHODS = ("split", "adaptive", "pid")


def test_split_offsets_cover_with_the_probability_of_their_rank():
    """Of exchangeable scores the k-th of n is not exceeded with the probability k / (n + 1)."""
    rng = np.random.default_rng(0)
    points, levels = 20_000, [0.1, 0.9]
    truth = rng.gamma(2.0, size=(20, points))
    quantiles = np.zeros((2, points))
    offsets = QuantileOffsets(levels, "split")
    for values in truth[:19]:
        offsets.update(quantiles, values)
    expected = np.sort(truth[:19], axis=0)[[1, 17]]  # floor(20 * 0.1), ceil(20 * 0.9)
    np.testing.assert_array_equal(offsets.values, expected)
    covered = (truth[19] <= offsets.calibrated(quantiles)).mean(axis=1)
    np.testing.assert_allclose(covered, levels, atol=4 * np.sqrt(0.09 / points))


def test_a_level_without_enough_dates_is_left_as_it_is():
    offsets = QuantileOffsets([0.5, 0.9], "split")
    for n in range(8):
        offsets.update(np.zeros((2, 1)), np.array([float(n)]))
    np.testing.assert_array_equal(offsets.values, [[3.0], [0.0]])  # the 4th of 8; 0.9 needs 9
    offsets.update(np.zeros((2, 1)), np.array([8.0]))
    np.testing.assert_array_equal(offsets.values, [[4.0], [8.0]])


@pytest.mark.parametrize("rate", [0.05, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_the_bound_of_quantile_tracking_holds_for_any_sequence(seed, rate):
    """|share covered - tau| <= (1 + rate) / (rate T), also where nature answers each offset."""
    rng = np.random.default_rng(seed)
    tau, largest = 0.8, 3.0
    offsets = QuantileOffsets([tau], "pid", rate=rate, integral=0.0)
    quantiles, covered = np.zeros((1, 1)), []
    for n in range(400):
        offset = float(np.max(offsets.values))
        hostile = np.clip(offset + rng.choice([-0.01, 0.01]), -largest, largest)
        truth = largest if n == 0 else rng.choice([hostile, rng.uniform(-largest, largest)])
        covered.append(truth <= offset)
        offsets.update(quantiles, np.array([truth]))
    assert abs(np.mean(covered) - tau) <= (1 + rate) / (rate * 400)


def test_the_first_steps_of_pid_by_hand():
    """b = 2, rate 0.1: +0.1 * 2 * 0.9 where the truth is above, -0.1 * 2 * 0.1 where it is not."""
    offsets = QuantileOffsets([0.9], "pid", rate=0.1, integral=0.25)
    offsets.update(np.array([[10.0]]), np.array([12.0]))
    angle = 0.9 * np.log(2) / (5 * 2) * np.pi / 2
    np.testing.assert_allclose(offsets.values, [[0.18 + 0.25 * 2 * np.tan(angle)]], rtol=1e-12)
    offsets.update(np.array([[10.0]]), np.array([9.0]))
    angle = 0.8 * np.log(3) / (5 * 3) * np.pi / 2
    np.testing.assert_allclose(offsets.values, [[0.16 + 0.25 * 2 * np.tan(angle)]], rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_intervals_cover_after_a_while(method):
    raw, truth = series(500)
    last = slice(200, None)
    assert coverage(raw, truth, last) < 0.6
    assert coverage(calibrate_quantiles(raw, truth, method), truth, last) == pytest.approx(
        0.8, abs=0.03
    )


def test_a_model_that_changes_in_the_middle():
    """Methods that adapt cover again within 60 dates; offsets of all dates do not in 250."""
    shares = {name: found for name, found, _ in rows()}
    for name, (before, at_once, later) in shares.items():
        assert name == "none" or before == pytest.approx(0.8, abs=0.05)
        assert at_once < 0.7
        adapts = name in ("`split`, the last 50", "`adaptive`, the last 50", "`pid`")
        assert (abs(later - 0.8) < 0.05) == adapts, name
    assert with_table(PAGE.read_text()) == PAGE.read_text()


@pytest.mark.parametrize("method", METHODS)
def test_only_truth_that_is_known_at_the_start_counts(method):
    """A forecast of day n, 48 hours ahead, knows the truth of the forecasts until day n - 2."""
    raw, truth = series(60)
    found = calibrate_quantiles(raw, truth, method)
    other = truth.copy()
    other[39:] = 100.0
    changed = calibrate_quantiles(raw, other, method)
    xr.testing.assert_identical(found[:41], changed[:41])
    assert (found[41] != changed[41]).any()
    shuffled = np.random.default_rng(0).permutation(60)
    again = calibrate_quantiles(raw.isel(time=shuffled), truth, method)
    xr.testing.assert_identical(again, found.isel(time=shuffled))


@pytest.mark.parametrize("method", METHODS)
def test_missing_truth_teaches_nothing(method):
    raw, truth = series(40, points=2)
    truth[::2, 1] = np.nan
    found = calibrate_quantiles(raw, truth, method)
    assert found.notnull().all()
    np.testing.assert_array_equal(
        found[..., 0], calibrate_quantiles(raw[..., :1], truth[:, :1], method)[..., 0]
    )
    if method == "split":  # of single points the dates without truth can be left out
        few = calibrate_quantiles(raw[1::2, :, 1:], truth[1::2, 1:], method)
        np.testing.assert_array_equal(found[1::2, :, 1:], few)


@pytest.mark.parametrize("method", METHODS)
def test_levels_in_any_order_do_not_cross(method):
    raw, truth = series(80, points=3)
    levels = [0.5, 0.45, 0.55]
    dense = raw.isel(quantile_level=[0, 0, 0]).assign_coords(quantile_level=levels)
    found = calibrate_quantiles(dense, truth, method)
    assert found["quantile_level"].to_numpy().tolist() == levels
    assert (np.diff(found.sortby("quantile_level"), axis=1) >= 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_stay_within_their_bounds_and_recover(method):
    """Of rain that is often 0 no low quantile is negative, and its offset does not run away."""
    rng = np.random.default_rng(4)
    offsets = QuantileOffsets([0.1, 0.9], method, bounds=(0.0, np.inf))
    quantiles = np.array([[0.0], [2.0]])
    for _ in range(300):
        offsets.update(quantiles, np.array([max(0.0, rng.normal(-0.3, 1.0))]))
        assert (offsets.calibrated(quantiles) >= 0).all()
    assert np.min(offsets.values[0]) >= -0.5
    for _ in range(100):  # from now on it rains every day
        offsets.update(quantiles, np.array([1.0 + rng.random()]))
    assert offsets.calibrated(quantiles)[0, 0] > (0.5 if method == "pid" else -1)


def test_truth_of_other_dates_is_missing():
    raw, truth = series(12, points=2)
    found = calibrate_quantiles(raw, truth.isel(time=slice(0, 6)), "pid")
    gaps = truth.copy()
    gaps[6:] = np.nan
    xr.testing.assert_identical(found, calibrate_quantiles(raw, gaps, "pid"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: QuantileOffsets([1.0]), ArgumentError, "between 0 and 1"),
        (lambda: QuantileOffsets([0.5], "spilt"), UnknownNameError, "split"),
        (lambda: QuantileOffsets([0.5], window=0), ArgumentError, "window"),
        (lambda: QuantileOffsets([0.5], rate=-0.1), ArgumentError, "negative"),
        (
            lambda: calibrate_quantiles(*series(4), quantile_dim="level"),
            ArgumentError,
            "no coordinate level",
        ),
    ],
)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
