"""Attention to neighbouring grid points, against torch's own attention over gathered windows."""

import pytest
import torch
from jsonargparse import ArgumentParser
from torch.nn import functional

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.layers import NeighbourhoodAttention, NeighbourhoodBlock, SameConv2d
from ens10.models.layers.neighbourhood import _Attend, attend
from ens10.models.layers.neighbourhood_loops import CompiledAttention
from ens10.models.layers.pointwise import PointConv2d
from ens10.models.networks import LocationUNet, Network


def attention(*args, **options):
    """In double precision, with weights everywhere."""
    torch.manual_seed(0)
    layer = NeighbourhoodAttention(*args, **options).double()
    for parameter in layer.parameters():
        parameter.data.normal_()
    return layer


def fields(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gathered(x, layer, *, periodic, poles):
    """The windows of all points, (N, H W, window^2, C), by torch's unfold of a padded field."""
    half = layer.window // 2
    x = functional.pad(x, (half, half, 0, 0), mode="circular" if periodic else "constant")
    x = functional.pad(
        x, (0, 0, half, half), mode="replicate" if poles == "replicate" else "constant"
    )
    taps = functional.unfold(x, layer.window).unflatten(1, (x.shape[1], -1))
    return taps.permute(0, 3, 2, 1)


@pytest.mark.parametrize(("periodic", "poles"), [(True, "replicate"), (False, "zeros")])
@pytest.mark.parametrize(("heads", "keys", "window"), [(2, 3, 3), (1, 1, 5), (3, 2, 1)])
def test_it_is_attention_over_the_window(heads, keys, window, periodic, poles):
    options = {"periodic_longitude": periodic, "poles": poles}
    layer = attention(4, 6, heads, keys, window, **options)
    x = fields(2, 4, 6, 7)
    tokens = gathered(x, layer, periodic=periodic, poles=poles)

    def linear(conv, inputs):
        made = functional.linear(inputs, conv.weight[..., 0, 0], conv.bias)
        return made.unflatten(-1, (heads, -1)).transpose(-2, -3)  # (..., heads, tokens, c)

    query = linear(layer.query, x.flatten(2).transpose(1, 2)[:, :, None])
    key, value = (linear(conv, tokens) for conv in (layer.key, layer.value))
    offsets = layer.offsets[..., 0, 0].transpose(0, 1)  # (heads, tokens, c)
    expected = functional.scaled_dot_product_attention(query, key + offsets, value)
    expected = expected.squeeze(-2).flatten(2).transpose(1, 2).view(2, 6, 6, 7)
    torch.testing.assert_close(layer(x), expected)


def test_a_point_can_take_its_value_from_upstream():
    """A query that depends on the wind selects the neighbour to the west or to the east."""
    layer = NeighbourhoodAttention(2, 1, heads=1, key_channels=1).double()
    for parameter in layer.parameters():
        parameter.data.zero_()
    layer.query.weight.data[0, 0] = 100.0  # the wind
    layer.value.weight.data[0, 1] = 1.0
    for place, sign in ((3, 1.0), (5, -1.0)):  # of the window's middle row
        layer.offsets.data[place] = sign
    wind = torch.tensor([1.0, -1.0]).repeat(4).expand(4, 8)
    value = fields(4, 8)
    moved = layer(torch.stack([wind, value])[None])[0, 0]
    expected = torch.where(wind > 0, value.roll(1, -1), value.roll(-1, -1))
    torch.testing.assert_close(moved, expected)


def test_it_turns_with_the_globe():
    layer, x = attention(3, 4), fields(1, 3, 5, 8)
    torch.testing.assert_close(layer(x.roll(3, -1)), layer(x).roll(3, -1))


@pytest.mark.parametrize(
    ("attention", "kind"), [(True, NeighbourhoodAttention), (False, SameConv2d)]
)
def test_a_block_is_its_description_and_starts_as_the_identity(attention, kind):
    torch.manual_seed(0)
    block, x = NeighbourhoodBlock(8, heads=2, attention=attention).double(), fields(2, 8, 5, 6)
    assert isinstance(block.attention, kind)
    assert torch.equal(block(x), x)
    for parameter in block.parameters():
        parameter.data.normal_()

    def norm(values, layer):
        last = functional.layer_norm(
            values.movedim(1, -1), (8,), layer.norm.weight, layer.norm.bias
        )
        return last.movedim(-1, 1)

    half = x + block.project(block.attention(norm(x, block.norms[0])))
    hidden = functional.gelu(block.expand(norm(half, block.norms[1])))
    torch.testing.assert_close(block(x), half + block.reduce(hidden))


def test_a_network_of_blocks_by_configuration_learns_everywhere():
    block = {"class_path": "ens10.models.layers.NeighbourhoodBlock", "init_args": {"heads": 2}}
    content = {
        "class_path": "ens10.models.networks.LocationUNet",
        "init_args": {"in_channels": 5, "grid": [9, 16], "widths": [4, 6], "block": block},
    }
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Network, "network")
    torch.manual_seed(0)
    network = parser.instantiate_classes(parser.parse_object({"network": content}))["network"]
    blocks = [m for m in network.modules() if isinstance(m, NeighbourhoodBlock)]
    assert [block.attention.value.out_channels for block in blocks] == [4, 6, 4]
    assert not network(torch.randn(1, 5, 9, 16)).any()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)  # past the starts at zero
    network(torch.randn(2, 5, 9, 16)).square().mean().backward()
    assert [name for name, p in network.named_parameters() if not p.grad.any()] == []


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"heads": 3}, ArgumentError, "8 channels are not a multiple of 3 heads"),
        ({"heads": 0}, ArgumentError, "8 channels are not a multiple of 0 heads"),
        ({"window": 4}, ArgumentError, "4 is not odd"),
        ({"key_channels": 0}, ArgumentError, "0 is not positive"),
        ({"expansion": 0}, ArgumentError, "0 is not positive"),
        ({"poles": "reflect"}, UnknownNameError, "poles"),
    ],
)
def test_wrong_options_are_refused(options, error, said):
    with pytest.raises(error, match=said):
        NeighbourhoodBlock(8, **options)


