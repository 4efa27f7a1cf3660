"""Probabilities beyond quantiles of past truth: from the store, from a bundle, at stations."""

import json

import numpy as np
import pytest
import realruns
import xarray as xr
from hostilebundles import archive_of, files_of
from safetensors.torch import load, save
from scipy.special import ndtr
from test_station_runs import at_stations

import ens10
from ens10.convert import prepare
from ens10.errors import ArgumentError, FileError
from ens10.experiments.forecasts.apply import apply
from ens10.experiments.forecasts.bundle import bundle
from ens10.metrics.verification.climatology import quantiles_of_dates
from ens10.source import open_source
from ens10.store import open_store

EVENTS = [">q0.95", "<q0.1", ">q0.5", ">290"]


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    return realruns.fit("emos_local", store, tmp_path_factory.mktemp("runs") / "emos_local")


@pytest.fixture(scope="module")
def today(world):
    return open_source(world.folder).isel(time=slice(0, 3)).load()


def by_hand(store, run, dates, levels):
    """Quantiles of the truth of training dates within 30 days of the middle of the month."""
    years = json.loads((run / "provenance.json").read_text())["years"]["train"]
    truth = open_store(store, "truth")["t2m"].isel(step=0).load()
    valid = truth["valid_time"].to_numpy()
    trained = np.isin(valid.astype("datetime64[Y]").astype(int) + 1970, years)
    thresholds = []
    for date in dates:
        middle = date.astype("datetime64[M]").astype("datetime64[D]") + np.timedelta64(14, "D")
        turns = (valid - middle) / np.timedelta64(1, "s") / (365.2425 * 86400)
        days = np.abs(turns - np.round(turns)) * 365.2425
        past = truth[trained & (days <= 30)].to_numpy().astype("f8")
        assert len(past) >= 3
        thresholds.append(np.percentile(past, 100 * np.array(levels), axis=0))
    return np.stack(thresholds)


def test_probabilities_beyond_quantiles_of_past_truth(run, store, world, tmp_path):
    (tmp_path / "today").mkdir()
    today = tmp_path / "today" / "today.nc"
    open_source(world.folder).isel(time=slice(0, 3)).load().to_netcdf(today)
    out = tmp_path / "out.nc"
    realruns.command("apply", run, today, "--out", out, "--probability", *EVENTS)
    with xr.open_dataset(out) as written:
        dates = written["valid_time"].to_numpy()
        assert written["quantile_above"].to_numpy().tolist() == [0.5, 0.95]
        expected = by_hand(store, run, dates, [0.5, 0.95])
        assert np.ptp(expected) > 10
        np.testing.assert_allclose(written["t2m_threshold_above"], expected, rtol=1e-6)
        assert written["t2m_threshold_above"].attrs["units"] == "K"
        mu, sigma = (written[name].to_numpy()[:, None].astype("f8") for name in ("mu", "sigma"))
        beyond = 1 - ndtr((expected - mu) / sigma)
        np.testing.assert_allclose(written["t2m_probability_above_quantile"], beyond, atol=1e-4)
        low = by_hand(store, run, dates, [0.1])
        below = ndtr((low - mu) / sigma)
        np.testing.assert_allclose(written["t2m_probability_below_quantile"], below, atol=1e-4)
        fixed = 1 - ndtr((290 - mu) / sigma)
        np.testing.assert_allclose(written["t2m_probability_above"], fixed, atol=1e-4)


def test_a_bundle_keeps_what_it_needs(run, today, tmp_path):
    """The same numbers without the store; other levels are refused with what to do."""
    plain = bundle(run, tmp_path / "plain.ens10")
    out = bundle(run, tmp_path / "kept.ens10", truth_quantiles=[0.95, 0.1, 0.5])
    assert out.stat().st_size - plain.stat().st_size < 12 * 3 * 8 * 16 * 4 + 1000
    model = ens10.load_model(out)
    found = model(today, probabilities=EVENTS)
    expected = ens10.load_model(run)(today, probabilities=EVENTS)
    assert float(expected["t2m_threshold_above"].std()) > 1
    xr.testing.assert_identical(found, expected)
    remedy = r"lacks quantiles 0\.9 .*it has 0\.1, 0\.5, 0\.95.*--history.*--truth-quantiles"
    with pytest.raises(ArgumentError, match=remedy):
        model(today, probabilities=[">q0.9"])
    with pytest.raises(ArgumentError, match=r"it has none.*--truth-quantiles"):
        ens10.load_model(plain)(today, probabilities=[">q0.9"])


