"""Heads that take outputs of each member, and the module that joins them with a network."""

import pytest
import torch

from ens10.errors import ArgumentError
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.heads import MembersHead, MembersNormalHead
from ens10.models.networks import MLP
from ens10.models.networks.poet import PoET
from ens10.models.networks.saet import SAET
from ens10.models.networks.transformer import Transformer

HEADS = pytest.mark.parametrize("head", [MembersHead(), MembersNormalHead()])


@pytest.fixture
def batch(make_batches):
    """Features of members; moments are those of the members."""
    one = make_batches(1, missing=True)[0]
    one["members"][:, :, 0, :3] = torch.nan
    one["raw_mean"], one["raw_std"] = one["members"].mean(1), one["members"].std(1)
    noise = torch.randn(2, 5, 4, 8, 12, generator=torch.Generator().manual_seed(1))
    return {**one, "features": noise}


def small(network=SAET, **options):
    torch.manual_seed(0)
    return network(4, width=8, **options)


def test_an_output_of_zero_is_the_raw_ensemble(batch):
    outputs = torch.zeros(2, 5, 1, 8, 12)
    same = {"rtol": 0, "atol": 0, "equal_nan": True}
    torch.testing.assert_close(MembersHead()(outputs, batch).members, batch["members"], **same)
    normal = MembersNormalHead()(outputs, batch)
    torch.testing.assert_close(normal.mu, batch["raw_mean"], **same)
    torch.testing.assert_close(normal.sigma, batch["raw_std"], rtol=1e-5, atol=0, equal_nan=True)


def test_outputs_are_in_units_of_the_raw_spread(batch):
    outputs = torch.randn(2, 5, 1, 8, 12, generator=torch.Generator().manual_seed(2))
    members = MembersHead("fair")(outputs, batch)
    expected = batch["members"] + batch["raw_std"][:, None] * outputs[:, :, 0]
    torch.testing.assert_close(members.members, expected, equal_nan=True)
    assert members.estimator == "fair"
    normal = MembersNormalHead()(outputs, batch)
    torch.testing.assert_close(normal.mu, members.mean, equal_nan=True)
    torch.testing.assert_close(normal.sigma, members.std, equal_nan=True)


@HEADS
def test_gaps_give_no_forecast_and_no_gradient(head, batch):
    batch["members"][0, 3, 5, 5] = torch.nan  # one member is enough
    outputs = torch.zeros(2, 5, 1, 8, 12, requires_grad=True)
    forecast = head(outputs, batch)
    assert torch.equal(forecast.mean.isnan(), batch["members"].isnan().any(1))
    crps = forecast.crps(batch["target"])
    torch.where(crps.isnan(), 0, crps).sum().backward()
    assert outputs.grad.isfinite().all()
    assert (outputs.grad[:, :, 0, 0, :3] == 0).all()
    assert (outputs.grad[0, :, 0, 5, 5] == 0).all()
    assert (outputs.grad[1, :, 0, 5, 5] != 0).all()


@HEADS
def test_no_spread_gives_finite_gradients(head, batch):
    batch["members"] = batch["members"][:, :1].expand(-1, 5, -1, -1).clone()
    batch["raw_std"] = torch.zeros_like(batch["raw_std"])
    outputs = torch.zeros(2, 5, 1, 8, 12, requires_grad=True)
    crps = head(outputs, batch).crps(batch["target"])
    torch.where(crps.isnan(), 0, crps).sum().backward()
    assert outputs.grad.isfinite().all()
    assert (outputs.grad[0, :, 0, 4, 4] != 0).all()


@HEADS
def test_half_precision_outputs_keep_the_precision_of_the_raw_members(head, batch):
    outputs = torch.full((2, 5, 1, 8, 12), 0.3125, dtype=torch.bfloat16)
    forecast = head(outputs, batch)
    expected = batch["raw_mean"] + 0.3125 * batch["raw_std"]
    torch.testing.assert_close(forecast.mean, expected, equal_nan=True)
    assert forecast.mean.dtype == torch.float32


@HEADS
def test_batches_that_do_not_fit(head, batch):
    with pytest.raises(ArgumentError, match="outputs of 4 members for 5 raw members"):
        head(torch.zeros(2, 4, 1, 8, 12), batch)
    del batch["members"]
    with pytest.raises(ArgumentError, match=r"no raw members.*data\.members to true"):
        head(torch.zeros(2, 5, 1, 8, 12), batch)


def test_settings_that_cannot_be(batch):
    for kind in (MembersHead, MembersNormalHead):
        with pytest.raises(ArgumentError, match="floor"):
            kind(floor=0.0)
    batch["members"] = batch["members"][:, :1]
    with pytest.raises(ArgumentError, match="one member has no standard deviation"):
        MembersNormalHead()(torch.zeros(2, 1, 1, 8, 12), batch)


@HEADS
@pytest.mark.parametrize("network", [SAET, PoET])
def test_an_untrained_network_gives_the_raw_ensemble(head, network, batch):
    forecast = PostProcessor(network(4), head)(batch)
    torch.testing.assert_close(forecast.mean, batch["raw_mean"], equal_nan=True)
    torch.testing.assert_close(forecast.std, batch["raw_std"], equal_nan=True)


def test_heads_and_networks_that_do_not_fit():
    with pytest.raises(ArgumentError, match="SAET delivers outputs of each member, but ResidualN"):
        PostProcessor(SAET(4, out_channels=2), ResidualNormalHead())
    with pytest.raises(ArgumentError, match="MLP delivers outputs of a grid point, but MembersH"):
        PostProcessor(MLP(4, out_channels=1), MembersHead())


def test_features_that_a_network_cannot_take(batch):
    transformer = PostProcessor(small(Transformer, heads=2), ResidualNormalHead())
    assert transformer(batch).mu.shape == (2, 8, 12)
    with pytest.raises(ArgumentError, match=r"SAET takes \(N, M, C, H, W\).*kind to members"):
        PostProcessor(small(), MembersHead())({**batch, "features": batch["features"][:, 0]})
    with pytest.raises(ArgumentError, match=r"MLP takes \(N, C, H, W\).*kind to fields"):
        PostProcessor(MLP(4), ResidualNormalHead())(batch)
    with pytest.raises(ArgumentError, match="Transformer takes 4 channels"):
        transformer({**batch, "features": batch["features"][:, :, :3]})
    with pytest.raises(ArgumentError, match="Transformer needs at least 2 members, found 1"):
        transformer({**batch, "features": batch["features"][:, :1]})


def test_a_penalty_is_added_in_training_only(batch, monkeypatch):
    model = PostProcessor(small(Transformer, heads=2), ResidualNormalHead())
    monkeypatch.setattr(model, "log", lambda *_, **__: None)
    batch["weights"][:, 0, :3] = 0
    plain = model.training_step(batch)
    monkeypatch.setattr(model.network, "penalty", lambda: torch.tensor(2.5))
    assert model.training_step(batch).item() == pytest.approx(plain.item() + 2.5)
    assert model._step(batch, "val").item() == pytest.approx(plain.item())
