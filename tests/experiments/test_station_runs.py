"""The synthetic world sampled at stations, from files to scores."""

import shutil

import numpy as np
import properscoring
import pytest
import realruns
import torch
import xarray as xr

from ens10.convert import prepare
from ens10.errors import ArgumentError
from ens10.experiments.forecasts.apply import apply
from ens10.experiments.forecasts.load import load_model
from ens10.experiments.reporting.figures import skill_maps
from ens10.experiments.scoring.run_results import read_run
from ens10.experiments.scoring.score import read_states
from ens10.models.losses import MembersCRPSLoss, SpectralCRPSLoss, SumLoss
from ens10.models.matching import require_pointwise
from ens10.models.networks import MLP
from ens10.source import open_source
from ens10.store import open_store

ROWS, COLUMNS = [1, 3, 3, 6, 2], [2, 2, 9, 15, 0]
POINTS = {
    "latitude": xr.DataArray(ROWS, dims="station"),
    "longitude": xr.DataArray(COLUMNS, dims="station"),
}


def at_stations(dataset):
    """The grid points that stand for stations; those of one row have the same latitude."""
    names = {"latitude": "lat", "longitude": "lon"}
    held = dataset.isel(POINTS).rename(names).load().drop_encoding()
    heights = ("station", [10.0, 250.0, 1200.0, 3.0, 45.0])
    return held.assign_coords(station=[f"s{n}" for n in range(5)], altitude=heights)


@pytest.fixture(scope="module")
def stations(shared, world):
    """A folder with the files of forecasts and observations, and their store."""

    def fill(folder):
        at_stations(open_source(world.folder)).to_netcdf(folder / "forecasts.nc")
        truth = at_stations(open_source(world.folder / "truth", optional_dimensions=True))
        truth.isel(station=[4, 2, 0, 1, 3]).to_netcdf(folder / "observations.nc")
        paths = folder / "forecasts.nc", folder / "store.zarr"
        prepare(*paths, truth=folder / "observations.nc")

    return shared("stations", fill)


@pytest.fixture(scope="module")
def local(stations, shared):
    def fill(folder):
        realruns.finish(realruns.fit("emos_local", stations / "store.zarr", folder / "run"))

    return shared("stations_emos", fill) / "run"


def test_local_emos_is_that_of_the_grid_points_bit_for_bit(local, runs):
    found = xr.open_zarr(local / "predictions.zarr")
    wanted = xr.open_zarr(runs["emos_local"] / "predictions.zarr").isel(POINTS)
    for name in ("mu", "sigma", "truth"):
        assert found[name].dims == ("time", "station")
        np.testing.assert_array_equal(found[name], wanted[name])
    np.testing.assert_array_equal(found["lat"], wanted["latitude"])


def test_every_station_has_the_same_weight_in_the_scores(local):
    held = xr.open_zarr(local / "predictions.zarr").astype(np.float64).load()
    crps = properscoring.crps_gaussian(held["truth"], held["mu"], held["sigma"])
    states = xr.open_dataset(local / "scores.nc")
    mean = states["crps_sum"].sum() / states["crps_weight"].sum()
    np.testing.assert_allclose(mean, crps.mean(), rtol=1e-6)
    np.testing.assert_allclose(states["crps_map_sum"] / 8, crps.mean(0), rtol=1e-6)
    assert states["crps_map_sum"].dims == ("station",)


def test_the_extreme_forecast_index_weights_each_station(local, stations, tmp_path):
    held, truth = stations / "forecasts.nc", stations / "observations.nc"
    options = ["--variables", "t2m", "--climate", "t2m@48"]
    realruns.command("prepare", held, tmp_path / "s.zarr", "--truth", truth, *options)
    climate = open_store(tmp_path / "s.zarr", "climate")["t2m"].isel(step=0, judged_year=0)
    members = open_store(tmp_path / "s.zarr", "sfc")["t2m"].isel(step=0)
    members = members.load()
    trained = members["valid_time"].dt.year.isin([2000, 2001, 2002])
    past = members.isel(time=trained.to_numpy())  # the window of nine starts is all of a year
    wanted = past.quantile(climate["quantile"].to_numpy(), ("time", "number"))
    found = climate.sel(month_day="0402").transpose("quantile", "station")
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    run, store = shutil.copytree(local, tmp_path / "run"), tmp_path / "s.zarr"
    realruns.command("score", run, "--scores", "eecrps", "--raw", store, "--climate", store)
    assert float(read_states(run)["eecrps_sum"].sum()) > 0


