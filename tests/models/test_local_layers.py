"""Locally connected, low-rank, coordinate and conditional convolution against loops."""

from itertools import product

import pytest
import torch
from torch import nn

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.layers.location_convolutions import (
    CondConv2d,
    CoordConv2d,
    LocallyConnected2d,
    LowRankLocallyConnected2d,
    coordinates,
)

GRID = (4, 5)


def noise(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomise(layer):
    for i, parameter in enumerate(layer.parameters()):
        parameter.data = noise(*parameter.shape, seed=i)
    return layer.double()


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(("periodic", "poles"), [(False, "zeros"), (True, "replicate")])
def test_locally_connected_equals_a_loop_over_points(kernel, periodic, poles):
    layer = LocallyConnected2d(
        3, 2, GRID, kernel, bias=True, periodic_longitude=periodic, poles=poles
    )
    layer, x, half = randomise(layer), noise(2, 3, *GRID), kernel // 2
    H, W = GRID
    expected = torch.zeros(2, 2, H, W, dtype=torch.float64)
    for h, w in product(range(H), range(W)):
        total = layer.bias[:, h, w].detach().clone().expand(2, 2).clone()
        for tap, (i, j) in enumerate(product(range(-half, half + 1), repeat=2)):
            row, column = h + i, w + j
            column = column % W if periodic else column
            row = min(max(row, 0), H - 1) if poles == "replicate" else row
            if 0 <= row < H and 0 <= column < W:
                total += x[:, :, row, column] @ layer.weight[:, :, tap, h, w].T
        expected[:, :, h, w] = total
    torch.testing.assert_close(layer(x), expected)
    assert torch.autograd.gradcheck(layer, x.requires_grad_())


def test_locally_connected_with_equal_weights_is_a_convolution():
    layer, x = randomise(LocallyConnected2d(3, 2, GRID, 3)), noise(2, 3, *GRID)
    filters = noise(2, 3, 3, 3)
    layer.weight.data[:] = filters.flatten(2)[..., None, None]
    torch.testing.assert_close(layer(x), nn.functional.conv2d(x, filters, padding=1))
    assert sum(p.numel() for p in layer.parameters()) == 2 * 3 * 9 * 20


def test_low_rank_starts_as_a_convolution_and_equals_its_formula():
    layer, x = LowRankLocallyConnected2d(3, 2, GRID, rank=4).double(), noise(2, 3, *GRID)
    filters = layer.banks.weight.unflatten(0, (4, 2))
    mean = nn.functional.conv2d(x, filters.mean(0), padding=1)
    torch.testing.assert_close(layer(x), mean)
    randomise(layer)
    filters = layer.banks.weight.unflatten(0, (4, 2))
    y = layer(x)
    for h, w in product(range(GRID[0]), range(GRID[1])):
        share = (layer.row_logits[:, h, 0] + layer.column_logits[:, 0, w]).softmax(0)
        own = (share[:, None, None, None, None] * filters).sum(0)
        here = nn.functional.conv2d(x, own, padding=1)[..., h, w]
        bias = layer.bias[:, 0, 0] + layer.row_bias[h, 0] + layer.column_bias[0, w]
        torch.testing.assert_close(y[..., h, w], here + bias)
    assert sum(p.numel() for p in layer.parameters()) == 4 * 2 * 3 * 9 + 4 * 9 + 2 + 9


def test_coordinates_are_where_the_points_are():
    x = noise(2, 1, 3, 4)
    row, column = coordinates(x)[1]
    assert row[:, 2].tolist() == [-1, 0, 1]
    torch.testing.assert_close(column[1], torch.linspace(-1, 1, 4).double())
    _, sine, cosine = coordinates(x, periodic_longitude=True)[0]
    torch.testing.assert_close(sine[0], torch.tensor([0, 1, 0, -1]).double())
    torch.testing.assert_close(cosine[2], torch.tensor([1, 0, -1, 0]).double())


@pytest.mark.parametrize("periodic", [False, True])
def test_coordinate_convolution_sees_the_coordinates(periodic):
    layer, x = randomise(CoordConv2d(3, 2, 1, periodic_longitude=periodic)), noise(2, 3, *GRID)
    maps = torch.cat([x, coordinates(x, periodic_longitude=periodic)], 1)
    expected = nn.functional.conv2d(maps, layer.conv.weight, layer.conv.bias)
    torch.testing.assert_close(layer(x), expected)


def test_conditional_convolution_equals_a_filter_for_each_sample():
    layer, x = randomise(CondConv2d(3, 2, 4)), noise(3, 3, *GRID)
    filters = layer.experts.weight.unflatten(0, (4, 2))
    y = layer(x)
    for n in range(3):
        logits = layer.routing.weight @ x[n].mean((1, 2)) + layer.routing.bias
        own = torch.einsum("e,eoikl->oikl", logits.sigmoid(), filters)
        torch.testing.assert_close(y[n], nn.functional.conv2d(x[n], own, padding=1))
    torch.testing.assert_close(layer(x[[2, 0, 1]]), y[[2, 0, 1]])
    assert sum(p.numel() for p in layer.parameters()) == 4 * 2 * 3 * 9 + 4 * 3 + 4


def test_conditional_convolution_commutes_with_turning_the_globe():
    layer, x = randomise(CondConv2d(3, 2, periodic_longitude=True)), noise(2, 3, *GRID)
    torch.testing.assert_close(layer(x.roll(2, -1)), layer(x).roll(2, -1))


def test_layers_refuse_what_they_cannot_do():
    with pytest.raises(ArgumentError, match="kernel_size"):
        LocallyConnected2d(3, 2, GRID, 2)
    with pytest.raises(ArgumentError, match="grid"):
        LocallyConnected2d(3, 2, (0, 4))
    with pytest.raises(UnknownNameError, match="poles"):
        LocallyConnected2d(3, 2, GRID, poles="zero")
    with pytest.raises(ArgumentError, match=r"weights are for \(N, 3, 4, 5\)"):
        LocallyConnected2d(3, 2, GRID)(torch.zeros(1, 3, 4, 6))
    with pytest.raises(ArgumentError, match="rank"):
        LowRankLocallyConnected2d(3, 2, GRID, 0)
    with pytest.raises(ArgumentError, match="grid"):
        LowRankLocallyConnected2d(3, 2, GRID)(torch.zeros(1, 3, 5, 4))
    with pytest.raises(ArgumentError, match="num_experts"):
        CondConv2d(3, 2, 0)