def test_a_month_without_training_dates(run, today, tmp_path):
    model = ens10.load_model(bundle(run, tmp_path / "kept.ens10", truth_quantiles=[0.9]))
    between = today.assign_coords(time=today["time"] + np.timedelta64(40, "D"))
    between = between.drop_vars("valid_time")  # February, whose middle is 43 days from January 3
    error = pytest.raises(ArgumentError, match="on no date of the season of month 2")
    with pytest.warns(UserWarning, match="days of the calendar"), error:
        model(between, probabilities=[">q0.9"])


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5])
def test_levels_lie_between_0_and_1(run, tmp_path, level):
    with pytest.raises(ArgumentError, match="is not between 0 and 1"):
        bundle(run, tmp_path / "kept.ens10", truth_quantiles=[level])
    with pytest.raises(ArgumentError, match=r"'>q.*' is not a quantile between 0 and 1"):
        apply([run], "today.nc", tmp_path / "out.nc", probabilities=[f">q{level}"])
    with pytest.raises(ArgumentError, match=r"'>p0\.9' is not a threshold.*'>q0\.95'"):
        apply([run], "today.nc", tmp_path / "out.nc", probabilities=[">p0.9"])


def test_grib_takes_thresholds_alone(run, today, tmp_path):
    with pytest.raises(ArgumentError, match="probabilities: GRIB has no such product"):
        apply([run], today, tmp_path / "out.grib", probabilities=[">q0.9"])


def test_points_with_gaps_of_the_truth():
    """Quantiles are those of the dates with truth, as in numpy's loop over points."""
    truth = np.random.default_rng(0).normal(280, 5, (40, 3, 4)).astype("f4")
    truth[:7, 0, 1], truth[:, 2, 2] = np.nan, np.nan
    found = quantiles_of_dates(truth, [0.1, 0.95])
    for row, column in np.ndindex(3, 4):
        one = truth[:, row, column].astype("f8")
        one = one[np.isfinite(one)]
        expected = np.quantile(one, [0.1, 0.95]) if len(one) else [np.nan, np.nan]
        np.testing.assert_allclose(found[:, row, column], expected, rtol=1e-14)


def test_stations_that_the_training_lacks_have_no_threshold(world, tmp_path):
    forecasts = at_stations(open_source(world.folder))[["t2m"]]
    truth = at_stations(open_source(world.folder / "truth", optional_dimensions=True))[["t2m"]]
    trained = [0, 1, 2, 3]
    prepare(forecasts.isel(station=trained), tmp_path / "s.zarr", truth=truth.isel(station=trained))
    run = realruns.fit("emos_global", tmp_path / "s.zarr", tmp_path / "run")
    today = forecasts.isel(time=[0])
    kept = bundle(run, tmp_path / "kept.ens10", truth_quantiles=[0.9])
    for model in (ens10.load_model(run), ens10.load_model(kept)):
        with pytest.warns(UserWarning, match=r"lacks 1 station \(s4\)"):
            found = model(today, probabilities=[">q0.9"])
        for name in ("t2m_threshold_above", "t2m_probability_above_quantile"):
            assert found[name].dims == ("time", "quantile_above", "station")
            assert found[name].notnull().to_numpy().ravel().tolist() == [True] * 4 + [False]
        assert found["mu"].notnull().all()


def test_damaged_quantiles_are_refused(run, tmp_path):
    kept = bundle(run, tmp_path / "kept.ens10", truth_quantiles=[0.9, 0.95])
    files = files_of(kept.read_bytes())
    weights, about = load(files["weights.safetensors"]), json.loads(files["model.json"])
    name = "truth_quantiles"
    assert weights[name].shape == (1, 12, 2, 8, 16)
    changes = {
        "a level less": (weights | {name: weights[name][:, :, :1].clone()}, about),
        "another grid": (weights | {name: weights[name].mT.contiguous()}, about),
        "infinite": (weights | {name: weights[name] + np.inf}, about),
        "none": ({key: value for key, value in weights.items() if key != name}, about),
        "no levels": (weights, about | {"truth_quantiles": []}),
        "text": (weights, about | {"truth_quantiles": ["0.9", "0.95"]}),
    }
    for change, (tensors, description) in changes.items():
        damaged = tmp_path / f"{change}.ens10"
        content = {"weights.safetensors": save(tensors)}
        content["model.json"] = json.dumps(description).encode()
        damaged.write_bytes(archive_of(files | content))
        with pytest.raises(FileError, match=r"damaged: .*quantiles"):
            ens10.load_model(damaged)
