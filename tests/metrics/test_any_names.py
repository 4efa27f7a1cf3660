"""Verification of arrays under any names: a table by season, figures, histograms without a seed."""

import numpy as np
import pytest
import xarray as xr
from docblocks import python

from ens10 import metrics
from ens10.errors import ArgumentError
from ens10.metrics import crps_ensemble, figures

DAYS = np.arange("2019-01-01", "2021-01-01", dtype="M8[D]").astype("M8[ns]")


def user(sites=("oslo", "bern", "rome")):
    """Members and observations as another tool writes them."""
    rng = np.random.default_rng(5)
    place = {
        "site": list(sites),
        "latitude": ("site", [59.9, 46.9, 41.9][: len(sites)]),
        "longitude": ("site", [10.7, 7.4, 12.5][: len(sites)]),
    }
    values = rng.normal(280, 3, (DAYS.size, len(sites), 11))
    dims = ("date", "site", "realization")
    members = xr.DataArray(values, {"date": DAYS, **place}, dims, attrs={"units": "K"})
    observed = values[..., -1] + rng.normal(0, 1, values.shape[:2])
    truth = xr.DataArray(observed, {"date": DAYS, **place}, dims[:2], attrs={"units": "K"})
    return members[..., :10], truth


@pytest.mark.parametrize("points", ["stations", "one", "grid"])
def test_scores_of_each_season_are_means_of_the_points(points):
    members, truth = user()
    if points == "one":
        members, truth = members[:, 1], truth[:, 1]
    if points == "grid":
        drop = ["latitude", "longitude"]
        pair = (
            x.drop_vars(drop).rename(site="lon").expand_dims(lat=[0.0]) for x in (members, truth)
        )
        members, truth = (x.assign_coords(lon=[0.0, 1.0, 2.0]) for x in pair)
    table = metrics.verify(members, truth.T, ["crps"], member_dim="realization", by=["season"])
    each = crps_ensemble(members, truth, estimator="plain", member_dim="realization")
    points = [d for d in each.dims if d != "date"]
    expected = each.mean(points).groupby("date.season").mean("date")
    for season in ("DJF", "MAM", "JJA", "SON"):
        row = table.sel(season=season)
        np.testing.assert_allclose(row["crps"], expected.sel(season=season), rtol=1e-12)
        assert row["crps_lower"] < row["crps"] < row["crps_upper"]
    assert table["crps"].attrs["units"] == "K"


def test_a_reference_and_distributions_under_the_same_names():
    members, truth = user()
    normal = xr.Dataset(
        {"mu": members.mean("realization"), "sigma": members.std("realization", ddof=1)},
        attrs={"forecast_kind": "normal"},
    )
    told = {"member_dim": "realization", "time_dim": "date"}
    both = metrics.verify(normal, truth, ["crps"], reference=members, **told)
    ours = metrics.crps_normal(normal["mu"], normal["sigma"], truth).mean()
    raw = crps_ensemble(members, truth, estimator="plain", member_dim="realization").mean()
    np.testing.assert_allclose(both["crps"], ours, rtol=1e-12)
    np.testing.assert_allclose(both["crpss"], 1 - ours / raw, rtol=1e-12)
    np.testing.assert_allclose(both["crps_map"].mean(), ours, rtol=1e-12)
    assert both["crps_map"]["lat"].to_numpy().tolist() == [59.9, 46.9, 41.9]


def test_names_that_are_missing_are_errors_in_one_line():
    members, truth = user()
    with pytest.raises(ArgumentError, match=r"forecast: no dimension 'number', only .*member_dim"):
        metrics.verify(members, truth)
    with pytest.raises(ArgumentError, match=r"forecast: no dimension 'day', only .*time_dim"):
        metrics.verify(members, truth, member_dim="realization", time_dim="day")
    with pytest.raises(ArgumentError, match=r"truth: no dimension of dates among .*time_dim"):
        metrics.verify(members, truth.drop_vars("date"), member_dim="realization", by=["season"])


