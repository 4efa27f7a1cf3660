"""SAET and PoET, and the attention across members that both have."""

import copy

import pytest
import torch
from torch.nn import functional

from ens10.errors import ArgumentError
from ens10.models.layers.attention import (
    ChannelNorm,
    FinnAttention,
    MemberAttention,
    member_products,
    member_weights,
    weighted_perturbations,
)
from ens10.models.networks.poet import PaperPoET, PoET
from ens10.models.networks.saet import SAET, PaperSAET


def noise(*shape, seed=3):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).double()


def awake(network):
    """Nothing at zero: a zero start hides what a network does."""
    generator = torch.Generator().manual_seed(7)
    for parameter in network.parameters():
        parameter.data = parameter.data.double()
        if not parameter.any():
            parameter.data.normal_(std=0.3, generator=generator)
    return network.double()


def saet(**options):
    torch.manual_seed(1)
    return SAET(3, width=8, depth=2, **options)


def poet(**options):
    torch.manual_seed(1)
    return PoET(3, widths=(8, 8, 16), **options)


def paper_saet(**options):
    torch.manual_seed(1)
    return PaperSAET(3, width=8, depth=2, heads=5, **options)


def paper_poet(**options):
    torch.manual_seed(1)
    return PaperPoET(3, widths=(8, 8, 16), **{"stride": 2, **options})


BOTH = pytest.mark.parametrize("make", [saet, poet])
ALL = pytest.mark.parametrize("make", [saet, poet, paper_saet, paper_poet])


def test_parameters_as_stated():
    counts = {(SAET, 7): 171_841, (SAET, 11): 178_241, (PoET, 7): 129_665, (PoET, 11): 130_241}
    for (kind, channels), count in counts.items():
        assert sum(p.numel() for p in kind(channels).parameters()) == count


def test_with_a_grid_most_parameters_belong_to_points():
    grid = (24, 36)
    extra = sum(p.numel() for p in PoET(7, grid=grid).parameters()) - 129_665
    points = 2 * (16 * 24 * 36 + 32 * 12 * 18 + 64 * 6 * 9)
    assert extra == points - 2 * (16 + 32 + 64)


@pytest.mark.parametrize(
    ("kind", "channels", "options", "count"),
    [
        (PaperSAET, 3, {"grid": (32, 64)}, 488_449),
        (PaperSAET, 3, {"grid": (32, 64), "depth": 2}, 767_041),
        (PaperPoET, 3, {"widths": (16, 32, 64), "grid": (24, 36)}, 336_561),
        (PaperPoET, 21, {"grid": (46, 96)}, 357_569),
        (PaperPoET, 21, {"grid": (361, 720)}, 3_926_465),
    ],
)
def test_parameters_are_those_of_the_authors_modules(kind, channels, options, count):
    """Counted in the authors' modules, without the latitude weights of their scores."""
    assert sum(p.numel() for p in kind(channels, **options).parameters()) == count


@pytest.mark.parametrize("stride", [1, 3])
def test_attention_of_the_papers_equals_its_definition(stride):
    """For each head, with the last row and column of an incomplete window left out."""
    layer, x = awake(FinnAttention(4, 2, (4, 7), stride)), noise(2, 5, 4, 4, 7)
    layer.norm.norm.weight.data = noise(4, 4, 7, seed=4)
    layer.norm.norm.bias.data = noise(4, 4, 7, seed=5)
    deviation = x - x.mean((2, 3, 4), keepdim=True)
    normed = deviation / (deviation.square().mean((2, 3, 4), keepdim=True) + 1e-5).sqrt()
    normed = normed * layer.norm.norm.weight + layer.norm.norm.bias
    rows, columns = 4 // stride, 7 // stride
    windows = normed[..., : rows * stride, : columns * stride]
    windows = windows.unflatten(-1, (columns, stride)).unflatten(-3, (rows, stride))
    query, key = (
        torch.einsum("nmchiwj,ocij->nmohw", windows, projection.weight).clamp(min=0)
        for projection in (layer.query, layer.key)
    )
    value = torch.einsum("nmchw,oc->nmohw", normed, layer.value.weight[..., 0, 0])
    logits = torch.einsum("nioab,njoab->noij", query, key) / (rows * columns) ** 0.5
    mixed = value + torch.einsum(
        "noij,njohw->niohw", logits.softmax(-1), value - value.mean(1, True)
    )
    out = torch.einsum("co,nmohw->nmchw", layer.project.weight[..., 0, 0], mixed)
    expected = (x + out + layer.project.bias[:, None, None]).clamp(min=0)
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)


