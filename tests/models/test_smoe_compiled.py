"""The compiled layer against the eager one, in values and all gradients."""

import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models.domain import Whole, use
from ens10.models.layers.smoe import ConvGate, FixedGate, SMoE2d, TensorGate, track_loss

GRID = (37, 19)  # two bands, and columns that are not a multiple of anything
CHANNELS = 9  # a whole vector and a part of one


def noise(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pair(experts=7, selected=3, gate="tensor", dtype=torch.float64, channels=CHANNELS, **options):
    """The same layer twice: eager and compiled."""
    layers = []
    for kernel in ("eager", "compiled"):
        torch.manual_seed(0)
        gates = {
            "tensor": lambda: TensorGate(experts, selected, GRID),
            "conv": lambda: ConvGate(channels, experts),
            "fixed": lambda: FixedGate(noise(experts, *GRID).float()),
        }
        made = SMoE2d(channels, experts, selected, gates[gate](), kernel=kernel, **options)
        layers.append(made.to(dtype))
    return layers


def step(layer, x, *, training=True):
    """Values and the gradients of one step, by name."""
    x = x.clone().requires_grad_()
    y = layer.train(training)(x)
    area = 1 if layer.area is None else layer.area
    loss = (area * (y - noise(*y.shape, seed=2).to(y.dtype)) ** 2).mean()
    (track_loss(loss, layer) * 8).backward()
    found = {"values": y.detach(), "input": x.grad}
    return found | {n: p.grad for n, p in layer.named_parameters() if p.grad is not None}


def check(layers, x, rtol=1e-12, **options):
    eager, compiled = (step(layer, x, **options) for layer in layers)
    assert eager.keys() == compiled.keys()
    for name, wanted in eager.items():
        scale = wanted.abs().max().item()
        torch.testing.assert_close(compiled[name], wanted, rtol=0, atol=rtol * scale, msg=name)
    return compiled


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("poles", ["zeros", "replicate"])
def test_equals_the_eager_form_whatever_lies_beyond_the_grid(wrap, poles):
    x = noise(2, CHANNELS, *GRID)
    check(pair(periodic_longitude=wrap, poles=poles), x)


@pytest.mark.parametrize(
    "options",
    [
        {"gate": "conv"},
        {"gate": "fixed"},
        {"weighted": True},
        {"weighted": True, "gate": "conv", "routing_loss": False},
        {"weighted": True, "routing_loss": False, "damping": 1.0},
        {"damping": 1.0, "gate": "conv", "activation": "softmax", "noise": False},
        {"damping": 0.0, "quantile": 0.8, "margin": 0.3, "damping_margin": 0.1},
        {"margin": 0.0, "damping_margin": 0.0},
        {"margin": 0.2, "damping_margin": 0.7, "relative_margins": True, "weighted": True},
        {"error_signal": "weight", "weighted": True, "margin": 0.1, "gate": "conv"},
        {"area": torch.linspace(-1.5, 1.5, GRID[0]).cos()},
        {"area": noise(*GRID, seed=5).abs().sub(0.5).clamp(0).float(), "margin": 0.2},
        {"selected": 1},
        {"selected": 7},
        pytest.param({"experts": 300, "selected": 6}, marks=pytest.mark.slow),  # to be compiled
    ],
)
def test_equals_the_eager_form_with_all_options(options):
    found = check(pair(**options), noise(3, CHANNELS, *GRID))
    assert found["experts.weight"].abs().sum() > 0


def test_evaluation_equals_the_eager_form():
    check(pair(weighted=True), noise(2, CHANNELS, *GRID), training=False)


@pytest.mark.slow  # as are all types and layouts but one: each takes seconds to compile
@pytest.mark.parametrize("channels", [5, 16, 40])
def test_float32_and_other_layouts_of_patches(channels):
    layers = pair(dtype=torch.float32, weighted=True, channels=channels)
    check(layers, noise(2, channels, *GRID).float(), rtol=2e-6)


def test_refuses_what_it_cannot_do():
    layer = SMoE2d(CHANNELS, 4, 2, TensorGate(4, 2, GRID), filters=2, kernel="compiled")
    with pytest.raises(ArgumentError, match=r"kernel: .* one filter for each expert"):
        layer(noise(1, CHANNELS, *GRID).float())
    layer, x = pair(dtype=torch.float32)[1], noise(1, CHANNELS, *GRID).float()
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(ArgumentError, match=r"kernel: .* autocast is on"):
            layer(x)
        layer.kernel = "auto"
        assert layer(x).dtype == torch.bfloat16
    half = Whole()
    half.size = 2
    with use(half), pytest.raises(ArgumentError, match=r"kernel: .* is split"):
        pair(dtype=torch.float32)[1](x)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("gate", ["tensor", "conv"])
def test_threads_share_the_rows_and_give_the_same_each_time(gate, two_threads):
    layers, x = pair(gate=gate, poles="replicate", weighted=True), noise(3, CHANNELS, *GRID)
    first, again = check(layers, x), check(pair(gate=gate, poles="replicate", weighted=True), x)
    assert all(torch.equal(first[name], again[name]) for name in first)
