import math

import numpy as np
import properscoring
import pytest
import torch
from scipy.optimize import minimize

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.distributions import Ensemble
from ens10.models.statistical import EMOS
from ens10.models.statistical.member_by_member import MemberByMember, MemberProblems, fit
from ens10.models.statistical.member_emos import MemberEMOS

BASES = [(280.0, 1.0), (5.3e4, 80.0)]


def world(dates=300, grid=(2, 3), members=5, base=280.0, unit=1.0, seed=0):
    """Truth drawn like a member of alpha + beta mean + gamma (x - mean) of each point."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    mean = base + 4 * unit * draw(dates, 1, *grid)
    spread = unit * (0.5 + torch.rand(dates, 1, *grid, generator=g, dtype=torch.float64))
    x = mean + spread * draw(dates, members, *grid)
    alpha, beta = unit * draw(*grid), 1 + 0.1 * draw(*grid)
    gamma = 1 + torch.rand(*grid, generator=g, dtype=torch.float64)
    centre = x.mean(1)
    truth = base + alpha + beta * (centre - base) + gamma * spread[:, 0] * draw(dates, *grid)
    batch = {
        "raw_mean": x.mean(1).float(),
        "raw_std": x.std(1).float(),
        "members": x.float(),
        "target": truth.float(),
        "weights": torch.ones(dates, *grid),
        "dates": torch.arange(dates) * 86400,
    }
    return batch, alpha, beta, gamma


def fitted(method, batch, size=37):
    for i in range(0, len(batch["dates"]), size):
        method.collect({k: v[i : i + size] for k, v in batch.items()})
    method.solve()
    return method


def few_members(batch, count):
    return {**batch, "members": batch["members"][:, :count]}


@pytest.mark.parametrize("fair", [False, True])
def test_member_by_member_derivatives_and_unsmoothed_score(fair):
    rng = np.random.default_rng(0)
    y, u = rng.normal(size=(2, 2, 30))
    e = rng.normal(size=(5, 2, 30))
    e -= e.mean(0)
    w = np.full((2, 30), 1 / 30)
    from ens10.models.statistical.member_by_member import _half_difference

    problem = MemberProblems(y, u, e, _half_difference(e, fair), w, 0.1)
    theta = np.array([[0.1, 0.8, 1.3], [-0.2, 1.1, 0.6]])
    _, gradient, hessian = problem.evaluate(theta)
    for j in range(3):
        step = np.zeros(3)
        step[j] = 1e-5
        up, down = problem.evaluate(theta + step), problem.evaluate(theta - step)
        np.testing.assert_allclose((up[0] - down[0]) / 2e-5, gradient[:, j], atol=1e-8)
        np.testing.assert_allclose((up[1] - down[1]) / 2e-5, hessian[:, j], atol=1e-7)
    problem.smoothing = 0
    moved = theta[:, 0, None] + theta[:, 1, None] * u + theta[:, 2, None] * e
    with np.errstate(invalid="ignore", divide="ignore"):
        value = problem.evaluate(theta)[0]
    spread = np.abs(moved[:, None] - moved[None]).sum((0, 1)) / (20 if fair else 25)
    plain = np.abs(moved - y).mean(0) - 0.5 * spread
    np.testing.assert_allclose(value, plain.mean(1))
    if not fair:
        known = properscoring.crps_ensemble(y, np.moveaxis(moved, 0, -1)).mean(1)
        np.testing.assert_allclose(value, known)


@pytest.mark.parametrize("fair", [False, True])
def test_member_by_member_against_scipy(fair):
    batch, *_ = world(60)
    data = np.concatenate([batch["target"][None].numpy(), batch["members"].numpy().swapaxes(0, 1)])
    data = data.reshape(6, 60, 6).swapaxes(1, 2).astype(float)
    found = fit(data, fair)
    y, x = data[0, 2] - 280, data[1:, 2] - 280

    def score(theta):
        moved = theta[0] + theta[1] * x.mean(0) + theta[2] * (x - x.mean(0))
        spread = np.abs(moved[:, None] - moved[None]).sum((0, 1)) / (20 if fair else 25)
        return float((np.abs(moved - y).mean(0) - 0.5 * spread).mean())

    bias, slope, centre, gamma = found[2]
    ours = score([bias + slope * (280 - centre), 1 + slope, gamma])
    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000}
    oracle = minimize(score, [0, 1, 1], method="Nelder-Mead", options=options)
    # convex: the oracle is the minimum; the smoothing costs less than a ten thousandth of it
    assert oracle.fun * (1 - 1e-9) <= ours <= oracle.fun * (1 + 2e-4)


# With errors of variance g^2 and members of variance s^2 (1 - 1/M) about their mean, the score is
# sqrt(g^2 + (1 - 1/M) s^2) less s / sqrt(2), times 1 - 1/M if plain: least at these s / g.
@pytest.mark.parametrize(
    ("estimator", "inflation"), [("plain", (0.5 / 0.55) ** 0.5), ("fair", (0.5 / 0.36) ** 0.5)]
)
@pytest.mark.parametrize(("base", "unit"), BASES)
def test_member_by_member_recovers_a_simulation(base, unit, estimator, inflation):
    batch, alpha, beta, gamma = world(3000, members=10, base=base, unit=unit)
    method = fitted(MemberByMember(estimator), batch)
    # errors of deviation at most 3 units: five standard errors
    centred = method.alpha + (method.beta - 1) * base
    torch.testing.assert_close(centred, alpha, rtol=0, atol=5 * 3 * unit / math.sqrt(3000))
    torch.testing.assert_close(method.beta, beta, rtol=0, atol=5 * 3 / 4 / math.sqrt(3000))
    torch.testing.assert_close(method.gamma.double(), gamma * inflation, rtol=0.07, atol=0)
    forecast, raw = method(batch), Ensemble(batch["members"], estimator)
    assert forecast.estimator == estimator
    assert forecast.crps(batch["target"]).mean() < raw.crps(batch["target"]).mean()
    assert method.fitted_parameters == 18
    fewer = method(few_members(batch, 3))
    assert fewer.members.shape[1] == 3


@pytest.mark.parametrize("kind", [MemberByMember, EMOS])
def test_the_order_of_exchangeable_members_does_not_matter(kind):
    batch, *_ = world(100)
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = {**batch, "members": batch["members"][:, order]}
    method, other = fitted(kind(), batch), fitted(kind(), shuffled)
    torch.testing.assert_close(other.bias, method.bias, rtol=1e-4, atol=1e-4)
    if kind is MemberByMember:
        ours, theirs = method(batch).members, other(shuffled).members
        torch.testing.assert_close(theirs, ours[:, order], rtol=0, atol=1e-3)
        ranks = method(batch).members.argsort(1)
        assert torch.equal(ranks, batch["members"].argsort(1))


def test_weights_of_exchangeable_members_are_noise():
    """The form of the paper forecasts otherwise in another order of members, by chance."""
    batch, *_ = world(120, members=5)
    batch["raw_mean"] = batch["members"].mean(1)
    first, second = ({k: v[cut] for k, v in batch.items()} for cut in (slice(60), slice(60, None)))
    weights = [fitted(MemberEMOS(), half).w for half in (first, second)]
    away = torch.stack([w - w.mean() for w in weights])
    assert away.abs().max() > 0.01  # the members differ to it,
    agreement = torch.nn.functional.cosine_similarity(away[0], away[1], dim=0)
    assert agreement < 0.9  # but not by the same in both halves of the years
    order = torch.tensor([3, 0, 4, 1, 2])
    new = world(200, members=5, seed=0)[0]
    shuffled = {**new, "members": new["members"][:, order]}
    paper, proper = fitted(MemberEMOS(), first), fitted(EMOS(), first)
    assert (paper(shuffled).mu - paper(new).mu).abs().max() > 0.05
    assert torch.equal(proper(shuffled).mu, proper(new).mu)
    assert torch.equal(proper(shuffled).sigma, proper(new).sigma)


def test_gaps_and_members_without_spread():
    batch, *_ = world(60)
    batch["weights"][2:, 0, 0] = 0
    batch["members"][5:9, :, 0, 1] = torch.nan
    batch["weights"][5:9, 0, 1] = 0
    batch["members"][:, :, 1, 1] = batch["members"][:, :1, 1, 1]
    forecast = fitted(MemberByMember(), batch)(batch)
    assert torch.equal(forecast.members[:, :, 0, 0], batch["members"][:, :, 0, 0])
    valid = batch["weights"] > 0
    assert forecast.crps(batch["target"])[valid].isfinite().all()
    assert fitted(MemberEMOS(), batch)(batch).crps(batch["target"])[valid].isfinite().all()


@pytest.mark.parametrize(("base", "unit"), BASES)
@pytest.mark.parametrize("members", [5, 10])
def test_member_emos_recovers_weights_of_the_members(base, unit, members):
    batch, *_ = world(1500, (3, 4), members, base, unit)
    g = torch.Generator().manual_seed(1)
    w = torch.rand(members, generator=g, dtype=torch.float64)
    w = 0.95 * w / w.sum()
    x, std = batch["members"].double() - base, batch["raw_std"].double()
    noise = torch.randn(std.shape, generator=g, dtype=torch.float64)
    sigma = 0.4 * unit + 0.6 * std
    truth = 0.3 * unit + torch.einsum("m,nmhw->nhw", w, x) + sigma * noise
    batch["target"] = (base + truth).float()
    method = fitted(MemberEMOS(), batch)
    # error of deviation 1, members of deviation 1 about their mean, 18,000 samples
    torch.testing.assert_close(method.w, w, rtol=0, atol=5 * 1.2 / math.sqrt(18000))
    centred = method.a + (method.w.sum() - 1) * base
    assert centred.item() == pytest.approx(0.3 * unit, abs=5 * unit / math.sqrt(18000))
    assert method.c.item() == pytest.approx(0.4 * unit, rel=0.15)
    assert method.d.item() == pytest.approx(0.6, rel=0.1)
    assert method.fitted_parameters == {5: 8, 10: 13}[members]  # as in the paper
    forecast = method(batch)
    assert (forecast.mu - base - truth + sigma * noise).abs().max() < 0.3 * unit


def test_member_emos_is_at_the_minimum():
    batch, *_ = world(80, members=3)
    method = fitted(MemberEMOS(), batch)
    x, s, y = (batch[k].double().numpy() for k in ("members", "raw_std", "target"))

    def score(theta):
        mu = theta[0] + np.tensordot(x - 280, theta[1:4], axes=(1, 0))
        sigma = np.exp(theta[4]) + np.exp(theta[5]) * s
        return properscoring.crps_gaussian(y - 280, mu, sigma).mean()

    theta = [method.a + (method.w.sum() - 1) * 280, *method.w, method.c.log(), method.d.log()]
    theta = [float(t) for t in theta]
    oracle = minimize(score, [0, 0.3, 0.3, 0.3, 0, 0], method="BFGS", tol=1e-9)
    assert score(theta) <= oracle.fun * (1 + 1e-5)


def test_five_members_do_not_enter_a_fit_of_ten():
    ten, five = world(20, members=10)[0], world(20, members=5)[0]
    method = fitted(MemberEMOS(), ten)
    with pytest.raises(ArgumentError, match="the batch has 5, but this EMOS was fitted to 10"):
        method(five)
    loaded = MemberEMOS()
    loaded.load_state_dict(method.state_dict())
    assert torch.equal(loaded(ten).mu, method(ten).mu)
    mixed = MemberEMOS()
    mixed.collect(ten)
    with pytest.raises(ArgumentError, match="those before"):
        mixed.collect(five)


@pytest.mark.parametrize("kind", [MemberByMember, MemberEMOS])
def test_bad_input(kind):
    batch, *_ = world(20)
    with pytest.raises(ArgumentError, match="no coefficients yet"):
        kind()(batch)
    with pytest.raises(ArgumentError, match="saw no training batch"):
        kind().solve()
    method = fitted(kind(), batch)
    del batch["members"]
    for use in (method, method.collect):
        with pytest.raises(ArgumentError, match=f"no ensemble members, which {kind.__name__}"):
            use(batch)
    with pytest.raises(UnknownNameError, match="fare"):
        MemberByMember("fare")
