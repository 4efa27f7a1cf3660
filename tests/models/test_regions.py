"""Regions found by clusterwise regression, and gates that start at them."""

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from ens10.errors import ArgumentError
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.layers.expert_layers import ExpertLayers, Experts
from ens10.models.layers.smoe import ComparingSMoE2d, FixedGate, RegionGate, SMoE2d
from ens10.models.networks import SMoEUNet
from ens10.models.statistical import RegionalRegression

H, W, DATES = 8, 12, 160
SLOPE, BIAS, SIGMA = (2.0, -2.0, 0.5), (0.5, 1.0, -3.0), (0.5, 1.0, 2.0)
TRUE = torch.zeros(H, W, dtype=torch.long)  # sizes 54, 32 and 10: the order of names
TRUE[:, 8:], TRUE[3:5, 1:6] = 1, 2


def batches(size=40):
    """Truth = mean + bias and slope of the region, with noise of the region times the spread."""
    g = torch.Generator().manual_seed(0)
    whole = {
        "features": torch.randn(DATES, 2, H, W, generator=g),
        "raw_mean": 280 + torch.randn(DATES, H, W, generator=g),
        "raw_std": 0.5 + torch.rand(DATES, H, W, generator=g),
        "weights": torch.ones(DATES, H, W),
        "dates": torch.arange(DATES) * 86400 * 7,
    }
    slope, bias, sigma = (torch.tensor(values)[TRUE] for values in (SLOPE, BIAS, SIGMA))
    noise = torch.randn(DATES, H, W, generator=g) * sigma * whole["raw_std"]
    whole["target"] = whole["raw_mean"] + bias + slope * whole["features"][:, 1] + noise
    return [
        {key: value[i] for key, value in whole.items()} for i in torch.arange(DATES).split(size)
    ]


def fitted(parts, regions=3):
    method = RegionalRegression(regions)
    for part in parts:
        method.collect(part)
    method.solve()
    return method


def test_regions_and_their_regressions_are_found():
    method = fitted(batches())
    assert torch.equal(method.region, TRUE)
    constant, _, _, none, slope = method.coefficients.T
    torch.testing.assert_close(constant, torch.tensor(BIAS), atol=0.1, rtol=0)
    torch.testing.assert_close(slope, torch.tensor(SLOPE), atol=0.1, rtol=0)
    torch.testing.assert_close(none, torch.zeros(3), atol=0.1, rtol=0)
    torch.testing.assert_close(method.factors, torch.tensor(SIGMA), atol=0, rtol=0.05)


def test_the_forecast_is_the_formula():
    method, (batch, *_) = fitted(batches()), batches()
    forecast = method(batch)
    angle = batch["dates"].double() * (2 * torch.pi / (365.2425 * 86400))
    cycle = torch.stack([torch.ones_like(angle), angle.cos(), angle.sin()], 1)
    for i, j in ((0, 0), (3, 2), (7, 11)):
        by = method.coefficients[TRUE[i, j]].double()
        x = torch.cat([cycle, batch["features"][:, :, i, j].double()], 1)
        expected = batch["raw_mean"][:, i, j] + x @ by
        torch.testing.assert_close(forecast.mu[:, i, j].double(), expected, rtol=1e-6, atol=0)
        sigma = batch["raw_std"][:, i, j] * method.factors[TRUE[i, j]]
        torch.testing.assert_close(forecast.sigma[:, i, j], sigma)


def test_points_without_truth_change_nothing_elsewhere():
    parts = batches()
    for part in parts:
        part["weights"][:, 0, :3] = 0
        part["target"][:, 0, :3] = torch.nan
    method = fitted(parts)
    assert torch.equal(method.region[1:], TRUE[1:])
    assert torch.equal(method.region[0, 3:], TRUE[0, 3:])
    assert method.coefficients.isfinite().all()
    assert method.factors.isfinite().all()


