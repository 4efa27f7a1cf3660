import numpy as np
import properscoring
import pytest
import torch
from scipy.optimize import minimize

from ens10.errors import ArgumentError
from ens10.models.statistical import EMOS, Climatology, Raw

# mean, deviation and spread of T2m in K and Z500 in m2 s-2
BASES = [(280.0, 8.0, 1.0), (5.3e4, 2000.0, 80.0)]


def world(dates, grid=(3, 4), base=280.0, amplitude=8.0, spread=1.0, seed=0, same=False):
    """Batches with a known optimum: coefficients a, b, c, d (H, W), or (1, 1) if `same`."""
    g = torch.Generator().manual_seed(seed)
    where = (1, 1) if same else grid

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(shape, generator=g, dtype=torch.float64)

    mean = base + amplitude * torch.randn(dates, *grid, generator=g, dtype=torch.float64)
    std = uniform(0.2, 2.0, dates, *grid) * spread
    b, shift = uniform(0.8, 1.1, *where), uniform(-1, 1, *where) * spread
    c, d = uniform(0.5, 1, *where) * spread, uniform(0.5, 1.5, *where)
    noise = torch.randn(dates, *grid, generator=g, dtype=torch.float64)
    truth = base + shift + b * (mean - base) + (c**2 + d**2 * std**2).sqrt() * noise
    fields = {"raw_mean": mean, "raw_std": std, "target": truth, "weights": torch.ones_like(mean)}
    batch = {key: value.float() for key, value in fields.items()}
    batch["dates"] = 86400 * torch.arange(dates)
    return batch, (base + shift - b * base, b, c, d)


def pieces(batch, size=7):
    count = len(batch["raw_mean"])
    return [{k: v[i : i + size] for k, v in batch.items()} for i in range(0, count, size)]


def fitted(method, batch):
    for piece in pieces(batch):
        method.collect(piece)
    method.solve()
    return method


def point(batch, row, column):
    return [
        batch[key][:, row, column].double().numpy() for key in ("raw_mean", "raw_std", "target")
    ]


def emos_score(theta, mean, std, truth):
    a, b, c, d = theta
    sigma = np.sqrt(c**2 + d**2 * std**2)
    return properscoring.crps_gaussian(truth, a + b * mean, sigma).mean()


def fitted_theta(method, row, column):
    return [float(x[row, column]) for x in (method.a, method.b, method.c, method.d)]


@pytest.mark.parametrize(("base", "amplitude", "spread"), BASES)
@pytest.mark.parametrize("dates", [6, 60])
def test_local_emos_against_scipy(base, amplitude, spread, dates):
    batch, _ = world(dates, base=base, amplitude=amplitude, spread=spread)
    method = fitted(EMOS(local=True), batch)
    for row, column in [(0, 0), (2, 1)]:
        data = point(batch, row, column)
        theta = fitted_theta(method, row, column)
        ours = emos_score(theta, *data)
        options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}
        # scipy sees the deviation from `base`: Nelder-Mead cannot handle a + b * 5e4
        a, b, c, d = theta
        centred = (data[0] - base, data[1], data[2] - base)
        for start in ([a + (b - 1) * base, b, c, d], [0, 1, spread, 1]):
            oracle = minimize(
                emos_score, start, args=centred, method="Nelder-Mead", options=options
            )
            assert ours <= oracle.fun * (1 + 2e-5)


@pytest.mark.parametrize(("base", "amplitude", "spread"), BASES)
def test_emos_recovers_the_coefficients_of_a_simulation(base, amplitude, spread):
    batch, (a, b, c, d) = world(4000, (2, 2), base, amplitude, spread)
    method = fitted(EMOS(local=True), batch)
    torch.testing.assert_close(method.b, b, rtol=0, atol=6 * 2 * spread / amplitude / 4000**0.5)
    torch.testing.assert_close(method.c.double(), c, rtol=0.2, atol=0)
    torch.testing.assert_close(method.d.double(), d, rtol=0.12, atol=0)
    centred = method.a + (method.b - 1) * base
    torch.testing.assert_close(centred, a + (b - 1) * base, rtol=0, atol=6 * 2 * spread / 4000**0.5)


