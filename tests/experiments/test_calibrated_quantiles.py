"""`ens10 apply --quantiles --calibration`: quantiles calibrated by a run's own past forecasts."""

import json

import numpy as np
import pytest
import xarray as xr
from realruns import command

import ens10
from ens10.errors import ArgumentError, DataNote
from ens10.experiments.forecasts.apply import apply
from ens10.experiments.runs.reading import open_predictions
from ens10.metrics.distributions import Distribution
from ens10.models.conformal import calibrate_quantiles
from ens10.source import open_source

LEVELS = [0.25, 0.75]


@pytest.fixture(scope="module")
def today(world):
    """All start dates, the last four of which are test dates."""
    return open_source(world.folder).load()


def expected(run, method):
    """Quantiles of all predicted dates, calibrated by the function for DataArrays."""
    forecast, truth = open_predictions(run)
    values = Distribution.from_dataset(forecast.load()).quantile(np.array(LEVELS))
    coords = {"quantile_level": LEVELS, **truth.coords}
    quantiles = xr.DataArray(values, dims=("quantile_level", *truth.dims), coords=coords)
    return calibrate_quantiles(quantiles, truth.load(), method)


@pytest.mark.parametrize("method", ["split", "adaptive", "pid"])
def test_they_equal_those_of_the_series_of_predictions(runs, today, tmp_path, method, capsys):
    wanted = expected(runs["mlp"], method).isel(time=slice(2, None))
    dates = today.sel(time=wanted["time"].to_numpy())
    dates.to_netcdf(tmp_path / "today.nc")
    words = ["--quantiles", *LEVELS, "--calibration", method]
    command("apply", runs["mlp"], tmp_path / "today.nc", "--out", tmp_path / "out.nc", *words)
    with xr.open_dataset(tmp_path / "out.nc") as found:
        assert found["t2m_quantile"].attrs["calibration"] == method
        ours = found["t2m_quantile"].transpose(*wanted.dims)
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)
    model = ens10.load_model(runs["mlp"])
    plain = model(dates, quantiles=LEVELS)["t2m_quantile"]
    assert "calibration" not in plain.attrs
    few = model(dates.isel(time=[0, 3]), quantiles=LEVELS, calibration=method)["t2m_quantile"]
    np.testing.assert_allclose(few.transpose(*wanted.dims), wanted[..., [0, 3], :, :], rtol=1e-6)
    assert (few != plain.isel(time=[0, 3])).any()


def test_a_window_counts_the_last_dates(runs, today):
    """Three dates are just enough for quartiles."""
    last, model = today.isel(time=[-1]), ens10.load_model(runs["mlp"])
    options = {"quantiles": LEVELS, "calibration": "split"}
    found = model(last, **options, calibration_window=3)["t2m_quantile"]
    forecast, truth = open_predictions(runs["mlp"])
    values = Distribution.from_dataset(forecast.load()).quantile(np.array(LEVELS))
    known = truth["valid_time"].to_numpy() <= last["time"].to_numpy()
    scores = np.sort((truth.to_numpy() - values)[:, known][:, -3:], axis=1)
    offsets = np.stack([scores[0, 0], scores[1, 2]])  # floor(4 / 4) and ceil(4 * 3 / 4)
    plain = model(last, quantiles=LEVELS)["t2m_quantile"].isel(time=0)
    expected = np.sort(plain + offsets, axis=0)
    np.testing.assert_allclose(found.isel(time=0), expected, rtol=1e-6)


def test_a_bundle_needs_the_predictions(runs, today, tmp_path):
    bundle = tmp_path / "mlp.ens10"
    command("bundle", runs["mlp"], "--out", bundle)
    last, model = today.isel(time=[-1]), ens10.load_model(bundle)
    options = {"quantiles": LEVELS, "calibration": "pid"}
    with pytest.raises(ArgumentError, match="is a bundle, which holds no predictions"):
        model(last, **options)
    found = model(last, **options, past_forecasts=str(runs["mlp"]))["t2m_quantile"]
    np.testing.assert_array_equal(
        found, ens10.load_model(runs["mlp"])(last, **options)["t2m_quantile"]
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibration": "pid"}, "is of quantiles"),
        ({"quantiles": LEVELS, "past_forecasts": "x"}, "past_forecasts: is for a calibration"),
        (
            {"quantiles": LEVELS, "calibration_window": 5},
            "calibration_window: is for a calibration",
        ),
    ],
)
def test_options_that_do_not_belong_together(runs, today, options, message):
    with pytest.raises(ArgumentError, match=message):
        ens10.load_model(runs["mlp"])(today.isel(time=[-1]), **options)


def test_what_is_no_past_forecast_is_refused(runs, today, tmp_path):
    options = {"quantiles": LEVELS, "calibration": "pid"}
    model = ens10.load_model(runs["mlp"])
    with pytest.warns(DataNote, match=r"no truth until 2\d{3}-.*that start before are not calib"):
        found = model(today.isel(time=[0]), **options)  # of the training
    plain = model(today.isel(time=[0]), quantiles=LEVELS)
    np.testing.assert_allclose(found["t2m_quantile"], plain["t2m_quantile"], rtol=1e-7)
    for change, message in (
        ({"longitude": lambda values: values + 0.1}, "on other points"),
        (
            {"step": lambda value: value + 24},
            "in K at the lead time 72, and mlp corrects t2m in K",
        ),
    ):
        forecast, truth = open_predictions(runs["mlp"])
        other = forecast.assign(truth=truth).load().drop_encoding()
        ((name, function),) = change.items()
        other = other.assign_coords({name: function(other[name])})
        path = tmp_path / f"{name}.nc"
        other.to_netcdf(path)
        with pytest.raises(ArgumentError, match=message):
            model(today.isel(time=[-1]), **options, past_forecasts=str(path))
    wet = tmp_path / "runs" / "predictions.zarr"
    forecast.assign(truth=truth).load().drop_encoding().to_zarr(wet, consolidated=False)
    (wet.parent / "provenance.json").write_text('{"target": "tp"}')
    with pytest.raises(ArgumentError, match="is of tp in K"):
        model(today.isel(time=[-1]), **options, past_forecasts=str(wet))
    two = [runs["mlp"], runs["emos_local"]]
    with pytest.raises(ArgumentError, match="is of one model, and 2 correct"):
        apply(two, today, tmp_path / "o.nc", **options, past_forecasts=str(runs["mlp"]))


def test_predictions_that_change_restart_the_command(runs, today, tmp_path, monkeypatch):
    """The plan of the partial result has a fingerprint of the past forecasts."""
    from ens10.experiments.forecasts import apply as module

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_finish", stopped)
    with pytest.raises(KeyboardInterrupt):
        apply(
            [runs["mlp"]], today.isel(time=[-1]), tmp_path / "o.nc",
            quantiles=LEVELS, calibration="pid",
        )  # fmt: skip
    plan = json.loads((tmp_path / "o.nc.partial" / "plan.json").read_text())
    assert "past_forecasts" in plan["inputs"]
    assert plan["products"]["calibration"] == "pid"
