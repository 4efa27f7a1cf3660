import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models.networks.transformer import Transformer


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).double()


def small(**options):
    torch.manual_seed(1)
    return Transformer(3, width=8, heads=2, **options).double()


def test_parameters_as_stated():
    for channels, count in ((7, 25_794), (11, 25_922)):
        assert sum(p.numel() for p in Transformer(channels).parameters()) == count


def attended(layer, x):
    """Two heads of 4 channels, dot products by the root of 4."""
    attention = layer.self_attn
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    query, key, value = (x @ weight.T + bias).chunk(3, -1)
    heads = []
    for head in (slice(0, 4), slice(4, 8)):
        shares = (query[..., head] @ key[..., head].mT / 2).softmax(-1)
        heads.append(shares @ value[..., head])
    return attention.out_proj(torch.cat(heads, -1))


def test_it_is_its_description():
    """Tokens without position, pre-normalised layers, a normalisation, the mean over members."""
    network, x = small(depth=2), noise(2, 3, 3, 4, 5)
    members = network.embed(x.permute(0, 3, 4, 1, 2))
    for layer in network.layers:
        members = members + attended(layer, layer.norm1(members))
        members = members + layer.linear2(layer.linear1(layer.norm2(members)).relu())
    expected = network.last(network.norm(members).mean(-2))
    torch.testing.assert_close(network(x), expected.permute(0, 3, 1, 2), rtol=0, atol=1e-12)


@pytest.mark.parametrize("members", [2, 5, 13])
def test_permuting_members_leaves_the_outputs(members):
    network, x = small(), noise(2, members, 3, 4, 5)
    outputs = network(x)
    assert outputs.shape == (2, 2, 4, 5)
    order = torch.randperm(members, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network(x[:, order]), outputs, rtol=0, atol=1e-12)


def test_each_point_is_on_its_own():
    network, x = small(), noise(1, 4, 3, 4, 5)
    alone = network(x[..., 2:3, 3:4])
    torch.testing.assert_close(network(x)[..., 2:3, 3:4], alone, rtol=0, atol=1e-12)
    moved = x.clone()
    moved[..., 0, 0] += 1
    assert ((network(moved) != network(x)).any(1).sum()) == 1


def test_members_see_each_other():
    """A mean of what each member gives on its own would be additive; this is not."""
    network, x = small(), noise(1, 2, 3, 1, 1)
    twice = [network(x[:, [m, m]]) for m in (0, 1)]
    assert (network(x) - (twice[0] + twice[1]) / 2).abs().max() > 1e-4


def test_chunks_change_nothing():
    x = noise(2, 4, 3, 3, 5)
    whole, chunked = small(), small(chunk=7)
    torch.testing.assert_close(chunked(x), whole(x), rtol=0, atol=1e-12)
    for network in (whole, chunked):
        network(x).square().sum().backward()
    for one, two in zip(whole.parameters(), chunked.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=0, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(chunked(x), whole(x), rtol=0, atol=1e-12)


def test_zero_start_and_gradients():
    network, x = small(zero_init=True), noise(1, 3, 3, 2, 2)
    assert (network(x) == 0).all()
    (network(x) - 1).square().sum().backward()
    assert (network.last.bias.grad != 0).all()


def test_settings_that_cannot_be():
    with pytest.raises(ArgumentError, match="width: 8 is not a multiple of 3 heads"):
        Transformer(3, width=8, heads=3)
    with pytest.raises(ArgumentError, match="chunk"):
        Transformer(3, chunk=0)
