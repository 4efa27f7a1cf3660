"""Layers, networks, heads and losses on any device give what they give on the CPU."""

import copy
import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional

from ens10.errors import ArgumentError
from ens10.models import (
    BernsteinHead,
    CRPSLoss,
    EnergyLoss,
    FamilyHead,
    LogScoreLoss,
    MembersCRPSLoss,
    MembersHead,
    MethodHead,
    ResidualNormalHead,
    SpectralCRPSLoss,
    SplineHead,
)
from ens10.models.domain import Whole
from ens10.models.layers import SMoE2d
from ens10.models.layers.expert_layers import Experts
from ens10.models.layers.norm import Normalise, group_norm, moments
from ens10.models.layers.smoe import FixedGate, TensorGate
from ens10.models.layers.smoe.routing import incorrect_choices
from ens10.models.layers.smoe.tracking import RoutingState, track_loss
from ens10.models.matching import forecast_of, require_match
from ens10.models.networks import (
    MLP,
    SAET,
    Groenquist,
    LeNet,
    LocationUNet,
    PoET,
    SMoEResNet,
    SMoEUNet,
    Transformer,
    UNet,
)
from ens10.models.statistical import SeasonalEMOS

N, M, C, GRID = 2, 5, 4, (9, 12)


def batch(members=False, dtype=torch.float64):
    g = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=g, dtype=dtype)

    mean, std = 280 + 5 * normal(N, *GRID), 0.5 + normal(N, *GRID).abs()
    weights = torch.ones(N, *GRID, dtype=dtype)
    weights[:, 0, :2] = 0
    return {
        "features": normal(N, *([M] if members else []), C, *GRID),
        "raw_mean": mean,
        "raw_std": std,
        "target": mean + 1 + 2 * std * normal(N, *GRID),
        "weights": weights,
        "dates": 86400 * torch.arange(N),
        "members": mean[:, None] + std[:, None] * normal(N, M, *GRID),
    }


def normal_head():
    return ResidualNormalHead()


def solved_head():
    method = SeasonalEMOS(harmonics=1, strength=100.0)
    generator = torch.Generator().manual_seed(1)
    for n in range(6):
        dates = batch(dtype=torch.float32) | {"dates": 86400 * (60 * n + torch.arange(N))}
        dates["target"] = dates["raw_mean"] + torch.randn(N, *GRID, generator=generator)
        method.collect(dates)
    method.solve()
    return MethodHead(method)


EXPERTS = Experts(damping=0.5)
TAUGHT = Experts(filters=2, weighted=True, routing_loss=False, gate_range=0.2, gate_shift=1.0)
NETWORKS = {
    "MLP": lambda: (MLP(C), normal_head(), CRPSLoss()),
    "UNet": lambda: (UNet(C), normal_head(), CRPSLoss()),
    "periodic UNet": lambda: (
        UNet(C, periodic_longitude=True, poles="replicate"), normal_head(), CRPSLoss(),
    ),
    "LeNet": lambda: (LeNet(C), normal_head(), LogScoreLoss()),
    "SMoEUNet, routing loss": lambda: (
        SMoEUNet(C, GRID, places=["up_0", "last"], experts=EXPERTS, width=8, zero_init=False),
        normal_head(), CRPSLoss(),
    ),
    "SMoEUNet, weighted": lambda: (
        SMoEUNet(C, GRID, places=["up_0"], experts=TAUGHT, width=8), normal_head(), CRPSLoss(),
    ),
    "SMoEResNet": lambda: (SMoEResNet(C, GRID, width=8), normal_head(), CRPSLoss()),
    "LocationUNet": lambda: (
        LocationUNet(C, GRID, widths=[8, 12], embedding=3, embedding_levels=2),
        solved_head(), CRPSLoss(),
    ),
    "Transformer": lambda: (Transformer(C, width=8, heads=2), normal_head(), CRPSLoss()),
    "Transformer in chunks": lambda: (
        Transformer(C, width=8, heads=2, chunk=50), normal_head(), CRPSLoss(),
    ),
    "PoET": lambda: (
        PoET(C, widths=(8, 16), heads=2, attention_levels=1), MembersHead(), MembersCRPSLoss(),
    ),
    "SAET": lambda: (SAET(C, width=8, heads=2), MembersHead(), SpectralCRPSLoss()),
    "SAET, energy": lambda: (SAET(C, width=8, heads=2), MembersHead(), EnergyLoss()),
    "Groenquist": lambda: (
        Groenquist(C, 2, 0, GRID), normal_head(), CRPSLoss(),
    ),
    "family head": lambda: (
        MLP(C, out_channels=FamilyHead("truncated_normal", lower=0.0).out_channels),
        FamilyHead("truncated_normal", lower=0.0), CRPSLoss(),
    ),
    "spline head": lambda: (
        MLP(C, out_channels=SplineHead().out_channels), SplineHead(), CRPSLoss(),
    ),
    "Bernstein head": lambda: (
        MLP(C, out_channels=BernsteinHead().out_channels), BernsteinHead(), CRPSLoss(),
    ),
}  # fmt: skip


