"""Advection as predictors: against closed forms, and where the truth is the displaced forecast."""

import math
from functools import cache

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from ens10.convert import prepare
from ens10.errors import ArgumentError
from ens10.loader import EnsembleDataModule
from ens10.models import PostProcessor, ResidualNormalHead, StatisticalPostProcessor
from ens10.models.layers.smoe import RegionGate
from ens10.models.networks import SMoEUNet
from ens10.models.statistical import Advection, BoostedEMOS, RegionalRegression, RidgeEMOS
from ens10.models.statistical.spool import Spool
from ens10.synthetic import World

LATITUDE, LONGITUDE = np.linspace(75, -75, 11), np.arange(0, 360, 15.0)
CHANNELS = ("msl:mean", "v10:mean", "u10:mean", "u10:std", "u_850:mean", "v_850:mean")
SHIFT = 0.3  # rows for a wind of 1


def placed(latitude=LATITUDE, longitude=LONGITUDE, target="t2m"):
    advection = Advection()
    advection.place(CHANNELS, target, latitude.tolist(), longitude.tolist())
    return advection


def batch_of(dates=200, seed=0, sign=1.0):
    """Plane waves with random phases, moved by a random wind: the truth is the moved forecast."""
    rng = np.random.default_rng(seed)
    lon, lat = np.radians(LONGITUDE), np.radians(LATITUDE)[:, None]
    row = math.radians(15)
    wind = rng.normal(size=(dates, 2, 1, 1)) + np.zeros((1, 1, len(lat), len(lon)))
    u, v = wind[:, 0], wind[:, 1]
    phase, slope = rng.uniform(0, 2 * np.pi, (2, dates, 1, 1))

    def field(lon, lat):
        return 280 + 3 * np.sin(lon + phase) + 2 * np.cos(2 * lat + slope) + 40 * np.cos(lat)

    moved = sign * SHIFT * row
    mean = field(lon, lat)
    # what belongs to the place does not move: 40 cos(lat) is subtracted from the moved field
    displaced = field(lon - moved * u / np.cos(lat), lat - moved * v)
    truth = displaced - 40 * np.cos(lat - moved * v) + 40 * np.cos(lat)
    noise = 0.05 * rng.normal(size=truth.shape)
    features = rng.normal(size=(dates, len(CHANNELS), *truth.shape[1:]))
    features[:, 2], features[:, 1] = u, v
    arrays = {
        "features": features, "raw_mean": mean, "raw_std": np.ones_like(mean),
        "target": truth + noise, "weights": np.ones_like(mean),
    }  # fmt: skip
    batch = {name: torch.from_numpy(values).float() for name, values in arrays.items()}
    return {**batch, "dates": torch.arange(dates) * 86400 * 6}


def fitted(method, batch):
    if method.advection is not None:
        method.advection.place(CHANNELS, "t2m", LATITUDE.tolist(), LONGITUDE.tolist())
    method.collect(batch)
    method.solve()
    return method


@cache
def ridge_with_advection():
    return fitted(RidgeEMOS(advection=True), batch_of())


def test_the_gradient_is_that_of_waves_and_of_latitude():
    lon = torch.from_numpy(np.radians(LONGITUDE))
    lat = torch.from_numpy(LATITUDE)[:, None]
    fields = torch.stack([torch.sin(lon) + 0 * lat, lat + 0 * lon]).double()
    east, north = placed().gradient(fields).unbind(1)
    step = math.radians(15)
    # central differences of a sine, over a row's distance of 15 degrees
    expected = torch.cos(lon) * math.sin(step) / torch.cos(torch.deg2rad(lat))
    torch.testing.assert_close(east[0], expected, rtol=1e-6, atol=1e-7)
    assert north[0].abs().max() < 1e-7
    assert east[1].abs().max() < 1e-7
    torch.testing.assert_close(north[1, 1:-1], torch.full((9, 24), 15.0).double())
    torch.testing.assert_close(north[1, 0], torch.full((24,), 7.5).double())  # one side, halved


@pytest.mark.parametrize(("rows", "columns"), [(-1, 1), (1, -1), (-1, -1)])
def test_the_gradient_does_not_depend_on_the_order_of_rows_and_columns(rows, columns):
    fields = torch.randn(2, 11, 24, generator=torch.Generator().manual_seed(0))
    turned = placed(LATITUDE[::rows], LONGITUDE[::columns])
    dims = [dim for dim, order in ((-2, rows), (-1, columns)) if order < 0]
    found = turned.gradient(fields.flip(dims)).flip(dims)
    torch.testing.assert_close(found, placed().gradient(fields))


def test_a_regional_grid_has_no_neighbours_beyond_its_edges():
    region = placed(np.linspace(60, 40, 5), np.arange(0, 40, 5.0))
    assert not bool(region.periodic)
    fields = torch.arange(8.0).expand(1, 5, 8)
    east = region.gradient(fields)[0, 0] / region.stretch[0]
    assert east[:, 0].tolist() == [0.5] * 5
    assert east[:, 3].tolist() == [1.0] * 5


def test_near_the_poles_a_column_counts_as_at_most_five_rows_do():
    advection = placed(np.linspace(90, -90, 13), LONGITUDE)
    assert advection.stretch[0].max() == 5.0
    assert bool(advection.stretch.isfinite().all())


def test_the_wind_is_that_of_the_targets_level():
    assert placed(target="t2m").winds.tolist() == [2, 1]
    assert placed(target="t_850").winds.tolist() == [4, 5]
    with pytest.raises(ArgumentError, match="u_500 and v_500 not among them"):
        placed(target="z_500")


