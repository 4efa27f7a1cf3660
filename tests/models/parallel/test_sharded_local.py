"""Layers with a place of their own, or a mean over the grid, on parts equal those on the whole."""

from functools import partial

import pytest
import torch
from ranks import assert_as_serial, at_random
from torch.nn import functional

from ens10.models.domain import Whole
from ens10.models.layers import (
    CondConv2d,
    CoordConv2d,
    LocallyConnected2d,
    LowRankLocallyConnected2d,
)
from ens10.models.layers.attention import ChannelNorm, MemberAttention
from ens10.models.layers.member_encoder import MemberEncoder
from ens10.models.layers.norm import GroupNorm, group_norm

GRID = (37, 48)
MESHES = [
    (4, 1),
    (2, 2),
    pytest.param(2, 1, marks=pytest.mark.slow),
    pytest.param(1, 2, marks=pytest.mark.slow),
]
mesh = pytest.mark.parametrize(("lat", "lon"), MESHES, ids=str)


LAYERS = {
    "locally connected": (LocallyConnected2d, (3, 2, GRID), {"bias": True}),
    "with neighbours": (LocallyConnected2d, (3, 2, GRID, 3), {"periodic_longitude": True}),
    "at the poles": (LocallyConnected2d, (3, 2, GRID, 5), {"poles": "replicate"}),
    "low rank": (LowRankLocallyConnected2d, (3, 2, GRID), {"poles": "replicate"}),
    "by the sample": (CondConv2d, (3, 2), {"periodic_longitude": True}),
    "with coordinates": (CoordConv2d, (3, 2), {}),
    "with an angle": (CoordConv2d, (3, 2), {"periodic_longitude": True}),
    "group norm": (GroupNorm, (3, 3), {}),
    "one group": (GroupNorm, (1, 3), {}),
    "without weights": (GroupNorm, (1, 3), {"affine": False}),
    "channel norm": (ChannelNorm, (3,), {}),
    "norm of the grid": (ChannelNorm, (3, GRID), {}),
}
OF_MEMBERS = {
    "attention": (MemberAttention, (4, 2), {}),
    "attention of a grid": (MemberAttention, (4, 2, GRID), {}),
    "encoder": (MemberEncoder, (4,), {"pools": ("mean", "std", "max")}),
}


@mesh
@pytest.mark.parametrize("name", LAYERS)
def test_layer(ranks, lat, lon, name):
    kind, args, options = LAYERS[name]
    make = partial(at_random, kind, *args, **options)
    assert_as_serial(ranks, make, GRID, lat, lon, shape=(2, 3))


@mesh
@pytest.mark.parametrize("name", OF_MEMBERS)
def test_layer_of_members(ranks, lat, lon, name):
    kind, args, options = OF_MEMBERS[name]
    make = partial(at_random, kind, *args, **options)
    assert_as_serial(ranks, make, GRID, lat, lon, shape=(2, 5, 4))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_fused_norm_is_that_of_torch_and_keeps_its_input_alone(groups):
    torch.manual_seed(0)
    fields = (torch.randn(2, 4, 6, 8) + 100).requires_grad_()
    weight, bias = (torch.randn(4, 1, 1, requires_grad=True) for _ in range(2))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        found = group_norm(fields, groups, weight, bias, 1e-5, Whole())
    assert sum(x.numel() for x in kept if x.data_ptr() != fields.data_ptr()) <= 4 + 2 * 8 + 1
    wanted = functional.group_norm(fields, groups, weight.flatten(), bias.flatten())
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    chosen = torch.randn_like(found)
    inputs = (fields, weight, bias)
    gradients = (torch.autograd.grad((y * chosen).sum(), inputs) for y in (found, wanted))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("groups", [1, 2])
def test_fused_norm_in_mixed_precision(groups):
    fields = torch.randn(2, 4, 6, 8, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = group_norm(fields, groups, None, None, 1e-5, Whole())
        wanted = functional.group_norm(fields, groups)
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, atol=1e-2, rtol=1e-2)
    half = group_norm(fields, groups, None, None, 1e-5, Whole())
    assert half.dtype == torch.bfloat16
