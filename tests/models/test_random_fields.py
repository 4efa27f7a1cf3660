"""Draws of random fields: margins and correlations in closed form, and repeated draws."""

import math

import numpy as np
import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models import EnergyLoss, PostProcessor, RandomFieldHead, SumLoss, VariogramLoss
from ens10.models.networks import LocationUNet
from ens10.models.random_fields import EARTH_RADIUS_KM, SmoothNoise, raw_pattern

GRID = (8, 12)


def covariance_of_noise(rows, columns, length):
    """Covariances between all points (H, W, H, W), from the fields of all unit impulses."""
    impulses = torch.eye(rows * columns).reshape(-1, 1, 1, rows, columns)
    fields = SmoothNoise([length])(impulses).squeeze((1, 2)).double()
    return torch.einsum("phw,pij->hwij", fields, fields)


def head_and_batch(make_batches, outputs=None, **options):
    batch = make_batches(1, grid=GRID)[0]
    head = RandomFieldHead(**{"lengths": [0.0, 3000.0], "members": 6, **options}).eval()
    if outputs is None:
        g = torch.Generator().manual_seed(1)
        outputs = 0.5 * torch.randn(2, head.out_channels, *GRID, generator=g)
    return head, outputs, batch


@pytest.mark.parametrize("length", [0.0, 400.0, 3000.0])
def test_noise_has_variance_one_at_every_point_also_at_the_poles(length):
    covariance = covariance_of_noise(13, 24, length)
    variance = torch.einsum("hwhw->hw", covariance)
    torch.testing.assert_close(variance, torch.ones_like(variance), rtol=1e-5, atol=1e-5)


def test_correlation_of_noise_by_distance():
    """exp(-d^2 / (2 l^2)) along rows and columns, the same in km at every latitude."""
    rows, columns, length = 25, 48, 2000.0
    covariance = covariance_of_noise(rows, columns, length)
    step = math.pi * EARTH_RADIUS_KM / (rows - 1)
    for row, columns_apart in ((12, 1), (12, 3), (8, 3), (5, 4), (3, 6)):
        latitude = math.pi / 2 - row * math.pi / (rows - 1)
        apart = columns_apart * 2 * math.pi * EARTH_RADIUS_KM * math.cos(latitude) / columns
        wanted = math.exp(-0.5 * (apart / length) ** 2)
        assert covariance[row, 0, row, columns_apart].item() == pytest.approx(wanted, abs=5e-3)
        # periodic in longitude
        assert covariance[row, 0, row, -columns_apart].item() == pytest.approx(wanted, abs=5e-3)
    for rows_apart in (1, 2, 4):
        wanted = math.exp(-0.5 * (rows_apart * step / length) ** 2)
        assert covariance[12, 5, 12 + rows_apart, 5].item() == pytest.approx(wanted, abs=2e-2)


def test_margins_and_covariances_of_many_members(make_batches):
    """Those of the formula, within 5 standard errors."""
    M = 4000
    head, outputs, batch = head_and_batch(make_batches, members=M)
    forecast = head(outputs, batch)
    mu, sigma = forecast.margins.mu, forecast.margins.sigma
    torch.testing.assert_close(mu, batch["raw_mean"] + batch["raw_std"] * outputs[:, 0])
    torch.testing.assert_close(sigma, batch["raw_std"] * outputs[:, 1].exp())
    drawn = (forecast.members - mu[:, None]) / sigma[:, None]
    assert drawn.mean(1).abs().max() < 5 / math.sqrt(M)
    assert (drawn.var(1) - 1).abs().max() < 5 * math.sqrt(2 / M)
    a = (outputs[:, 2:] + head.loadings.detach()[:, None, None]).double()
    of_noise = torch.stack([covariance_of_noise(*GRID, n).flatten(0, 1) for n in (0, 3000)])
    pattern = raw_pattern(batch).double()
    for n in range(2):
        point = (3, 4)
        k = (of_noise[:, 3 * 12 + 4]).repeat_interleave(2, 0)
        raw = torch.einsum("j,jhw->hw", pattern[n, :, *point], pattern[n])
        sums = (torch.cat([k, raw[None]]) * a[n] * a[n, :, *point][:, None, None]).sum(0)
        wanted = sums / (a[n].square().sum(0) * a[n, :, *point].square().sum()).sqrt()
        found = (drawn[n] * drawn[n, :, *point][:, None, None]).mean(0)
        assert (found - wanted).abs().max() < 5 * math.sqrt(2 / M)
        assert wanted.abs().max() == pytest.approx(1)


def test_crps_is_that_of_the_margins(make_batches):
    head, outputs, batch = head_and_batch(make_batches)
    forecast = head(outputs, batch)
    y = batch["target"]
    torch.testing.assert_close(forecast.crps(y), forecast.margins.crps(y))
    assert list(forecast.variables()) == ["members"]