def step(parts, given):
    """The loss of a training step, with the gradients of all parameters by their names."""
    network, head, loss = parts
    require_match(network, head)
    values = loss.evaluate(forecast_of(network, head, given), given["target"], given["weights"])
    weights = given["weights"]
    mean = torch.where(weights > 0, weights * values, 0).sum() / weights.sum()
    mean = track_loss(mean, network)
    penalty = network.penalty()
    mean = mean if penalty is None else mean + penalty
    mean.backward()
    gradients = {n: p.grad for n, p in network.named_parameters() if p.grad is not None}
    return {"loss": mean.detach(), **gradients}


LONG = ("Groenquist", "Transformer in chunks", "SAET", "SAET, energy", "periodic UNet")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in NETWORKS]
)
def test_a_training_step_is_that_of_the_cpu(device, name):
    torch.manual_seed(0)
    parts = [part.double() for part in NETWORKS[name]()]
    given = batch(members=parts[0].takes_members)
    wanted = step(copy.deepcopy(parts), given)
    assert len(wanted) > 2
    found = step([device(part) for part in parts], device(given))
    assert found.keys() == wanted.keys()
    for key, value in found.items():
        assert value.device.type == device.type, key
        torch.testing.assert_close(value.cpu(), wanted[key], rtol=1e-7, atol=1e-9, msg=key)


