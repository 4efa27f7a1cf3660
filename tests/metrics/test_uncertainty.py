"""Intervals over dates: against scipy, by their coverage, and their pairing."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.metrics import interval
from ens10.metrics.uncertainty import (
    difference_of,
    mean_of,
    paired_sums,
    resample_counts,
    skill_of,
)


def even(values, prefix=""):
    return {f"{prefix}sum": values * 2.0, f"{prefix}weight": np.full(values.size, 2.0)}


def test_student_interval_of_a_paired_difference_is_scipys():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=6), rng.normal(size=6)
    got = interval(even(a) | even(b, "reference_"), difference_of, method="student", confidence=0.9)
    wanted = stats.ttest_rel(a, b).confidence_interval(0.9)
    assert got.value == pytest.approx(a.mean() - b.mean())
    assert (got.lower, got.upper) == pytest.approx((wanted.low, wanted.high), rel=1e-12)


def test_pairing_removes_what_the_dates_share():
    rng = np.random.default_rng(1)
    hard = rng.uniform(1, 9, size=30)
    a, b = hard + rng.normal(size=30) * 0.01 - 0.1, hard
    for method in ("student", "bootstrap"):
        got = interval(even(a) | even(b, "reference_"), difference_of, method=method)
        assert got.value == pytest.approx(-0.1, abs=0.01)
        assert got.upper < -0.09
        skill = interval(even(a) | even(b, "reference_"), skill_of, method=method)
        assert skill.value == pytest.approx(1 - a.mean() / b.mean())
        assert 0 < skill.lower < skill.value < skill.upper


def test_values_are_ratios_of_sums_not_means_of_ratios():
    sums = {"sum": np.array([1.0, 9.0]), "weight": np.array([1.0, 3.0])}
    assert interval(sums, mean_of).value == 2.5


@pytest.mark.parametrize(("method", "n", "low"), [("bootstrap", 60, 0.85), ("student", 6, 0.86)])
def test_intervals_cover_as_often_as_they_say(method, n, low):
    rng = np.random.default_rng(2)
    hits = 0
    for trial in range(400):
        got = interval(
            even(rng.normal(size=n)),
            mean_of,
            method=method,
            confidence=0.9,
            seed=trial,
            replicates=300,
            block_length=1 if method == "bootstrap" else None,
        )
        hits += got.lower <= 0 <= got.upper
    assert low <= hits / 400 <= 0.94


def test_blocks_widen_the_interval_of_dependent_dates():
    rng = np.random.default_rng(3)
    widths = {}
    for length in (1, 10):
        made = []
        for trial in range(40):
            noise = rng.normal(size=200)
            series = np.convolve(noise, np.ones(8) / 8, mode="same")
            got = interval(even(series), mean_of, seed=trial, replicates=200, block_length=length)
            made.append(got.upper - got.lower)
        widths[length] = np.mean(made)
    assert widths[10] > 1.7 * widths[1]


def test_resampled_dates_come_in_circular_blocks():
    counts = resample_counts(10, 500, 3, np.random.default_rng(4))
    assert (counts.sum(axis=1) == 10).all()
    assert stats.chisquare(counts.sum(axis=0)).pvalue > 1e-4
    whole = resample_counts(7, 50, 7, np.random.default_rng(5))
    assert (whole == 1).all()


def test_the_seed_decides():
    sums = even(np.random.default_rng(6).normal(size=20))
    assert interval(sums, mean_of, seed=1) == interval(sums, mean_of, seed=1)
    assert interval(sums, mean_of, seed=1) != interval(sums, mean_of, seed=2)


def test_one_date_has_no_bounds_and_none_no_value():
    one = interval(even(np.array([3.0])), mean_of, method="student")
    assert one.value == 3.0
    assert np.isnan([one.lower, one.upper]).all()
    assert np.isnan(interval(even(np.array([])), mean_of).value)


def states(dates, weight=1.0):
    n = len(dates)
    parts = {"sum": np.arange(n) + 1.0, "weight": np.full(n, weight), "count": np.full(n, 4)}
    return xr.Dataset(
        {f"crps_{k}": ("time", v) for k, v in parts.items()},
        coords={"time": np.array(dates, dtype="datetime64[ns]")},
    )


def test_dates_are_paired_whatever_their_order():
    mine, other = states(["2001-01-01", "2001-01-02"]), states(["2001-01-02", "2001-01-01"])
    sums = paired_sums(mine, other, "crps")
    assert sums["sum"].tolist() == [1.0, 2.0]
    assert sums["reference_sum"].tolist() == [2.0, 1.0]


def test_unpaired_dates_are_named():
    with pytest.raises(MissingDataError) as error:
        paired_sums(
            states(["2001-01-01", "2001-01-02"]), states(["2001-01-02", "2001-01-03"]), "crps"
        )
    assert "2001-01-01T00:00:00 (only in the forecast)" in str(error.value)
    assert "2001-01-03T00:00:00 (only in the reference)" in str(error.value)
    assert "2001-01-02" not in str(error.value)


def test_other_points_and_bad_arguments_are_refused():
    dates = ["2001-01-01", "2001-01-02"]
    with pytest.raises(ArgumentError, match="other points"):
        paired_sums(states(dates), states(dates, weight=0.5), "crps")
    sums = even(np.arange(4.0))
    with pytest.raises(UnknownNameError, match="'bootstrap'"):
        interval(sums, mean_of, method="boot")
    with pytest.raises(ArgumentError, match="confidence"):
        interval(sums, mean_of, confidence=95)
    with pytest.raises(ArgumentError, match="block_length"):
        interval(sums, mean_of, block_length=0)


@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_bootstrap_of_many_dates_is_the_normal_interval(confidence):
    values = np.random.default_rng(7).normal(size=400)
    got = interval(even(values), mean_of, confidence=confidence, block_length=1, replicates=4000)
    error = values.std() / 20
    wanted = values.mean() + error * stats.norm.ppf([0.5 - confidence / 2, 0.5 + confidence / 2])
    np.testing.assert_allclose([got.lower, got.upper], wanted, atol=0.12 * error)


def test_blocks_that_hold_all_dates_are_refused():
    sums = {"sum": np.arange(6.0), "weight": np.ones(6)}
    for method in ("bootstrap", "moving"):
        for length in (6, 7):
            with pytest.raises(ArgumentError, match="block_length: "):
                interval(sums, mean_of, method=method, block_length=length)
    assert interval(sums, mean_of, block_length=5).lower < 2.5
    labelled = {name: xr.DataArray(values, dims="time") for name, values in sums.items()}
    assert interval(labelled, mean_of) == interval(sums, mean_of)
