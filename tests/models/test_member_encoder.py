import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.layers.member_encoder import MemberEncoder
from ens10.models.networks import UNet, WithMembers

POOLS = ("mean", "std", "max")


def noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).double()


def encoder():
    torch.manual_seed(0)
    return MemberEncoder(4, 3, 5, POOLS).double()


def with_members(pools=("mean", "std")):
    torch.manual_seed(0)
    network = UNet(4 + 3 + 3 * len(pools))
    return WithMembers(network, 4, fixed=1, channels=3, hidden=5, pools=pools).double()


def test_pools_of_a_network_at_each_member_and_point():
    layer, x = encoder(), noise(2, 6, 4, 3, 5)
    codes = []
    for member in x.unbind(1):
        points = (member - x.mean(1)).movedim(1, -1)
        mean = x.mean(1).movedim(1, -1)
        hidden = points @ layer.deviation.weight[..., 0, 0].T
        hidden = hidden + mean @ layer.mean.weight[..., 0, 0].T + layer.mean.bias
        last = layer.code[1]
        codes.append(hidden.relu() @ last.weight[..., 0, 0].T + last.bias)
    codes = torch.stack(codes).movedim(-1, 2)
    pools = [codes.mean(0), codes.std(0), codes.amax(0)]
    torch.testing.assert_close(layer(x), torch.cat(pools, 1))


def test_parameter_counts():
    count = sum(p.numel() for p in encoder().parameters())
    assert count == 5 * 4 + (5 * 4 + 5) + (3 * 5 + 3)
    whole = sum(p.numel() for p in with_members().parameters())
    unet = sum(p.numel() for p in UNet(13).parameters())
    assert whole == unet + count + 2 * 9


def test_the_order_of_the_members_does_not_matter():
    network, x = with_members(POOLS), noise(2, 5, 4, 8, 8)
    mixed = x[:, [3, 0, 4, 1, 2]]
    torch.testing.assert_close(network(mixed), network(x), rtol=0, atol=1e-12)
    changed = x.clone()
    changed[:, 2, 0] += 0.5
    assert (network(changed) - network(x)).abs().max() > 1e-3


@pytest.mark.parametrize("members", [2, 3, 10])
def test_any_number_of_members(members):
    network, x = with_members(), noise(2, members, 4, 8, 8)
    assert network(x).shape == (2, 2, 8, 8)
    assert network.least_members == 2
    doubled = network(x.repeat(1, 2, 1, 1, 1))  # the same ensemble, each member twice
    means = with_members(("mean",)).encoder
    torch.testing.assert_close(means(x.repeat(1, 2, 1, 1, 1)), means(x))
    assert doubled.isfinite().all()


def test_what_the_network_sees():
    network, x = with_members(), noise(2, 6, 4, 8, 8)
    seen = []
    network.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    network(x)
    torch.testing.assert_close(seen[0][:, :4], x.mean(1))
    extra = torch.cat([x.std(1)[:, :3], network.encoder(x)], 1)
    scale = (extra.var((0, 2, 3), unbiased=False, keepdim=True) + network.norm.eps).sqrt()
    centred = (extra - extra.mean((0, 2, 3), keepdim=True)) / scale
    torch.testing.assert_close(seen[0][:, 4:], centred)


def test_members_that_are_all_the_same_give_finite_gradients():
    network, x = with_members(), noise(2, 1, 4, 8, 8).repeat(1, 5, 1, 1, 1).requires_grad_()
    network(x).square().mean().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in network.parameters())


def test_turning_the_globe_turns_the_output():
    unet = UNet(13, periodic_longitude=True)
    network = WithMembers(unet, 4, fixed=1, channels=3, hidden=5).double().eval()
    x = noise(1, 3, 4, 8, 16)
    torch.testing.assert_close(network(x.roll(4, -1)), network(x).roll(4, -1), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: WithMembers(UNet(12), 4, fixed=1, channels=3), "Set its in_channels to 13"),
        (lambda: WithMembers(with_members(), 4), "takes members itself"),
        (lambda: WithMembers(UNet(12), 4, fixed=4), "fixed"),
        (lambda: MemberEncoder(4, 3, 5, ["men"]), "did you mean 'mean'"),
        (lambda: MemberEncoder(4, 3, 5, []), "no pool"),
        (lambda: MemberEncoder(4, 0), "channels"),
    ],
)
def test_one_clear_error(build, message):
    with pytest.raises((ArgumentError, UnknownNameError), match=message):
        build()
