"""The skew-normal family and its head: against scipy, quadrature and a sample."""

import numpy as np
import pytest
import torch
from jsonargparse import ArgumentParser
from scipy import stats

from ens10.metrics import crps_normal, crps_skew_normal
from ens10.metrics.distributions.skew_normal import SkewNormal
from ens10.metrics.families import log_score, mean, pit, variance
from ens10.models.heads import Head

SHAPES = [-300.0, -4.0, -0.3, 0.0, 0.05, 1.0, 7.0, 50.0]


@pytest.mark.parametrize("shape", SHAPES)
def test_crps_is_the_integral_of_the_squared_cdf_error(shape):
    law, (nodes, weights) = stats.skewnorm(shape, 1.5, 2.0), np.polynomial.legendre.leggauss(16)
    steps = 2.0 ** np.arange(-10, 6)  # pieces that grow away from the steep side of the density
    for y in (-6.0, 0.7, 1.5, 2.3, 9.0):
        ends = np.unique([*(1.5 + steps), *(1.5 - steps), 1.5, y])
        half = 0.5 * np.diff(ends)[:, None]
        x = ends[:-1, None] + half * (1 + nodes)
        wanted = (half * weights * (law.cdf(x) - (x >= y)) ** 2).sum()
        assert crps_skew_normal(1.5, 2.0, shape, y) == pytest.approx(wanted, abs=1e-10)


def test_shape_0_is_the_normal_distribution():
    y = np.linspace(-5, 5, 41)
    np.testing.assert_allclose(
        crps_skew_normal(0.3, 1.7, 0.0, y), crps_normal(0.3, 1.7, y), rtol=1e-14
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_functions_are_scipys(shape):
    law, given = stats.skewnorm(shape, 1.5, 2.0), {"mu": 1.5, "sigma": 2.0, "shape": shape}
    y = np.linspace(-4, 7, 23)
    np.testing.assert_allclose(pit("skew_normal", given, y), law.cdf(y), atol=1e-13)
    density = log_score("skew_normal", given, y)
    likely = law.pdf(y) > 1e-100
    np.testing.assert_allclose(density[likely], -law.logpdf(y)[likely], rtol=1e-12)
    assert mean("skew_normal", given) == pytest.approx(law.mean(), rel=1e-13)
    assert variance("skew_normal", given) == pytest.approx(law.var(), rel=1e-13)
    levels = np.array([1e-4, 0.1, 0.5, 0.9, 0.9999])
    forecast = SkewNormal(*(np.full((1, 1), v) for v in given.values()))
    np.testing.assert_allclose(forecast.quantile(levels)[:, 0, 0], law.ppf(levels), atol=1e-9)
    np.testing.assert_array_equal(forecast.quantile([0.0, 1.0])[:, 0, 0], [-np.inf, np.inf])


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_by_the_shape(shape):
    y = torch.linspace(-3, 6, 7, dtype=torch.float64)
    shape = torch.full_like(y, shape, requires_grad=True)
    crps_skew_normal(1.5, 2.0, shape, y).sum().backward()
    step = 1e-4 * (1 + shape.detach().abs())
    moved = [crps_skew_normal(1.5, 2.0, shape.detach() + s * step, y) for s in (1, -1)]
    torch.testing.assert_close(shape.grad, (moved[0] - moved[1]) / (2 * step), rtol=1e-5, atol=1e-8)


def head_from_yaml():
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Head, "head")
    named = {"class_path": "ens10.models.FamilyHead", "init_args": {"family": "skew_normal"}}
    return parser.instantiate_classes(parser.parse_object({"head": named}))["head"]


def test_the_third_output_is_the_skewness():
    head = head_from_yaml()
    third = torch.tensor([-3.0, -0.2, 0.0, 0.5, 4.0], dtype=torch.float64)
    outputs = torch.zeros(1, 3, 1, 5, dtype=torch.float64)
    outputs[:, 2] = third
    raw = {"raw_mean": torch.full((1, 1, 5), 280.0, dtype=torch.float64)}
    raw["raw_std"] = torch.full((1, 1, 5), 2.0, dtype=torch.float64)
    forecast = head(outputs, raw)
    torch.testing.assert_close(forecast.mean, raw["raw_mean"])
    torch.testing.assert_close(forecast.std, raw["raw_std"])
    found = stats.skewnorm.stats(forecast.shape.numpy(), moments="s")[0, 0]
    wanted = 0.99 * torch.tanh(third) + 1e-3 * torch.where(third < 0, -1.0, 1.0)
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


def test_a_head_that_is_named_in_yaml_learns_the_skewness():
    head = head_from_yaml()
    law = stats.skewnorm(5.0, 279.0, 3.0)
    truth = torch.tensor(law.ppf((np.arange(400) + 0.5) / 400), dtype=torch.float32)
    raw = {"raw_mean": torch.full((1, 1, 400), 280.0), "raw_std": torch.full((1, 1, 400), 2.0)}
    outputs = torch.zeros(3, requires_grad=True)
    optimiser = torch.optim.Adam([outputs], lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        forecast = head(outputs.reshape(1, 3, 1, 1).expand(1, 3, 1, 400), raw)
        forecast.crps(truth[None, None]).mean().backward()
        optimiser.step()
    average, variation, skewness = law.stats(moments="mvs")
    assert forecast.mean[0, 0, 0].item() == pytest.approx(average, abs=0.02)
    assert forecast.variance[0, 0, 0].item() == pytest.approx(variation, rel=0.03)
    found = stats.skewnorm.stats(forecast.shape[0, 0, 0].item(), moments="s")
    assert found == pytest.approx(skewness, abs=0.05)
