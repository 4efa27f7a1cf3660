from unittest.mock import patch

import pytest
import torch
from torch import nn
from torch.nn import functional

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.domain import Edges, Sides, current
from ens10.models.layers import SameConv2d, upsample_twice
from ens10.models.layers.levels import join_level
from ens10.models.networks import MLP, UNet


def parameters(network):
    return sum(p.numel() for p in network.parameters())


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def test_parameter_counts_of_the_paper():
    assert parameters(MLP(17)) == 2562
    assert parameters(MLP(25)) == 3586
    assert parameters(UNet(14)) == 633_698
    assert parameters(UNet(22)) == 636_002


def test_mlp_is_two_linear_layers_at_each_point():
    network, x = MLP(5, hidden=7), noise(2, 5, 3, 4)
    first, last = network.layers[0], network.layers[2]
    points = x.permute(0, 2, 3, 1)
    hidden = nn.functional.linear(points, first.weight, first.bias).relu()
    expected = nn.functional.linear(hidden, last.weight, last.bias)
    torch.testing.assert_close(network(x), expected.permute(0, 3, 1, 2))


@pytest.mark.parametrize("grid", [(23, 53), (46, 96), (37, 48), (8, 8), (9, 11), (10, 14)])
@pytest.mark.parametrize("periodic", [False, True])
def test_unet_takes_any_grid(grid, periodic):
    network = UNet(3, periodic_longitude=periodic)
    outputs = network(noise(1, 3, *grid))
    assert outputs.shape == (1, 2, *grid)
    outputs.sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("grid", [(7, 96), (46, 7), (1, 1)])
def test_unet_refuses_grids_too_small_for_two_poolings(grid):
    with pytest.raises(ArgumentError, match="too small"):
        UNet(3)(noise(1, 3, *grid))


@pytest.mark.parametrize("poles", ["zeros", "replicate"])
def test_periodic_unet_commutes_with_turning_the_globe(poles):
    network = UNet(3, periodic_longitude=True, poles=poles).double()
    x = noise(2, 3, 9, 16).double()
    network(x)  # batch statistics that are not the initial ones
    network.eval()
    for columns in (4, 8, -4):
        turned = network(x.roll(columns, -1))
        torch.testing.assert_close(turned, network(x).roll(columns, -1), rtol=0, atol=1e-12)


def test_plain_unet_does_not_commute():
    network, x = UNet(3).double().eval(), noise(1, 3, 8, 16).double()
    turned, expected = network(x.roll(4, -1)), network(x).roll(4, -1)
    assert (turned - expected).abs().max() > 1e-3


def test_unet_equals_its_description():
    """The paper's variant spelled out: order of the concatenation and the row on top."""
    network, x = UNet(3).eval(), noise(1, 3, 9, 12)
    pool = nn.MaxPool2d(2)
    twice = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
    level_0 = network.down_0(x)
    level_1 = network.down_1(pool(level_0))
    level_2 = network.bottom(pool(level_1))
    level_1 = network.up_1(torch.cat([level_1, twice(level_2)], 1))
    up = twice(level_1)
    level_0 = network.up_0(torch.cat([level_0, torch.cat([up[:, :, :1], up], 2)], 1))
    torch.testing.assert_close(network(x), network.last(level_0))


@pytest.mark.parametrize(("periodic", "filler"), [(False, -1), (True, 0)])
def test_an_odd_column_is_filled_in_the_east(periodic, filler):
    skip, below = noise(1, 1, 4, 7), noise(1, 1, 2, 3)
    joined = join_level(skip, below, periodic_longitude=periodic)
    upper = upsample_twice(below, periodic_longitude=periodic)
    assert torch.equal(joined[:, :1], skip)
    assert torch.equal(joined[:, 1:, :, :6], upper)
    assert torch.equal(joined[:, 1:, :, 6], upper[..., filler])


def test_zero_init_starts_at_an_output_of_zero():
    x = noise(1, 3, 8, 8)
    assert (UNet(3, zero_init=True)(x) == 0).all()
    assert (UNet(3)(x) != 0).any()


