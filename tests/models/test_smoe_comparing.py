"""Comparison with rivals, against a slow loop over points in float64."""

import math

import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.layers.smoe import ConvGate, FixedGate, SMoE2d, TensorGate, track_loss
from ens10.models.layers.smoe.comparing import ComparingSMoE2d

N, C, E, F, H, W = 3, 2, 4, 2, 4, 5


def made(gate="tensor", **options):
    torch.manual_seed(0)
    gates = {"tensor": lambda: TensorGate(E, 1, (H, W)), "conv": lambda: ConvGate(C, E)}
    options = {"filters": F, "balance": 0.0, "damping": 1.0, **options}
    return ComparingSMoE2d(C, E, gates[gate](), **options).double()


def batch():
    g = torch.Generator().manual_seed(1)
    features = torch.randn(N, C, H, W, generator=g, dtype=torch.float64)
    return features, torch.randn(N, F, H, W, generator=g, dtype=torch.float64)


def step(layer, features, target, scale=1.0):
    loss = track_loss((layer(features) - target).square().mean(), layer) * scale
    loss.backward()
    return loss


def slowly(layer, features, target, offsets=None, area=None):
    """Errors of all experts, the best one, the gradient of the gate's map, all point by point."""
    with torch.no_grad():
        routing = layer.route(features).detach()
        values = layer.experts(features).unflatten(1, (E, F))
    pooled = routing.shape[0] == 1
    best = torch.zeros(len(routing), H, W, dtype=torch.long)
    gradient = torch.zeros_like(routing)
    for n in range(len(routing)):
        samples = range(N) if pooled else [n]
        for i in range(H):
            for j in range(W):
                errors = [
                    sum(
                        float(values[s, e, f, i, j] - target[s, f, i, j]) ** 2
                        for s in samples
                        for f in range(F)
                    )
                    for e in range(E)
                ]
                scores = [math.log(x) + (offsets or [0] * E)[e] for e, x in enumerate(errors)]
                best[n, i, j] = scores.index(min(scores))
                for e in range(E):
                    right = 1 / (1 + math.exp(-float(routing[n, e, i, j])))
                    gradient[n, e, i, j] = (right - (e == int(best[n, i, j]))) / routing.numel()
    return best, gradient


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_the_gate_learns_the_expert_of_the_smallest_error(scale):
    layer, (features, target) = made(), batch()
    _, expected = slowly(layer, features, target)
    step(layer, features, target, scale)
    torch.testing.assert_close(layer.gate.weight.grad, scale * expected[0], rtol=1e-12, atol=0)


