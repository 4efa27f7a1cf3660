"""`ens10 blend`: predictions of several runs in one store, each date by those known before."""

import numpy as np
import pytest
import xarray as xr
from realruns import command

from ens10.errors import ArgumentError, FileError
from ens10.experiments.forecasts.blend import blend_runs
from ens10.experiments.runs.reading import open_predictions
from ens10.grid import area_weights
from ens10.metrics.distributions import Distribution
from ens10.metrics.distributions.quantiles import LEVELS
from ens10.models.blending import Blend


@pytest.fixture
def two(runs):
    return [runs["mlp"], runs["emos_local"]]


@pytest.mark.parametrize("method", ["linear", "beta", "emos"])
def test_the_store_has_the_blend_of_each_date_and_is_scored(two, tmp_path, capsys, method):
    out = tmp_path / "blend.zarr"
    command("blend", *two, "--out", out, "--method", method)
    assert "last weights of the linear pool: mlp 0." in capsys.readouterr().out
    forecast, truth = open_predictions(out)
    opened = [open_predictions(run) for run in two]
    xr.testing.assert_equal(truth.load(), opened[0][1].load().drop_attrs(deep=False))
    fields = [Distribution.from_dataset(one.load()).quantile(np.array(LEVELS)) for one, _ in opened]
    fields = np.stack(fields).astype(np.float64)  # (runs, levels, dates, rows, columns)
    rows = area_weights(truth["latitude"].to_numpy(), "cell")
    weights = np.broadcast_to(rows[:, None], truth.shape[1:]).ravel()
    blend, starts, valid = Blend(2, LEVELS, method), truth["time"], truth["valid_time"]
    for n, start in enumerate(starts.to_numpy()):
        for past in np.flatnonzero(valid.to_numpy() <= start)[blend.dates :]:
            y = truth[past].to_numpy().astype(np.float64).ravel()
            blend.learn(fields[:, :, past].reshape(2, len(LEVELS), -1), y, weights)
        expected = blend.forecast(fields[:, :, n].reshape(2, len(LEVELS), -1))
        found = forecast["values"].isel(time=n).transpose("quantile", ...).to_numpy()
        np.testing.assert_allclose(found.reshape(len(LEVELS), -1), expected, rtol=1e-6)
    assert blend.dates == len(starts) - 1
    command("score", out)
    assert "crps" in capsys.readouterr().out


def test_a_run_without_some_dates(two, tmp_path):
    forecast, truth = open_predictions(two[1])
    few = forecast.assign(truth=truth).isel(time=[0, 1, 5]).load().drop_encoding()
    few.to_netcdf(tmp_path / "few.nc")
    weights = blend_runs([two[0], tmp_path / "few.nc"], tmp_path / "b.zarr")
    assert sum(weights.values()) == pytest.approx(1.0)
    found, _ = open_predictions(tmp_path / "b.zarr")
    mlp = Distribution.from_dataset(open_predictions(two[0])[0].load()).quantile(np.array(LEVELS))
    alone = found["values"].isel(time=3).transpose("quantile", ...)
    np.testing.assert_allclose(alone, mlp[:, 3], rtol=1e-6)


def test_what_is_refused(two, runs, tmp_path):
    with pytest.raises(ArgumentError, match="1 cannot be blended"):
        blend_runs(two[:1], tmp_path / "b.zarr")
    forecast, truth = open_predictions(two[1])
    other = forecast.assign(truth=truth).load().drop_encoding()
    other.assign_coords(step=other["step"] + 24).to_netcdf(tmp_path / "step.nc")
    with pytest.raises(ArgumentError, match="Blend runs of one target and lead time"):
        blend_runs([two[0], tmp_path / "step.nc"], tmp_path / "b.zarr")
    cold = tmp_path / "cold" / "predictions.zarr"
    forecast.assign(truth=truth).load().drop_encoding().to_zarr(cold, consolidated=False)
    (cold.parent / "provenance.json").write_text('{"target": "t850"}')
    with pytest.raises(ArgumentError, match="cold is of t850 in K at step 48, mlp of t2m in K at"):
        blend_runs([two[0], cold.parent], tmp_path / "b.zarr")
    (tmp_path / "b.zarr").mkdir()
    (tmp_path / "b.zarr" / "notes.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(FileError):
            blend_runs(two, tmp_path / "b.zarr", force=force)
    assert [path.name for path in (tmp_path / "b.zarr").iterdir()] == ["notes.txt"]