def test_attention_of_the_papers_on_less_than_a_window():
    """Zeros after the normalisation are as if the filters of query and key ended earlier."""
    layer, x = awake(FinnAttention(4, 2, stride=3)), noise(1, 5, 4, 2, 1)
    ended = copy.deepcopy(layer)
    ended.stride = 1  # the number of terms is then that of points, 2
    for projection, factor in ((ended.query, 2**0.5), (ended.key, 1.0)):
        projection.weight = torch.nn.Parameter(factor * projection.weight[..., :2, :1])
    torch.testing.assert_close(layer(x), ended(x), rtol=1e-12, atol=1e-12)


def test_attention_equals_its_definition():
    layer, x = awake(MemberAttention(4, 2)), noise(2, 5, 4, 3, 6)
    weight = layer.query_key_value.weight[..., 0, 0]
    normed = torch.nn.functional.layer_norm(
        x.movedim(2, -1), (4,), layer.norm.norm.weight, layer.norm.norm.bias
    )
    query, key, value = (normed @ weight.T).movedim(-1, 2).chunk(3, dim=2)
    mixed = torch.zeros_like(x)
    for n in range(2):
        for head in (slice(0, 2), slice(2, 4)):
            mean = value[n, :, head].mean(0)
            for i in range(5):
                logits = [
                    (query[n, i, head] * key[n, j, head]).sum() / (2 * 3 * 6) ** 0.5
                    for j in range(5)
                ]
                chosen = torch.stack(logits).softmax(0)
                mixed[n, i, head] = sum(chosen[j] * (value[n, j, head] - mean) for j in range(5))
    out = torch.einsum("oc,nmchw->nmohw", layer.project.weight[..., 0, 0], mixed)
    expected = x + out + layer.project.bias[:, None, None]
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)


def test_gradients_of_the_attention():
    layer, x = awake(MemberAttention(2, 1)), noise(1, 3, 2, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,))


def test_products_of_parts_of_a_field_add_up():
    query, key, value = (noise(2, 4, 3, 2, 6, 5, seed=s) for s in (1, 2, 3))
    whole = weighted_perturbations(member_weights(member_products(query, key), 60), value)
    north, south = ((..., rows, slice(None)) for rows in (slice(0, 2), slice(2, 6)))
    products = sum(member_products(query[part], key[part]) for part in (north, south))
    weights = member_weights(products, 60)
    parts = [weighted_perturbations(weights, value[part]) for part in (north, south)]
    torch.testing.assert_close(torch.cat(parts, -2), whole, rtol=1e-12, atol=1e-12)


