"""Networks, losses and heads of members, and heads on a method, on parts equal the serial ones."""

from functools import partial

import pytest
import torch
from ranks import assert_as_serial, at_random, shard
from torch import nn

from ens10.errors import ArgumentError
from ens10.models import DressingHead, EnergyLoss, Ensemble, MethodHead, SpectralCRPSLoss, SumLoss
from ens10.models.domain import current, use
from ens10.models.networks import (
    SAET,
    MemberContext,
    PaperSAET,
    PoET,
    Transformer,
    UNet,
    WithMembers,
)
from ens10.models.statistical import EMOS, SeasonalEMOS

GRID = (37, 48)
MESHES = [(2, 2), pytest.param(2, 1, marks=pytest.mark.slow)]
mesh = pytest.mark.parametrize(("lat", "lon"), MESHES, ids=str)


def unet_of_members():
    """13 channels: 4 means, 3 deviations and 2 pools of 3."""
    network = UNet(13, periodic_longitude=True)
    return WithMembers(network, 4, fixed=1, channels=3)


def poet_with_context():
    """4 channels, 3 of context and an embedding of 1."""
    return MemberContext(PoET(8, 1, (4, 4), heads=2), 4, context=1, grid=GRID, embedding=1)


NETWORKS = {
    "context": (poet_with_context, (), {}),
    "SAET": (SAET, (4,), {"width": 6, "depth": 2, "heads": 3}),
    "SAET of the paper": (PaperSAET, (4,), {"width": 6, "heads": 3, "grid": GRID}),
    "PoET": (PoET, (4, 1, (4, 4, 8)), {"heads": 2}),
    "PoET of a grid": (PoET, (4, 1, (4, 4)), {"heads": 4, "grid": GRID}),
    "transformer": (Transformer, (4, 2, 8), {"heads": 2, "depth": 1, "chunk": 500}),
    "moments": (unet_of_members, (), {}),
}


@mesh
@pytest.mark.parametrize("name", NETWORKS)
def test_network(ranks, lat, lon, name):
    kind, args, options = NETWORKS[name]
    make = partial(at_random, kind, *args, **options)
    network = make()
    levels = {"halvings": network.halvings, "odd": network.odd}
    assert_as_serial(ranks, make, GRID, lat, lon, shape=(1, 3, 4), **levels)


def test_networks_say_how_often_they_halve():
    assert PoET(4, widths=(8, 8, 8, 8)).halvings == 3
    network = unet_of_members()
    assert (network.halvings, network.odd) == (2, "dropped")


class Scored(nn.Module):
    """A loss of members against the last of the fields; some points have no truth."""

    def __init__(self, loss):
        super().__init__()
        torch.manual_seed(1)
        self.loss = loss
        self.register_buffer("weights", torch.rand(GRID) * (torch.rand(GRID) > 0.1))

    def forward(self, fields):
        target = fields[:, -1]
        weights = current().part(self.weights).expand_as(target)
        return self.loss.evaluate(Ensemble(fields[:, :-1]), target, weights)


def sum_of_losses():
    return SumLoss([EnergyLoss("row"), SpectralCRPSLoss("fair")], [0.7, 0.3])


@mesh
@pytest.mark.parametrize(("members", "estimator"), [(1, "plain"), (2, "fair"), (4, "almost_fair")])
def test_energy_of_fields(ranks, lat, lon, members, estimator):
    make = partial(_scored, EnergyLoss, "field", estimator)
    assert_as_serial(ranks, make, GRID, lat, lon, shape=(2, members + 1))


def _scored(loss, *args):
    return Scored(loss(*args))


def test_losses_of_rows(ranks):
    assert_as_serial(ranks, partial(_scored, sum_of_losses), GRID, 4, shape=(2, 5))


def _refused(loss):
    domain = shard(GRID, 1, 2)
    target = torch.zeros(1, *(part.stop - part.start for part in domain.local_slices))
    with use(domain), pytest.raises(ArgumentError) as caught:
        loss(Ensemble(torch.zeros(1, 3, *target.shape[1:])), target)
    return caught.value.argument, str(caught.value)


@pytest.mark.parametrize("loss", [EnergyLoss("row"), SpectralCRPSLoss()])
def test_rows_are_not_to_be_split(ranks, loss):
    for argument, text in ranks(2, _refused, loss):
        assert argument == "lon"
        assert "whole rows of 48 points, but a process has 24" in text


def test_members_that_coincide_have_a_gradient():
    """Of 0, as the serial score has it; the square root's would be infinite."""
    fields = torch.zeros(1, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    EnergyLoss("field")._split_scores(fields).sum().backward()
    assert not fields.grad.any()


class Residual(nn.Module):
    """A head on a method, of outputs (2), raw mean and spread."""

    def __init__(self, method, buffers):
        super().__init__()
        torch.manual_seed(2)
        for name, shape in buffers.items():
            setattr(method, name, 0.3 * torch.randn(shape))
        method.solved.fill_(True)
        self.head = MethodHead(method)

    def forward(self, fields):
        spread = fields[:, 3].exp()
        days = 86400 * torch.tensor([40, 150])
        batch = {"raw_mean": fields[:, 2], "raw_std": spread, "dates": days}
        forecast = self.head(fields[:, :2], batch)
        return torch.stack([forecast.mu, forecast.sigma], 1)


def emos(local):
    shape = GRID if local else (1, 1)
    return Residual(EMOS(local), dict.fromkeys(("bias", "slope", "centre", "c", "d"), shape))


def seasonal():
    maps = {"coefficients": (4, 3, *GRID), "centre": GRID, "floor": GRID}
    return Residual(SeasonalEMOS(harmonics=1), {**maps, "chosen_strength": (2,)})


METHODS = {
    "EMOS": partial(emos, False),
    "EMOS of points": partial(emos, True),
    "with a season": seasonal,
}


@mesh
@pytest.mark.parametrize("name", METHODS)
def test_method_head(ranks, lat, lon, name):
    assert_as_serial(ranks, METHODS[name], GRID, lat, lon, shape=(2, 4))


class Dressed(nn.Module):
    """A head that moves members between grid points, of outputs (15) and members (5)."""

    def __init__(self):
        super().__init__()
        self.head = DressingHead()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, fields):
        members = fields[:, 15:]
        batch = {"raw_mean": members.mean(1), "raw_std": members.std(1), "members": members}
        forecast = self.head(self.scale * fields[:, :15], batch)
        return torch.cat([forecast.mu, forecast.sigma, forecast.component_weights], 1)


@mesh
def test_dressing_head(ranks, lat, lon):
    assert_as_serial(ranks, Dressed, GRID, lat, lon, shape=(2, 20))
