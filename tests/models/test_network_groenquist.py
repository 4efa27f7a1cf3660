from itertools import pairwise

import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.networks.groenquist import (
    BiasNet,
    Groenquist,
    PaperBiasUNet,
    PaperSpreadNet,
    SpreadNet,
)
from ens10.models.networks.unet import UNet


def noise(*shape, seed=3):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def count(network):
    return sum(p.numel() for p in network.parameters())


def spread_net(**options):
    torch.manual_seed(1)
    return SpreadNet(4, 3, width=3, depth=4, zero_init=False, **options).double()


def test_parameters_as_stated():
    network = Groenquist(26, 11, 8, (46, 96))
    parts = (network.bias.unet, network.bias.affine, network.spread)
    assert [count(part) for part in parts] == [636_865, 13_248, 283_306]
    assert count(network) == 636_865 + 3 * 46 * 96 + 283_306
    assert count(network.bias.unet) == count(UNet(26, 1))


def test_the_spread_net_is_its_description():
    network, x = spread_net(), noise(2, 4, 9, 11)
    inputs = x
    for layer in network.layers:
        kernels = [branch.kernel_size for branch in layer.branches]
        assert kernels == [(3, 3), (5, 5), (7, 7)]
        outputs = [
            torch.nn.functional.conv2d(inputs, b.weight, b.bias, padding=b.kernel_size[0] // 2)
            for b in layer.branches
        ]
        inputs = torch.cat([*[o.clamp(min=0) for o in outputs], x], 1)
    assert len(network.layers) == 3
    last = torch.cat([inputs[:, :9], x[:, 3:4]], 1)
    expected = torch.nn.functional.conv2d(last, network.last.weight, network.last.bias, padding=1)
    torch.testing.assert_close(network(x), expected)


def test_the_periodic_spread_net_commutes_with_turning_the_globe():
    network, x = spread_net(periodic_longitude=True, poles="replicate"), noise(1, 4, 8, 13)
    for columns in (1, -5):
        turned = network(x.roll(columns, -1))
        torch.testing.assert_close(turned, network(x).roll(columns, -1), rtol=0, atol=1e-12)


def test_the_bias_net_ends_in_a_map_of_each_point():
    network, x = BiasNet(4, 1, (8, 12), zero_init=False).double().eval(), noise(1, 4, 8, 12)
    torch.testing.assert_close(network(x), network.unet(x))
    network.affine.weight.data = noise(*network.affine.weight.shape)
    network.affine.bias.data = noise(1, 8, 12, seed=5)
    slope, share, shift = network.affine.weight[0, 1, 0], network.affine.weight[0, 0, 0], 0
    shift = network.affine.bias[0]
    expected = share * network.unet(x)[0, 0] + slope * x[0, 1] + shift
    torch.testing.assert_close(network(x)[0, 0], expected)


@pytest.mark.parametrize("periodic", [False, True])
def test_the_penalty_is_the_roughness_of_the_maps(periodic):
    network = BiasNet(4, 1, (8, 12), smoothness=0.5, periodic_longitude=periodic).double()
    assert network.penalty().item() == 0
    maps = noise(3, 8, 12)
    network.affine.weight.data = maps[:2].reshape(1, 2, 1, 8, 12)
    network.affine.bias.data = maps[2:]
    expected = 0.0
    for field in maps.tolist():
        rows = [(field[i + 1][j] - field[i][j]) ** 2 for i in range(7) for j in range(12)]
        last = range(12) if periodic else range(11)
        columns = [(field[i][(j + 1) % 12] - field[i][j]) ** 2 for i in range(8) for j in last]
        expected += sum(rows) / len(rows) + sum(columns) / len(columns)
    assert network.penalty().item() == pytest.approx(0.5 * expected)
    network.penalty().backward()
    assert (network.affine.bias.grad != 0).all()
    assert BiasNet(4, 1, (8, 12), smoothness=0.0).penalty() is None


def test_a_strong_penalty_keeps_the_maps_smooth(make_batches):
    batch, roughness = make_batches(1)[0], []
    for smoothness in (0.0, 100.0):
        torch.manual_seed(0)
        network = Groenquist(4, 2, 1, (8, 12), "bias", smoothness)
        model = PostProcessor(network, ResidualNormalHead())
        model.log = lambda *_, **__: None
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(15):
            optimizer.zero_grad()
            model.training_step(batch).backward()
            optimizer.step()
        roughness.append(network.bias.affine.bias.detach().diff(dim=-1).square().mean().item())
    assert roughness[1] < 0.05 * roughness[0]


def test_mean_and_spread_come_from_their_nets():
    x = noise(1, 4, 8, 12).float()
    assert (Groenquist(4, 2, 1, (8, 12))(x) == 0).all()
    for parts, own, other in (("bias", 0, 1), ("spread", 1, 0)):
        network = Groenquist(4, 2, 1, (8, 12), parts)
        assert network.spread is None or network.spread.spread == 3  # deviations follow means
        for parameter in network.parameters():
            parameter.data += 0.1
        outputs = network(x)
        assert (outputs[:, own] != 0).any()
        assert (outputs[:, other] == 0).all()
    assert Groenquist(4, 2, 1, (8, 12), "spread").penalty() is None


def test_every_parameter_gets_a_gradient():
    network = Groenquist(4, 2, 1, (8, 12))
    for parameter in network.parameters():
        parameter.data += 0.01
    (network(noise(2, 4, 8, 12).float()) - 1).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any() or name in before_norm(network), name


def before_norm(network):
    """Names of the biases that a batch normalisation takes away again."""
    convs = {n: m for n, m in network.named_modules() if getattr(m, "normalised_by", ())}
    return {f"{name}.bias" for name in convs}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Groenquist(4, 2, 1, (8, 12), "mixd"), UnknownNameError, "did you mean 'mixed'"),
        (lambda: Groenquist(4, 2, 2, (8, 12)), ArgumentError, "target: 2 is not an index of 2"),
        (lambda: Groenquist(3, 2, 1, (8, 12)), ArgumentError, "spread: 3 is not an index of 3"),
        (lambda: BiasNet(4, 1, (8, 12), smoothness=-1.0), ArgumentError, "smoothness"),
        (lambda: SpreadNet(4, 1, depth=1), ArgumentError, "depth"),
        (
            lambda: Groenquist(4, 2, 1, (9, 12))(noise(1, 4, 8, 12).float()),
            ArgumentError,
            "Build the layer for the grid of the data",
        ),
    ],
)
def test_settings_that_cannot_be(call, error, message):
    with pytest.raises(error, match=message):
        call()


