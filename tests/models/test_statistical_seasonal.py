import math

import numpy as np
import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models.statistical.bias import BiasMap
from ens10.models.statistical.climatology import Climatology, SeasonalClimatology
from ens10.models.statistical.harmonics import CycleSums, annual_cycle
from ens10.models.statistical.member_emos import MemberEMOS
from ens10.models.statistical.seasonal_emos import SeasonalEMOS

DAY = 86400


def year_world(dates=400, grid=(3, 4), base=280.0, seed=0):
    """Truth with a cycle in mean and variance about an ensemble whose error has a cycle too."""
    g = torch.Generator().manual_seed(seed)
    when = torch.arange(dates) * int(3.7 * DAY)
    cycle = annual_cycle(when, 1)
    bias = torch.randn(3, *grid, generator=g, dtype=torch.float64)
    truth = torch.randn(dates, *grid, generator=g, dtype=torch.float64)
    truth *= torch.exp(0.3 * cycle[:, 1, None, None])
    truth += base + 8 * cycle[:, 1, None, None] + 3 * cycle[:, 2, None, None]
    noise = torch.randn(dates, *grid, generator=g, dtype=torch.float64)
    mean = truth - torch.einsum("nk,khw->nhw", cycle, bias) + 0.5 * noise
    members = mean[:, None] + torch.randn(dates, 5, *grid, generator=g, dtype=torch.float64)
    batch = {
        "raw_mean": mean.float(),
        "raw_std": torch.ones(dates, *grid),
        "target": truth.float(),
        "weights": torch.ones(dates, *grid),
        "dates": when,
        "members": members.float(),
    }
    return batch, bias


def pieces(batch, size=37):
    count = len(batch["dates"])
    return [{k: v[i : i + size] for k, v in batch.items()} for i in range(0, count, size)]


def fitted(method, batch):
    for piece in pieces(batch):
        method.collect(piece)
    method.solve()
    return method