def test_networks_of_neighbours_are_refused(stations, tmp_path, capsys):
    options = ["--data.store", stations / "store.zarr", "--run", tmp_path / "run", "--quiet"]
    config = realruns.config_path("unet")
    realruns.command("fit", "--config", config, *options, status=1)
    assert "UNet uses neighbouring points" in capsys.readouterr().err


def test_new_forecasts_are_corrected_as_predicted(local, stations, world, tmp_path):
    out = apply([local], stations / "forecasts.nc", tmp_path / "out.nc")
    found = xr.open_dataset(out)
    wanted = xr.open_zarr(local / "predictions.zarr")
    np.testing.assert_array_equal(found["mu"].sel(time=wanted["time"]), wanted["mu"])
    assert found["mu"].dims == ("time", "station")
    assert found["lat"].attrs["standard_name"] == "latitude"
    assert found["station"].to_numpy().tolist() == wanted["station"].to_numpy().tolist()
    realruns.command("score", out, "--truth", stations / "store.zarr", "--variable", "t2m")
    with pytest.raises(ArgumentError, match="stations: the forecast has a grid"):
        apply([local], world.folder, tmp_path / "grid.nc")
    others = xr.open_dataset(stations / "forecasts.nc").isel(station=[1, 0, 2, 3, 4])
    other_order = xr.open_dataset(apply([local], others, tmp_path / "others.nc"))
    xr.testing.assert_identical(other_order, found.isel(station=[1, 0, 2, 3, 4]))
    with pytest.raises(ArgumentError, match="GRIB holds grids"):
        apply([local], stations / "forecasts.nc", tmp_path / "out.grib")


def test_the_report_draws_a_disc_for_each_station(local, stations, tmp_path):
    raw = realruns.finish(realruns.fit("raw", stations / "store.zarr", tmp_path / "raw"))
    realruns.command("report", raw, local, "--out", tmp_path / "report")
    assert "5 stations" in (tmp_path / "report" / "index.html").read_text()
    figure = skill_maps([read_run(raw), read_run(local)])
    discs = figure.axes[0].collections[0]
    ours, theirs = (xr.open_dataset(run / "scores.nc") for run in (local, raw))
    skill = 1 - ours["crps_map_sum"] / theirs["crps_map_sum"]
    np.testing.assert_allclose(discs.get_array(), 100 * skill, rtol=1e-12)
    np.testing.assert_allclose(discs.get_offsets()[:, 1], ours["lat"])
    east = discs.get_offsets()[:, 0] - ours["lon"].to_numpy()
    np.testing.assert_allclose(east / 360, np.round(east / 360), atol=1e-12)


def test_a_network_with_an_embedding_of_each_station(stations, tmp_path):
    options = ["--trainer.max_epochs", 3]
    extras = ["--data.extras", "[location, altitude, day_of_year]"]
    store = stations / "store.zarr"
    run = realruns.finish(realruns.fit("mlp_embedding", store, tmp_path / "run", *options, *extras))
    held = read_states(run)
    assert held["crps_map_sum"].dims == ("station",)
    learned = load_model(run)._module.network.embedding()
    assert learned.shape == (2, 1, 5)
    started = MLP(26, 512, grid=(1, 5)).embedding()
    assert not np.allclose(learned.detach(), started.detach())


def test_the_embedding_tells_stations_of_equal_features_apart():
    torch.manual_seed(0)
    network, features = MLP(3, grid=(1, 4)), torch.ones(2, 3, 1, 4)
    outputs = network(features)
    assert len(torch.unique(outputs[0, 0])) == 4
    (outputs[..., 1].sum() + network.penalty()).backward()
    gradient = network.embedding.maps[0].grad
    assert gradient[:, 0, 1].abs().min() > 1e-4 > gradient[:, 0, 0].abs().max()
    with pytest.raises(ArgumentError, match="Set the network's grid"):
        network(torch.ones(2, 3, 1, 5))


def test_a_loss_of_neighbours_is_refused():
    with pytest.raises(ArgumentError, match="loss: the data are stations, but SpectralCRPSLoss"):
        require_pointwise(SumLoss([MembersCRPSLoss(), SpectralCRPSLoss()], [1.0, 0.1]))
