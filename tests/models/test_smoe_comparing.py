"""Comparison with rivals, against a slow loop over points in float64."""

import math

import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.layers.smoe import (
    ConvGate,
    FixedGate,
    SMoE2d,
    TensorGate,
    record_routing_loss,
    recorded_routing_loss,
    track_loss,
)
from ens10.models.layers.smoe.comparing import ComparingSMoE2d, comparison_target
from ens10.models.layers.smoe.routing import RoutingRule, incorrect_choices

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


def ranks_slowly(layer, features, target):
    """Experts of both ranks and the gradient of the gate's map, point by point."""
    with torch.no_grad():
        routing = layer.route(features).detach()
        values = layer.experts(features).unflatten(1, (E, F))
    target = target.unflatten(1, (2, F))
    gradient, best = torch.zeros_like(routing), torch.zeros(len(routing), 2, H, W).long()
    for n in range(len(routing)):
        samples = range(N) if len(routing) == 1 else [n]
        for i in range(H):
            for j in range(W):
                goals = [0.0] * E
                for rank in range(2):
                    errors = [
                        math.inf
                        if goals[e]
                        else sum(
                            float(((values[s, e] - target[s, rank])[:, i, j] ** 2).sum())
                            for s in samples
                        )
                        for e in range(E)
                    ]
                    best[n, rank, i, j] = errors.index(min(errors))
                    goals[errors.index(min(errors))] = 1 - rank / 2
                for e in range(E):
                    right = 1 / (1 + math.exp(-float(routing[n, e, i, j])))
                    gradient[n, e, i, j] = (right - goals[e]) / routing.numel()
    return best, gradient


def targets_of_ranks():
    features, target = batch()
    return features, torch.cat([target, target.flip(0) + 0.5], 1)


@pytest.mark.parametrize("gate", ["tensor", "conv"])
def test_with_two_selected_each_rank_gets_the_best_expert_that_is_left(gate):
    layer, (features, target) = made(gate, selected=2), targets_of_ranks()
    best, expected = ranks_slowly(layer, features, target)
    assert (best[:, 0] != best[:, 1]).all()
    routing = layer.route(features)
    weight = next(layer.gate.parameters())
    (wanted,) = torch.autograd.grad(routing, weight, expected)
    step(layer, features, target)
    torch.testing.assert_close(weight.grad, wanted, rtol=1e-11, atol=1e-15)


def test_with_two_selected_the_gate_learns_experts_and_their_order():
    """The target of rank 0 is one expert's value, that of rank 1 another's, by place."""
    layer = made(selected=2, damping=0.0)
    first, second = torch.arange(H * W).view(H, W) % E, (torch.arange(H * W).view(H, W) + 1) % E
    wanted = torch.stack([first, second])[None]
    features, _ = batch()
    values = layer.experts(features).unflatten(1, (E, F)).detach()
    target = values.gather(1, wanted[:, :, None].expand(N, 2, F, H, W)).flatten(1, 2)
    assert not torch.equal(layer.choices(features), wanted)
    optimizer = torch.optim.SGD(layer.gate.parameters(), lr=20.0)
    for _ in range(200):
        optimizer.zero_grad()
        step(layer, features, target)
        optimizer.step()
    assert torch.equal(layer.choices(features), wanted)


def test_one_rival_beside_two_that_are_selected():
    layer, (features, target) = made(selected=2, rivals="one"), targets_of_ranks()
    chosen = layer.choices(features)[0]
    seen = torch.zeros(E, H, W, dtype=torch.bool)
    for _ in range(40):
        layer.gate.weight.grad = None
        step(layer, features, target)
        entries = layer.gate.weight.grad != 0
        assert (entries.sum(0) == 3).all()
        assert entries.gather(0, chosen).all()
        seen |= entries
    assert seen.all()


def test_the_recorded_loss_is_that_of_the_gradient():
    layer, (features, target) = made(selected=2), targets_of_ranks()
    record_routing_loss(layer)
    step(layer, features, target)
    best, _ = ranks_slowly(layer, features, target)
    goals = comparison_target(best, layer.gate.weight.detach()[None])
    loss = torch.nn.functional.binary_cross_entropy_with_logits(layer.gate.weight[None], goals)
    recorded = float(recorded_routing_loss(layer))
    assert recorded == pytest.approx(float(loss.detach()), rel=1e-6)
    (gradient,) = torch.autograd.grad(loss, layer.gate.weight)
    torch.testing.assert_close(layer.gate.weight.grad, gradient, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 4.0])
