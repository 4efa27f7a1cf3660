"""Scores against a truth with errors: closed forms of normals, and simulation."""

import numpy as np
import pytest
import scipy.stats
import torch
import xarray as xr
from scipy.integrate import quad

from ens10 import metrics
from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.experiments.scoring.run_results import read_runs
from ens10.experiments.scoring.score import score_forecast
from ens10.metrics import crps_normal, crps_normal_mixture, score_states
from ens10.metrics.verification.truth_error import corrected_crps_normal, with_truth_error

DATES = 1500


@pytest.fixture(scope="module")
def world():
    """Calibrated normals at two stations, true state and analysis with an error of 0.8."""
    rng = np.random.default_rng(0)
    coords = {"time": np.datetime64("2001-01-01", "ns") + np.arange(DATES) * np.timedelta64(6, "h"),
              "station": ["a", "b"], "lat": ("station", [1.0, 2.0]),
              "lon": ("station", [1.0, 2.0])}  # fmt: skip
    mu = rng.normal(280, 3, (DATES, 2))
    sigma = rng.uniform(1.0, 2.0, mu.shape)
    truth = mu + sigma * rng.normal(size=mu.shape)
    analysis = truth + 0.8 * rng.normal(size=mu.shape)
    arrays = [xr.DataArray(x, coords, ("time", "station")) for x in (mu, sigma, truth, analysis)]
    forecast = xr.Dataset({"mu": arrays[0], "sigma": arrays[1]}, attrs={"forecast_kind": "normal"})
    return forecast, *arrays[2:]


@pytest.mark.parametrize("z", [-3.0, 0.0, 0.7])
def test_the_expected_corrected_score_is_the_score_of_the_true_value(z):
    """The integral over the errors of the truth, for forecasts not sharper than these."""
    for sigma in (0.8, 1.3, 5.0):

        def integrand(error, sigma=sigma):
            score = corrected_crps_normal(0.0, np.array([sigma]), np.array([z + error]), 0.8)
            return float(score[0]) * scipy.stats.norm.pdf(error, scale=0.8)

        found = quad(integrand, -8, 8, epsabs=1e-10, points=[-z])[0]
        expected = float(crps_normal(np.zeros(1), np.array([sigma]), np.array([z]))[0])
        assert found == pytest.approx(expected, rel=1e-6)


def test_the_corrected_score_takes_every_kind_of_array_and_no_sharper_forecast():
    numbers = np.array([0.0, 1.0]), np.array([1.0, 0.5]), np.array([0.3, 0.2])
    found = corrected_crps_normal(*numbers, 0.8)
    assert np.isnan(found[1])
    assert np.isfinite(found[0])
    tensors = corrected_crps_normal(*map(torch.from_numpy, numbers), 0.8)
    np.testing.assert_allclose(tensors, found)
    labelled = corrected_crps_normal(*(xr.DataArray(x, dims="n") for x in numbers), 0.8)
    np.testing.assert_allclose(labelled, found)
    np.testing.assert_allclose(corrected_crps_normal(*numbers, 0.0), crps_normal(*numbers))
    assert np.isnan(corrected_crps_normal(0.0, 0.4, 0.0, 0.6))
    assert corrected_crps_normal(0.0, 1.0, 0.3, 0.8) == pytest.approx(found[0])


def test_a_normal_forecast_is_scored_with_the_sum_of_the_variances(world):
    forecast, _, analysis = world
    found = float(
        metrics.verify(
            forecast, analysis, ["crps"], weights="none", truth_error=0.8, method="student"
        )["crps"]
    )
    wide = np.hypot(forecast["sigma"], 0.8)
    expected = crps_normal(forecast["mu"].to_numpy(), wide.to_numpy(), analysis.to_numpy()).mean()
    assert found == pytest.approx(expected, rel=1e-6)


def test_spread_and_histogram_are_those_of_the_true_state(world):
    forecast, _, analysis = world
    plain, aware = (
        metrics.verify(
            forecast,
            analysis,
            ["spread_error"],
            weights="none",
            truth_error=error,
            method="student",
        )
        for error in (0.0, 0.8)
    )
    assert float(plain["spread_error"]) < 0.9
    assert float(aware["spread_error"]) == pytest.approx(1, abs=0.02)


def test_the_calibrated_forecast_wins_only_if_the_error_is_taken_into_account(world):
    """Beside one with the variance of the analysis, which is too wide for the true state."""
    forecast, truth, analysis = world
    wide = forecast.assign(sigma=np.hypot(forecast["sigma"], 0.8))

    def difference(observed, error=0.0):
        a, b = (
            score_states(f, observed, ["crps"], weights="none", truth_error=error)["crps_sum"]
            for f in (forecast, wide)
        )
        return float((a - b).mean())

    assert difference(truth) < 0
    assert difference(analysis) > 0
    assert difference(analysis, 0.8) < 0


