import math

import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models import CRPSLoss, ResidualNormalHead


def batch(mean, std):
    return {"raw_mean": torch.as_tensor(mean), "raw_std": torch.as_tensor(std)}


def test_an_output_of_zero_is_the_raw_ensemble(make_batches):
    one = make_batches(1)[0]
    forecast = ResidualNormalHead()(torch.zeros(2, 2, 8, 12), one)
    assert torch.equal(forecast.mu, one["raw_mean"])
    assert torch.equal(forecast.sigma, one["raw_std"])


def test_outputs_shift_in_units_of_the_spread_and_scale_it():
    outputs = torch.tensor([0.5, math.log(3.0)]).reshape(1, 2, 1, 1)
    forecast = ResidualNormalHead()(outputs, batch([[[280.0]]], [[[2.0]]]))
    assert forecast.mu.item() == pytest.approx(281.0)
    assert forecast.sigma.item() == pytest.approx(6.0)


def test_no_spread_gives_the_floor_and_finite_gradients():
    outputs = torch.zeros(1, 2, 1, 3, requires_grad=True)
    raw = batch([[[280.0, 280.0, 5e4]]], [[[0.0, 1.0, 0.0]]])
    forecast = ResidualNormalHead(floor=0.01)(outputs, raw)
    assert forecast.sigma.flatten().tolist() == pytest.approx([0.01, 1.0, 0.01])
    CRPSLoss()(forecast, torch.tensor([[[280.0, 281.0, 5.1e4]]])).sum().backward()
    assert outputs.grad.isfinite().all()
    assert outputs.grad[0, 1, 0, 0] > 0  # hit exactly: less spread is better
    assert outputs.grad[0, 0, 0, 1] < 0  # truth above mu: a larger mu is better


@pytest.mark.parametrize("extreme", [1e4, -1e4])
def test_wild_outputs_neither_overflow_nor_vanish(extreme):
    outputs = torch.full((1, 2, 1, 1), extreme)
    forecast = ResidualNormalHead()(outputs, batch([[[280.0]]], [[[0.0]]]))
    assert forecast.sigma.item() == pytest.approx(1e-3 * math.exp(math.copysign(7, extreme)))
    assert forecast.mu.isfinite().all()


def test_a_missing_raw_ensemble_gives_no_forecast_and_no_gradient():
    outputs = torch.zeros(1, 2, 1, 2, requires_grad=True)
    nan = float("nan")
    forecast = ResidualNormalHead()(outputs, batch([[[nan, 280.0]]], [[[nan, 1.0]]]))
    assert forecast.mu.isnan().tolist() == [[[True, False]]]
    assert forecast.sigma.isnan().tolist() == [[[True, False]]]
    losses = CRPSLoss()(forecast, torch.tensor([[[0.0, 281.0]]]))
    torch.where(losses.isnan(), 0, losses).sum().backward()
    assert outputs.grad[..., 0].tolist() == [[[0.0], [0.0]]]
    assert (outputs.grad[..., 1] != 0).all()


def test_half_precision_outputs_keep_the_precision_of_the_raw_ensemble():
    outputs = torch.tensor([0.0, 0.3125], dtype=torch.bfloat16).reshape(1, 2, 1, 1)
    forecast = ResidualNormalHead()(outputs, batch([[[54321.0]]], [[[80.0]]]))
    assert forecast.mu.item() == 54321.0
    assert forecast.sigma.item() == pytest.approx(80 * math.exp(0.3125), rel=1e-6)


@pytest.mark.parametrize("floor", [0.0, -1.0, float("nan")])
def test_the_floor_is_positive(floor):
    with pytest.raises(ArgumentError, match="floor"):
        ResidualNormalHead(floor=floor)