def test_a_fit_does_not_depend_on_batches_and_survives_the_checkpoint():
    one, other = fitted(batches(40)), fitted(batches(32))
    assert torch.equal(one.region, other.region)
    torch.testing.assert_close(one.coefficients, other.coefficients, rtol=1e-6, atol=1e-6)
    loaded = RegionalRegression(3)
    loaded.load_state_dict(one.state_dict())
    (batch, *_) = batches()
    assert torch.equal(loaded(batch).mu, one(batch).mu)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: RegionalRegression(0), "regions"),
        (lambda: RegionalRegression(2, -1), "harmonics"),
        (lambda: RegionalRegression(2).solve(), "saw no training batch"),
        (lambda: RegionalRegression(2)(batches()[0]), "has no coefficients yet"),
    ],
)
def test_errors_name_the_cause(call, named):
    with pytest.raises(ArgumentError, match=named):
        call()


def network(gate, experts=None):
    torch.manual_seed(0)
    return SMoEUNet(2, (H, W), places=["last"], experts=experts, width=4, last_gate=gate)


def test_the_gate_finds_the_map_before_the_first_epoch(tmp_path):
    """It is that of the regions, is in the checkpoint, and selects one expert for each."""
    model = PostProcessor(network(RegionGate(3)), ResidualNormalHead())
    layer = model.network.last
    assert not layer.choices(torch.zeros(1, 4, H, W)).any()  # all points before the fit
    fit = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    loader = DataLoader(batches(), batch_size=None)
    fit.fit(model, loader, loader)
    assert torch.equal(layer.choices(torch.zeros(1, 4, H, W))[0, 0], TRUE)
    again = PostProcessor(network(RegionGate(3)), ResidualNormalHead())
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.network.last.choices(torch.zeros(1, 4, H, W))[0, 0], TRUE)


def test_a_learned_correction_starts_at_the_regions_and_moves_points():
    gate = RegionGate(3, (H, W))
    gate.method.load_state_dict(fitted(batches()).state_dict())
    assert torch.equal(gate(torch.zeros(1, 2, H, W)).argmax(1)[0], TRUE)
    with torch.no_grad():
        gate.weight[2, 0, 0] = 1.5
    assert gate(torch.zeros(1, 2, H, W)).argmax(1)[0, 0, 0] == 2


def test_the_last_layer_takes_a_gate_and_compares_if_asked():
    gate = FixedGate.from_choices(TRUE, 3)
    assert network(gate).last.gate is gate
    assert network(gate).last.num_experts == 3
    assert type(network(None).last) is SMoE2d
    compared = network(None, Experts(compare=True)).last
    assert isinstance(compared, ComparingSMoE2d)
    assert compared.out_channels == 2
    with pytest.raises(ArgumentError, match="Add last to places"):
        SMoEUNet(2, (H, W), places=["up_0"], last_gate=gate)


def test_every_layer_with_rivals_compares_if_asked():
    layer = ExpertLayers(Experts(compare=True, curvature=0.5, filters=2), (H, W)).make(3, 4)
    assert isinstance(layer, ComparingSMoE2d)
    assert (layer.selected, layer.num_experts, layer.rule.curvature) == (2, 4, 0.5)
    alone = ExpertLayers(Experts(compare=True, per_selected=1), (H, W)).make(3, 4)
    assert type(alone) is SMoE2d


def test_experts_serve_their_regions_alone():
    """The gradient of an expert is that of the points of its region."""
    made = network(FixedGate.from_choices(TRUE, 3)).double()
    fields = torch.randn(1, 2, H, W, dtype=torch.float64)
    outputs = made(fields)
    outputs[..., TRUE == 1].sum().backward()
    moved = made.last.experts.weight.grad.reshape(3, -1).abs().sum(1)
    assert moved[1] > 0
    assert moved[0] == moved[2] == 0


@pytest.mark.parametrize("regions", [2, 5, 7])
def test_regions_are_named_by_size(regions):
    """Each name has the coefficients of its points: the forecast is better than of any other."""
    parts = batches()
    method = fitted(parts, regions)
    counts = method.region.flatten().bincount(minlength=regions)
    assert (counts.diff() <= 0).all()
    best = method(parts[0]).mu
    for _ in range(regions - 1):
        method.coefficients = method.coefficients.roll(1, 0)
        assert (method(parts[0]).mu - parts[0]["target"]).square().mean() > (
            best - parts[0]["target"]
        ).square().mean()