def test_products_are_not_lost_in_half_precision():
    query, key = (noise(1, 3, 1, 2, 40, 90, seed=s).float() * 5 for s in (1, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        products = member_products(query, key)
    assert products.dtype == torch.float32
    torch.testing.assert_close(products, member_products(query, key))


def test_what_all_keys_share_does_not_drown_their_differences():
    query, key = (noise(1, 4, 1, 2, 8, 9, seed=s).float() for s in (1, 2))
    key = key + 1e4
    exact = member_weights(member_products(query.double(), key.double()), 144)
    weights = member_weights(member_products(query, key), 144)
    torch.testing.assert_close(weights.double(), exact, rtol=0, atol=2e-5)


def test_equal_members_get_no_update():
    layer = awake(MemberAttention(4, 4))
    layer.project.bias.data.zero_()
    x = noise(1, 1, 4, 3, 6).expand(1, 5, 4, 3, 6)
    torch.testing.assert_close(layer(x), x, rtol=0, atol=1e-14)


@ALL
@pytest.mark.parametrize("members", [2, 3, 11])
def test_permuting_members_permutes_the_outputs(make, members):
    network, x = awake(make()), noise(1, members, 3, 9, 12)
    outputs = network(x)
    assert outputs.shape == (1, members, 1, 9, 12)
    order = torch.randperm(members, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network(x[:, order]), outputs[:, order], rtol=0, atol=1e-11)


@BOTH
def test_members_see_each_other_over_the_whole_field(make):
    network, x = awake(make()), noise(1, 3, 3, 16, 48)
    moved = x.clone()
    moved[:, 0, :, 0, 0] += 3
    change = (network(moved) - network(x)).abs()
    assert (change[0, 1:] > 0).all()
    assert change[0, 0, 0, 0, 0] > change[0, 1, 0, 0, 0]


@BOTH
def test_periodic_networks_commute_with_turning_the_globe(make):
    network, x = awake(make(periodic_longitude=True)), noise(1, 3, 3, 9, 16)
    for columns in (4, -8):
        turned = network(x.roll(columns, -1))
        torch.testing.assert_close(turned, network(x).roll(columns, -1), rtol=0, atol=1e-11)
    plain = awake(make())
    assert (plain(x.roll(4, -1)) - plain(x).roll(4, -1)).abs().max() > 1e-4


@ALL
def test_they_start_at_zero_and_learn(make):
    network, x = make().double(), noise(1, 3, 3, 8, 8)
    assert (network(x) == 0).all()
    (awake(network)(x) - noise(1, 3, 1, 8, 8, seed=5)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert (parameter.grad != 0).any(), name


@pytest.mark.parametrize("grid", [(8, 8), (9, 11), (23, 53), (10, 14)])
@pytest.mark.parametrize("periodic", [False, True])
def test_poet_takes_any_grid(grid, periodic):
    network = poet(periodic_longitude=periodic, grid=grid)
    assert network(noise(1, 2, 3, *grid).float()).shape == (1, 2, 1, *grid)


@ALL
def test_half_precision_is_near_and_learns(make):
    network, x = awake(make()).float(), noise(1, 3, 3, 8, 12).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = network(x)
    outputs.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())
    exact = network(x)
    assert (outputs - exact).std() < 0.05 * exact.std()


def test_saet_is_its_description():
    network, x = awake(saet()), noise(2, 3, 3, 5, 6)
    fields = network.first(x.flatten(0, 1))
    for block, attention in zip(network.blocks, network.attention, strict=True):
        fields = fields + block(fields)
        fields = attention(fields.view(2, 3, 8, 5, 6)).flatten(0, 1)
    torch.testing.assert_close(network(x).flatten(0, 1), network.last(fields))
    assert (network.first[0].kernel_size, network.blocks[0][0].kernel_size) == ((5, 5), (3, 3))
    assert network.attention[0].heads == 8


def test_poet_is_its_description():
    """Two blocks down and one up, mean pooling; attention at the deepest of the three levels."""
    network, x = awake(poet(attention_levels=1)), noise(2, 3, 3, 8, 12)
    level_0 = network.down[0](x.flatten(0, 1))
    level_1 = network.down[1](functional.avg_pool2d(level_0, 2))
    deep = network.down[2](functional.avg_pool2d(level_1, 2))
    assert [len(blocks) for blocks in network.down] == [2, 2, 2]
    fields = network.attention[2](deep.unflatten(0, (2, 3))).flatten(0, 1)
    for up, skip in ((network.up[1], level_1), (network.up[0], level_0)):
        twice = functional.interpolate(fields, scale_factor=2, mode="bilinear")
        fields = up(torch.cat([skip, twice], 1))
    torch.testing.assert_close(network(x).flatten(0, 1), network.last(fields))


def test_paper_saet_is_its_description():
    network, x = awake(paper_saet()), noise(2, 3, 3, 5, 6)
    assert [layer.kernel_size for layer in network.first[::2]] == [(5, 5)] * 3
    fields = network.first(x.flatten(0, 1)).unflatten(0, (2, 3))
    for attention in network.attention:
        fields = attention(fields)
    torch.testing.assert_close(network(x).flatten(0, 1), network.last(fields.flatten(0, 1)))


def test_paper_poet_is_its_description():
    """Two blocks down, maximum pooling; attention on the skips only; transposed convolution up."""
    network, x = awake(paper_poet()), noise(2, 3, 3, 9, 13)
    level_0 = network.down[0](x.flatten(0, 1))
    level_1 = network.down[1](functional.max_pool2d(level_0, 2))
    deep = network.down[2](functional.max_pool2d(level_1, 2))
    assert [blocks[1][0].kernel_size for blocks in network.down] == [(5, 5)] * 3

    def attended(level, fields):
        return network.attention[level](fields.unflatten(0, (2, 3))).flatten(0, 1)

    fields = attended(2, deep)
    for level, skip in ((1, level_1), (0, level_0)):
        twice = network.twice[level]
        upper = functional.conv_transpose2d(network.up[level + 1](fields), twice.weight, stride=2)
        extra = [n - m for n, m in zip(skip.shape[-2:], upper.shape[-2:], strict=True)]
        upper = functional.pad(upper, (0, extra[1], 0, extra[0])) + twice.bias[:, None, None]
        fields = torch.cat([upper.relu(), attended(level, skip)], 1)
    assert extra == [1, 1]
    expected = network.last(network.up[0](fields))
    torch.testing.assert_close(network(x).flatten(0, 1), expected)


@pytest.mark.parametrize("make", [paper_saet, paper_poet])
def test_networks_of_the_papers_learn(make):
    """A residual of zero at first; the loss falls and all weights at each point get gradients."""
    network, x = make(grid=(8, 12), periodic_longitude=True), noise(2, 3, 3, 8, 12).float()
    assert not network(x).any()
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    losses = []
    for _ in range(5):
        loss = (network(x) - x[:, :, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    norms = [layer for layer in network.modules() if isinstance(layer, ChannelNorm)]
    assert norms
    assert all(layer.norm.weight.grad.any() for layer in norms)


def test_poet_without_attention_treats_members_alone():
    network, x = awake(poet(attention_levels=0)), noise(1, 3, 3, 8, 8)
    alone = torch.cat([network(x[:, [m]]) for m in range(3)], 1)
    torch.testing.assert_close(network(x), alone, rtol=0, atol=1e-12)
    assert (awake(poet())(x) - torch.cat([awake(poet())(x[:, [m]]) for m in range(3)], 1)).any()


def test_settings_and_grids_that_cannot_be():
    with pytest.raises(ArgumentError, match="8 channels are not a multiple of 3 heads"):
        saet(heads=3)
    with pytest.raises(ArgumentError, match="depth"):
        SAET(3, depth=0)
    with pytest.raises(ArgumentError, match="widths"):
        PoET(3, widths=())
    with pytest.raises(ArgumentError, match="depth"):
        PaperSAET(3, depth=0)
    with pytest.raises(ArgumentError, match="widths"):
        PaperPoET(3, widths=())
    with pytest.raises(ArgumentError, match="heads: 0 is less than 1"):
        FinnAttention(4, 0)
    with pytest.raises(ArgumentError, match="stride: 0 is not positive"):
        FinnAttention(4, 2, stride=0)
    with pytest.raises(ArgumentError, match="7 x 20 points is too small for 3 levels"):
        poet()(noise(1, 2, 3, 7, 20).float())
    with pytest.raises(ArgumentError, match=r"fields of \(8, 8\) points .* for \(9, 8\)"):
        poet(grid=(9, 8))(noise(1, 2, 3, 8, 8).float())
    assert ChannelNorm(3)(noise(1, 3, 4, 5).float()).shape == (1, 3, 4, 5)
