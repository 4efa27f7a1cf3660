import numpy as np
import pytest
import torch

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.distributions import Normal
from ens10.models.statistical import EMOS
from ens10.models.statistical.coupling import ECC, SchaakeShuffle, couple, ranks

DAY = 86400


def smooth(*shape, generator):
    """Noise of variance about 1 that is alike at neighbouring columns."""
    wide = torch.randn(*shape[:-1], shape[-1] + 8, generator=generator)
    return wide.unfold(-1, 9, 1).mean(-1) * 3


def world(dates=60, members=10, grid=(3, 24), seed=0):
    g = torch.Generator().manual_seed(seed)
    mean = 280 + 5 * smooth(dates, *grid, generator=g)
    # float32 members of 280 K have ties
    x = mean[:, None].double() + smooth(dates, members, *grid, generator=g).double()
    return {
        "raw_mean": x.mean(1).float(),
        "raw_std": x.std(1).float(),
        "members": x,
        "target": mean + 1 + 2 * smooth(dates, *grid, generator=g),
        "weights": torch.ones(dates, *grid),
        "dates": torch.arange(dates) * 9 * DAY,
    }


def fitted(method, batch):
    for i in range(0, len(batch["dates"]), 7):
        method.collect({k: v[i : i + 7] for k, v in batch.items()})
    method.solve()
    return method


def neighbours(members):
    """Correlation of members' deviations at neighbouring columns."""
    away = members - members.mean(1, keepdim=True)
    away = away / away.std(1, keepdim=True)
    return float((away[..., 1:] * away[..., :-1]).mean())


@pytest.mark.parametrize("variant", ["quantile", "random"])
def test_members_are_the_marginals_in_the_order_of_the_raw_members(variant):
    batch = world()
    method = fitted(ECC(EMOS(), variant, estimator="fair"), batch)
    forecast, marginal = method(batch), method.marginal(batch)
    assert forecast.estimator == "fair"
    ranked = forecast.members.sort(1).values
    assert torch.equal(forecast.members.gather(1, batch["members"].argsort(1)), ranked)
    if variant == "quantile":
        levels = (torch.arange(10) + 0.5) / 10
        torch.testing.assert_close(ranked, marginal.quantile(levels).transpose(0, 1))
    else:  # the same random levels at all points of a date, others at other dates
        levels = marginal.cdf(ranked[:, 0])
        assert (levels - levels[:, :1, :1]).abs().max() < 1e-3
        assert levels[:, 0, 0].std() > 0.02
        pit = torch.stack([marginal.cdf(ranked[:, m]) for m in range(10)])
        assert abs(pit.mean() - 0.5) < 5 / np.sqrt(12 * 600)


def test_coupling_restores_the_patterns_in_space():
    batch = world()
    method = fitted(ECC(EMOS()), batch)
    raw, ours = neighbours(batch["members"]), neighbours(method(batch).members)
    drawn = method.marginal(batch).sample(10, torch.Generator().manual_seed(0))
    assert raw > 0.7
    assert abs(neighbours(drawn)) < 0.05
    assert ours > 0.9 * raw


def test_ranks_against_sorting_by_hand_and_ties_by_seed():
    template = torch.tensor([3.0, 1.0, 2.0, 1.0, torch.nan]).reshape(1, 5, 1, 1).repeat(40, 1, 1, 2)
    dates = torch.arange(40) * DAY
    found = ranks(template, dates, 0)
    assert (found[:, 0] == 3).all()
    assert (found[:, 2] == 2).all()
    assert (found[:, 4] == 4).all()
    tied = found[:, [1, 3]]
    assert torch.equal(tied.sort(1).values[:, :, 0, 0], torch.tensor([[0, 1]]).expand(40, 2))
    assert torch.equal(tied[..., 0], tied[..., 1])  # one order for all points of a date
    assert 8 < tied[:, 0, 0, 0].sum() < 32  # four standard errors of fair coins
    assert torch.equal(ranks(template, dates, 0), found)
    assert not torch.equal(ranks(template, dates, 1), found)
    assert torch.equal(ranks(template[5:9], dates[5:9], 0), found[5:9])


def test_a_permutation_of_the_template_permutes_the_members():
    batch = world(5)
    forecast = Normal(batch["raw_mean"], batch["raw_std"])
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    plain = couple(forecast, batch["members"], batch["dates"], "random")
    moved = couple(forecast, batch["members"][:, order], batch["dates"], "random")
    assert torch.equal(moved.members, plain.members[:, order])


@pytest.mark.parametrize("variant", ["quantile", "random"])
@pytest.mark.parametrize("kind", [ECC, SchaakeShuffle])
def test_a_date_has_the_same_members_in_every_batch(kind, variant):
    batch = world()
    method = fitted(kind(EMOS(), variant=variant), batch)
    whole = method(batch).members
    part = method({k: v[11:14] for k, v in batch.items()}).members
    torch.testing.assert_close(part, whole[11:14])
    loaded = kind(EMOS(), variant=variant)
    loaded.load_state_dict(method.state_dict())
    assert torch.equal(loaded(batch).members, whole)
    assert method.fitted_parameters == 4


def test_schaake_members_have_the_order_of_past_truth_of_the_season():
    batch = world(400)
    method = fitted(SchaakeShuffle(EMOS(), members=12, history=200, window=40), batch)
    assert method.history.shape == (200, 3, 24)
    new = {k: v[:30] for k, v in world(30, seed=1).items()}
    forecast = method(new)
    assert forecast.members.shape == (30, 12, 3, 24)
    for n, date in enumerate(new["dates"].tolist()):
        places = method.dates_for(date)
        found = method.history_dates[places]
        away = ((found - date) / (365.2425 * DAY)).double()
        assert ((away - away.round()).abs() * 365.2425 <= 40).all()
        assert date not in found.tolist()
        assert torch.equal(forecast.members[n].argsort(0), method.history[places].argsort(0))
    assert neighbours(forecast.members) > 0.6
    seeded = fitted(SchaakeShuffle(EMOS(), members=12, history=200, window=40, seed=1), batch)
    assert not torch.equal(seeded.history_dates, method.history_dates)


def test_the_history_does_not_depend_on_the_order_of_batches():
    batch = world(80)
    first = fitted(SchaakeShuffle(EMOS(), history=20), batch)
    second = fitted(SchaakeShuffle(EMOS(), history=20), {k: v.flip(0) for k, v in batch.items()})
    assert torch.equal(first.history, second.history)
    assert len(first.dates_for(int(batch["dates"][0]))) == 10  # too few in the window: the nearest


def test_bad_input():
    batch = world(8)
    with pytest.raises(UnknownNameError, match="quantiles"):
        ECC(EMOS(), "quantiles")
    with pytest.raises(ArgumentError, match="no coefficients yet"):
        ECC(EMOS())(batch)
    with pytest.raises(ArgumentError, match="10 dates are too few for 10 members"):
        SchaakeShuffle(EMOS(), 10, history=10)
    with pytest.raises(ArgumentError, match="there are 8"):
        fitted(SchaakeShuffle(EMOS(), 10), batch)
    with pytest.raises(ArgumentError, match=r"expected \(8, M, H, W\)"):
        couple(Normal(batch["raw_mean"], batch["raw_std"]), batch["raw_mean"], batch["dates"])
    method = fitted(ECC(EMOS()), batch)
    del batch["members"]
    with pytest.raises(ArgumentError, match="no ensemble members, which ECC"):
        method(batch)
