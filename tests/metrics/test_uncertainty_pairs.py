"""Differences of two forecasts date by date."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics.states import mean_state
from ens10.metrics.uncertainty import (
    benjamini_hochberg,
    daily_differences,
    diebold_mariano,
    difference_of,
    interval,
    paired_differences,
    paired_sums,
)

TIME = np.datetime64("2001-01-01", "ns") + np.arange(20) * np.timedelta64(1, "D")


def scores(seed, shift=0.0):
    values = np.random.default_rng(seed).gamma(3.0, size=(20, 4, 6)) + shift
    return xr.DataArray(
        values, {"time": TIME, "x": np.arange(6)}, ("time", "y", "x"), attrs={"units": "K"}
    )


@pytest.mark.parametrize("lazy", [False, True])
def test_differences_are_paired_by_date(lazy):
    a, b = scores(1), scores(2)
    other = b.isel(time=slice(None, None, -1)).transpose("x", "time", "y")
    got = paired_differences(*((s.chunk(time=5) if lazy else s) for s in (a, other)))
    assert (got.chunks is not None) == lazy
    xr.testing.assert_allclose(got, a - b)
    assert got.dims == a.dims
    assert got.attrs == {"units": "K"}


def test_daily_means_are_compared():
    a, b = scores(1, 0.4), scores(2)
    weights = xr.DataArray([1.0, 2.0, 3.0, 4.0], dims="y")
    states = [mean_state("crps", s, keep=("time",), weights=weights) for s in (a, b)]
    got = daily_differences(states[0], states[1].isel(time=slice(None, None, -1)), "crps")
    daily = (a - b).weighted(weights).mean(("y", "x"))
    np.testing.assert_allclose(got, daily, rtol=1e-12)
    assert got.attrs["units"] == "K"
    tested = diebold_mariano(got, lags=0)
    wanted = stats.ttest_1samp(daily, 0)
    np.testing.assert_allclose(tested["p_value"], wanted.pvalue, rtol=1e-10)
    both = interval(paired_sums(*states, "crps"), difference_of, method="student")
    assert both.value == pytest.approx(float(tested["difference"]), rel=1e-12)
    half = stats.t.ppf(0.975, 19) * float(tested["standard_error"])
    assert both.upper - both.value == pytest.approx(half, rel=1e-10)


def test_maps_of_states_are_tested_point_by_point():
    shift = xr.DataArray([0.0, 0.0, 0.0, -4.0], dims="y")
    a, b = scores(1) + shift, scores(2)
    states = [mean_state("crps", s, keep=("time", "y", "x")) for s in (a, b)]
    p = diebold_mariano(daily_differences(*states, "crps"), time_dim="time")["p_value"]
    assert p.dims == ("y", "x")
    assert p["x"].values.tolist() == list(range(6))
    found = benjamini_hochberg(p, dependence="spatial")["significant"]
    assert found[3].all()
    assert int(found[:3].sum()) <= 2


def test_other_dates_and_points_are_refused():
    a, b = scores(1), scores(2)
    for compare in (
        paired_differences,
        lambda s, r: daily_differences(*(mean_state("s", f, keep=("time",)) for f in (s, r)), "s"),
    ):
        with pytest.raises(MissingDataError, match=r"2001-01-20T00:00:00 .only in the forecast"):
            compare(a, b[:19])
    with pytest.raises(ArgumentError, match="other coordinates"):
        paired_differences(a, b.assign_coords(x=np.arange(6) + 1))
    with pytest.raises(ArgumentError, match="it is over"):
        paired_differences(a, b.isel(x=0))
    gap = mean_state("s", b.where(b["x"] > 0), keep=("time",))
    with pytest.raises(ArgumentError, match="other points"):
        daily_differences(mean_state("s", a, keep=("time",)), gap, "s")
    wide = mean_state("s", b, keep=("time", "x"))
    with pytest.raises(ArgumentError, match="other points"):
        daily_differences(mean_state("s", a, keep=("time",)), wide, "s")