def test_predictors_of_fit_and_forecast_are_the_same():
    batch, advection, spool = batch_of(30), placed(), Spool()
    gradient = advection.collect(batch)
    fields = [batch["target"], batch["features"], gradient]
    spool.append(fields, batch["weights"], batch["dates"])
    advection.solve()
    points = np.array([0, 30, 100, 263])
    fit = advection.expand(spool.read(points), points, spool.dates, 1)
    assert fit.shape == (1 + len(CHANNELS) + 6, 4, 30)
    forecast = advection(batch).flatten(2)[:, :, points].permute(1, 2, 0)
    np.testing.assert_allclose(fit[-6:], forecast.numpy(), rtol=1e-4, atol=1e-4)


def test_predictors_are_departures_from_the_annual_cycle_times_the_wind():
    batch, method = batch_of(), ridge_with_advection()
    x = method.advection(batch)
    assert x.shape[1] == 6
    assert x[:, :2].mean(0).abs().max() < 1e-3  # of 40 cos(lat) nothing is left
    u, v = batch["features"][:, 2], batch["features"][:, 1]
    products = torch.stack([u * x[:, 0], v * x[:, 0], u * x[:, 1], v * x[:, 1]], 1)
    torch.testing.assert_close(x[:, 2:], products)


@pytest.mark.parametrize("kind", [RidgeEMOS, BoostedEMOS])
def test_a_displacement_by_the_wind_is_corrected(kind):
    batch, new = batch_of(), batch_of(60, seed=1)
    ridge = kind is RidgeEMOS
    with_it = ridge_with_advection() if ridge else fitted(kind(advection=True), batch)
    without = fitted(kind(), batch)
    crps = [m(new).crps(new["target"])[:, 2:-2].mean() for m in (with_it, without)]
    # 0.14 without; the noise alone makes 0.028, what is of second order in the displacement more
    assert crps[0] < crps[1] / 3


def test_the_coefficients_are_the_displacement():
    method = fitted(RidgeEMOS(advection=True, strength=0.1), batch_of())
    own = method.location[1 + len(CHANNELS) : 1 + len(CHANNELS) + 6, 3:-3] / method.advection.scale
    east, north = own[2], own[5]
    # central differences of waves of 15 degrees a row are a few percent too small
    torch.testing.assert_close(east.mean(), torch.tensor(-SHIFT), rtol=0.15, atol=0)
    torch.testing.assert_close(north.mean(), torch.tensor(-SHIFT), rtol=0.15, atol=0)
    assert own[[0, 1, 3, 4]].mean((1, 2)).abs().max() < 0.05


def test_regions_of_opposite_displacement_are_found():
    along, against = batch_of(), batch_of(sign=-1.0)
    east = torch.from_numpy(LONGITUDE >= 200)
    batch = {**along, "target": torch.where(east, along["target"], against["target"])}
    method = fitted(RegionalRegression(2, advection=True), batch)
    inner = method.region[2:-2] == (~east).long()
    same = float(inner.float().mean())
    assert max(same, 1 - same) > 0.95
    method = fitted(RegionalRegression(2), batch)
    same = float((method.region[2:-2] == (~east).long()).float().mean())
    assert max(same, 1 - same) < 0.9
    assert RegionGate(2, advection=True).method.advection is not None


def test_the_forecast_of_a_loaded_method_is_the_same():
    batch = batch_of(40)
    for method in (RidgeEMOS, RegionalRegression):
        first, second = fitted(method(advection=True), batch), method(advection=True)
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(batch).mu, second(batch).mu)


def test_without_names_of_the_features_there_is_one_clear_error():
    with pytest.raises(ArgumentError, match=r"Fit with an EnsembleDataModule, or call .*place"):
        RidgeEMOS(advection=True).collect(batch_of(20))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    top = tmp_path_factory.mktemp("advection")
    names = ["t2m", "msl", "u10", "v10", "t", "u", "v"]
    world = World(
        "8x16", range(1998, 2006), 6, names, 0, levels=(850,), steps=(48,), kind="displaced"
    )
    world.write(top / "world")
    prepare(world.folder, top / "store.zarr", truth=world.folder / "truth")
    return top / "store.zarr"


def trainer(epochs=1):
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    return pl.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, num_sanity_val_steps=0,
        **dict.fromkeys(quiet, False),
    )  # fmt: skip


def test_lightning_places_the_wind_of_each_target(store):
    targets = ["t2m", "t850"]
    data = EnsembleDataModule(str(store), targets, ["t2m", "v10", "u10", "u850", "v850", "t850"])
    model = StatisticalPostProcessor(RidgeEMOS(advection=True, strength=10))
    trainer().fit(model, data)
    first, second = model.method.methods
    assert first.advection.winds.tolist() == [2, 1]
    assert second.advection.winds.tolist() == [3, 4]
    assert bool(first.advection.periodic)


def test_a_gate_finds_its_regions_with_advection(store):
    data = EnsembleDataModule(str(store), "t2m", batch_size=8)
    gate = RegionGate(4, advection=True)
    network = SMoEUNet(
        len(data.channels), (8, 16), places=("last",), width=4, last_gate=gate, last_experts=4
    )
    trainer().fit(PostProcessor(network, ResidualNormalHead()), data)
    assert bool(gate.method.solved)
    assert gate.method.region.unique().numel() > 1


def test_missing_wind_and_points_are_refused(store):
    model = StatisticalPostProcessor(RidgeEMOS(advection=True))
    with pytest.raises(ArgumentError, match="u10 and v10 not among them"):
        trainer().fit(model, EnsembleDataModule(str(store), "t2m", ["t2m", "msl"]))
    data = EnsembleDataModule(str(store), "t2m", kind="points")
    with pytest.raises(ArgumentError, match="points, but Advection uses neighbouring points"):
        trainer().fit(StatisticalPostProcessor(RidgeEMOS(advection=True)), data)
