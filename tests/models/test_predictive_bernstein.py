"""Bernstein quantile functions against quadrature, their reference in the metrics, and samples."""

import pytest
import torch

from ens10.errors import ArgumentError
from ens10.metrics import crps_bernstein, crps_quantiles
from ens10.metrics.distributions.bernstein import basis
from ens10.metrics.distributions.quantiles import LEVELS
from ens10.models import Bernstein


def noise(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def forecast_and_truth(degree=6, grid=(3, 4), sharp=1.0, seed=0):
    """Rising coefficients; truths within the support and beyond both of its ends."""
    rises = (sharp * noise(seed, 2, degree, *grid)).exp()
    a = torch.cat([torch.zeros(2, 1, *grid, dtype=torch.float64), rises.cumsum(1)], 1)
    range_ = a[:, -1]
    y = range_ * (0.5 + 0.7 * torch.rand(2, *grid, generator=torch.Generator().manual_seed(seed)))
    y[0, 0, 0], y[1, 0, 0] = -0.3, range_[1, 0, 0] + 0.3
    return Bernstein(a + 280), y + 280


@pytest.mark.parametrize("sharp", [0.5, 3.0])
@pytest.mark.parametrize("degree", [1, 6, 12])
def test_crps_is_that_of_the_metrics(degree, sharp):
    forecast, y = forecast_and_truth(degree, (5, 7), sharp)
    wanted = crps_bernstein(forecast.coefficients, y, coefficient_dim=1)
    torch.testing.assert_close(forecast.crps(y), wanted, rtol=1e-9, atol=1e-9)
    single = Bernstein(forecast.coefficients.float() - 280).crps(y.float() - 280)
    torch.testing.assert_close(single.double(), wanted, rtol=3e-5, atol=3e-5)


def test_crps_is_the_integral_of_the_quantile_scores():
    forecast, y = forecast_and_truth()
    p = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    q = torch.einsum("nkhw,kp->nhwp", forecast.coefficients, basis(6, p[None, None])[0, :, 0])
    gap = q - y.unsqueeze(-1)
    dense = (2 * ((gap > 0).double() - p) * gap).mean(-1)
    torch.testing.assert_close(forecast.crps(y), dense, rtol=0, atol=1e-6)
    low, high = 281.0, 283.0
    gap = q.clamp(low, high) - y.clamp(low, high).unsqueeze(-1)
    dense = (2 * ((gap > 0).double() - p) * gap).mean(-1)
    torch.testing.assert_close(forecast.twcrps(y, low, high), dense, rtol=0, atol=1e-4)
    for bounds in ((low, float("inf")), (float("-inf"), high)):
        gap = q.clamp(*bounds) - y.clamp(*bounds).unsqueeze(-1)
        dense = (2 * ((gap > 0).double() - p) * gap).mean(-1)
        torch.testing.assert_close(forecast.twcrps(y, *bounds), dense, rtol=0, atol=1e-4)


def test_gradients():
    forecast, y = forecast_and_truth(4, (1, 2))
    a = (forecast.coefficients - 280).requires_grad_()
    y = (y - 280).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, y: Bernstein(a).crps(y), (a, y))
    assert torch.autograd.gradcheck(lambda a, y: Bernstein(a).twcrps(y, 0.8, 2.5), (a, y))


def test_moments_cdf_and_quantiles():
    forecast, y = forecast_and_truth()
    p = (torch.arange(500, dtype=torch.float64) + 0.5) / 500
    q = forecast.quantile(p)
    assert q.shape == (500, 2, 3, 4)
    assert (q[1:] > q[:-1]).all()
    torch.testing.assert_close(forecast.mean, q.mean(0), rtol=1e-7, atol=0)
    torch.testing.assert_close(forecast.std, q.std(0, correction=0), rtol=1e-4, atol=0)
    for level in (0.001, 0.3, 0.999):
        at = forecast.cdf(forecast.quantile(level))
        torch.testing.assert_close(at, torch.full_like(y, level), rtol=1e-9, atol=1e-12)
    a = forecast.coefficients
    assert (forecast.cdf(a[:, 0] - 1) == 0).all()
    assert (forecast.cdf(a[:, -1]) == 1).all()
    draws = forecast.sample(1000, torch.Generator().manual_seed(1))
    assert draws.shape == (2, 1000, 3, 4)
    assert ((draws.mean(1) - forecast.mean) / forecast.std).abs().max() < 5 / 1000**0.5


def test_equal_coefficients_are_a_point_forecast():
    forecast = Bernstein(torch.full((1, 4, 1, 2), 3.0))
    y = torch.tensor([[[1.0, 3.0]]])
    torch.testing.assert_close(forecast.crps(y), (y - 3).abs())
    assert forecast.std.tolist() == [[[0.0, 0.0]]]


def test_what_is_written_is_scored_nearly_the_same():
    """99 quantiles have the CRPS of the distribution to 0.1 %, as it is drawn from."""
    forecast, _ = forecast_and_truth(12, (12, 12), 0.5)
    y = forecast.sample(1, torch.Generator().manual_seed(2))[:, 0]
    values = forecast.variables()["values"]
    assert values.shape == (2, 99, 12, 12)
    assert forecast.core_coordinates()["quantile"] == LEVELS
    stored = crps_quantiles(values, y, levels=list(LEVELS), quantile_dim=1, rule="linear")
    exact = forecast.crps(y)
    assert float(stored.mean()) == pytest.approx(float(exact.mean()), rel=1e-3)


def test_what_is_no_quantile_function_is_refused():
    with pytest.raises(ArgumentError, match="coefficients"):
        Bernstein(torch.zeros(2, 1, 3, 4))
    with pytest.raises(ArgumentError, match="no density"):
        Bernstein(torch.zeros(2, 3, 3, 4)).log_score(torch.zeros(2, 3, 4))