def test_the_curvature_of_the_crps_of_a_normal_forecast(sigma):
    """That of the documentation: the mean second derivative where the forecast is reliable."""
    z = torch.linspace(-9, 9, 200001, dtype=torch.float64)
    weights = torch.exp(-(z**2) / 2)
    weights = weights / weights.sum()

    def crps(mean, log_deviation):
        s = torch.exp(log_deviation)
        return (weights * crps_of_normal(mean, s, sigma * z)).sum()

    start = torch.tensor(0.0, dtype=torch.float64), torch.tensor(math.log(sigma)).double()
    hessian = torch.autograd.functional.hessian(crps, start)
    assert float(hessian[0][0]) == pytest.approx(1 / (sigma * math.sqrt(math.pi)), rel=1e-6)
    assert float(hessian[1][1]) == pytest.approx(sigma / (2 * math.sqrt(math.pi)), rel=1e-6)


def crps_of_normal(mean, sigma, observed):
    z = (observed - mean) / sigma
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    cumulative = 0.5 * (1 + torch.erf(z / math.sqrt(2)))
    return sigma * (z * (2 * cumulative - 1) + 2 * density - 1 / math.sqrt(math.pi))


@pytest.mark.parametrize("curvature", [0.4, 3.0])
def test_errors_are_in_units_of_the_output_whatever_the_curvature(curvature):
    """A loss of half the curvature times the squared error routes as the squared error does."""
    grads, wrong = [], []
    for c in (2.0, curvature):
        layer, (features, target) = made(curvature=c), batch()
        loss = c / 2 * (layer(features) - target).square().mean()
        track_loss(loss, layer).backward()
        grads.append(layer.gate.weight.grad)
        rule = RoutingRule(curvature=c, margin=0.5, damping_margin=1.0)
        rule.state.loss_scale = torch.tensor(1.0)
        errors = (features[:, None] - 0.3).double()
        wrong.append(incorrect_choices(errors * c / errors.numel(), rule))
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-12, atol=0)
    assert all(torch.equal(a, b) for a, b in zip(*wrong, strict=True))
    sizes = errors.abs().mean(2)
    limit = sizes.flatten(1).sort(1).values[:, int(0.3 * (H * W - 1))]
    assert torch.equal(wrong[0][0][:, 0], sizes[:, 0] > (limit + 0.5)[:, None, None])


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


def test_errors_are_running_means_of_the_steps():
    """Of all steps first, then with the share 0.6 of the past."""
    layer = made(memory=0.6)
    g = torch.Generator().manual_seed(2)
    past = torch.zeros(E, H, W, dtype=torch.float64)
    for n in range(5):
        features, target = (torch.randn(N, n, H, W, generator=g).double() for n in (C, F))
        values = layer.experts(features).unflatten(1, (E, F)).detach()
        now = (values - target[:, None]).square().mean((0, 2))
        share = min(0.6, n / (n + 1))
        past = share * past + (1 - share) * now
        best = past.argmin(0)
        layer.gate.weight.grad = None
        step(layer, features, target)
        goal = torch.nn.functional.one_hot(best, E).movedim(-1, 0)
        expected = (layer.gate.weight.detach().sigmoid() - goal) / (E * H * W)
        torch.testing.assert_close(layer.gate.weight.grad, expected, rtol=1e-10, atol=1e-14)
    assert (best != now.argmin(0)).any()
    again = made(memory=0.6)
    again.load_state_dict(layer.state_dict())
    torch.testing.assert_close(again.past[0], past, rtol=1e-12, atol=0)


def test_an_expert_without_points_is_given_some():
    """One that is worse everywhere gets the points where it is worse by least."""
    layer = ComparingSMoE2d(1, 2, TensorGate(2, 1, (10, 10)), balance=0.2)
    ratio = torch.linspace(2, 200, 100).view(10, 10)
    errors = torch.stack([torch.ones(10, 10), ratio])[None, None]
    chosen = torch.zeros(1, 1, 10, 10).long()
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
    with pytest.raises(ArgumentError, match="1 leave no rival of the 1 that"):
        ComparingSMoE2d(C, 1, TensorGate(1, 1, (H, W)))
    with pytest.raises(ArgumentError, match="4 leave no rival of the 4 that"):
        ComparingSMoE2d(C, E, TensorGate(E, E, (H, W)), selected=E)
    with pytest.raises(ArgumentError, match="curvature"):
        ComparingSMoE2d(C, E, gate, curvature=0.0)
    with pytest.raises(ArgumentError, match="memory: 1 is not"):
        ComparingSMoE2d(C, E, gate, memory=1)
    with pytest.raises(ArgumentError, match="Choose a TensorGate"):
        ComparingSMoE2d(C, E, ConvGate(C, E), memory=0.5)
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