def test_draws_depend_on_date_and_seed_not_on_the_batch_or_the_number(make_batches):
    head, outputs, batch = head_and_batch(make_batches)
    first = head(outputs, batch).members
    assert torch.equal(first, head(outputs, batch).members)
    assert not torch.equal(first[0], first[1])
    turned = {name: values.flip(0) for name, values in batch.items()}
    torch.testing.assert_close(head(outputs.flip(0), turned).members.flip(0), first)
    head.members = 9
    more = head(outputs, batch).members
    torch.testing.assert_close(more[:, :6], first)
    assert more.shape[1] == 9
    other, *_ = head_and_batch(make_batches, seed=1)
    assert not torch.allclose(other(outputs, batch).members, first)
    head.train()
    assert head(outputs, batch).members.shape[1] == 8
    assert not torch.equal(head(outputs, batch).members, head(outputs, batch).members)


def test_quantiles_in_the_order_of_the_draws(make_batches):
    draws, outputs, batch = head_and_batch(make_batches)
    levels, *_ = head_and_batch(make_batches, variant="quantile")
    first, second = (head(outputs, batch) for head in (draws, levels))
    assert torch.equal(first.members.argsort(1), second.members.argsort(1))
    wanted = second.margins.quantile((np.arange(6) + 0.5) / 6).movedim(0, 1)
    torch.testing.assert_close(second.members.sort(1).values, wanted)


def test_missing_members_and_equal_members(make_batches):
    head, outputs, batch = head_and_batch(make_batches)
    batch["members"][:, 1, 0, 0] = torch.nan
    batch["members"][:, :, 2, 2] = 280.0
    batch["raw_mean"][:, 5, 5] = torch.nan
    members = head(outputs, batch).members
    assert members[:, :, 5, 5].isnan().all()
    members[:, :, 5, 5] = 0
    assert members.isfinite().all()
    with pytest.raises(ArgumentError, match=r"data\.members"):
        head(outputs, {k: v for k, v in batch.items() if k != "members"})


def test_training_finds_the_length_of_the_errors(make_batches):
    """Truth with errors of one length: its loading becomes the largest."""
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(0)
    head = RandomFieldHead([0.0, 3000.0], fields=1, raw_pattern=False)
    error = SmoothNoise([3000.0])(torch.randn(64, 1, 1, *GRID, generator=g))[:, 0, 0]
    batch = {"raw_mean": torch.zeros(64, *GRID), "raw_std": torch.ones(64, *GRID)}
    loss = SumLoss([EnergyLoss("patch", "fair", patch=[4, 4]), VariogramLoss(patch=[4, 4])])
    optimizer = torch.optim.SGD(head.parameters(), lr=2.0)
    for _ in range(15):
        forecast = head(torch.zeros(64, head.out_channels, *GRID), batch)
        optimizer.zero_grad()
        loss(forecast, error).mean().backward()
        optimizer.step()
    white, smooth = head.loadings.tolist()
    assert abs(white) < 0.3 * smooth


def test_all_parameters_of_a_network_get_gradients(make_batches):
    torch.manual_seed(0)
    batch = make_batches(1, grid=GRID, missing=True)[0]
    head = RandomFieldHead([0.0, 3000.0])
    network = LocationUNet(4, GRID, head.out_channels, widths=(4, 4), embedding=2)
    model = PostProcessor(network, head)
    loss = SumLoss([EnergyLoss("patch", patch=[4, 4]), VariogramLoss(patch=[4, 4])])
    values = loss.evaluate(model(batch), batch["target"], batch["weights"])
    (values * batch["weights"]).nansum().backward()
    gradients = network.last.weight.grad, head.loadings.grad
    assert all(g.isfinite().all() and (g != 0).any() for g in gradients)
    # of the last layer each channel, also those of the second field of each length
    assert (network.last.bias.grad[: head.out_channels] != 0).all()


def test_invalid_arguments(make_batches):
    for options in ({"lengths": []}, {"lengths": [-1.0]}, {"fields": 0}, {"members": 0},
                    {"training_members": 0}, {"floor": 0.0}):  # fmt: skip
        with pytest.raises(ArgumentError, match=next(iter(options))):
            RandomFieldHead(**options)
    with pytest.raises(UnknownNameError, match="variant"):
        RandomFieldHead(variant="sorted")
    head, outputs, batch = head_and_batch(make_batches)
    row = {name: batch[name][..., :1, :] for name in ("raw_mean", "raw_std", "members")}
    for of_head, part in ((outputs, {**batch, "rows": torch.zeros(2)}), (outputs[..., :1, :], row)):
        with pytest.raises(ArgumentError, match="whole grid"):
            head(of_head, part)