def test_two_kinds_of_blocks_are_refused():
    with pytest.raises(ArgumentError, match="given with a convolution"):
        LocationUNet(3, (8, 8), convolution=NeighbourhoodAttention, block=NeighbourhoodBlock)


def parts(dtype, window=3, samples=2, heads=2, shape=(5, 7)):
    """Query, padded key and value, and offsets, all with gradients."""
    g = torch.Generator().manual_seed(3)
    rows, columns = (length + window - 1 for length in shape)
    sizes = [(samples, heads, 3, *shape), (samples, heads, 3, rows, columns)]
    sizes += [(samples, heads, 2, rows, columns), (window**2, heads, 3)]
    return [torch.randn(s, generator=g, dtype=dtype).requires_grad_() for s in sizes]


def traced(query, key, value, offsets):
    return attend(query, key, value, offsets[..., None, None], round(len(offsets) ** 0.5))


def in_place(query, key, value, offsets):
    """As on other devices."""
    window = round(len(offsets) ** 0.5)
    return _Attend.apply(query, key, value, offsets[..., None, None], window)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("window", "shape"), [(1, (4, 6)), (3, (5, 7)), (5, (3, 200)), (3, (1, 1))]
)
def test_compiled_loops_equal_torchs_operations(window, shape, threads):
    inputs = parts(torch.float64, window, shape=shape)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        expected = traced(*inputs)
        grad = torch.randn(
            expected.shape, dtype=expected.dtype, generator=torch.Generator().manual_seed(4)
        )
        gradients = torch.autograd.grad(expected, inputs, grad)
        for got in (CompiledAttention.apply(*inputs), in_place(*inputs)):
            torch.testing.assert_close(got, expected)
            for own, its in zip(torch.autograd.grad(got, inputs, grad), gradients, strict=True):
                torch.testing.assert_close(own, its)
    finally:
        torch.set_num_threads(before)


def test_compiled_gradients_are_those_of_differences():
    inputs = parts(torch.float64, samples=1, shape=(3, 4))
    assert torch.autograd.gradcheck(CompiledAttention.apply, inputs)


def test_compiled_loops_with_missing_and_with_large_numbers():
    """NaN stays in the windows that hold it; weights of 0 and 1 need no infinite exponential."""
    query, key, value, offsets = (part.detach() for part in parts(torch.float32))
    key[0, 0, 0, 3, 4] = torch.nan
    query[1] *= 1e4
    got = CompiledAttention.apply(query, key, value, offsets)
    expected = traced(query, key, value, offsets)
    torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-4, atol=1e-5)
    assert got.isnan().sum() == 2 * 9  # two channels of the values


def test_layers_choose_the_compiled_loops_where_they_can():
    layer, x = NeighbourhoodAttention(4, 4, heads=2), torch.randn(1, 4, 5, 6)
    assert "CompiledAttention" in type(layer(x).grad_fn.next_functions[0][0]).__name__
    half = NeighbourhoodAttention(4, 4, heads=2).bfloat16()(x.bfloat16())
    assert half.dtype == torch.bfloat16


def test_point_convolutions_are_convolutions():
    for bias in (True, False):
        torch.manual_seed(0)
        layer, x = PointConv2d(3, 5, bias).double(), fields(2, 3, 4, 6).requires_grad_()
        expected = functional.conv2d(x, layer.weight, layer.bias)
        torch.testing.assert_close(layer(x), expected)
        assert torch.autograd.gradcheck(layer, x)
        torch.testing.assert_close(layer(x[:0]), expected[:0])
        torch.testing.assert_close(layer(x[0]), expected[0])  # without the axis of samples
    assert {name: p.shape for name, p in PointConv2d(3, 5).named_parameters()} == {
        name: p.shape for name, p in torch.nn.Conv2d(3, 5, 1).named_parameters()
    }


def test_a_point_convolution_of_parts_is_that_of_the_joined_channels():
    torch.manual_seed(0)
    layer = PointConv2d(5, 4).double()
    own, common = fields(2, 3, 4, 6).requires_grad_(), fields(1, 2, 4, 6).requires_grad_()
    joined = functional.conv2d(
        torch.cat([own, common.expand(2, -1, -1, -1)], 1), layer.weight, layer.bias
    )
    slope = torch.randn_like(joined)
    inputs = (own, common, layer.weight, layer.bias)
    expected = torch.autograd.grad(joined, inputs, slope)
    found = torch.autograd.grad(layer(own, common), inputs, slope)
    torch.testing.assert_close(layer(own, common), joined)
    torch.testing.assert_close(found, expected)
    with pytest.raises(ArgumentError, match=r"3 \+ 3 channels for 5"):
        layer(own, own)
