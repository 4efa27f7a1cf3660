"""Other libraries' halos, where they are installed: they agree, and can stand in for ours.

Neither is a requirement. torch-harmonics (0.9.3 needs `pip install --no-deps` beside torch 2.13)
exchanges rows; PhysicsNeMo's ShardTensor (2.2.2) splits whole operations.
"""

from functools import partial
from importlib.util import find_spec

import pytest
import torch
import torch.distributed as dist
from ranks import own, shard
from torch import nn
from torch.nn import functional

from ens10.models.domain import Cut, Edges, Sides, use
from ens10.models.layers import SameConv2d
from ens10.models.networks import UNet
from ens10.models.parallel import Shard
from ens10.models.parallel.exchange import UnsplitLink

harmonics = pytest.mark.skipif(
    find_spec("torch_harmonics") is None, reason="torch-harmonics is not installed"
)
physicsnemo = pytest.mark.skipif(
    find_spec("physicsnemo") is None, reason="PhysicsNeMo is not installed"
)


def with_harmonics(function, *args):
    """What a function returns while torch-harmonics knows this group's processes."""
    import torch_harmonics.distributed as theirs

    alone, _ = dist.new_subgroups(group_size=1)
    theirs.init(dist.new_group(), alone)  # `finalize` ends them
    try:
        return function(*args)
    finally:
        theirs.finalize()


class HarmonicsLink:
    """A `Link` of rows over `polar_halo_exchange`, which sends as many rows to either side."""

    def ends(self, around):
        assert not around
        return dist.get_rank() == 0, dist.get_rank() == dist.get_world_size() - 1

    def swap(self, to_before, to_after, around):
        from torch_harmonics.distributed import polar_halo_exchange

        first, last = self.ends(around)
        north, south = (0 if s is None else s.shape[-2] for s in (to_before, to_after))
        most = max(north, south)
        some = to_after if to_before is None else to_before
        rows = some.new_zeros(*some.shape[:-2], 2 * most, some.shape[-1])
        if north:
            rows[..., :north, :] = to_before
        if south:
            rows[..., 2 * most - south :, :] = to_after
        rows = polar_halo_exchange(rows, most)
        from_before = rows[..., most - south : most, :].contiguous()
        from_after = rows[..., 3 * most : 3 * most + north, :].contiguous()
        return (
            None if first or not south else from_before,
            None if last or not north else from_after,
        )


class HarmonicsExchange:
    """An `Exchange` of rows by torch-harmonics."""

    size = property(lambda self: dist.get_world_size())
    links = property(lambda self: (HarmonicsLink(), UnsplitLink()))

    def total(self, parts):
        summed = parts.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed)
        return summed


def both_halos(rows, half):
    """Whether padded fields and gradients are the same by both."""
    from torch_harmonics.distributed import polar_halo_exchange

    parts = dist.get_world_size()
    domain = shard((rows, 6), parts)
    torch.manual_seed(0)
    whole = torch.randn(2, 3, rows, 6)
    ours, theirs = (own(domain, whole).requires_grad_() for _ in range(2))
    one = domain.pad(ours, Sides(half, half), Edges())
    two = polar_halo_exchange(theirs, half)
    torch.manual_seed(dist.get_rank())
    chosen = torch.randn_like(one)
    for padded in (one, two):
        (padded * chosen).sum().backward()
    return torch.equal(one, two), torch.equal(ours.grad, theirs.grad)


@harmonics
@pytest.mark.parametrize(("parts", "rows", "half"), [(2, 9, 1), (3, 11, 2), (4, 23, 3)])
def test_rows_are_those_of_torch_harmonics(ranks, parts, rows, half):
    found = ranks(parts, with_harmonics, both_halos, rows, half)
    assert found == [(True, True)] * parts


def unet_over(make_exchange, grid):
    parts = dist.get_world_size()
    torch.manual_seed(0)
    network, whole = UNet(4), torch.randn(2, 4, *grid)
    domain = shard(grid, parts, halvings=2)
    if make_exchange is not None:
        rows = Cut(grid[0], parts, dist.get_rank(), 2)
        domain = Shard(rows, Cut(grid[1], 1, 0, 2), make_exchange())
    with use(domain):
        outputs = network(own(domain, whole))
        outputs.square().sum().backward()
    return [outputs.detach(), *(p.grad for p in network.parameters())]


@harmonics
def test_torch_harmonics_can_stand_in_for_our_messages(ranks):
    expected = ranks(4, unet_over, None, (37, 24))
    found = ranks(4, with_harmonics, partial(unet_over, HarmonicsExchange), (37, 24))
    for one, two in zip(found, expected, strict=True):
        for mine, theirs in zip(one, two, strict=True):
            assert torch.equal(mine, theirs)


def both_convolutions(grid):
    """Differences of pooled convolutions and gradients, ours to ShardTensor's."""
    from physicsnemo.domain_parallel import ShardTensor

    # `register_custom_ops` wants more: timm, and with it torchvision
    from physicsnemo.domain_parallel.shard_utils import conv_patches, pooling_patches  # noqa: F401
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard as Along
    from torch.distributed.tensor import distribute_module

    parts = dist.get_world_size()
    domain = shard(grid, parts, halvings=1)
    torch.manual_seed(0)
    layer, whole = SameConv2d(3, 4, 3), torch.randn(2, 3, *grid)
    ours, theirs = (own(domain, whole).requires_grad_() for _ in range(2))
    with use(domain):
        one = functional.max_pool2d(layer(ours), 2)
        one.square().sum().backward()
    dist.all_reduce(layer.weight.grad)
    plain = nn.Conv2d(3, 4, 3, padding=1)
    plain.load_state_dict(layer.state_dict())
    mesh = init_device_mesh("cpu", (parts,), mesh_dim_names=("rows",))
    # "infer" wants pinned memory, which a CPU alone has not
    heights = [grid[0] // parts] * parts
    shapes = {0: tuple(torch.Size((2, 3, height, grid[1])) for height in heights)}
    fields = ShardTensor.from_local(theirs, mesh, (Along(2),), sharding_shapes=shapes)
    two = functional.max_pool2d(distribute_module(plain, mesh)(fields), 2).to_local()
    two.square().sum().backward()
    pairs = (one, two), (ours.grad, theirs.grad), (layer.weight.grad, plain.weight.grad)
    return [float((a - getattr(b, "full_tensor", lambda b=b: b)()).abs().max()) for a, b in pairs]


@physicsnemo
@pytest.mark.parametrize("parts", [2, 4])
def test_convolution_and_pooling_are_those_of_shard_tensor(ranks, parts):
    for found in ranks(parts, both_convolutions, (32, 24)):
        assert max(found) <= 1e-10, found