def test_members_become_a_mixture_of_normals(world):
    forecast, _, analysis = world
    rng = np.random.default_rng(1)
    members = forecast["mu"] + forecast["sigma"] * xr.DataArray(rng.normal(size=5), dims="number")
    ensemble = xr.Dataset({"members": members}, attrs={"forecast_kind": "ensemble"})
    some = {"time": slice(0, 50)}
    found = score_states(
        ensemble.isel(some), analysis.isel(some), ["crps"], weights="none", truth_error=0.8
    )
    x = members.isel(some).transpose("number", ...).to_numpy()
    expected = crps_normal_mixture(x, np.full_like(x, 0.8), np.full_like(x, 0.2),
                                   analysis.isel(some).to_numpy(), component_dim=0)  # fmt: skip
    np.testing.assert_allclose(
        found["crps_sum"] / found["crps_weight"], expected.mean(1), rtol=1e-5
    )
    again = with_truth_error(with_truth_error(forecast, 0.8), 0.8)
    xr.testing.assert_identical(again, with_truth_error(forecast, 0.8))


def test_clear_errors(world):
    forecast, _, analysis = world
    with pytest.raises(ArgumentError, match="truth_error: -1"):
        score_states(forecast, analysis, truth_error=-1.0)
    for error in ("a", None, np.nan):
        with pytest.raises(ArgumentError, match=f"truth_error: {error} is no standard deviation"):
            with_truth_error(forecast, error)
    with pytest.raises(ArgumentError, match=r"an error of 0\.5 already, not 3\.0"):
        score_states(with_truth_error(forecast, 0.5), analysis, truth_error=3.0)
    with pytest.raises(MissingDataError, match="sigma"):
        score_states(forecast.drop_vars("sigma"), analysis, truth_error=0.8)
    with pytest.raises(ArgumentError, match="sigma"):
        score_states(forecast.assign(sigma=-forecast["sigma"]), analysis, truth_error=0.8)
    with pytest.raises(ArgumentError, match="not defined for the EECRPS"):
        score_states(forecast, analysis, ["eecrps"], truth_error=0.8)
    logistic = forecast.rename(sigma="scale").assign_attrs(forecast_kind="logistic")
    with pytest.raises(ArgumentError, match="unknown for a forecast of kind logistic"):
        with_truth_error(logistic, 0.8)


def test_scores_with_an_error_are_kept_apart_from_those_of_a_run(world, tmp_path):
    forecast, _, analysis = (x.isel(time=slice(0, 40)) for x in world)
    named = forecast.assign_attrs(units="K").assign(truth=analysis)
    for folder in ("file", "run"):
        (tmp_path / folder).mkdir()
        named.to_netcdf(tmp_path / folder / "forecast.nc")
    (tmp_path / "run" / "provenance.json").write_text("{}")
    words = {"scores": ["crps"], "weights": "none", "truth_error": 0.8}
    with pytest.raises(ArgumentError, match="reports and comparisons read plain scores in"):
        score_forecast(tmp_path / "run" / "forecast.nc", **words)
    result = score_forecast(tmp_path / "run" / "forecast.nc", out=tmp_path / "file", **words)
    assert "of the truth with an error of 0.8" in result.in_words()
    assert "\ntruth_error,0.8," in (tmp_path / "file" / "scores.csv").read_text()
    (tmp_path / "file" / "provenance.json").write_text("{}")
    with pytest.raises(FileError, match=r"scores of the truth with an error of 0\.8 are not"):
        read_runs([tmp_path / "file"])


def test_a_map_of_errors_is_one_error_for_each_place(world):
    forecast, _, analysis = world
    size = xr.DataArray([0.8, 0.3], {"station": ["a", "b"]}, "station")
    members = forecast["mu"].expand_dims(number=3) + xr.DataArray([-1.0, 0.0, 2.0], dims="number")
    ensemble = xr.Dataset({"members": members}, attrs={"forecast_kind": "ensemble"})
    for one in (forecast, ensemble.isel(time=slice(0, 50))):
        aware = with_truth_error(one, size)
        truth = analysis.isel(time=slice(0, len(one["time"])))
        for n, error in enumerate(size.to_numpy()):
            place = {"station": slice(n, n + 1)}
            found, expected = (
                score_states(f.isel(place), truth.isel(place), ["crps"], weights="none")["crps_sum"]
                for f in (aware, with_truth_error(one, float(error)))
            )
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert aware.attrs["truth_error"] == pytest.approx(np.sqrt((0.64 + 0.09) / 2))
        xr.testing.assert_identical(with_truth_error(aware, size), aware)
    with pytest.raises(ArgumentError, match="a map with values below 0"):
        with_truth_error(forecast, -size)
    with pytest.raises(ValueError, match="join='exact'"):
        with_truth_error(forecast, size.isel(station=[0]))