def test_same_convolution_pads_as_said():
    conv = SameConv2d(1, 1, periodic_longitude=True, poles="replicate")
    x = noise(1, 1, 4, 5)
    wide = torch.cat([x[..., -1:], x, x[..., :1]], -1)
    tall = torch.cat([wide[:, :, :1], wide, wide[:, :, -1:]], 2)
    expected = nn.functional.conv2d(tall, conv.weight, conv.bias)
    torch.testing.assert_close(conv(x), expected)
    plain = SameConv2d(1, 1)
    torch.testing.assert_close(
        plain(x), nn.functional.conv2d(x, plain.weight, plain.bias, padding=1)
    )


def test_a_convolution_of_groups_is_one_of_each_group():
    conv, x = SameConv2d(4, 6, 3, groups=2), noise(1, 4, 4, 5)
    halves = [
        nn.functional.conv2d(x[:, i : i + 2], w, b, padding=1)
        for i, w, b in zip((0, 2), conv.weight.chunk(2), conv.bias.chunk(2), strict=True)
    ]
    torch.testing.assert_close(conv(x), torch.cat(halves, 1))


def test_same_convolution_refuses_what_it_cannot_do():
    with pytest.raises(ArgumentError, match="groups: 3 do not divide 4 and 6 channels"):
        SameConv2d(4, 6, groups=3)
    with pytest.raises(ArgumentError, match="kernel_size"):
        SameConv2d(1, 1, 2)
    with pytest.raises(UnknownNameError, match="did you mean 'replicate'"):
        SameConv2d(1, 1, poles="replicat")


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("sides", [(1, 2, 3, 4), (0, 1, 0, 2), (3, 0, 6, 0)])
def test_padding_is_that_of_torch_and_keeps_the_memory_format(form, sides):
    fields = torch.randn(2, 3, 4, 6).contiguous(memory_format=form).requires_grad_()
    padded = current().pad(fields, Sides(*sides), Edges("replicate", "circular"))
    wide = functional.pad(fields, (*sides[2:], 0, 0), mode="circular")
    expected = functional.pad(wide, (0, 0, *sides[:2]), mode="replicate")
    assert torch.equal(padded, expected)
    assert padded.is_contiguous(memory_format=form)
    weights = torch.rand(padded.shape)
    gradients = (torch.autograd.grad((p * weights).sum(), fields)[0] for p in (padded, expected))
    torch.testing.assert_close(*gradients)


def test_padding_by_more_than_the_globe_is_refused():
    with pytest.raises(ArgumentError, match="3 periodic columns beyond a grid of 2"):
        current().pad(torch.zeros(1, 1, 4, 2), Sides(0, 0, 3, 0), Edges("zeros", "circular"))


def test_unet_works_in_channels_last_and_gives_what_channels_first_gives():
    torch.manual_seed(0)
    network = UNet(in_channels=5, periodic_longitude=True).double()
    formats = []
    for module in network.modules():
        if isinstance(module, SameConv2d):
            module.register_forward_hook(
                lambda _, before, after: formats.append(
                    [x.is_contiguous(memory_format=torch.channels_last) for x in (*before, after)]
                )
            )
    features = torch.randn(2, 5, 18, 21, dtype=torch.float64)
    given = network(features)
    assert len(formats) == 13
    assert all(all(pair) for pair in formats)
    with patch.object(torch.Tensor, "contiguous", lambda values, **_: values):
        plain = network(features)
    assert not all(formats[13 + 1])
    torch.testing.assert_close(given, plain, rtol=1e-10, atol=1e-12)


def test_upsampling_puts_values_at_half_pixel_centres():
    row = torch.tensor([0.0, 4.0]).reshape(1, 1, 1, 2)
    assert upsample_twice(row)[0, 0, 0].tolist() == [0.0, 1.0, 3.0, 4.0]
    assert upsample_twice(row, periodic_longitude=True)[0, 0, 0].tolist() == [1.0, 1.0, 3.0, 3.0]
