"""Every kind of forecast and every score by name, against plain float64 numpy or an oracle."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.grid import area_weights
from ens10.metrics import score_states, summarise, verify
from ens10.metrics.distributions import distribution_class
from ens10.metrics.scores.registry import METRICS, STATISTICS

N, M, H, W = 30, 5, 6, 8
FIELD = ("time", "latitude", "longitude")


def weighted(field, truth):
    """Area-weighted mean over the points that are there."""
    rows = area_weights(truth["latitude"].values)[:, None] + np.zeros(field.shape)
    there = ~np.isnan(field)
    return np.average(field[there], weights=rows[there])


def quantile_forecast(normal, levels):
    mu, sigma = normal["mu"], normal["sigma"]
    z = xr.DataArray(stats.norm.ppf(levels), dims="quantile", coords={"quantile": levels})
    values = (mu + sigma * z).assign_attrs(units="K")
    return xr.Dataset({"values": values}, attrs={"forecast_kind": "quantiles"})


def test_scores_of_members_by_name(world):
    ensemble, _, truth = world
    x, y = ensemble["members"].values, truth.values
    names = ("bias", "brier_281.5", "quantile_score_0.3", "coverage_0.5", "width_0.5")
    got = verify(ensemble, truth, names)
    gap = np.isnan(y)
    p = np.where(gap, np.nan, (x > 281.5).mean(axis=1))
    q3, q25, q75 = (np.quantile(x, level, axis=1) for level in (0.3, 0.25, 0.75))
    wanted = {
        "bias": x.mean(axis=1) - y,
        "brier_281.5": (p - (y > 281.5)) ** 2,
        "quantile_score_0.3": np.maximum(0.3 * (y - q3), -0.7 * (y - q3)),
        "coverage_0.5": np.where(gap, np.nan, (y >= q25) & (y <= q75)),
        "width_0.5": np.where(gap, np.nan, q75 - q25),
    }
    for name, field in wanted.items():
        assert float(got[name]) == pytest.approx(weighted(field, truth), rel=1e-12), name
        assert float(got[f"{name}_lower"]) <= float(got[name]) <= float(got[f"{name}_upper"])
    assert got["brier_281.5"].attrs["long_name"] == "Brier score of values above 281.5"
    assert [got[n].attrs["units"] for n in wanted] == ["K", "1", "K", "1", "K"]


def test_scores_of_normals_by_name(world):
    ensemble, normal, truth = world
    mu, sigma, y = normal["mu"].values, normal["sigma"].values, truth.values
    names = ("bias", "log_score", "brier_281.5", "quantile_score_0.9", "coverage_0.8", "width_0.8")
    got = verify(normal, truth, names, reference=ensemble)
    d = stats.norm(mu, sigma)
    q, low, high = d.ppf(0.9), d.ppf(0.1), d.ppf(0.9)
    gap = np.isnan(y)
    wanted = {
        "bias": mu - y,
        "log_score": -d.logpdf(y),
        "brier_281.5": np.where(gap, np.nan, (d.sf(281.5) - (y > 281.5)) ** 2),
        "quantile_score_0.9": np.maximum(0.9 * (y - q), -0.1 * (y - q)),
        "coverage_0.8": np.where(gap, np.nan, (y >= low) & (y <= high)),
        "width_0.8": np.where(gap, np.nan, high - low),
    }
    for name, field in wanted.items():
        assert float(got[name]) == pytest.approx(weighted(field, truth), rel=1e-11), name
    raw = verify(ensemble, truth, ("brier_281.5",))
    skill = 1 - float(got["brier_281.5"]) / float(raw["brier_281.5"])
    assert float(got["brier_skill_281.5"]) == pytest.approx(skill, rel=1e-12)


def test_quantile_forecasts(world):
    _, normal, truth = world
    levels = (np.arange(199) + 0.5) / 199
    forecast = quantile_forecast(normal, levels)
    got, closed = verify(forecast, truth), verify(normal, truth)
    assert float(got["crps"]) == pytest.approx(float(closed["crps"]), rel=2e-3)
    assert int(got["pit_count"].sum()) == int(closed["pit_count"].sum())
    assert np.abs(got["pit_count"] - closed["pit_count"]).max() < 20
    names = ("quantile_score_0.5", "brier_281.5", "coverage_0.8")
    for name in names:
        one, other = verify(forecast, truth, names)[name], verify(normal, truth, names)[name]
        assert float(one) == pytest.approx(float(other), rel=5e-3), name
    few = quantile_forecast(normal, np.array([0.1, 0.5, 0.7]))
    v, y = few["values"].transpose(*FIELD, "quantile").values, truth.values
    loss = [np.maximum(p * (y - v[..., i]), (p - 1) * (y - v[..., i]))
            for i, p in enumerate((0.1, 0.5, 0.7))]  # fmt: skip
    crps = 2 * (0.3 * loss[0] + 0.3 * loss[1] + 0.4 * loss[2])
    assert float(verify(few, truth)["crps"]) == pytest.approx(weighted(crps, truth), rel=1e-12)
    for bad in ([0.5, 0.1, 0.7], [0.0, 0.5, 0.7], [0.1, 0.1, 0.7]):
        with pytest.raises(ArgumentError, match="do not rise between 0 and 1"):
            verify(few.assign_coords(quantile=bad), truth)


def test_families_of_the_registry(world):
    _, normal, truth = world
    mu, sigma, y = normal["mu"].values, normal["sigma"].values, truth.values
    logistic = normal.assign_attrs(forecast_kind="logistic")
    got = verify(logistic, truth, ("crps", "log_score", "rmse", "spread_error", "histogram"))
    z = np.abs(y - mu) / sigma
    crps = sigma * (z + 2 * np.log1p(np.exp(-z)) - 1)
    assert float(got["crps"]) == pytest.approx(weighted(crps, truth), rel=1e-11)
    assert got["crps"].attrs["units"] == "K"
    log_score = -stats.logistic(mu, sigma).logpdf(y)
    assert float(got["log_score"]) == pytest.approx(weighted(log_score, truth), rel=1e-11)
    ratio = np.pi / 3**0.5 * (np.average(sigma**2) ** 0.5)
    assert float(got["spread_error"]) == pytest.approx(ratio / float(got["rmse"]), rel=0.05)
    wanted = np.histogram(stats.logistic(mu, sigma).cdf(y), 20, (0, 1))[0]
    np.testing.assert_array_equal(got["pit_count"], wanted)
    bounded = normal.assign_attrs(forecast_kind="censored_normal").assign(lower=normal["mu"] - 1)
    assert "crps" in verify(bounded, truth)
    with pytest.raises(MissingDataError, match="logistic forecast: 1 part is missing: sigma"):
        verify(logistic.drop_vars("sigma"), truth)
    low, high = stats.logistic(mu, sigma).interval(0.5)
    covered = weighted(np.where(np.isnan(y), np.nan, (y >= low) & (y <= high)), truth)
    assert float(verify(logistic, truth, ("coverage_0.5",))["coverage_0.5"]) == covered
    with pytest.raises(ArgumentError, match="crps_fair is undefined for forecasts of kind 'logis"):
        verify(logistic, truth, ("crps_fair",))


def test_the_decomposition_of_hersbach(world):
    ensemble, _, truth = world
    got = verify(ensemble.chunk(time=4), truth, ("crps", "hersbach"))
    assert float(got["hersbach_crps"]) == pytest.approx(float(got["crps"]), rel=1e-12)
    parts = float(got["hersbach_reliability"] + got["hersbach_potential"])
    assert parts == pytest.approx(float(got["crps"]), rel=1e-12)
    assert got.sizes["bin"] == M + 1


def steps_of(ensemble, truth):
    """The forecast and the truth at two steps; at the second one truth is warmer."""
    steps = np.array([24, 48], dtype="timedelta64[h]").astype("timedelta64[ns]")
    start = ensemble["time"].values
    valid = {"valid_time": (("time", "step"), start[:, None] + steps)}
    bare = ensemble.drop_vars(("valid_time", "step"))
    forecast = bare.expand_dims(step=steps).assign_coords(valid)
    observed = truth.assign_coords(time=start)
    both = xr.concat([observed, observed + 1.0], "step").assign_coords(step=steps)
    return forecast, both.transpose("time", "step", ...).assign_coords(valid)


def test_several_steps_in_one_store(world):
    ensemble, _, truth = world
    forecast, both = steps_of(ensemble, truth)
    got = verify(forecast, both, by=("step",))
    assert got["step"].values.tolist() == [24, 48]
    for n, shift in enumerate((0.0, 1.0)):
        alone = verify(ensemble, truth + shift)
        for name in ("crps", "crps_lower", "rmse", "spread_error_upper"):
            assert float(got[name][n]) == pytest.approx(float(alone[name]), rel=1e-12)
    states = score_states(forecast, both)
    assert states["crps_sum"].dims == ("time", "step")
    together = summarise(states)
    assert float(together["crps"]) == pytest.approx(float(got["crps"].mean()), rel=1e-12)
    assert summarise(states, by=("season", "step"))["crps"].dims == ("season", "step")
    days = verify(forecast, both, by=("month",))  # of the valid date, which differs by step
    assert int(days["count"].sum()) == int(together["count"])
    with pytest.raises(ArgumentError, match="of one level alone"):
        summarise(states, by=("level",))


def test_several_levels_in_one_store(world):
    _, normal, truth = world
    forecast = xr.concat([normal, normal.assign(mu=normal["mu"] + 5)], "level")
    forecast = forecast.assign_coords(level=[850, 500])
    both = xr.concat([truth + 5, truth, truth], "level").assign_coords(level=[500, 700, 850])
    both = both.transpose("time", "level", ...)
    got = verify(forecast, both, by=("level",))
    assert float(got["crps"][0]) == pytest.approx(float(got["crps"][1]), rel=1e-9)
    with pytest.raises(MissingDataError, match="level 850"):
        verify(forecast, both.isel(level=slice(2)))


def test_zones_are_scored_apart(world):
    ensemble, normal, truth = world
    land = (truth["longitude"] < 180) & (truth["latitude"] > -40)
    land = (land * 1.0).transpose("latitude", "longitude")
    regions = {"west": (-90, 90, 0, 100), "north": (0, 90, -180, 180)}  # they overlap
    bands = [-60, 0, 90]
    settings = {"land": land, "regions": regions, "bands": bands, "reference": ensemble}
    by = ("surface", "latitude_band", "region", "season")
    got = verify(normal, truth, by=by, **settings)
    assert got["crpss"].dims == by
    masks = {
        "surface": {"land": land > 0, "sea": land == 0},
        "latitude_band": {"-60..0": truth["latitude"] < 0, "0..90": truth["latitude"] >= 0},
        "region": {"west": truth["longitude"] <= 100, "north": truth["latitude"] >= 0},
    }
    for surface, band, region in np.ndindex(2, 2, 2):
        labels = {n: got[n].values[i] for n, i in zip(by, (surface, band, region), strict=False)}
        inside = True
        for name, label in labels.items():
            inside = inside & masks[name][str(label)]
        if not bool(inside.any()):
            continue
        alone = verify(normal, truth.where(inside), by=("season",), reference=ensemble)
        cell = got.sel(labels)
        for name in ("crps", "crpss", "rmse", "crps_upper", "spread_error", "count"):
            np.testing.assert_allclose(cell[name], alone[name], rtol=1e-12)
    with pytest.raises(ArgumentError, match="made for surface"):
        summarise(score_states(normal, truth, by=("surface",), land=land), by=("region",))
    with pytest.raises(MissingDataError, match=r"land: .*latitude"):
        verify(normal, truth, by=("surface",), land=land.isel(latitude=slice(3)))


def test_missing_truth_propagates_in_its_zone_alone(world):
    _, normal, truth = world  # rows 2 and 3 of one date have no truth: 30N and the equator
    settings = {"by": ("latitude_band",), "bands": [-90, -10, 10, 90]}
    got = verify(normal, truth, nan="propagate", **settings)
    assert np.isnan(got["crps"]).values.tolist() == [False, True, True]
    omitted = verify(normal, truth, **settings)
    assert float(got["crps"][0]) == float(omitted["crps"][0])
    assert not bool(np.isnan(omitted["crps"]).any())


def test_units_and_grids_that_differ_are_refused(world):
    ensemble, normal, truth = world
    with pytest.raises(ArgumentError, match="units differ: members in K, truth in degC"):
        verify(ensemble, truth.assign_attrs(units="degC"))
    shifted = ensemble.assign_coords(longitude=ensemble["longitude"] + 1)
    with pytest.raises(MissingDataError, match=r"reference: .*longitude 0"):
        verify(normal, truth, reference=shifted)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("brier", "brier needs a threshold"),
        ("brier_warm", "is not a number"),
        ("coverage_1.5", "a probability between 0 and 1"),
        ("log_score", "log_score is undefined for an ensemble"),
        ("hersbach_2", "did you mean 'hersbach'"),
    ],
)
def test_scores_that_cannot_be_made(name, told, world):
    ensemble, _, truth = world
    with pytest.raises((ArgumentError, UnknownNameError), match=told):
        verify(ensemble, truth, (name,))


def test_the_table_is_whole():
    for name, score in METRICS.items():
        assert set(score.means) <= set(STATISTICS), name
        needed = {field for mean in score.means for field in STATISTICS[mean].needs}
        known = ("normal", "ensemble", "quantiles")
        kinds = [k for k in known if needed <= distribution_class(k).offers]
        assert kinds, name
