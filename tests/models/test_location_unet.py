import pytest
import torch
from torch import nn

from ens10.errors import ArgumentError
from ens10.models.layers import LocallyConnected2d, upsample_twice
from ens10.models.networks import LocationUNet


def awake(network):
    """The network with weights everywhere, also where they start at zero."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.2)
    return network.double()


def features(rows=8, columns=16, channels=5, dates=2):
    g = torch.Generator().manual_seed(0)
    return torch.randn(dates, channels, rows, columns, generator=g, dtype=torch.float64)


def counted(network):
    return sum(p.numel() for p in network.parameters())


def test_parameters_are_those_counted_by_hand():
    widths, channels, embedding = (16, 32, 48), 80, 8

    def affine(before, after, taps=1):
        return before * after * taps + after

    expected = affine(channels + embedding, 16) + affine(16, (1 + embedding) * 2)
    expected += sum(affine(w, w, 9) + affine(w, w) for w in (16, 32, 48, 32, 16))
    expected += affine(16, 32) + affine(32, 48) + affine(32, 16) + affine(48, 32)
    network = LocationUNet(channels, (46, 96), widths=widths, embedding=embedding)
    assert counted(network) == expected + embedding * 46 * 96
    without = LocationUNet(channels, (46, 96), widths=widths, embedding=0)
    assert counted(without) == expected - embedding * (16 + 2 * 16 + 2)


def test_it_starts_at_zero_and_everything_learns():
    torch.manual_seed(0)
    network = LocationUNet(5, (8, 16), widths=(8, 12), embedding=3)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    target = features(channels=2).float()
    assert not network(features().float()).any()
    for _ in range(4):  # weights that start at zero hide those before them from the first gradient
        optimizer.zero_grad()
        (network(features().float()) - target).square().mean().backward()
        optimizer.step()
    still = [name for name, p in network.named_parameters() if not p.grad.any()]
    assert not still


@pytest.mark.parametrize(("columns", "turn"), [(16, 4), (12, 8)])
def test_without_embedding_it_turns_with_the_globe(columns, turn):
    network = awake(LocationUNet(5, (8, columns), widths=(6, 8, 10), embedding=0))
    x = features(columns=columns)
    turned = network(x.roll(turn, -1))
    torch.testing.assert_close(turned, network(x).roll(turn, -1), rtol=1e-10, atol=1e-10)
    other = network(x.roll(1, -1))
    assert not torch.allclose(other, network(x).roll(1, -1), rtol=1e-3)


def test_with_an_embedding_it_knows_where_it_is():
    network = awake(LocationUNet(5, (8, 16), widths=(6, 8), embedding=2))
    x = features()
    assert not torch.allclose(network(x.roll(4, -1)), network(x).roll(4, -1), rtol=1e-3)
    with torch.no_grad():
        for values in network.embedding.maps:
            values.copy_(values[..., :1].expand_as(values))
    torch.testing.assert_close(network(x.roll(4, -1)), network(x).roll(4, -1))


@pytest.mark.parametrize("grid", [(9, 15), (5, 7), (4, 4), (8, 13)])
def test_any_grid(grid):
    network = awake(LocationUNet(5, grid, widths=(6, 8, 10), embedding=2))
    assert network(features(*grid)).shape == (2, 2, *grid)


def test_it_is_its_description():
    """On an odd grid: the last row and, past the seam, the first column again for the pooling."""
    network, x = awake(LocationUNet(5, (9, 15), widths=(6, 8), embedding=2)), features(9, 15)
    z = network.embedding()

    def block(layer, fields):
        return fields + layer.mix(layer.convolution(fields.relu()).relu())

    above = network.stem(torch.cat([x, z.expand(2, -1, -1, -1)], 1))
    above = block(network.down[0][0], above)
    even = torch.cat([above, above[:, :, -1:]], 2)
    even = torch.cat([even, even[..., :1]], 3)
    pooled = even.unflatten(3, (8, 2)).mean(4).unflatten(2, (5, 2)).mean(3)
    below = network.back[0](block(network.down[1][0], network.deeper[0](pooled)))
    fields = above + upsample_twice(below, periodic_longitude=True)[..., :9, :15]
    heads = network.last(block(network.up[0][0], fields).relu()).unflatten(1, (3, 2))
    expected = heads[:, 0] + z[0] * heads[:, 1] + z[1] * heads[:, 2]
    torch.testing.assert_close(network(x), expected)


def test_the_embedding_mixes_the_last_layers_weights():
    """At a point, the output is affine in the features of the last map with weights of its own."""
    network = awake(LocationUNet(5, (8, 16), widths=(6,), embedding=3, out_channels=2))
    hidden = {}
    network.last.register_forward_hook(lambda _, given, made: hidden.update(h=given[0]))
    outputs = network(features())
    weights = network.last.weight[:, :, 0, 0].view(4, 2, 6)
    biases = network.last.bias.view(4, 2)
    z = network.embedding()
    for row, column in ((0, 0), (3, 7), (7, 15)):
        mix = torch.cat([torch.ones(1, dtype=z.dtype), z[:, row, column]])
        weight, bias = (torch.tensordot(mix, part, 1) for part in (weights, biases))
        expected = hidden["h"][:, :, row, column] @ weight.T + bias
        torch.testing.assert_close(outputs[:, :, row, column], expected)


def test_penalty_is_that_of_the_embedding_and_of_layers():
    class Costly(LocallyConnected2d):
        def penalty(self):
            return self.weight.square().sum()

    network = LocationUNet(5, (8, 16), widths=(6, 8), embedding=2, convolution=Costly)
    costs = [m.penalty() for m in network.modules() if isinstance(m, Costly)]
    assert len(costs) == 3
    expected = network.embedding.penalty() + sum(costs)
    torch.testing.assert_close(network.penalty(), expected)
    assert LocationUNet(5, (8, 16), embedding=0).penalty() is None


def test_other_convolutions_get_channels_and_the_grid_of_their_level():
    asked = []

    def make(before, after, grid):
        asked.append((before, after, grid))
        return nn.Conv2d(before, after, 1)

    network = LocationUNet(5, (9, 15), widths=(6, 8, 10), blocks=2, convolution=make)
    down = [(6, 6, (9, 15))] * 2 + [(8, 8, (5, 8))] * 2 + [(10, 10, (3, 4))] * 2
    assert asked == down + down[:4]
    assert network(features(9, 15).float()).shape == (2, 2, 9, 15)


def test_another_grid_or_levels_that_do_not_fit():
    network = LocationUNet(5, (8, 16), widths=(6, 8))
    with pytest.raises(ArgumentError, match="data have 8 x 12 points"):
        network(features(8, 12).float())
    with pytest.raises(ArgumentError, match="no level is given"):
        LocationUNet(5, (8, 16), widths=())
    with pytest.raises(ArgumentError, match="5 levels do not fit a grid of 8 x 16"):
        LocationUNet(5, (8, 16), widths=(4, 4, 4, 4, 4))


@pytest.mark.parametrize(("slope", "learns"), [(0.0, False), (0.1, True)])
def test_a_negative_slope_keeps_a_gradient_where_all_inputs_of_the_last_layer_are_negative(
    slope, learns
):
    torch.manual_seed(0)
    network = LocationUNet(3, (8, 12), widths=[4, 4], embedding=2, negative_slope=slope)
    torch.nn.init.normal_(network.last.weight)
    with torch.no_grad():
        network.stem.bias -= 100.0
    network(torch.randn(2, 3, 8, 12)).square().sum().backward()
    assert bool((network.stem.weight.grad != 0).any()) is learns
    with pytest.raises(ArgumentError, match="negative_slope"):
        LocationUNet(3, (8, 12), widths=[4, 4], negative_slope=-0.1)
