"""What each gate is."""

import math

import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models.layers.smoe import (
    ConvGate,
    CoordConvGate,
    FixedGate,
    LocallyConnectedGate,
    SMoE2d,
    TensorGate,
    track_loss,
)

GRID = (4, 6)


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def test_tensor_gate_is_one_map_for_all_samples():
    torch.manual_seed(0)
    gate = TensorGate(64, 4, (40, 50))
    assert torch.equal(gate(noise(3, 2, 40, 50)), gate.weight[None])
    bound = math.sqrt(3 * 64 / 4)
    assert 0.999 * bound < gate.weight.abs().max().item() <= bound
    assert gate.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.01)


@pytest.mark.parametrize(
    "gate",
    [
        ConvGate(3, 5),
        ConvGate(3, 5, stride=2),
        CoordConvGate(3, 5),
        LocallyConnectedGate(3, 5, GRID),
    ],
)
def test_gates_that_look_at_the_input_learn_from_it(gate):
    stride = 2 if isinstance(gate, ConvGate) and gate.conv.stride == (2, 2) else 1
    layer = SMoE2d(3, 5, 2, gate, stride=stride)
    y = layer(noise(2, 3, *GRID))
    assert y.shape == (2, 2, GRID[0] // stride, GRID[1] // stride)
    track_loss(y.square().mean(), layer).backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters())


def test_conv_gate_and_experts_have_no_bias():
    assert sum(p.numel() for p in ConvGate(3, 5).parameters()) == 3 * 5 * 9
    assert sum(p.numel() for p in CoordConvGate(3, 5).parameters()) == 5 * 5 * 9 + 5
    assert sum(p.numel() for p in LocallyConnectedGate(3, 5, GRID).parameters()) == 15 * 9 * 24


def test_fixed_gate_goes_with_the_checkpoint():
    first = FixedGate(noise(3, *GRID))
    second = FixedGate(torch.zeros(3, *GRID))
    second.load_state_dict(first.state_dict())
    assert torch.equal(second(noise(1, 1, *GRID)), first.weight[None])


def test_fixed_gate_makes_the_given_choices_in_order():
    choices = torch.stack([noise(5, *GRID).argsort(0)[i] for i in range(3)])
    layer = SMoE2d(2, 5, 3, FixedGate.from_choices(choices, 5))
    assert torch.equal(layer.choices(noise(1, 2, *GRID))[0], choices)


def test_a_shared_gate_gets_the_sum_of_the_gradients():
    gate = TensorGate(4, 1, GRID)
    one, two = SMoE2d(2, 4, 1, gate), SMoE2d(2, 4, 1, gate)
    x, apart = noise(2, 2, *GRID), []
    for layer in (one, two):
        gate.zero_grad()
        track_loss(layer(x).square().mean(), layer).backward()
        apart.append(gate.weight.grad)
    gate.zero_grad()
    both = torch.nn.ModuleList([one, two])
    track_loss(one(x).square().mean() + two(x).square().mean(), both).backward()
    torch.testing.assert_close(gate.weight.grad, apart[0] + apart[1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TensorGate(3, 0, GRID), "selected: 0 of 3"),
        (lambda: TensorGate(3, 1, (4,)), "grid"),
        (lambda: ConvGate(3, 5, stride=0), "stride"),
        (lambda: FixedGate(torch.full((2, 3, 4), torch.nan)), "weights"),
        (
            lambda: FixedGate.from_choices(torch.tensor([[0, 3]]), 3),
            "experts from 0 to 3, there are 0 to 2",
        ),
        (lambda: FixedGate.from_choices(torch.zeros(2, 3, 4), 3), "chosen twice"),
    ],
)
def test_refuses_maps_that_are_none(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()