def conv(layer, x):
    return torch.nn.functional.conv2d(
        x, layer.weight, layer.bias, padding=layer.kernel_size[0] // 2
    )


def normed(norm, x):
    """Batch normalisation with the statistics of the batch, by its formula."""
    centred = x - x.mean((0, 2, 3), keepdim=True)
    variance = centred.square().mean((0, 2, 3), keepdim=True)
    return centred / (variance + norm.eps).sqrt()


def test_the_published_spread_net_is_its_description():
    torch.manual_seed(1)
    network = PaperSpreadNet(4, 3, blocks=(8, 12), zero_init=False).double()
    x = noise(2, 4, 9, 11)
    first = network.first
    fields = normed(first[1], conv(first[0], x)).relu()
    fields = normed(first[4], conv(first[3], fields)).relu()
    fields = torch.cat([x[:, 3:4], fields], 1)
    for block, width in zip(network.blocks, (8, 12), strict=True):
        assert [b.kernel_size[0] for b in (block.linear, *block.branches)] == [1, 3, 5, 7]
        wide = torch.cat([conv(branch, fields) for branch in block.branches], 1)
        fields = torch.cat([normed(block.norm, wide).relu(), conv(block.linear, fields)], 1)
        assert fields.shape[1] == width
    fields = torch.cat([x[:, 3:4], fields], 1)
    torch.testing.assert_close(network(x), conv(network.last[1], conv(network.last[0], fields)))


def test_the_published_widths_and_parameters():
    """Counted by hand from the widths: weights, biases and two numbers of each normalisation."""
    network = Groenquist(87, 42, 3, (46, 96), published=True)
    branches = 1 + 9 + 25 + 49
    widths = (49, 64, 80, 112, 112, 80, 64)
    spread = 9 * 87 * 32 + 9 * 32 * 48 + 3 * (32 + 48)
    for before, after in pairwise(widths):
        spread += before * after // 4 * branches + after + 2 * (3 * after // 4)
    spread += 9 * 65 * 48 + 48 + 9 * 48 + 1
    assert count(network.spread) == spread
    levels = ((87, 4, 8), (8, 8, 16), (16, 16, 32), (32, 32, 64), (96, 32, 32), (48, 16, 16),
              (24, 8, 8))  # fmt: skip
    bias = sum(9 * a * b + 9 * b * c + 3 * (b + c) for a, b, c in levels)
    bias += 4 * (64 * 64 + 32 * 32 + 16 * 16) + 8 + 1
    assert count(network.bias.unet) == bias
    assert network.halvings == 3


def test_the_published_nets_take_odd_grids_start_at_zero_and_reach_every_parameter():
    x = noise(2, 4, 17, 19).float()
    network = Groenquist(4, 2, 1, (17, 19), published=True)
    assert (network(x) == 0).all()
    for parameter in network.parameters():
        parameter.data += 0.01 * torch.randn_like(parameter)
    (network(x) - 1).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert (parameter.grad != 0).any() or name in before_norm(network), name


def test_wrong_published_nets():
    for blocks in ((), (10,), (0,)):
        with pytest.raises(ArgumentError, match="blocks"):
            PaperSpreadNet(4, 3, blocks=blocks)
    with pytest.raises(ArgumentError, match="spread"):
        PaperSpreadNet(4, 4)
    with pytest.raises(ArgumentError, match="PaperBiasUNet"):
        PaperBiasUNet(4)(torch.zeros(1, 4, 7, 16))
    with pytest.raises(ArgumentError, match="one point at the deepest level"):
        PaperBiasUNet(4)(torch.zeros(1, 4, 8, 15))
    assert PaperBiasUNet(4)(torch.zeros(1, 4, 8, 16)).shape == (1, 1, 8, 16)