def test_the_two_lines_of_the_page():
    members, truth = user()
    names = {"members": members, "truth": truth}
    for block in python("docs/scores.md"):
        exec(block, names)
    table = names["table"]
    assert list(table.index) == ["DJF", "MAM", "JJA", "SON"]
    assert list(table.columns) == ["crps", "crps_lower", "crps_upper"]
    expected = crps_ensemble(members, truth, estimator="plain", member_dim="realization")
    expected = expected.mean("site").groupby("date.season").mean()
    np.testing.assert_allclose(table.loc["JJA", "crps"], expected.sel(season="JJA"), rtol=1e-12)


def test_figures_take_what_the_functions_return():
    members, truth = user()
    scores = metrics.verify(members, truth, member_dim="realization", by=["season"])
    ranks = metrics.rank_histogram(members, truth, member_dim="realization")
    assert ranks["count"].to_numpy().tolist() == scores["rank_count"].to_numpy().tolist()
    for counts in (scores, ranks, ranks["count"], {"raw": ranks}):
        (axes,) = figures.histogram_figure(counts).axes
        (bars,) = axes.patches
        expected = ranks["count"] * 11 / ranks["count"].sum()
        np.testing.assert_allclose(bars.get_data().values, expected, rtol=1e-12)
    discs = figures.score_maps(scores["crps_map"], "CRPS (K)", signed="no").axes[0].collections[-1]
    np.testing.assert_allclose(np.asarray(discs.get_array()), scores["crps_map"], rtol=1e-12)
    lines = figures.spread_error_figure(scores, along="season").axes[0].lines
    np.testing.assert_allclose(lines[0].get_ydata(), scores["rmse"], rtol=1e-12)
    sums = metrics.event_sums((members > 281).mean("realization"), truth > 281, bins=5, dim="all")
    diagram, curve = metrics.reliability_diagram(sums), metrics.roc_curve(sums)
    assert figures.reliability_figure(diagram).axes[0].get_title(loc="left") == "forecast"
    assert figures.roc_figure(curve).axes[0].lines[1].get_label().startswith("forecast: 0.")
    by_row = xr.DataArray([0.5, 0.7], {"latitude": [10.0, -10.0]}, name="crps")
    np.testing.assert_allclose(figures.latitude_figure(by_row).axes[0].lines[0].get_xdata(), by_row)
    with pytest.raises(ArgumentError, match="no counts over rank or pit_bin, only crps"):
        figures.histogram_figure(scores[["crps"]])


def test_a_rank_histogram_needs_a_seed_only_for_ties():
    x = np.array([[1.0, 2.0, 3.0], [1.0, 2.0, np.nan], [4.0, 5.0, 6.0]])
    y = np.array([2.5, 2.0, 9.0])
    counts = metrics.rank_histogram(x, y, member_dim=1)
    assert counts["count"].to_numpy().tolist() == [0, 0, 1, 1]
    assert int(counts["missing"]) == 1  # its tie does not count
    with pytest.raises(ArgumentError, match=r"seed: 1 points have members equal.*seed=0"):
        metrics.rank_histogram(x, np.array([2.5, 2.0, 5.0]), member_dim=1)
    with pytest.raises(ArgumentError, match="or missing ones"):
        metrics.rank_histogram(x, y, member_dim=1, nan="skip-members")
    seeded = metrics.rank_histogram(x, y, member_dim=1, seed=3)
    xr.testing.assert_identical(counts, seeded)


def test_an_interval_is_that_of_its_statistic():
    rng = np.random.default_rng(1)
    daily = rng.normal(1.0, 0.2, 60)
    daily[7] = np.nan
    value = metrics.interval(daily, method="student")
    kept = daily[~np.isnan(daily)]
    half = 2.001717483 * kept.std(ddof=1) / np.sqrt(kept.size)  # t, 58 degrees of freedom
    np.testing.assert_allclose(value.value, kept.mean(), rtol=1e-12)
    sums = {"sum": kept, "weight": np.ones(kept.size)}
    by_sums = metrics.interval(sums, lambda s: s["sum"] / s["weight"], method="student")
    np.testing.assert_allclose(by_sums.upper - by_sums.value, half, rtol=1e-6)
    labelled = metrics.interval(xr.DataArray(kept, dims="time"), method="student")
    assert labelled == by_sums
    # a mean over dates would be the mean of one total, and every replicate the same
    with pytest.raises(ArgumentError, match=r"statistic: returned shape \(\) .*sum / weight"):
        metrics.interval({"crps": kept}, lambda s: s["crps"].mean())