def test_global_emos_is_one_weighted_fit_over_all_points():
    batch, _ = world(30, (4, 5))
    batch["weights"] = torch.rand(4, 5, generator=torch.Generator().manual_seed(1)).expand(30, 4, 5)
    method = fitted(EMOS(), batch)
    assert method.a.shape == (1, 1)
    mean, std, truth, weight = (
        batch[key].double().numpy() for key in ("raw_mean", "raw_std", "target", "weights")
    )

    def objective(theta):
        a, b, c, d = theta
        sigma = np.sqrt(c**2 + d**2 * std**2)
        crps = properscoring.crps_gaussian(truth - 280, a + b * (mean - 280), sigma)
        return (weight * crps).sum() / weight.sum()

    oracle = minimize(objective, [0, 1, 1, 1], method="BFGS", tol=1e-10)
    a, b, c, d = fitted_theta(method, 0, 0)
    expected = [*oracle.x[:2], *np.abs(oracle.x[2:])]
    np.testing.assert_allclose([a + (b - 1) * 280, b, c, d], expected, rtol=1e-3, atol=1e-3)


def test_global_emos_recovers_one_set_of_coefficients_on_a_field():
    batch, (a, b, c, d) = world(300, (20, 30), 5.3e4, 2000.0, 80.0, same=True)
    method = fitted(EMOS(), batch)
    torch.testing.assert_close(method.b, b, rtol=0, atol=1e-3)
    torch.testing.assert_close(method.a + method.b * 5.3e4, a + b * 5.3e4, rtol=0, atol=1.5)
    torch.testing.assert_close(method.c.double(), c, rtol=0.03, atol=0)
    torch.testing.assert_close(method.d.double(), d, rtol=0.03, atol=0)


def test_local_emos_does_not_depend_on_chunks_or_batches(monkeypatch):
    batch, _ = world(20, (5, 6))
    whole = fitted(EMOS(local=True), batch)
    monkeypatch.setattr("ens10.models.statistical.spool._SAMPLES", 70)
    cut = EMOS(local=True)
    for piece in pieces(batch, 3):
        cut.collect(piece)
    cut.solve()
    for name in ("bias", "slope", "c", "d"):
        torch.testing.assert_close(getattr(cut, name), getattr(whole, name), rtol=1e-4, atol=1e-5)


def test_missing_dates_are_left_out_and_empty_points_stay_raw():
    batch, _ = world(20)
    few = {key: value.clone()[:14] for key, value in batch.items()}
    batch["weights"][14:, 0, 0] = 0
    batch["raw_mean"][14:, 0, 0] = torch.nan
    batch["target"][14:, 0, 0] = 0
    batch["weights"][2:, 1, 1] = 0
    batch["weights"][:, 2, 2] = 0
    method, short = fitted(EMOS(local=True), batch), fitted(EMOS(local=True), few)
    for name in ("bias", "slope", "centre", "c", "d"):
        assert getattr(method, name)[0, 0] == pytest.approx(getattr(short, name)[0, 0].item())
    for row, column in [(1, 1), (2, 2)]:
        assert fitted_theta(method, row, column) == [0, 1, 0, 1]
    forecast = method(batch)
    assert torch.equal(forecast.mu[:, 2, 2], batch["raw_mean"][:, 2, 2])
    assert torch.equal(forecast.sigma[:, 2, 2], batch["raw_std"][:, 2, 2])
    assert forecast.mu[14:, 0, 0].isnan().all()
    global_fit = fitted(EMOS(), batch)
    assert global_fit(batch).sigma.isfinite().all()


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("dates", [1, 2, 3, 6])
def test_degenerate_data_give_finite_coefficients(local, dates):
    batch, _ = world(dates)
    batch["raw_std"][:, 0] = 0  # no spread
    batch["raw_mean"][:, 1] = 280  # a mean that never moves
    batch["target"][:, 2] = batch["raw_mean"][:, 2]  # a perfect forecast
    method = fitted(EMOS(local=local), batch)
    forecast = method(batch)
    assert forecast.mu.isfinite().all()
    assert forecast.sigma.isfinite().all()
    crps = forecast.crps(batch["target"])
    assert crps.isfinite().all()
    if dates >= 3:
        assert (forecast.sigma > 0).all()
        raw = torch.where(batch["raw_std"] > 0, batch["raw_std"], 1e-6)
        before = type(forecast)(batch["raw_mean"], raw).crps(batch["target"]).mean()
        assert crps.mean() < before


