"""Mixtures of experts on parts of the grid: routing, quantile, routing loss, damping, balance."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import assert_as_serial, own, shard
from torch import nn

from ens10.models.domain import use
from ens10.models.layers import SMoE2d
from ens10.models.layers.smoe import (
    ConvGate,
    FixedGate,
    LocallyConnectedGate,
    RegionGate,
    TensorGate,
    record_routing_loss,
    recorded_routing_loss,
    track_loss,
)
from ens10.models.layers.smoe.comparing import ComparingSMoE2d
from ens10.models.layers.smoe.error_quantiles import lower_quantile

GRID = (37, 24)
MESHES = [(2, 1), (4, 1), (1, 2), (2, 2)]


class Tracked(nn.Module):
    """A layer in a loss that is a mean over the grid, as the training step has it."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, fields):
        return self.layers(fields)


def regions():
    gate = RegionGate(6, GRID)
    gate.method.region = torch.randint(0, 6, GRID)
    gate.method.solved.fill_(True)
    return gate


def layer(gate="tensor", kind=SMoE2d, **options):
    torch.manual_seed(1)
    gates = {
        "tensor": lambda: TensorGate(6, 2, GRID),
        "conv": lambda: ConvGate(3, 6),
        "local": lambda: LocallyConnectedGate(3, 6, GRID),
        "regions": regions,
        "fixed": lambda: FixedGate(torch.randn(6, *GRID)),
    }
    if kind is ComparingSMoE2d:
        return ComparingSMoE2d(3, 6, gates[gate](), area="cell", **options)
    return SMoE2d(3, 6, 2, gates[gate](), **options)


def network(**options):
    torch.manual_seed(2)
    first = layer(**options)
    return Tracked(first, nn.Conv2d(first.out_channels, 3, 1), layer(**options))


def train_once(make, inputs, target, mesh, tracked=True):
    """Gradients of all parameters, buffers and routing loss, after one pass on this rank's part."""
    torch.manual_seed(5)  # noise is drawn for the whole grid
    module = make()
    domain = shard(GRID, *mesh)
    record_routing_loss(module)
    with use(domain):
        outputs = module(own(domain, inputs))
        errors = (outputs - own(domain, target)).square().mean(1)
        loss = errors.sum() / (len(inputs) * GRID[0] * GRID[1]) * domain.size
        track_loss(loss, module).backward()
    values = dict(module.named_buffers())
    if (recorded := recorded_routing_loss(module)) is not None:
        values["routing loss"] = recorded
    return outputs.detach(), averaged(module), values


def averaged(module):
    found = {}
    for name, parameter in module.named_parameters():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        dist.all_reduce(gradient)
        found[name] = gradient / dist.get_world_size()
    return found


OPTIONS = {
    "tensor": {},
    "area": {"area": "cell", "margin": 0.3, "damping_margin": 0.1},
    "relative": {
        "margin": 0.2,
        "damping_margin": 0.4,
        "relative_margins": True,
        "area": "cell",
    },
    "signal": {"weighted": True, "error_signal": "weight", "margin": 0.1},
    "weighted": {"weighted": True, "activation": "softmax"},
    "noise": {"noise": True, "weighted": True},
    "convolution": {"gate": "conv", "periodic_longitude": True},
    "local": {"gate": "local", "poles": "replicate"},
    "fixed": {"gate": "fixed"},
    "regions": {"gate": "regions"},
    "comparing": {"kind": ComparingSMoE2d},
    "one rival": {"kind": ComparingSMoE2d, "rivals": "one"},
    "two against all": {"kind": ComparingSMoE2d, "selected": 2},
    "two against all, with memory": {"kind": ComparingSMoE2d, "selected": 2, "memory": 0.9},
    "two against one": {"kind": ComparingSMoE2d, "selected": 2, "rivals": "one"},
}


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_training_step(ranks, name, mesh):
    make = partial(network, **OPTIONS[name])
    torch.manual_seed(4)
    inputs = torch.randn(2, 3, *GRID, dtype=torch.float64)
    channels = 1 if "comparing" in name or "rival" in name else 2
    target = torch.randn(2, channels, *GRID, dtype=torch.float64)
    ((_, gradients, buffers),) = ranks(1, train_once, make, inputs, target, (1, 1))
    assert ("routing loss" in buffers) == (name != "fixed")
    for _, theirs, their_buffers in ranks(
        mesh[0] * mesh[1], train_once, make, inputs, target, mesh
    ):
        for key, expected in gradients.items():
            scale = max(float(expected.abs().max()), 1e-12)
            assert float((theirs[key] - expected).abs().max()) <= 1e-10 * scale, key
        for key, expected in buffers.items():
            torch.testing.assert_close(their_buffers[key], expected, rtol=1e-12, atol=1e-12)


def train_on_half(make, inputs, target):
    """Gradients of data-parallel training, of which this rank has its share of the samples."""
    model = nn.parallel.DistributedDataParallel(make())
    mine = np.array_split(np.arange(len(inputs)), dist.get_world_size())[dist.get_rank()]
    track_loss((model(inputs[mine]) - target[mine]).square().mean(), model).backward()
    return {name: p.grad for name, p in model.module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["tensor", "area", "relative", "signal", "convolution"])
def test_samples_shared_between_processes_equal_one_batch(ranks, name):
    make = partial(network, **OPTIONS[name])
    torch.manual_seed(4)
    inputs = torch.randn(4, 3, *GRID, dtype=torch.float64)
    target = torch.randn(4, 2, *GRID, dtype=torch.float64)
    (expected,) = ranks(1, train_on_half, make, inputs, target)
    for found in ranks(2, train_on_half, make, inputs, target):
        assert found.keys() == expected.keys()
        for key, gradient in expected.items():
            torch.testing.assert_close(found[key], gradient, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("filters", [1, 2])
def test_forward_and_plain_gradient(ranks, filters):
    make = partial(layer, filters=filters, routing_loss=False, damping=1.0, weighted=True)
    assert_as_serial(ranks, make, GRID, 2, 2, shape=(2, 3))


def quantiles_of(values, weights, q, mesh):
    domain = shard(GRID, *mesh)
    mine = own(domain, values)
    of_points = None if weights is None else own(domain, weights).flatten()
    return lower_quantile(mine.flatten(1), q, of_points, domain)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("q", [0.0, 0.3, 0.5, 1.0])
def test_quantile_of_parts_is_that_of_the_whole(ranks, dtype, weighted, q):
    rng = np.random.default_rng(int(100 * q))
    values = torch.from_numpy(np.abs(rng.normal(size=(3, 2, *GRID)))).to(dtype)
    values[0, :, :10] = 0.25  # ties
    weights = None
    if weighted:
        weights = torch.from_numpy(rng.uniform(size=GRID)).to(dtype)
        weights[3] = 0
    expected = lower_quantile(
        values.flatten(1), q, None if weights is None else weights.flatten().repeat(2)
    )
    for found in ranks(4, quantiles_of, values, weights, q, (2, 2)):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def not_finite(mesh):
    module, domain = network(), shard(GRID, *mesh)
    with use(domain):
        fields = own(domain, torch.ones(1, 3, *GRID))
        loss = module(fields).sum()
        if domain.local_slices[0].start == 0:
            loss = loss * torch.nan
        try:
            track_loss(loss, module).backward()
        except Exception as error:
            return str(error)
    return "nothing"


def test_all_processes_see_a_gradient_that_is_not_finite(ranks):
    assert all("not finite" in text for text in ranks(2, not_finite, (2, 1)))