@pytest.mark.parametrize(
    "options",
    [
        {"routing_loss": True, "damping": 0.1},
        {"routing_loss": True, "damping": 0.1, "area": "cell"},
        {"routing_loss": True, "margin": 0.05, "filters": 2, "stride": 2},
        {"routing_loss": False, "weighted": True, "activation": "softmax"},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_smoe2d_is_that_of_the_cpu(device, dtype, options):
    torch.manual_seed(0)
    size = [-(-n // options.get("stride", 1)) for n in GRID]
    layer = SMoE2d(C, 8, 3, TensorGate(8, 3, size), **options).to(dtype)
    given = batch()["features"].to(dtype)
    wanted = passes(copy.deepcopy(layer), given)
    found = passes(device(layer), device(given))
    bounds = {"rtol": 1e-9, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 0, "atol": 1e-2}
    for key, value in found.items():
        assert value.device.type == device.type, key
        torch.testing.assert_close(value.cpu(), wanted[key], **bounds, msg=key)


def test_a_device_is_not_waited_for_where_a_gradient_is_not_finite(device):
    """No choice counts as incorrect; the values reach the weights, and the check of gradients."""
    torch.manual_seed(0)
    layer = SMoE2d(C, 8, 3, TensorGate(8, 3, GRID), routing_loss=True, damping=0.1)
    rule = layer.rule
    rule.state.loss_scale = device(torch.ones(()))
    gradient = torch.randn(2, 3, 1, *GRID)
    assert any(mask.cpu().any() for mask in incorrect_choices(device(gradient), rule))
    gradient[1, 0, 0, 2, 3] = torch.nan
    assert not any(mask.cpu().any() for mask in incorrect_choices(device(gradient), rule))
    on_cpu = dataclasses.replace(rule, state=RoutingState())
    with pytest.raises(ArgumentError, match="not finite"):
        incorrect_choices(gradient, on_cpu)


def passes(layer, given):
    leaf = given.detach().requires_grad_()
    outputs = layer(leaf)
    loss = track_loss((outputs - 0.3).square().mean(), layer)
    loss.backward()
    gradients = {name: p.grad for name, p in layer.named_parameters()}
    return {"outputs": outputs.detach(), "features": leaf.grad, **gradients}


NORMS = {
    "batch": (
        lambda x, w, b: Normalise.apply(x, w, b, *moments(x, Whole()), 1e-5, Whole()),
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
    ),
    "group": (
        lambda x, w, b: group_norm(x, 2, w.view(-1, 1, 1), b.view(-1, 1, 1), 1e-5, Whole()),
        lambda x, w, b: functional.group_norm(x, 2, w, b),
    ),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_norms_of_split_samples_are_those_of_torch(device, name, dtype):
    ours, theirs = NORMS[name]
    fields = batch()["features"].to(dtype)
    affine = torch.linspace(0.5, 2, 2 * C, dtype=torch.float64).view(2, C)
    affine = affine.to(torch.promote_types(dtype, torch.float32))

    def of(function, x, w, b):
        given = [t.detach().requires_grad_() for t in (x, w, b)]
        outputs = function(*given)
        (outputs * x.square()).sum().backward()
        return outputs.detach(), *(t.grad for t in given)

    found = of(ours, *(device(t) for t in (fields, *affine)))
    wanted = of(theirs, *(t.double() for t in (fields, *affine)))
    close = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 5e-2}[dtype]
    for one, other in zip(found, wanted, strict=True):
        error = (one.cpu().double() - other).norm() / other.norm()
        assert error < close


def test_frozen_and_fixed_choices(device):
    torch.manual_seed(0)
    layer = SMoE2d(C, 6, 2, FixedGate(torch.rand(6, *GRID)), weighted=True)
    given = batch(dtype=torch.float32)["features"]
    wanted = copy.deepcopy(layer).eval()(given).detach()
    layer = device(layer)
    layer.freeze_routing()
    found = layer(device(given)).detach()
    torch.testing.assert_close(found.cpu(), wanted, rtol=0, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["UNet", "SMoEUNet, routing loss", "LocationUNet", "Transformer"])
def test_a_step_in_bfloat16_is_finite_and_near(real_device, name):
    torch.manual_seed(0)
    parts = NETWORKS[name]()
    given = batch(parts[0].takes_members, torch.float32)
    wanted = step(copy.deepcopy(parts), given)
    parts, given = [real_device(part) for part in parts], real_device(given)
    with torch.autocast(real_device.type, torch.bfloat16):
        found = step(parts, given)
    assert found["loss"].dtype == torch.float32  # fields in physical units are not rounded
    for key, value in found.items():
        assert value.isfinite().all(), key
        assert value.dtype == wanted[key].dtype
    assert float(found["loss"]) == pytest.approx(float(wanted["loss"]), rel=0.02)


def test_channels_last_is_kept_and_changes_nothing(real_device):
    torch.manual_seed(0)
    network = real_device(UNet(C).double())
    features = real_device(batch()["features"])
    wanted = network(features)
    last = copy.deepcopy(network).to(memory_format=torch.channels_last)
    found = last(features.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    assert isinstance(last.last, nn.Conv2d)
