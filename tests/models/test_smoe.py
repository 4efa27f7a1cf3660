"""The layer against a slow, obvious float64 reference: loops over samples, points and ranks."""

import math
from itertools import product

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

GRID = (4, 5)


def noise(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(experts=5, selected=2, gate="tensor", **options):
    torch.manual_seed(0)
    gates = {
        "tensor": lambda: TensorGate(experts, selected, GRID),
        "conv": lambda: ConvGate(3, experts),
    }
    return SMoE2d(3, experts, selected, gates[gate](), **options).double()


def reference_choices(R, k):
    """For each sample and point the experts in the order of their weights."""
    N, E, H, W = R.shape
    points = product(range(N), range(H), range(W))
    order = {}
    for n, h, w in points:
        order[n, h, w] = sorted(range(E), key=lambda e: -R[n, e, h, w].item())[:k]
    return order


def reference_output(layer, x):
    """Value by value, with the filter written out as a sum."""
    k, F, E = layer.selected, layer.filters, layer.num_experts
    R = layer.route(x).expand(len(x), -1, -1, -1)
    filters = layer.experts.weight.unflatten(0, (E, F))
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    out = x.new_zeros(len(x), k * F, *GRID)
    for (n, h, w), experts in reference_choices(R, k).items():
        for r, e in enumerate(experts):
            for f in range(F):
                value = (filters[e, f] * padded[n, :, h : h + 3, w : w + 3]).sum()
                factor = R[n, e, h, w] if layer.weighted else 1.0
                out[n, r * F + f, h, w] = value * factor
    return out


def reference_limit(errors, area, q):
    """The first error, from the smallest, above the share q of the area.

    Of equal areas it is the entry at the q-quantile or just below, which is the interpolated
    quantile of the released code where that falls on an entry.
    """
    ranked = sorted((v, area[h, w].item()) for (_, h, w), v in errors.items())
    ranked = [(v, a) for v, a in ranked if a > 0]
    level = q * sum(a for _, a in ranked) * (1 - 1 / len(ranked))
    total, limit = 0.0, None
    for v, a in ranked:
        total += a
        if limit is None and total > level * (1 + 1e-12):
            limit = v
    place = q * (len(ranked) - 1)
    if math.isclose(place, round(place)) and bool((area == 1).all()):
        interpolated = torch.tensor([v for v, _ in ranked], dtype=torch.float64).quantile(q)
        assert limit == pytest.approx(interpolated.item(), rel=1e-12)
    return limit


def reference_wrong(signal, layer, output, margin, area=None):
    """Whether each (sample, rank, row, column) is incorrect, from errors at the output."""
    k, F, rule = layer.selected, layer.filters, layer.rule
    N, _, H, W = signal.shape
    half = signal.numel() / 2
    area = torch.ones(H, W, dtype=torch.float64) if area is None else area / area.mean()
    wrong = {}
    for n in range(N):
        errors, squares = {}, 0.0
        for r, h, w in product(range(k), range(H), range(W)):
            s = [signal[n, r * F + f, h, w].item() * half for f in range(F)]
            a = area[h, w].item()
            errors[r, h, w] = sum(map(abs, s)) / F / a if a > 0 else 0.0
            squares += a * sum(output[n, r * F + f, h, w].item() ** 2 for f in range(F))
        unit = math.sqrt(squares / (k * F * H * W)) if rule.relative else 1.0
        limit = reference_limit(errors, area, rule.quantile) + margin * unit
        for i, v in errors.items():
            wrong[(n, *i)] = v > limit
    return wrong


def reference_gate_gradient(R, order, wrong, k):
    """Binary cross-entropy by autograd on logits R, targets filled in one by one."""
    E = R.shape[1]
    target = torch.zeros_like(R)
    for (n, h, w), experts in order.items():
        bad = sum(wrong[n, r, h, w] for r in range(k))
        target[n, :, h, w] = bad / (E - k)
        for r, e in enumerate(experts):
            target[n, e, h, w] = 0.0 if wrong[n, r, h, w] else 1.0
    return torch.nn.functional.binary_cross_entropy_with_logits(R, target)


CASES = [
    {},
    {"gate": "conv"},
    {"filters": 2, "gate": "conv"},
    {"weighted": True},
    {"weighted": True, "gate": "conv", "filters": 3, "activation": "abs"},
    {"activation": "softmax", "gate": "conv"},
    {"quantile": 0.7, "damping": 0.0, "selected": 3},
    {"margin": 0.0, "damping_margin": 0.0},
    {"margin": 1.0, "quantile": 1 / 3},
    {"margin": 0.2, "damping_margin": 0.9, "damping": 0.0, "quantile": 1 / 3},
    {"margin": 0.7, "damping_margin": 0.3, "gate": "conv", "weighted": True, "filters": 2},
    {"margin": 0.5, "damping_margin": 1.2, "relative_margins": True, "quantile": 1 / 3},
    {"margin": 0.9, "damping_margin": 0.4, "relative_margins": True, "weighted": True},
    {"weighted": True, "error_signal": "weight", "margin": 0.1, "damping_margin": 0.5},
    {"weighted": True, "error_signal": "weight", "filters": 2, "gate": "conv"},
    {"experts": 3, "selected": 1, "quantile": 0.0},
    {"area": noise(4, 5, seed=9).abs(), "margin": 0.8},
    {"area": torch.tensor([0.5, 1.0, 2.0, 0.0]), "gate": "conv", "filters": 2},
    {"area": torch.tensor([0.1, 0.4, 3.0, 0.0]), "relative_margins": True, "margin": 1.3},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value_and_gradients_equal_the_reference(case):
    layer, x = make(**case), noise(3, 3, *GRID).requires_grad_()
    k, F, rule = layer.selected, layer.filters, layer.rule
    y = layer(x)
    torch.testing.assert_close(y, reference_output(layer, x.detach()), rtol=1e-12, atol=1e-12)
    area = layer.area
    w = torch.ones(GRID, dtype=torch.float64) if area is None else area.expand(GRID)
    t = noise(*y.shape, seed=2)
    loss = (w * (y - t) ** 2).mean() / w.mean()
    track_loss(loss, layer).backward()

    # the reference in two backward passes: one for the error, one with it
    R = layer.route(x.detach()).expand(3, -1, -1, -1)
    out = reference_output(layer, x)
    error = torch.autograd.grad((w * (out - t) ** 2).mean() / w.mean(), out)[0]
    chosen, area = reference_choices(R, k), None if area is None else w
    signal = error
    if rule.error_signal == "weight":
        weights = torch.stack([R[n, e, h, v] for (n, h, v), es in chosen.items() for e in es])
        weights = weights.view(3, *GRID, k).movedim(-1, 1).repeat_interleave(F, dim=1)
        signal = error * out / weights
    for_routing = reference_wrong(signal, layer, out, rule.margin, area)
    for_damping = reference_wrong(error, layer, out, rule.damping_margin, area)
    factors = torch.ones_like(out)
    for (n, r, h, v), bad in for_damping.items():
        factors[n, r * F : (r + 1) * F, h, v] = rule.damping if bad else 1.0
    out = reference_output(layer, x)
    inputs = [layer.experts.weight, x]
    expected = torch.autograd.grad(out, inputs, error * factors)
    torch.testing.assert_close(layer.experts.weight.grad, expected[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(x.grad, expected[1], rtol=1e-10, atol=1e-12)
    classification = reference_gate_gradient(R, chosen, for_routing, k)
    parameter = next(layer.gate.parameters())
    (expected_gate,) = torch.autograd.grad(classification, parameter)
    torch.testing.assert_close(parameter.grad, expected_gate, rtol=1e-10, atol=1e-14)
    for wrong in (for_routing, for_damping):
        assert 0 < sum(wrong.values()) < len(wrong)
    if rule.margin > 0.1 or rule.error_signal == "weight":
        assert for_routing != for_damping


def test_default_margins_are_the_published_ones():
    """Errors a little above the quantile: below both margins, between them, and above both."""
    layer, x = make(2, 1, quantile=0.25, damping=0.0), noise(1, 3, *GRID)
    above = torch.zeros(20, dtype=torch.float64)
    above[6:11], above[11:16], above[16:] = 0.9e-5, 1.1e-5, 1.1e-3
    above[15] = 0.9e-3
    errors = (0.5 + above).view(1, 1, *GRID) * noise(1, 1, *GRID).sign()
    y = layer(x)
    seen = []
    y.grad_fn.next_functions[0][0].register_hook(lambda given, _: seen.append(given[0]))
    track_loss(((y - (y.detach() - errors)) ** 2).mean(), layer).backward()
    chosen = layer.choices(x)
    of_choice = layer.gate.weight.grad[None].gather(1, chosen).flatten() * 40
    sigmoid = layer.gate.weight[None].sigmoid().gather(1, chosen).flatten()
    target = (sigmoid - of_choice).detach()  # 1 where the choice counts as correct
    torch.testing.assert_close(target, (above < 1e-5).double())
    damped = seen[0].flatten() == 0
    assert torch.equal(damped, above > 1e-3)


def test_relative_margins_follow_the_scale_of_the_output():
    """A field and target 1000 times as large change nothing; absolute margins then vanish."""
    relative = {"margin": 0.2, "damping_margin": 0.5, "relative_margins": True, "damping": 0.0}
    absolute = {"margin": 0.2, "damping_margin": 0.5, "damping": 0.0}
    for options, same in ((relative, True), (absolute, False)):
        gates, experts = [], []
        for size in (1.0, 1000.0):
            layer = make(**options)
            y = layer(size * noise(2, 3, *GRID))
            t = size * noise(*y.shape, seed=2)
            track_loss(((y - t) ** 2).mean(), layer).backward()
            gates.append(layer.gate.weight.grad)
            experts.append(layer.experts.weight.grad / size**2)
        for one, other in (gates, experts):
            assert torch.allclose(one, other, rtol=1e-9) == same


def test_the_value_of_the_routing_loss_is_recorded_on_request():
    layer, x = make(gate="conv", margin=0.3), noise(3, 3, *GRID)
    network = torch.nn.Sequential(layer)
    y = network(x)
    t = noise(*y.shape, seed=2)
    track_loss(((y - t) ** 2).mean(), network).backward(retain_graph=True)
    assert recorded_routing_loss(network) is None
    record_routing_loss(network)
    (track_loss(((y - t) ** 2).mean(), network) * 8).backward()  # whose scale does not count
    R, k = layer.route(x), layer.selected
    wrong = reference_wrong(2 * (y - t).detach() / y.numel(), layer, y, 0.3)
    expected = reference_gate_gradient(R, reference_choices(R, k), wrong, k)
    torch.testing.assert_close(recorded_routing_loss(network), expected.detach())
    record_routing_loss(network, False)
    assert recorded_routing_loss(network) is None


@pytest.mark.parametrize("gain", [None, 1.0, 2.0**0.5])
def test_experts_start_within_the_range_of_their_gain(gain):
    torch.manual_seed(0)
    layer = SMoE2d(2, 4000, 1, TensorGate(4000, 1, (1, 1)), gain=gain)
    bound = math.sqrt(1 / 18) if gain is None else gain * math.sqrt(3 / 18)
    weight = layer.experts.weight.detach()
    assert float(weight.abs().max()) == pytest.approx(bound, rel=1e-3)
    assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_error_is_output_minus_target_whatever_the_batch():
    """The margin is in output units: the points within it follow from y - t."""
    layer, x = make(quantile=0.0, damping_margin=0.8, damping=0.0), noise(6, 3, *GRID)
    for count in (2, 6):
        y = layer(x[:count])
        t = noise(*y.shape, seed=2)
        errors = (y - t).abs()
        wrong = errors > errors.flatten(1).amin(1).view(-1, 1, 1, 1) + 0.8
        seen = []
        routed = y.grad_fn.next_functions[0][0]
        routed.register_hook(lambda given, _, seen=seen: seen.append(given[0]))
        track_loss(((y - t) ** 2).mean(), layer).backward()
        assert ((seen[0][:, :, 0] == 0) == wrong).all()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("gate", ["tensor", "conv"])
def test_the_plain_part_passes_gradcheck(weighted, gate, training):
    """With all of it switched off in training, and in evaluation whatever is switched on."""
    options = {"routing_loss": False, "damping": 1.0} if training else {}
    layer = make(gate=gate, weighted=weighted, filters=2, **options).train(training)
    x = noise(2, 3, *GRID).requires_grad_()
    names = [n for n, _ in layer.named_parameters() if weighted or not n.startswith("gate")]
    tensors = [
        p.detach().clone().requires_grad_() for n, p in layer.named_parameters() if n in names
    ]

    def function(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(function, (x, *tensors))


@pytest.mark.parametrize("experts", [256, 300])
def test_takes_many_experts(experts):
    layer, x = make(experts, 3, routing_loss=False, damping=1.0), noise(2, 3, *GRID)
    layer(x).square().sum().backward()
    index = layer.choices(x).expand(2, -1, -1, -1)
    loss = layer.experts(x).gather(1, index).square().sum()
    (expected,) = torch.autograd.grad(loss, layer.experts.weight)
    torch.testing.assert_close(layer.experts.weight.grad, expected)


def test_damping_alone_leaves_the_gradient_of_the_weights():
    layer, x = make(weighted=True, routing_loss=False, damping=0.0), noise(2, 3, *GRID)
    plain = make(weighted=True, routing_loss=False, damping=1.0)
    for each in (layer, plain):
        track_loss(each(x).square().sum(), each).backward()
    torch.testing.assert_close(layer.gate.weight.grad, plain.gate.weight.grad)
    assert not torch.allclose(layer.experts.weight.grad, plain.experts.weight.grad)


def test_output_of_the_judged_and_the_plain_pass_are_the_same():
    layer, x = make(weighted=True, filters=2), noise(2, 3, *GRID)
    trained = layer(x).detach()
    assert torch.equal(layer.eval()(x), trained)
    layer.train()(x).relu_().sum()  # in place, as networks do it


def test_turning_the_globe_turns_the_output():
    torch.manual_seed(0)
    gate = ConvGate(3, 6, stride=2, periodic_longitude=True, poles="replicate")
    layer = SMoE2d(3, 6, 2, gate, stride=2, periodic_longitude=True, poles="replicate").double()
    x = noise(2, 3, 5, 12)
    y = layer(x)
    assert y.shape == (2, 2, 3, 6)
    torch.testing.assert_close(layer(x.roll(4, -1)), y.roll(2, -1), rtol=0, atol=1e-12)


def test_fixed_gate_is_the_map_and_is_taken_to_be_right():
    chosen = torch.randint(3, GRID, generator=torch.Generator().manual_seed(3))
    layer = SMoE2d(3, 3, 1, FixedGate.from_choices(chosen, 3)).double()
    x = noise(2, 3, *GRID)
    dense = layer.experts(x)
    expected = sum(dense[:, e : e + 1] * (chosen == e) for e in range(3))
    torch.testing.assert_close(layer(x), expected)
    assert torch.equal(layer.choices(x)[0, 0], chosen)
    layer(x).square().mean().backward()
    damped = layer.experts.weight.grad.clone()
    (plain,) = torch.autograd.grad(expected.square().mean(), layer.experts.weight)
    torch.testing.assert_close(damped, plain)
    assert list(dict(layer.gate.named_buffers())) == ["weight"]
    assert not list(layer.gate.parameters())


def test_noise_is_added_in_training_only():
    layer, x = make(noise=True, experts=8), noise(400, 3, *GRID)
    clean = layer.eval().route(x)
    added = layer.train().route(x) - clean
    assert added.shape == (400, 8, *GRID)
    assert added.std().item() == pytest.approx(1 / 8, rel=0.02)
    assert math.isclose(added.mean().item(), 0, abs_tol=1e-3)


def test_parameters_are_experts_and_gate():
    assert sum(p.numel() for p in make(filters=4).parameters()) == 5 * 4 * 3 * 9 + 5 * 4 * 5


def test_refuses_what_it_cannot_do():
    gate = TensorGate(4, 2, GRID)
    with pytest.raises(ArgumentError, match="selected: 5 of 4 experts"):
        SMoE2d(3, 4, 5, gate)
    with pytest.raises(ArgumentError, match="the gate has 4 experts, the layer has 6"):
        SMoE2d(3, 6, 2, gate)
    with pytest.raises(UnknownNameError, match="did you mean 'softmax'"):
        SMoE2d(3, 4, 2, gate, activation="softmx")
    numbers = [("quantile", 1.1), ("damping", -1), ("filters", 0), ("gain", 0)]
    for name, value in [*numbers, ("margin", -1.0), ("damping_margin", math.inf)]:
        with pytest.raises(ArgumentError, match=name):
            SMoE2d(3, 4, 2, gate, **{name: value})
    with pytest.raises(UnknownNameError, match="did you mean 'weight'"):
        SMoE2d(3, 4, 2, gate, error_signal="weights")
    with pytest.raises(ArgumentError, match="relative_margins: errors times"):
        SMoE2d(3, 4, 2, gate, error_signal="weight", relative_margins=True)
    with pytest.raises(ArgumentError, match="area"):
        SMoE2d(3, 4, 2, gate, area=torch.tensor([1.0, -1.0]))
    layer = SMoE2d(3, 4, 2, gate)
    with pytest.raises(ArgumentError, match=r"gate: its map has shape \(1, 4, 4, 5\)"):
        layer(torch.zeros(2, 3, 4, 6))
    with pytest.raises(ArgumentError, match=r"must be \(N, 3, H, W\)"):
        layer(torch.zeros(2, 2, 4, 5))
    with pytest.raises(ArgumentError, match="float64, but the layer"):
        layer(torch.zeros(2, 3, 4, 5, dtype=torch.float64))
    gate.double()
    with pytest.raises(ArgumentError, match=r"gate: torch\.float64, but the layer"):
        layer(torch.zeros(2, 3, 4, 5))
    gate.float()
    with pytest.raises(ArgumentError, match="gate: its map is"):
        layer(torch.zeros(2, 3, 4, 5), torch.zeros(1, 4, *GRID, dtype=torch.float64))
    with pytest.raises(ArgumentError, match="area: shape"):
        make(area=torch.ones(6))(noise(1, 3, *GRID))