def test_no_spread_leaves_a_constant_sigma():
    batch, _ = world(200, (1, 1))
    batch["raw_std"].zero_()
    method = fitted(EMOS(local=True), batch)
    assert method.d.item() == 0
    residual = batch["target"] - method(batch).mu
    assert method.c.item() == pytest.approx(residual.std().item(), rel=0.1)


def test_emos_keeps_no_view_of_the_loaders_arrays():
    batch, _ = world(20)
    expected = fitted(EMOS(local=True), batch)
    method = EMOS(local=True)
    ring = {key: torch.empty_like(value[:7]) for key, value in batch.items()}
    for piece in pieces(batch):
        count = len(piece["raw_mean"])
        for key, value in piece.items():
            ring[key][:count] = value
        method.collect({key: value[:count] for key, value in ring.items()})
    method.solve()
    assert torch.equal(method.bias, expected.bias)
    assert torch.equal(method.d, expected.d)


def test_climatology_is_mean_and_deviation_of_the_valid_truth():
    batch, _ = world(25, base=5.3e4, amplitude=2000.0, spread=80.0)
    batch["weights"][5:9, 0, 1] = 0
    batch["target"][5:9, 0, 1] = 0
    batch["weights"][:, 1, 1] = 0
    forecast = fitted(Climatology(), batch)(batch)
    truth = batch["target"].double().numpy().copy()
    truth[batch["weights"].numpy() == 0] = np.nan
    truth[:, 1, 1] = 0
    mu, sigma = np.nanmean(truth, 0), np.nanstd(truth, 0, ddof=1)
    mu[1, 1] = sigma[1, 1] = np.nan
    assert forecast.mu.shape == (25, 3, 4)
    np.testing.assert_allclose(forecast.mu[3].numpy(), mu, rtol=1e-6)
    np.testing.assert_allclose(forecast.sigma[3].numpy(), sigma, rtol=1e-5)


def test_raw_is_the_ensemble(make_batches):
    batch = make_batches(1)[0]
    forecast = Raw("fair")(batch)
    assert torch.equal(forecast.members, batch["members"])
    assert forecast.estimator == "fair"
    del batch["members"]
    with pytest.raises(ArgumentError, match="members"):
        Raw()(batch)


@pytest.mark.parametrize("method", [EMOS(), EMOS(local=True), Climatology()])
def test_a_method_is_fitted_before_use_and_on_the_same_grid(method):
    batch, _ = world(5)
    with pytest.raises(ArgumentError, match="no coefficients yet"):
        method(batch)
    with pytest.raises(ArgumentError, match="saw no training batch"):
        method.solve()
    fitted(method, batch)
    other, _ = world(5, (4, 4))
    if isinstance(method, EMOS) and not method.local:
        assert method(other).mu.shape == (5, 4, 4)
    else:
        with pytest.raises(ArgumentError, match=r"4 x 4 points.*3 x 4"):
            method(other)


@pytest.mark.parametrize("kind", [EMOS, Climatology])
def test_coefficients_travel_in_the_state_dict(kind):
    batch, _ = world(12)
    method = fitted(kind(local=True) if kind is EMOS else kind(), batch)
    loaded = kind(local=True) if kind is EMOS else kind()
    loaded.load_state_dict(method.state_dict())
    assert torch.equal(loaded(batch).mu, method(batch).mu)
    assert torch.equal(loaded(batch).sigma, method(batch).sigma)


def test_emos_counts_four_coefficients_a_fit():
    assert EMOS().fitted_parameters == 0
    for local, fits in ((False, 1), (True, 6)):
        method = EMOS(local=local)
        shape = (10, 2, 3)
        generator = torch.Generator().manual_seed(0)
        mean = torch.randn(shape, generator=generator)
        batch = {
            "raw_mean": mean,
            "raw_std": torch.ones(shape),
            "target": mean + torch.randn(shape, generator=generator),
            "weights": torch.ones(shape),
            "dates": torch.arange(10),
        }
        method.collect(batch)
        method.solve()
        assert method.fitted_parameters == 4 * fits
