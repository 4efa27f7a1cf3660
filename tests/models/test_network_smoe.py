"""Networks of several mixture-of-experts layers."""

import pytest
import torch
from torch.nn import functional

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights
from ens10.models.layers import SMoE2d, track_loss
from ens10.models.layers.expert_layers import ExpertLayers, Experts
from ens10.models.layers.smoe import Gate
from ens10.models.networks import SMoEResNet, SMoEUNet
from ens10.models.networks.unet import PLACES, UNetBody

GRID = (9, 16)
EVERYWHERE = tuple(PLACES)


def parameters(network):
    return sum(p.numel() for p in network.parameters())


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).double()


def gates(network):
    return [module for module in network.modules() if isinstance(module, Gate)]


def smoe_unet(places=EVERYWHERE, experts=None, **options):
    torch.manual_seed(0)
    made = SMoEUNet(3, GRID, places=places, experts=experts, width=4, zero_init=False, **options)
    return made.double()


def smoe_resnet(experts=None, **options):
    torch.manual_seed(0)
    made = SMoEResNet(3, GRID, width=4, experts=experts, zero_init=False, **options)
    return made.double()


BOTH = pytest.mark.parametrize("make", [smoe_unet, smoe_resnet])


def test_parameter_counts():
    """Experts in place of filters, no biases, and the gates' maps."""
    convolutions = 637_154  # the U-Net of 26 channels
    widths = (32, 32, 64, 64, 128, 128, 128, 64, 64, 32, 32, 32)
    inputs = (26, 32, 32, 64, 64, 128, 128, 128, 128, 64, 64, 32)
    levels = (0, 0, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0)
    more = sum(9 * i * w - w for i, w in zip(inputs, widths, strict=True))
    maps = sum(2 * w * (46 >> n) * (96 >> n) for w, n in zip(widths, levels, strict=True))
    assert parameters(SMoEUNet(26, (46, 96))) == convolutions + more + maps == 3_132_162
    resnet = 26 * 16 * 9 + 16 + 4 * (2 * 16 + 32 * 16 * 9 + 32 * 46 * 96) + 2 * 16 + 2 * 16 + 2
    assert parameters(SMoEResNet(26, (46, 96))) == resnet


def plain_twin(network):
    """The same network with convolutions whose filters are those of the experts."""

    def conv(_, before, after):
        layer = torch.nn.Conv2d(before, after, 3, padding=1, bias=False)
        filters.append(layer.weight)
        return layer

    filters = []
    twin = UNetBody(3, 2, conv, 4).double()
    experts = [m.experts.weight for m in network.modules() if isinstance(m, SMoE2d)]
    for mine, theirs in zip(filters, experts, strict=True):
        mine.data.copy_(theirs.data)
    return twin


def test_all_experts_in_their_order_are_the_plain_unet():
    network = smoe_unet(experts=Experts(per_selected=1), last_experts=1)
    for gate in gates(network):
        gate.weight.data[:] = torch.arange(gate.num_experts, 0, -1)[:, None, None]
    twin = plain_twin(network)
    x = noise(2, 3, *GRID)
    torch.testing.assert_close(network(x), twin(x), rtol=0, atol=1e-12)


def test_the_resnet_is_its_description():
    """Normalise, ReLU, experts, twice in a block, which adds to what came in."""
    network, x = smoe_resnet(blocks=1), noise(2, 3, *GRID)
    layers = list(network.blocks[0])
    assert [type(layer).__name__ for layer in layers] == ["BatchNorm2d", "ReLU", "SMoE2d"] * 2
    norms = [torch.nn.BatchNorm2d(4).double() for _ in range(3)]
    fields = network.first(x)
    added = fields
    for norm, experts in zip(norms, (layers[2], layers[5]), strict=False):
        added = experts(norm(added).relu())
    expected = network.last[2](norms[2](fields + added).relu())
    torch.testing.assert_close(network(x), expected, rtol=0, atol=1e-12)


def test_layers_are_as_their_options_say():
    margins = {"margin": 0.2, "damping_margin": 0.3, "relative_margins": True}
    experts = Experts(3.0, 2, True, False, 0.6, 0.4, latitudes=(60.0, 30.0), **margins)
    layer = ExpertLayers(experts, (7, 8), True, "replicate").make(3, 4)
    assert (layer.num_experts, layer.selected, layer.filters, layer.weighted) == (6, 2, 2, True)
    rule = layer.rule
    assert (rule.quantile, rule.damping, rule.classify) == (0.6, 0.4, False)
    assert (rule.margin, rule.damping_margin, rule.relative) == (0.2, 0.3, True)
    assert layer.experts.edges == ("replicate", "circular")
    rows = torch.from_numpy(area_weights([60.0 - 5 * n for n in range(7)]))
    torch.testing.assert_close(layer.area[:, 0].double(), rows / rows.mean())


@pytest.mark.parametrize("place", PLACES)
def test_experts_only_where_asked_for(place):
    network = smoe_unet(places=[place])
    found = {n.split(".")[0] for n, m in network.named_modules() if isinstance(m, SMoE2d)}
    assert found == {place}


