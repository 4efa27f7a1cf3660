"""Layers on parts of the grid equal those on the whole, in values and all gradients."""

from functools import partial

import pytest
import torch
from ranks import assert_as_serial, own, shard
from torch import nn

from ens10.errors import ArgumentError
from ens10.models.domain import use
from ens10.models.layers import GroupNorm, SameConv2d
from ens10.models.layers.norm import BatchNorm2d
from ens10.models.layers.padding import FreeConv2d, upsample_twice
from ens10.models.networks import UNet

MESHES = [(2, 1), (4, 1), (1, 2), (2, 2)]
mesh = pytest.mark.parametrize(("lat", "lon"), MESHES, ids=lambda n: str(n))


def seeded(make, *args, **options):
    torch.manual_seed(0)
    return make(*args, **options)


class Twice(nn.Module):
    def __init__(self, periodic_longitude):
        super().__init__()
        self.periodic_longitude = periodic_longitude

    def forward(self, fields):
        pooled = torch.nn.functional.max_pool2d(fields, 2)
        return upsample_twice(pooled, periodic_longitude=self.periodic_longitude)


@mesh
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("poles", ["zeros", "replicate"])
@pytest.mark.parametrize(("size", "dilation"), [(3, 1), (5, 1), (3, 2)])
def test_convolution(ranks, lat, lon, periodic, poles, size, dilation):
    options = {"dilation": dilation, "periodic_longitude": periodic, "poles": poles}
    make = partial(seeded, SameConv2d, 3, 4, size, **options)
    assert_as_serial(ranks, make, (37, 48), lat, lon, shape=(2, 3))


@mesh
@pytest.mark.parametrize(("groups", "size"), [(2, 3), (4, 7)])
def test_convolution_of_groups(ranks, lat, lon, groups, size):
    options = {"groups": groups, "periodic_longitude": True, "poles": "replicate"}
    make = partial(seeded, SameConv2d, 4, 8, size, **options)
    assert_as_serial(ranks, make, (37, 48), lat, lon, shape=(2, 4))


@mesh
def test_batch_norm(ranks, lat, lon):
    make = partial(seeded, BatchNorm2d, 3)
    assert_as_serial(ranks, make, (37, 48), lat, lon, shape=(2, 3))


@mesh
@pytest.mark.parametrize("periodic", [False, True])
def test_pooling_and_upsampling(ranks, lat, lon, periodic):
    make = partial(seeded, Twice, periodic)
    assert_as_serial(ranks, make, (36, 48), lat, lon, shape=(2, 3), halvings=1)


@mesh
@pytest.mark.parametrize(
    ("grid", "periodic"),
    [
        ((37, 48), True),
        ((46, 51), False),
        pytest.param((37, 48), False, marks=pytest.mark.slow),
        pytest.param((46, 51), True, marks=pytest.mark.slow),
    ],
)
def test_unet_of_the_paper(ranks, lat, lon, periodic, grid):
    make = partial(seeded, UNet, 4, periodic_longitude=periodic)
    assert_as_serial(ranks, make, grid, lat, lon, shape=(2, 4), halvings=2)


class Strided(nn.Module):
    """A convolution with a stride, one that looks at its neighbours, and back to the grid."""

    def __init__(self, size, stride, **options):
        super().__init__()
        self.first = FreeConv2d(3, 4, size, stride=stride, **options)
        self.second = SameConv2d(4, 2, 3, **options)

    def forward(self, fields):
        less = self.second(self.first(fields))
        twice = upsample_twice(less, periodic_longitude=self.first.edges.columns == "circular")
        return twice[..., : fields.shape[-2], : fields.shape[-1]]


@mesh
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_stride(ranks, lat, lon, periodic, size):
    make = partial(seeded, Strided, size, 2, periodic_longitude=periodic)
    options = {"shape": (2, 3), "halvings": 1, "odd": "repeated"}
    assert_as_serial(ranks, make, (37, 48), lat, lon, **options)


def strided(grid):
    try:
        with use(domain := shard(grid, 2)):
            FreeConv2d(1, 1, stride=2)(own(domain, torch.ones(1, 1, *grid)))
    except ArgumentError as error:
        return str(error)
    return "nothing"


def test_a_stride_that_would_not_go_on_in_the_next_part_is_refused_by_all(ranks):
    for text in ranks(2, strided, (37, 8)):
        assert "lat: a layer has stride 2, but the parts begin at multiples of 19" in text
    assert ranks(2, strided, (36, 8)) == ["nothing", "nothing"]


def test_filters_higher_than_a_grid_whose_columns_are_split(ranks):
    make = partial(seeded, SameConv2d, 3, 4, 7)
    assert_as_serial(ranks, make, (2, 16), 1, 2, shape=(2, 3))


def half_precision(grid):
    """Whether norms of half precision give what they give in single precision."""
    domain, found = shard(grid, 2), []
    torch.manual_seed(0)
    fields = own(domain, torch.randn(2, 4, *grid)).bfloat16()
    with use(domain):
        for layer in (BatchNorm2d(4), GroupNorm(2, 4)):
            single = layer.float()(fields.float())
            half = layer.bfloat16()(fields)
            half.sum().backward()
            found.append(float((half.float() - single).abs().max()))
    return found, half.dtype, layer.weight.grad.dtype


def test_norms_of_half_precision(ranks):
    for found, *dtypes in ranks(2, half_precision, (9, 8)):
        assert max(found) < 0.02
        assert dtypes == [torch.bfloat16, torch.bfloat16]
