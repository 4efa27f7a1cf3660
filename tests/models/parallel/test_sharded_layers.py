"""Layers on parts of the grid equal those on the whole, in values and all gradients."""

from functools import partial

import pytest
import torch
from ranks import assert_as_serial
from torch import nn

from ens10.models.layers import SameConv2d
from ens10.models.layers.norm import BatchNorm2d
from ens10.models.layers.padding import upsample_twice
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
def test_batch_norm(ranks, lat, lon):
    make = partial(seeded, BatchNorm2d, 3)
    assert_as_serial(ranks, make, (37, 48), lat, lon, shape=(2, 3))


@mesh
@pytest.mark.parametrize("periodic", [False, True])
def test_pooling_and_upsampling(ranks, lat, lon, periodic):
    make = partial(seeded, Twice, periodic)
    assert_as_serial(ranks, make, (36, 48), lat, lon, shape=(2, 3), halvings=1)


@mesh
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("grid", [(37, 48), (46, 51)])
def test_unet_of_the_paper(ranks, lat, lon, periodic, grid):
    make = partial(seeded, UNet, 4, periodic_longitude=periodic)
    assert_as_serial(ranks, make, grid, lat, lon, shape=(2, 4), halvings=2)
