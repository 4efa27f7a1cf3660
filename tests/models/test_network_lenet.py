import pytest
import torch
from torch import nn

from ens10.models.networks.lenet import LeNet


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).double()


def test_parameters_as_stated():
    for channels, count in ((14, 62_976), (22, 64_176)):
        assert sum(p.numel() for p in LeNet(channels).parameters()) == count


def test_it_is_its_description():
    network, x = LeNet(3).double(), noise(2, 3, 6, 9)
    convolutions = [layer for layer in network.layers if isinstance(layer, nn.Conv2d)]
    assert [tuple(c.weight.shape[:3]) for c in convolutions] == [
        (6, 3, 5),
        (16, 6, 5),
        (120, 16, 5),
        (84, 120, 1),
        (2, 84, 1),
    ]
    expected = x
    for n, conv in enumerate(convolutions):
        padding = conv.kernel_size[0] // 2
        expected = nn.functional.conv2d(expected, conv.weight, conv.bias, padding=padding)
        expected = expected.relu() if n < 4 else expected
    torch.testing.assert_close(network(x), expected)


def test_a_point_sees_13_x_13_points():
    network, x = LeNet(1).double(), noise(1, 1, 17, 19).requires_grad_()
    network(x)[0, 0, 8, 9].backward()
    rows, columns = x.grad[0, 0].nonzero().unbind(1)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (2, 14, 3, 15)


@pytest.mark.parametrize("columns", [1, -4])
def test_the_periodic_one_commutes_with_turning_the_globe(columns):
    network, x = LeNet(3, periodic_longitude=True, poles="replicate").double(), noise(1, 3, 5, 11)
    turned = network(x.roll(columns, -1))
    torch.testing.assert_close(turned, network(x).roll(columns, -1), rtol=0, atol=1e-12)
    plain = LeNet(3).double()
    assert (plain(x.roll(columns, -1)) - plain(x).roll(columns, -1)).abs().max() > 1e-6


def test_zero_start_and_gradients():
    network = LeNet(3, zero_init=True)
    x = noise(1, 3, 4, 5).float()
    assert (network(x) == 0).all()
    (network(x) - 1).square().sum().backward()
    assert (network.layers[-1].weight.grad != 0).any()
    assert all(p.grad.isfinite().all() for p in network.parameters())