@BOTH
def test_every_expert_and_every_gate_gets_a_gradient(make):
    network, x = make(), noise(16, 3, *GRID)
    track_loss((network(x) - noise(16, 2, *GRID)).square().mean(), network).backward()
    layers = [m for m in network.modules() if isinstance(m, SMoE2d)]
    assert len(layers) == (13 if make is smoe_unet else 4)
    for layer in layers:
        chosen = torch.zeros(layer.num_experts, dtype=torch.bool)
        chosen[layer.choices(x).flatten()] = True  # on 2 x 4 points one may never be
        filters = layer.experts.weight.grad.unflatten(0, (layer.num_experts, layer.filters))
        assert torch.equal(filters.abs().amax((1, 2, 3, 4)) > 0, chosen)
        assert (layer.gate.weight.grad != 0).all()


@BOTH
def test_turning_globe_and_gates_turns_the_output(make):
    network, x = make(periodic_longitude=True), noise(2, 3, *GRID)
    network(x)  # batch statistics that are not the initial ones
    network.eval()
    before = network(x)
    turned = network(x.roll(4, -1))
    assert (turned - before.roll(4, -1)).abs().max() > 1e-3  # the gates know the place
    for gate in gates(network):
        gate.weight.data = gate.weight.data.roll(4 * gate.weight.shape[-1] // GRID[1], -1)
    torch.testing.assert_close(network(x.roll(4, -1)), before.roll(4, -1), rtol=0, atol=1e-12)


@BOTH
def test_gates_that_begin_the_same_at_all_points(make):
    """Such a network does not know the place before it is trained."""
    experts = Experts(weighted=True, gate_range=0.2, gate_shift=1.0, gate_noise=0.0)
    network, x = make(experts=experts, periodic_longitude=True).eval(), noise(2, 3, *GRID)
    for gate in gates(network):
        assert (gate.weight == gate.weight[:, :1, :1]).all()
        assert 0.8 <= gate.weight.min() < gate.weight.max() <= 1.2
    torch.testing.assert_close(network(x.roll(4, -1)), network(x).roll(4, -1), rtol=0, atol=1e-12)


@BOTH
def test_layers_of_a_level_share_their_gate_if_asked_to(make):
    shared = make(experts=Experts(shared_gates=True))
    own = make()
    levels = {tuple(g.weight.shape) for g in gates(own)}
    assert len(gates(shared)) == len(levels) < len(gates(own))


@BOTH
def test_weighted_gates_learn_from_the_loss_alone(make):
    experts = Experts(weighted=True, routing_loss=False, damping=1.0, gate_range=0.1, gate_shift=1)
    network = make(experts=experts)
    assert all((gate.weight - 1).abs().max() <= 0.1 for gate in gates(network))
    loss = network(noise(2, 3, *GRID)).square().mean()
    loss.backward()
    gate, step = gates(network)[0], 1e-6
    entry = gate.weight.grad.abs().flatten().argmax()
    slope = gate.weight.grad.flatten()[entry]
    with torch.no_grad():
        gate.weight.view(-1)[entry] += step
    moved = network(noise(2, 3, *GRID)).square().mean()
    torch.testing.assert_close((moved - loss) / step, slope, rtol=1e-4, atol=1e-9)


def test_area_of_a_level_is_that_of_the_rows_pooled():
    made = ExpertLayers(Experts(), (10, 16))
    fine = torch.from_numpy(area_weights([90 - 20 * n for n in range(10)]))
    coarse = functional.avg_pool1d(fine[None], 2)[0]
    torch.testing.assert_close(made.make(3, 4, level=0).area[:, 0].double(), fine)
    area = made.make(3, 4, level=1).area[:, 0].double()
    torch.testing.assert_close(area, coarse / coarse.mean())
    assert ExpertLayers(Experts(area="none"), (10, 16)).make(3, 4).area is None


def test_zero_init_starts_at_an_output_of_zero():
    x = noise(2, 3, *GRID).float()
    for network in (SMoEUNet(3, GRID, places=EVERYWHERE), SMoEUNet(3, GRID), SMoEResNet(3, GRID)):
        assert (network(x) == 0).all()


@BOTH
def test_another_grid_than_the_gates(make):
    with pytest.raises(ArgumentError, match="Build the gate for the grid"):
        make()(noise(2, 3, GRID[0], 20))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: smoe_unet(places=["up_2"]), "did you mean 'up_"),
        (lambda: smoe_unet(last_experts=0), "last_experts"),
        (lambda: Experts(per_selected=0.5), "per_selected"),
        (lambda: Experts(gate_range=0), "gate_range"),
        (lambda: Experts(gate_noise=-0.1), "gate_noise"),
        (lambda: smoe_unet(experts=Experts(quantile=2)), "quantile"),
        (lambda: smoe_resnet(blocks=0), "blocks"),
        (lambda: SMoEResNet(3, (9,)), "grid"),
    ],
)
def test_one_clear_error(build, message):
    with pytest.raises((ArgumentError, UnknownNameError), match=message):
        build()