def test_a_gate_that_looks_at_the_input_learns_for_each_sample():
    layer, (features, target) = made("conv"), batch()
    _, expected = slowly(layer, features, target)
    routing = layer.route(features)
    (wanted,) = torch.autograd.grad(routing, layer.gate.conv.weight, expected)
    step(layer, features, target)
    torch.testing.assert_close(layer.gate.conv.weight.grad, wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("damping", [1.0, 0.1, 0.0])
def test_experts_are_damped_where_another_is_better(damping):
    layer, (features, target) = made(damping=damping), batch()
    best, _ = slowly(layer, features, target)
    chosen = layer.choices(features)[0, 0]
    factor = 1 - (1 - damping) * (best[0] != chosen).double()
    assert 0 < (best[0] == chosen).sum() < H * W
    values = layer.experts(features).unflatten(1, (E, F))
    picked = values.gather(1, chosen.expand(N, 1, F, H, W))[:, 0]
    (wanted,) = torch.autograd.grad(
        (factor * (picked - target).square()).mean(), layer.experts.weight
    )
    step(layer, features, target)
    torch.testing.assert_close(layer.experts.weight.grad, wanted, rtol=1e-10, atol=1e-15)


def test_one_rival_is_compared_at_each_point():
    layer, (features, target) = made(rivals="one"), batch()
    _, full = slowly(layer, features, target)
    chosen = layer.choices(features)[0, 0]
    seen = torch.zeros(E, H, W, dtype=torch.bool)
    for _ in range(40):
        layer.gate.weight.grad = None
        step(layer, features, target)
        entries = layer.gate.weight.grad != 0
        assert (entries.sum(0) == 2).all()  # the chosen one and its rival
        assert entries.gather(0, chosen[None]).all()
        seen |= entries
        falls = layer.gate.weight.grad < 0  # exactly one target of 1
        assert (falls.sum(0) == 1).all()
    assert seen.all()
    best = full[0].argmin(0)
    assert (layer.gate.weight.grad.gather(0, best[None]) <= 0).all()


def test_balance_moves_against_the_load():
    """By 0.2 log(E load), less their mean and 2 % of all, a step."""
    layer, (features, target) = made(balance=0.2), batch()
    expected = [0.0] * E
    for _ in range(3):
        best, gradient = slowly(layer, features, target, expected)
        layer.gate.weight.grad = None
        step(layer, features, target)
        torch.testing.assert_close(layer.gate.weight.grad, gradient[0], rtol=1e-10, atol=1e-15)
        loads = [(best == e).double().mean() for e in range(E)]
        moved = [o + 0.2 * math.log(E * a + 0.03) for o, a in zip(expected, loads, strict=True)]
        expected = [0.98 * float(m - sum(moved) / E) for m in moved]
        torch.testing.assert_close(layer.offsets.tolist(), expected, rtol=1e-6, atol=1e-7)


def test_an_expert_without_points_is_given_some():
    """One that is worse everywhere gets the points where it is worse by least."""
    layer = ComparingSMoE2d(1, 2, TensorGate(2, 1, (10, 10)), balance=0.2)
    ratio = torch.linspace(2, 200, 100).view(10, 10)
    errors, chosen = (
        torch.stack([torch.ones(10, 10), ratio])[None],
        torch.zeros(1, 1, 10, 10).long(),
    )
    shares = []
    for _ in range(300):
        best, _ = layer.compare(errors, chosen)
        shares.append(float((best == 1).float().mean()))
    assert shares[0] == 0
    assert 0.2 < shares[-1] < 0.5
    assert best[0, 0].flatten().diff().max() == 0  # from least to most: first 1, then 0


def test_weights_of_points_change_no_choice_but_where_they_are_zero():
    area = torch.rand(H, W, dtype=torch.float64) + 0.1
    area[0, :2] = 0
    layer, (features, target) = made(area=area), batch()
    _, expected = slowly(layer, features, target)
    weights = area / area.mean()
    loss = (weights * (layer(features) - target).square()).mean()
    track_loss(loss, layer).backward()
    grad = layer.gate.weight.grad
    here = (area > 0).expand(E, H, W)
    torch.testing.assert_close(grad[here], expected[0][here], rtol=1e-10, atol=1e-15)
    chosen = layer.choices(features)[0, 0]
    assert (grad[:, 0, :2].argmin(0) == chosen[0, :2]).all()


def test_forward_and_evaluation_are_those_of_the_layer():
    layer, (features, _) = made(), batch()
    plain = SMoE2d(C, E, 1, layer.gate, filters=F).double()
    plain.experts.weight = layer.experts.weight
    torch.testing.assert_close(layer(features), plain(features), rtol=0, atol=0)
    torch.testing.assert_close(layer.eval()(features), plain.eval()(features), rtol=0, atol=0)


def test_a_fixed_gate_is_taken_to_be_right():
    torch.manual_seed(0)
    gate = FixedGate(torch.rand(E, H, W))
    layer = ComparingSMoE2d(C, E, gate, filters=F, damping=0.0).double()
    features, target = batch()
    (layer(features) - target).square().mean().backward()
    assert (layer.experts.weight.grad != 0).any()


def test_half_precision_leaves_overflow_to_the_loss_scaler():
    layer, (features, target) = made(balance=0.2).half(), batch()
    step(layer, features.half(), target.half(), 8.0)
    assert layer.gate.weight.grad.isfinite().all()
    before = layer.offsets.clone()
    assert (before != 0).any()
    step(layer, features.half(), target.half(), math.inf)
    assert not layer.experts.weight.grad.isfinite().any()
    assert torch.equal(layer.offsets, before)


def test_one_clear_error():
    gate = TensorGate(E, 1, (H, W))
    with pytest.raises(ArgumentError, match="1 is less than 2"):
        ComparingSMoE2d(C, 1, TensorGate(1, 1, (H, W)))
    with pytest.raises(ArgumentError, match="balance"):
        ComparingSMoE2d(C, E, gate, balance=2)
    with pytest.raises(UnknownNameError, match="rivals"):
        ComparingSMoE2d(C, E, gate, rivals="some")
    layer, (features, target) = made(), batch()
    with pytest.raises(ArgumentError, match="track_loss"):
        layer(features).square().mean().backward()
    features[1, 0, 2, 2] = math.nan
    with pytest.raises(ArgumentError, match="not finite"):
        step(layer, features, target)