@pytest.mark.parametrize("harmonics", [0, 1, 2])
@pytest.mark.parametrize("base", [0.0, 5.3e4])
def test_sums_give_the_least_squares_cycles_of_mean_and_variance(harmonics, base):
    batch, _ = year_world(base=base)
    valid = torch.rand(batch["target"].shape, generator=torch.Generator().manual_seed(1)) > 0.3
    sums = CycleSums(harmonics)
    for start in range(0, 400, 90):
        cut = slice(start, start + 90)
        sums.add(batch["target"][cut], valid[cut], batch["dates"][cut])
    mean, variance, count = sums.finish()
    x = annual_cycle(batch["dates"], harmonics).numpy()
    for row, column in [(0, 0), (2, 3)]:
        chosen = valid[:, row, column].numpy()
        y = batch["target"][:, row, column].double().numpy()[chosen]
        beta = np.linalg.lstsq(x[chosen], y, rcond=None)[0]
        square = (y - x[chosen] @ beta) ** 2 * len(y) / (len(y) - x.shape[1])
        spread = np.linalg.lstsq(x[chosen], square, rcond=None)[0]
        assert count[row, column] == len(y)
        np.testing.assert_allclose(mean[:, row, column], beta, rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(variance[:, row, column], spread, rtol=1e-6, atol=1e-7)


def test_bias_map_recovers_the_cycle_of_the_error_and_keeps_the_spread():
    batch, bias = year_world()
    method = fitted(BiasMap(1), batch)
    # error of variance 1/4, cosines of variance 1/2: six standard errors
    atol = 6 * 0.5 / math.sqrt(400 / 2)
    torch.testing.assert_close(method.coefficients.double(), bias, rtol=0, atol=atol)
    forecast = method(batch)
    assert torch.equal(forecast.sigma, batch["raw_std"])
    assert (batch["target"] - forecast.mu).mean(0).abs().max() < 1e-4
    constant = fitted(BiasMap(0), batch)
    assert forecast.crps(batch["target"]).mean() < constant(batch).crps(batch["target"]).mean()
    assert method.fitted_parameters == 3 * 12


def test_moved_members_have_the_mean_moved_and_nothing_else():
    batch, _ = year_world(60)
    method = fitted(BiasMap(1, members=True, estimator="fair"), batch)
    forecast = method(batch)
    assert forecast.estimator == "fair"
    moved = forecast.members - batch["members"]
    expected = method.correction(batch)[:, None].expand_as(moved)
    torch.testing.assert_close(moved, expected, atol=1e-4, rtol=0)
    del batch["members"]
    with pytest.raises(ArgumentError, match="no ensemble members, which BiasMap needs"):
        method(batch)


def test_climatology_of_the_year_against_the_one_of_all_dates():
    batch, _ = year_world()
    flat, same = fitted(Climatology(), batch)(batch), fitted(SeasonalClimatology(0), batch)(batch)
    torch.testing.assert_close(same.mu, flat.mu, rtol=1e-6, atol=0)
    torch.testing.assert_close(same.sigma, flat.sigma, rtol=1e-5, atol=0)
    forecast = fitted(SeasonalClimatology(1), batch)(batch)
    known = torch.exp(0.3 * annual_cycle(batch["dates"], 1)[:, 1])
    ratio = forecast.sigma.mean((1, 2)).double() / known
    assert (ratio - 1).abs().max() < 0.12  # 12 points of 400 dates: about four standard errors
    assert forecast.crps(batch["target"]).mean() < 0.5 * flat.crps(batch["target"]).mean()


def test_the_variance_of_a_calm_season_is_a_tenth_of_the_years():
    """Deviations in one month alone: a wave through them dips below 0."""
    batch = year_world()[0]
    calm = annual_cycle(batch["dates"], 1)[:, 1] < math.cos(2 * math.pi / 24)
    batch["target"] = torch.where(calm[:, None, None], 280.0, batch["target"])
    method = fitted(SeasonalClimatology(1), batch)
    least = method(batch).sigma.amin(0).square()
    assert (method.variance_cycle[0] < method.variance_cycle[1:].norm(dim=0)).all()
    torch.testing.assert_close(least, 0.1 * method.variance_cycle[0])


def test_points_with_few_dates_have_no_cycle_and_those_with_none_no_forecast():
    batch, _ = year_world(100)
    batch["weights"][8:, 0, 0] = 0
    batch["target"][8:, 0, 0] = torch.nan
    batch["weights"][:, 1, 1] = 0
    climate, bias = fitted(SeasonalClimatology(1), batch), fitted(BiasMap(1), batch)
    assert (climate.mean_cycle[1:, 0, 0] == 0).all()
    first = batch["target"][:8, 0, 0].double()
    assert climate.mean_cycle[0, 0, 0].item() == pytest.approx(first.mean().item(), rel=1e-6)
    assert climate(batch).sigma[0, 0, 0].item() == pytest.approx(first.std().item(), rel=1e-4)
    assert climate(batch).mu[:, 1, 1].isnan().all()
    assert (bias.coefficients[:, 1, 1] == 0).all()


def test_a_season_without_dates_leaves_finite_coefficients():
    batch, _ = year_world(60)
    batch["dates"] = torch.arange(60) * (DAY // 24)
    assert fitted(BiasMap(2), batch)(batch).mu.isfinite().all()


@pytest.mark.parametrize("kind", [BiasMap, SeasonalClimatology])
def test_bad_input(kind):
    batch, _ = year_world(30)
    with pytest.raises(ArgumentError, match="harmonics: -1 is negative"):
        kind(-1)
    with pytest.raises(ArgumentError, match="saw no training batch"):
        kind().solve()
    with pytest.raises(ArgumentError, match="no coefficients yet"):
        kind()(batch)
    method = fitted(kind(1), batch)
    other, _ = year_world(30, (4, 4))
    with pytest.raises(ArgumentError, match=r"4 x 4 points.*3 x 4"):
        method(other)
    loaded = kind(1)
    loaded.load_state_dict(method.state_dict())
    assert torch.equal(loaded(batch).mu, method(batch).mu)


@pytest.mark.parametrize(
    "method",
    [BiasMap(), SeasonalClimatology(1), SeasonalEMOS(strength=30.0), MemberEMOS()],
    ids=lambda method: type(method).__name__,
)
def test_mixed_precision_leaves_forecasts_in_full_precision(method):
    """Half precision knows 280 K to the nearest 2 K."""
    batch = year_world(60)[0]
    fitted(method, batch)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = method(batch)
    for name, value in method(batch).variables().items():
        assert torch.equal(mixed.variables()[name], value), name
