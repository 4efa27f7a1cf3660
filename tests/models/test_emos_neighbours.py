"""Regression on neighbours: against a ridge in numpy, at the edges of the grid, and in blocks."""

import numpy as np
import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models.statistical import Neighbours, RidgeEMOS, spool

LATITUDE, LONGITUDE = np.linspace(60, -60, 5), np.arange(0, 360, 45.0)
CHANNELS = ("msl:mean", "v10:mean", "u10:mean", "u10:std")
DATES = 60


def batch_of(seed=0, dates=DATES, noise=0.5):
    rng = np.random.default_rng(seed)
    shape = (dates, len(LATITUDE), len(LONGITUDE))
    features = rng.normal(size=(dates, len(CHANNELS), *shape[1:]))
    mean = 280 + 3 * rng.normal(size=shape)
    east = np.roll(mean, -1, axis=2)
    target = mean + 0.3 * features[:, 2] * (east - mean) + 0.2 * features[:, 1]
    arrays = {
        "features": features, "raw_mean": mean, "raw_std": rng.uniform(0.5, 1.5, shape),
        "target": target + noise * rng.normal(size=shape), "weights": np.ones(shape),
    }  # fmt: skip
    batch = {name: torch.from_numpy(values).float() for name, values in arrays.items()}
    return {**batch, "dates": torch.arange(dates) * 86400 * 6 + seed}


def placed(method, longitude=LONGITUDE):
    part = method if isinstance(method, Neighbours) else method.advection
    part.place(CHANNELS, "t2m", LATITUDE.tolist(), longitude.tolist())
    return method


def fitted(*batches, **options):
    method = placed(RidgeEMOS(neighbours=True, **options))
    for batch in batches:
        method.collect(batch)
    method.solve()
    return method


def nine(fields):
    """Differences of the 3 x 3 neighbours from the value in the middle, by rows, and that value."""
    wide = np.pad(fields, [(0, 0), (1, 1), (0, 0)], "edge")
    around = [
        np.roll(wide, -east, 2)[:, 1 + south : wide.shape[1] - 1 + south] - fields
        for south in (-1, 0, 1)
        for east in (-1, 0, 1)
    ]
    around[4] = fields
    return np.stack(around, 1)


def predictors(batch, climate=None):
    """The 33 predictors (N, 33, H, W) in float64, and the annual cycle of the nine fields."""
    values = {name: value.double().numpy() for name, value in batch.items()}

    angle = values["dates"] * 2 * np.pi / (365.2425 * 86400)  # the mean calendar year
    cycle = np.stack([np.ones(len(angle)), np.cos(angle), np.sin(angle)], 1)
    around = nine(values["raw_mean"])
    flat = around.reshape(len(around), -1)
    if climate is None:
        climate = np.linalg.lstsq(cycle, flat, rcond=None)[0]
    around = (flat - cycle @ climate).reshape(around.shape)
    u, v = values["features"][:, 2:3], values["features"][:, 1:2]
    grid = around.shape[2:]
    season = np.broadcast_to(cycle[:, 1:, None, None], (len(angle), 2, *grid))
    mean, std = values["raw_mean"][:, None], np.log(values["raw_std"][:, None])
    winds = np.stack([u, v], 2)
    products = (around[:, :, None] * winds).reshape(len(angle), 18, *grid)
    return np.concatenate([u, v, around, products, mean, season, std], 1), climate


def test_it_is_a_ridge_regression_in_numpy():
    train, test, strength = batch_of(noise=2.0), batch_of(1), 40.0
    method = fitted(train, local=False, criterion="likelihood", strength=strength)
    x, climate = predictors(train)
    new, _ = predictors(test, climate)
    assert x.shape[1] == 33
    flat, rows = (a.transpose(1, 0, 2, 3).reshape(33, -1) for a in (x, new))
    centre, width = flat.mean(1, keepdims=True), flat.std(1, keepdims=True)
    design, rows = (
        (np.vstack([np.ones((1, a.shape[1])), (a - centre) / width])) for a in (flat, rows)
    )
    error = (train["target"] - train["raw_mean"]).double().numpy().reshape(-1)
    sigma = method(train).sigma.double().numpy().reshape(-1) / error.std()
    n = len(error)
    weighted = design / sigma**2 / n
    penalty = np.full(34, strength / n)
    penalty[0] = 0
    response = (error - error.mean()) / error.std()
    theta = np.linalg.solve(weighted @ design.T + np.diag(penalty), weighted @ response)
    expected = (error.mean() + error.std() * theta @ rows).reshape(DATES, 5, 8)
    found = (method(test).mu - test["raw_mean"]).double().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-3)  # mu is float32 at 280 K
    assert expected.std() > 0.5


