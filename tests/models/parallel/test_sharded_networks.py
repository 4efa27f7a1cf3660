"""Networks on parts of the grid equal those on the whole, in values and all gradients."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from ranks import assert_as_serial, at_random
from torch import nn
from torch.utils.checkpoint import checkpoint

from ens10.models.layers import CoordConv2d, NeighbourhoodBlock, SameConv2d
from ens10.models.layers.norm import GroupNorm
from ens10.models.networks import (
    MLP,
    Groenquist,
    LeNet,
    LocationUNet,
    PaperSpreadNet,
    SpreadNet,
    UNet,
)
from ens10.models.networks.unet import UNetBody
from ens10.models.parallel.exchange import Messages

GRID = (37, 48)
FINE = (361, 720)
MESHES = [(2, 2), pytest.param(2, 1, marks=pytest.mark.slow)]
mesh = pytest.mark.parametrize(("lat", "lon"), MESHES, ids=str)


def with_coordinates(before, after, _):
    """A layer that a configuration puts into the blocks."""
    return nn.Sequential(CoordConv2d(before, after), GroupNorm(2, after))


def convolved(channels, grid):
    return NeighbourhoodBlock(channels, grid, attention=False)


NETWORKS = {
    "points": (MLP, (4, 16), {}),
    "LeNet": (LeNet, (4,), {"poles": "replicate"}),
    "location": (LocationUNet, (4, GRID), {"widths": (4, 6, 8), "embedding_levels": 3}),
    "other layers": (LocationUNet, (4, GRID, 2, (4, 6)), {"convolution": with_coordinates}),
    "neighbours": (LocationUNet, (4, GRID, 2, (4, 8)), {"block": NeighbourhoodBlock}),
    "blocks without attention": (LocationUNet, (4, GRID, 2, (4, 8)), {"block": convolved}),
    "spread net": (SpreadNet, (4, 2), {"width": 2, "depth": 3, "periodic_longitude": True}),
    "published spread net": (PaperSpreadNet, (4, 2, (8,)), {"periodic_longitude": True}),
    "both": (Groenquist, (4, 2, 1, GRID), {"width": 2, "depth": 2}),
}


@mesh
@pytest.mark.parametrize("name", NETWORKS)
def test_network(ranks, lat, lon, name):
    kind, args, options = NETWORKS[name]
    make = partial(at_random, kind, *args, **options)
    declared = make()
    assert_as_serial(
        ranks,
        make,
        GRID,
        lat,
        lon,
        shape=(2, 4),
        halvings=declared.halvings,
        odd=declared.odd,
    )


def plain(_, before, after):
    return SameConv2d(before, after, periodic_longitude=True)


def narrow():
    """A U-Net of few channels."""
    torch.manual_seed(0)
    return UNetBody(3, 2, plain, width=4, periodic_longitude=True)


@contextmanager
def halos_of_zeros():
    """What neighbours send is lost."""
    swap = Messages.swap

    def zeros(*args):
        return tuple(None if s is None else torch.zeros_like(s) for s in swap(*args))

    Messages.swap = zeros
    try:
        yield
    finally:
        Messages.swap = swap


def test_without_neighbours_it_is_another_network(ranks):
    options = {"shape": (1, 3), "halvings": 2}
    assert_as_serial(ranks, narrow, GRID, 2, **options)
    with pytest.raises(AssertionError, match="outputs: relative difference"):
        assert_as_serial(ranks, narrow, GRID, 2, **options, damage=halos_of_zeros)


class Checkpointed(nn.Module):
    """A U-Net that computes its blocks again in the backward pass."""

    def __init__(self):
        super().__init__()
        self.network = narrow()
        for name in ("down_0", "down_1", "bottom", "up_1", "up_0"):
            block = getattr(self.network, name)
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)

    def forward(self, features):
        return self.network(features)


def test_activation_checkpointing(ranks):
    assert_as_serial(ranks, Checkpointed, GRID, 2, shape=(1, 3), halvings=2)


@pytest.mark.slow
def test_unet_at_full_resolution(ranks):
    assert_as_serial(ranks, narrow, FINE, 2, shape=(1, 3), halvings=2)


@pytest.mark.slow
def test_location_unet_at_full_resolution(ranks):
    make = partial(at_random, LocationUNet, 3, FINE, widths=(4, 4, 4), embedding=2)
    assert_as_serial(ranks, make, FINE, 2, shape=(1, 3), halvings=2, odd="repeated")


def test_networks_say_how_often_they_halve():
    assert (MLP.halvings, UNet.halvings, UNet.odd) == (0, 2, "dropped")
    levels = LocationUNet(3, GRID, widths=(4, 4, 4, 4))
    assert (levels.halvings, levels.odd) == (3, "repeated")
    assert Groenquist(4, 2, 1, GRID, parts="spread").halvings == 0
