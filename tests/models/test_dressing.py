"""Members moved, calibrated and dressed: the mixture against its formula, and what it learns."""

import math

import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.distributions import Normal
from ens10.models import DressingHead, PostProcessor
from ens10.models.networks import LocationUNet

GRID = (8, 12)


@pytest.fixture
def batch(make_batches):
    return make_batches(1, grid=GRID)[0]


def random_outputs(head, batch, scale=0.5):
    g = torch.Generator().manual_seed(1)
    samples = len(batch["raw_mean"])
    return scale * torch.randn(samples, head.out_channels, *GRID, generator=g)


def test_starts_with_the_moments_of_the_raw_ensemble(batch):
    """But for the wide component, of weight 0.02 and twice the deviation."""
    head = DressingHead()
    forecast = head(torch.zeros(2, head.out_channels, *GRID), batch)
    torch.testing.assert_close(forecast.mean, batch["raw_mean"])
    wanted = batch["raw_std"] * math.sqrt(0.98 + 0.02 * 4)
    torch.testing.assert_close(forecast.std, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(forecast.component_weights.sum(1), torch.ones(2, *GRID))


def test_equals_its_formula_point_by_point(batch):
    """With loops over points, members and neighbours instead of shifted fields."""
    head = DressingHead(window=3, kernel=0.5)
    outputs = random_outputs(head, batch)
    forecast = head(outputs, batch)
    members = batch["members"].double()
    M = members.shape[1]
    mean = members.mean(1)
    e = (members - mean[:, None]) / members.std(1, correction=0)[:, None]
    e = math.sqrt(0.75) * batch["raw_std"][:, None].double() * e
    for n, i, j in ((0, 0, 0), (1, 7, 11), (0, 3, 5), (1, 4, 0)):
        o = outputs[n, :, i, j].double()
        s = batch["raw_std"][n, i, j].double()
        near = [
            e[n, :, min(max(i + di, 0), GRID[0] - 1), (j + dj) % GRID[1]]
            for di in (-1, 0, 1)
            for dj in (-1, 0, 1)
        ]
        D = e[n, :, i, j] + sum(weight * values for weight, values in zip(o[6:], near, strict=True))
        tilted = torch.exp(o[2] * D / D.square().mean().sqrt())
        wide = 1 / (1 + 49 * torch.exp(-o[5]))
        centre = batch["raw_mean"][n, i, j] + s * o[0]
        weights = torch.cat([(1 - wide) * tilted / tilted.sum(), wide[None]])
        mu = torch.cat([centre + D, (centre + s * o[3])[None]])
        sigma = torch.tensor([0.5 * s * o[1].exp()] * M + [2 * s * o[4].exp()])
        for got, wanted in (
            (forecast.mu, mu),
            (forecast.sigma, sigma),
            (forecast.component_weights, weights),
        ):
            torch.testing.assert_close(got[n, :, i, j].double(), wanted, rtol=2e-5, atol=1e-4)


def test_does_not_depend_on_the_order_of_members(batch):
    head = DressingHead()
    outputs = random_outputs(head, batch)
    order = torch.randperm(batch["members"].shape[1], generator=torch.Generator().manual_seed(0))
    shuffled = head(outputs, {**batch, "members": batch["members"][:, order]})
    score = head(outputs, batch).crps(batch["target"])
    torch.testing.assert_close(shuffled.crps(batch["target"]), score, rtol=1e-4, atol=1e-5)


def test_commutes_with_rotations_of_longitude(batch):
    head = DressingHead()
    outputs = random_outputs(head, batch)
    turned = {name: torch.roll(batch[name], 5, -1) for name in ("raw_mean", "raw_std", "members")}
    got = head(torch.roll(outputs, 5, -1), turned).mu
    torch.testing.assert_close(got, torch.roll(head(outputs, batch).mu, 5, -1))


@pytest.mark.parametrize("where", ["members", "raw_mean"])
def test_what_is_missing_stays_so_and_spoils_no_gradient(batch, where):
    """A missing member concerns its own point alone: neighbours take a deviation of 0 from it."""
    at = (0, 2, 3)
    values = batch[where].clone()
    values[(0, 1, *at[1:]) if where == "members" else at] = torch.nan
    head = DressingHead()
    outputs = random_outputs(head, batch).requires_grad_()
    forecast = head(outputs, {**batch, where: values})
    assert torch.isnan(forecast.mean).sum() == 1
    assert torch.isnan(forecast.mean[at])
    score = forecast.crps(batch["target"])
    score[~torch.isnan(score)].sum().backward()
    assert outputs.grad.isfinite().all()
    assert (outputs.grad[0, :, 2, 3] == 0).all()


def test_members_that_are_all_equal_give_a_finite_forecast_and_gradient(batch):
    equal = {"members": batch["members"][:, :1].expand_as(batch["members"]).clone()}
    equal |= {"raw_mean": equal["members"][:, 0], "raw_std": torch.zeros_like(batch["raw_std"])}
    head = DressingHead()
    outputs = random_outputs(head, batch).requires_grad_()
    head(outputs, {**batch, **equal}).crps(batch["target"]).mean().backward()
    assert outputs.grad.isfinite().all()


def test_learns_clusters_that_are_displaced():
    """Truth in one of two clusters of the western neighbour: no normal forecast can say that."""
    g = torch.Generator().manual_seed(0)
    cluster = torch.tensor([1.5] * 7 + [-3.5] * 3).reshape(1, 10, 1, 1)
    side = torch.randn(64, 1, GRID[0], GRID[1] // 4, generator=g).sign().repeat_interleave(4, -1)
    members = side * (cluster + 0.1 * torch.randn(64, 10, *GRID, generator=g))
    raw = {"raw_mean": members.mean(1), "raw_std": members.std(1), "members": members}
    chosen = torch.randint(10, (64, 1, *GRID), generator=g)
    truth = torch.roll(members.gather(1, chosen), 1, -1).squeeze(1)
    truth = truth + 0.3 * torch.randn(64, *GRID, generator=g)
    head = DressingHead()
    outputs = torch.zeros(1, head.out_channels, 1, 1, requires_grad=True)
    optimizer = torch.optim.Adam([outputs], 0.05)
    for _ in range(150):
        optimizer.zero_grad()
        loss = head(outputs.expand(64, -1, *GRID), raw).crps(truth).mean()
        loss.backward()
        optimizer.step()
    normal = Normal(raw["raw_mean"], raw["raw_std"]).crps(truth).mean()
    # the expected score of the mixture, half the mean distance of two draws, is 1.13
    assert loss.item() < 1.2 < 1.25 < normal.item()


def test_trains_with_a_network(batch):
    head = DressingHead(window=1)
    network = LocationUNet(batch["features"].shape[1], GRID, head.out_channels, [4, 4])
    model = PostProcessor(network, head)
    loss = model.forward(batch).crps(batch["target"]).mean()
    loss.backward()
    assert network.last.weight.grad.abs().sum() > 0


def test_refuses_what_it_cannot_use(batch):
    for options in ({"window": 2}, {"window": 0}, {"kernel": 0.0}, {"kernel": 1.0}, {"floor": 0.0}):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            DressingHead(**options)
    with pytest.raises(UnknownNameError, match="poles"):
        DressingHead(poles="circular")
    head = DressingHead()
    outputs = torch.zeros(2, head.out_channels, *GRID)
    without = {name: value for name, value in batch.items() if name != "members"}
    with pytest.raises(ArgumentError, match=r"Set data\.members to true"):
        head(outputs, without)
    with pytest.raises(ArgumentError, match="at least 2 members"):
        head(outputs, {**batch, "members": batch["members"][:, :1]})