def test_rows_beyond_the_grid_repeat_its_edge_and_columns_are_periodic():
    fields = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0)).double()
    around = placed(Neighbours()).around(fields)
    np.testing.assert_allclose(around, nine(fields.numpy()), atol=1e-12)
    region = placed(Neighbours(), LONGITUDE / 9).around(fields)
    np.testing.assert_allclose(region[..., 1:-1], around[..., 1:-1], atol=1e-12)
    # at the first column of a region its own value stands for the one beyond
    assert bool((region[:, 3, :, 0] == 0).all())
    np.testing.assert_allclose(region[:, 5, :, 0], fields[..., 1] - fields[..., 0])


def test_a_missing_neighbour_makes_no_difference():
    fields = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0)).double()
    fields[0, 2, 3] = float("nan")
    around = placed(Neighbours()).around(fields)
    assert bool(around.isfinite().all())
    assert around[0, 5, 2, 2] == 0
    np.testing.assert_allclose(around[0, 3, 2, 2], fields[0, 2, 1] - fields[0, 2, 2])


def test_blocks_of_points_and_batches_are_one_fit(monkeypatch):
    batch = batch_of()
    one = fitted(batch, strength=30.0).state_dict()
    parts = [{name: values[n : n + 7] for name, values in batch.items()} for n in range(0, 60, 7)]
    monkeypatch.setattr(spool, "_SAMPLES", 4 * DATES)
    several = fitted(*parts, strength=30.0).state_dict()
    for name, values in one.items():
        torch.testing.assert_close(several[name], values, rtol=1e-6, atol=1e-6)


def test_predictors_of_fit_and_forecast_are_the_same():
    batch, part, store = batch_of(), placed(Neighbours()), spool.Spool()
    around = part.collect(batch)
    store.append([part.features(batch), around], batch["weights"], batch["dates"])
    part.solve()
    points = np.array([0, 7, 20, 39])
    fit = part.expand(store.read(points), points, store.dates, 0)
    forecast = part(batch).flatten(2)[:, :, points].permute(1, 2, 0)
    np.testing.assert_allclose(fit[2:], forecast.numpy(), rtol=1e-4, atol=1e-4)


def test_the_correction_by_the_neighbour_to_the_east_is_found():
    train, test = batch_of(dates=400), batch_of(1)
    error = [
        (m(test).mu - test["target"]).square().mean().sqrt()
        for m in (fitted(train), placed_without_neighbours(train))
    ]
    torch.testing.assert_close(error[0], torch.tensor(0.5), rtol=0.12, atol=0)  # the noise
    assert error[1] > 1.0


def placed_without_neighbours(batch):
    method = RidgeEMOS()
    method.collect(batch)
    method.solve()
    return method


def test_the_forecast_of_a_loaded_method_is_the_same(tmp_path):
    batch = batch_of()
    first, second = fitted(batch, strength=30.0), RidgeEMOS(neighbours=True)
    torch.save(first.state_dict(), tmp_path / "method.pt")
    second.load_state_dict(torch.load(tmp_path / "method.pt", weights_only=True))
    assert torch.equal(first(batch).mu, second(batch).mu)
    assert torch.equal(first(batch).sigma, second(batch).sigma)


def test_bad_input_is_refused():
    with pytest.raises(ArgumentError, match="Set one of advection and neighbours to false"):
        RidgeEMOS(advection=True, neighbours=True)
    with pytest.raises(ArgumentError, match="needs wind"):
        Neighbours().place(CHANNELS, "t_850", LATITUDE.tolist(), LONGITUDE.tolist())
