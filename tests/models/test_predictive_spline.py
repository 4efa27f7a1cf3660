"""Spline flows against dense sums, the normal distribution and finite differences."""

import math

import pytest
import torch

from ens10.errors import ArgumentError
from ens10.metrics import crps_quantiles
from ens10.metrics.distributions.quantiles import LEVELS
from ens10.models import Normal, SplineFlow, SplineHead


def noise(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(outputs):
    """The head's forecast from a standard normal raw ensemble."""
    field = torch.zeros(outputs[:, 0].shape, dtype=outputs.dtype)
    batch = {"raw_mean": field, "raw_std": field + 1}
    return SplineHead(pieces=(outputs.shape[1] - 1) // 3)(outputs, batch)


def wide(forecast, count):
    """The same forecasts, each at `count` rows."""
    parts = (forecast.mu, forecast.sigma, forecast.x, forecast.y, forecast.slopes)
    return SplineFlow(*(part.expand(*part.shape[:-2], count, -1) for part in parts))


def dense(forecast, y, low=-math.inf, high=math.inf):
    """int (F - 1{x > y})^2 dx of forecasts (1, 1, W), from 12,001 values of z."""
    z = torch.linspace(-8, 8, 12_001, dtype=torch.float64)
    many = wide(forecast, len(z))
    at = z[None, :, None].expand(1, len(z), many.mu.shape[-1])
    x = (many.mu + many.sigma * many._spline.value(at))[0]
    u = forecast._spline.inverse((y - forecast.mu) / forecast.sigma)[0][0]
    z = torch.cat([z[:, None].expand_as(x), u])
    x = torch.cat([x, y[0]]).clamp(low, high)
    z, order = z.sort(0)
    x = x.gather(0, order)
    middle = 0.5 * (z[1:] + z[:-1])
    above = (middle > u).double()
    return ((torch.special.ndtr(middle) - above).square() * (x[1:] - x[:-1])).sum(0)


@pytest.mark.parametrize(("size", "bound"), [(0.0, 2e-6), (0.5, 1e-5), (1.0, 1e-3)])
def test_crps_equals_a_dense_sum_within_the_stated_error(size, bound):
    forecast = made(size * noise(1, 1, 25, 1, 30))
    t = 1.5 * noise(2, 1, 1, 30)
    t[..., 0], t[..., 1] = 6.0, -6.0
    y = forecast.mu + forecast.sigma * t
    error = (forecast.crps(y)[0, 0] - dense(forecast, y)) / forecast.sigma[0, 0]
    assert error.abs().max() < bound
    assert forecast.crps(y).min() > 0


def test_crps_at_the_limits_of_the_outputs():
    forecast = made(
        20 * noise(1, 1, 25, 1, 30).sign() * torch.tensor([0, 0] + 23 * [1])[:, None, None]
    )
    y = 1.5 * noise(2, 1, 1, 30)
    assert (forecast.crps(y)[0, 0] - dense(forecast, y)).abs().max() < 0.03


def test_outputs_of_zero_are_exactly_a_normal():
    forecast, y = made(torch.zeros(1, 25, 2, 3, dtype=torch.float64)), 2 * noise(0, 1, 2, 3)
    normal = Normal(forecast.mu, forecast.sigma)
    q = torch.tensor([0.0, 0.001, 0.3, 0.5, 0.99, 1.0], dtype=torch.float64)
    for name in ("crps", "cdf", "log_score"):
        torch.testing.assert_close(getattr(forecast, name)(y), getattr(normal, name)(y))
    torch.testing.assert_close(forecast.quantile(q), normal.quantile(q))
    torch.testing.assert_close(forecast.mean, normal.mean)
    torch.testing.assert_close(forecast.std, normal.std)


def test_the_density_is_the_derivative_of_the_cdf():
    forecast, y = made(noise(3, 1, 25, 4, 5)), 2 * noise(4, 1, 4, 5)
    y = y.requires_grad_()
    slope = torch.autograd.grad(forecast.cdf(y).sum(), y)[0]
    torch.testing.assert_close(forecast.log_score(y), -slope.log(), rtol=1e-9, atol=1e-9)
    step = 1e-6
    difference = (forecast.cdf(y + step) - forecast.cdf(y - step)) / (2 * step)
    torch.testing.assert_close(difference, slope, rtol=1e-5, atol=1e-9)


def test_moments_cdf_and_quantiles():
    forecast = made(0.7 * noise(5, 1, 25, 2, 3))
    p = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    q = forecast.quantile(p)
    assert (q[1:] > q[:-1]).all()
    torch.testing.assert_close(forecast.mean, q.mean(0), rtol=0, atol=2e-3)
    torch.testing.assert_close(forecast.std, q.std(0, correction=0), rtol=5e-3, atol=0)
    for level in (0.001, 0.3, 0.7):
        at = forecast.cdf(forecast.quantile(level))
        torch.testing.assert_close(at, torch.full_like(at, level), rtol=1e-8, atol=1e-12)
    draws = forecast.sample(2000, torch.Generator().manual_seed(1))
    assert draws.shape == (1, 2000, 2, 3)
    assert ((draws.mean(1) - forecast.mean) / forecast.std).abs().max() < 5 / 2000**0.5


def test_gradients():
    outputs, y = 0.3 * noise(6, 1, 10, 1, 2), noise(7, 1, 1, 2)
    arguments = (outputs.requires_grad_(), y.requires_grad_())
    assert torch.autograd.gradcheck(lambda o, y: made(o).log_score(y), arguments)
    # three wide pieces: the error of the quadrature moves with u, which has no gradient
    assert torch.autograd.gradcheck(lambda o, y: made(o).crps(y), arguments, atol=2e-4)


def test_what_is_written_is_scored_nearly_the_same():
    """99 quantiles have the CRPS of the distribution to 0.1 %, as it is drawn from."""
    forecast = made(0.5 * noise(8, 1, 25, 30, 30))
    y = forecast.sample(1, torch.Generator().manual_seed(2))[:, 0]
    values = forecast.variables()["values"]
    stored = crps_quantiles(values, y, levels=list(LEVELS), quantile_dim=1, rule="linear")
    assert float(stored.mean()) == pytest.approx(float(forecast.crps(y).mean()), rel=1e-3)


def test_shapes_are_checked():
    field, knots = torch.zeros(1, 2, 2), torch.zeros(1, 3, 2, 2)
    with pytest.raises(ArgumentError, match="x: has shape"):
        SplineFlow(field, field, knots, knots[:, :2], knots)
    with pytest.raises(ArgumentError, match="sigma"):
        SplineFlow(field, field[0], knots, knots, knots)
