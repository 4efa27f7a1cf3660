import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.networks.groenquist import BiasNet, Groenquist, SpreadNet
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
        assert (parameter.grad != 0).any(), name


def test_settings_that_cannot_be():
    with pytest.raises(UnknownNameError, match="did you mean 'mixed'"):
        Groenquist(4, 2, 1, (8, 12), "mixd")
    with pytest.raises(ArgumentError, match="target: 2 is not an index of 2"):
        Groenquist(4, 2, 2, (8, 12))
    with pytest.raises(ArgumentError, match="spread: 3 is not an index of 3"):
        Groenquist(3, 2, 1, (8, 12))
    with pytest.raises(ArgumentError, match="smoothness"):
        BiasNet(4, 1, (8, 12), smoothness=-1.0)
    with pytest.raises(ArgumentError, match="depth"):
        SpreadNet(4, 1, depth=1)
    with pytest.raises(ArgumentError, match="Build the layer for the grid of the data"):
        Groenquist(4, 2, 1, (9, 12))(noise(1, 4, 8, 12).float())
