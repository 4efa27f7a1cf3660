import math
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import families
from ens10.models.statistical import EMOS
from ens10.models.statistical.folds import left_out_folds
from ens10.models.statistical.harmonics import annual_cycle
from ens10.models.statistical.newton import minimise
from ens10.models.statistical.regression import Regression, root_of_exponentials
from ens10.models.statistical.score_terms import FamilyName, score_of
from ens10.models.statistical.seasonal_emos import SeasonalEMOS, SeasonalFit
from ens10.models.statistical.spool import Spool

DAY = 86400


def world(dates=400, grid=(3, 4), base=280.0, seed=0, spread=1.0, varied=1.0):
    """Normal truth with a(t), b, c, d of each point; `varied` 0 is the same at all points."""
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    when = torch.arange(dates) * int(9.1 * DAY)
    cycle = annual_cycle(when, 1)
    a = (
        spread
        * torch.tensor([0.5, 0.7, -0.4]).double()[:, None, None]
        * (1 + varied * draw(3, *grid))
    )
    c = spread * (0.7 * torch.exp(0.3 * varied * draw(*grid)))
    d = 0.8 * torch.exp(0.3 * varied * draw(*grid))
    mean = base + 5 * spread * draw(dates, *grid)
    std = spread * (0.3 + 1.7 * torch.rand(dates, *grid, generator=g, dtype=torch.float64))
    mu = mean + torch.einsum("nk,khw->nhw", cycle, a) - 0.1 * (mean - base)
    sigma = torch.sqrt(c**2 + d**2 * std**2)
    batch = {
        "raw_mean": mean.float(),
        "raw_std": std.float(),
        "target": (mu + sigma * draw(dates, *grid)).float(),
        "weights": torch.ones(dates, *grid),
        "dates": when,
    }
    return batch, a, c, d, mu, sigma


def fitted(method, batch, size=37):
    for i in range(0, len(batch["dates"]), size):
        method.collect({k: v[i : i + size] for k, v in batch.items()})
    method.solve()
    return method


def problems(family, seed=0, points=3, dates=80):
    rng = np.random.default_rng(seed)
    r, u = rng.normal(size=(2, points, dates))
    bounds = ()
    if family.startswith(("truncated", "censored")):
        lower = rng.normal(-1, 0.5, size=(points, dates))
        bounds, r = (lower, lower + 4), np.clip(r, lower, lower + 4)
    v = rng.gamma(2, 0.5, size=(points, dates))
    cycle = annual_cycle(torch.arange(dates) * 9 * DAY, 1).numpy()
    w = rng.uniform(size=(points, dates))
    w[0, :20] = 0
    w /= w.sum(1, keepdims=True)
    prior = np.tile([0, 0, 0, 0, 0, 0, -0.4, 0, 0, -0.4, 0, 0], (points, 1))
    score, link = score_of(family), root_of_exponentials(50.0, 1e-8)
    penalty = np.full((points, 12), 0.15)
    return Regression(score, link, r, w, (1.0, u), (1.0, v), 0, 0.0, bounds, cycle, prior, penalty)


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_gradient_and_hessian_are_those_of_the_value(family):
    problem = problems(family)
    theta = problem.prior + 0.2 * np.random.default_rng(1).normal(size=(3, 12))
    value, gradient, hessian = problem.evaluate(theta)
    parts = theta.reshape(3, 4, 3) @ problem.cycle.T
    sigma = np.sqrt(np.exp(parts[:, 2]) ** 2 + np.exp(parts[:, 3]) ** 2 * problem.scale[1] + 1e-8)
    parameters = {"mu": parts[:, 0] + parts[:, 1] * problem.location[1], "sigma": sigma}
    if problem.bounds:
        parameters |= {"lower": problem.bounds[0], "upper": problem.bounds[1]}
    plain = (problem.w * families.crps(family, parameters, problem.y)).sum(1)
    np.testing.assert_allclose(value, plain + 0.075 * ((theta - problem.prior) ** 2).sum(1))
    for j in range(12):
        step = np.zeros(12)
        step[j] = 1e-5
        up, down = problem.evaluate(theta + step), problem.evaluate(theta - step)
        np.testing.assert_allclose((up[0] - down[0]) / 2e-5, gradient[:, j], atol=1e-8)
        np.testing.assert_allclose((up[1] - down[1]) / 2e-5, hessian[:, j], atol=3e-4)


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_the_gradient_vanishes_at_the_solution_and_nothing_lower_is_near(family):
    problem = problems(family)
    theta = minimise(problem.prior, problem)
    value, gradient, hessian = problem.evaluate(theta)
    assert np.abs(gradient).max() < 1e-6
    assert np.linalg.eigvalsh(hessian).min() > 0
    one = problem.select(np.array([False, True, False]))
    found = minimize(lambda t: one.evaluate(t[None])[0][0], one.prior[0], method="BFGS", tol=1e-8)
    assert value[1] <= found.fun * (1 + 1e-8)


def test_normal_terms_are_those_of_the_other_families():
    rng = np.random.default_rng(0)
    mu, y = rng.normal(size=(2, 50))
    sigma = rng.uniform(0.3, 2, 50)
    far = np.full(50, 40.0)
    exact = score_of("normal")((mu, sigma), (), y)
    for name in ("truncated_normal", "censored_normal"):
        terms = score_of(name)((mu, sigma), (-far, far), y)
        np.testing.assert_allclose(terms.value, exact.value, atol=1e-12)
        np.testing.assert_allclose(terms.first, exact.first, atol=1e-12)
        for pair in ((0, 0), (0, 1), (1, 1)):
            np.testing.assert_allclose(terms.second[pair], exact.second[pair], atol=1e-4)


@pytest.mark.parametrize(("base", "spread"), [(280.0, 1.0), (5.3e4, 80.0)])
def test_coefficients_of_a_simulation(base, spread):
    batch, a, c, d, mu, sigma = world(3000, (2, 2), base, spread=spread)
    method = fitted(SeasonalEMOS(1, strength=0), batch)
    # a: error of deviation at most 3.5 spread; cosines have variance 1/2; five standard errors
    centred = method.coefficients[0].double()
    centred[0] += 0.1 * (method.centre.double() - base)
    torch.testing.assert_close(centred, a, rtol=0, atol=5 * 2 * spread * math.sqrt(2 / 3000))
    slope = method.coefficients[1, 0].double()
    torch.testing.assert_close(slope, torch.full_like(slope, -0.1), rtol=0, atol=0.04)
    torch.testing.assert_close(method.coefficients[2, 0].double().exp(), c, rtol=0.35, atol=0)
    torch.testing.assert_close(method.coefficients[3, 0].double().exp(), d, rtol=0.2, atol=0)
    forecast = method(batch)
    torch.testing.assert_close(forecast.sigma.double(), sigma, rtol=0.25, atol=0)
    assert (forecast.mu - mu).std() < 0.15 * spread


def test_without_harmonics_or_ridge_it_is_local_emos():
    batch, *_ = world(200)
    ours, known = fitted(SeasonalEMOS(0, strength=0), batch), fitted(EMOS(local=True), batch)
    score, best = (m(batch).crps(batch["target"]).mean(0) for m in (ours, known))
    torch.testing.assert_close(score, best, rtol=2e-6, atol=0)
    torch.testing.assert_close(ours(batch).mu, known(batch).mu, rtol=0, atol=2e-3)


def test_shrinkage_beats_raw_common_and_free_fits_on_new_dates():
    batch, *_ = world(700, (6, 8), varied=0.3)
    train = {k: v[:100] for k, v in batch.items()}
    test = {k: v[100:] for k, v in batch.items()}

    def score(method):
        return float(fitted(method, train)(test).crps(test["target"]).mean())

    chosen = SeasonalEMOS(1)
    ours = score(chosen)
    assert chosen.chosen_strength.tolist() == [100, 1]  # of the year left out, as always
    raw = families.crps(
        "normal", {"mu": test["raw_mean"], "sigma": test["raw_std"]}, test["target"]
    )
    assert ours < score(SeasonalEMOS(1, strength=1e9)) < score(EMOS()) < float(raw.mean())
    assert ours < score(SeasonalEMOS(1, strength=0)) - 0.005
    assert ours < score(EMOS(local=True))


def one_year(dates=150, later=60, points=8, seed=0, swing=0.5):
    """Daily dates at stations with errors of their own; weather that lasts for some days."""
    rng = np.random.default_rng(seed)
    when = np.arange(dates + later)

    def weather():
        noise = rng.normal(size=(when.size, points))
        for t in when[1:]:
            noise[t] = 0.5 * noise[t - 1] + math.sqrt(0.75) * noise[t]
        return noise

    cycle = np.sin(2 * np.pi * when / 365.25 - 1.8)[:, None]
    mean, std = 280 + 8 * cycle + 4 * weather(), 0.6 + 0.8 * rng.random((when.size, points))
    bias, own, width = (
        2.5 * rng.normal(size=points),
        rng.normal(size=points),
        rng.normal(size=points),
    )
    truth = mean + bias + swing * own * cycle + np.exp(0.4 * width) * std * weather()
    fields = {"raw_mean": mean, "raw_std": std, "target": truth, "weights": np.ones_like(mean)}
    batch = {k: torch.from_numpy(v).float()[:, None] for k, v in fields.items()}
    batch["dates"] = torch.from_numpy((when + 16900) * DAY)
    return ({k: v[:dates] for k, v in batch.items()}, {k: v[dates + 5 :] for k, v in batch.items()})


@pytest.mark.parametrize("dates", [60, 150])
def test_within_one_year_the_strength_is_chosen_by_blocks_of_dates(dates):
    train, later = one_year(dates)

    def score(method):
        return float(fitted(method, train)(later).crps(later["target"]).mean())

    local, hundred, chosen = (
        score(EMOS(local=True)),
        score(SeasonalEMOS(strength=100)),
        score(method := SeasonalEMOS()),
    )
    assert hundred > 1.2 * local
    assert chosen - local < 0.1 * (hundred - local)
    assert float(method.chosen_strength[0]) < 100
    assert method.chosen_strength[1].isinf()  # months of a year do not show a cycle
    assert (method.coefficients[:, 1:] == 0).all()


def test_a_cycle_that_a_whole_year_shows_is_kept():
    train, later = one_year(360, 300, swing=2.0)
    method = fitted(SeasonalEMOS(), train)
    assert method.chosen_strength[1].isfinite()
    free = fitted(SeasonalEMOS(0), train)
    ours, without = (float(m(later).crps(later["target"]).mean()) for m in (method, free))
    assert ours < without


def test_blocks_left_out_have_gaps_around_them():
    days = np.random.default_rng(0).permutation(np.repeat(np.arange(0, 200, 2), 2))
    folds = left_out_folds((16900 + days) * DAY)
    assert len(folds) == 5
    assert (sum(fold.left_out.astype(int) for fold in folds) == 1).all()
    for fold in folds:
        inside = days[fold.left_out]
        assert np.ptp(inside) == 38  # 20 dates in a row
        distance = np.abs(days[:, None] - inside).min(1)
        np.testing.assert_array_equal(fold.training, distance > 5)


def test_dates_of_several_years_are_left_out_by_years():
    days = np.arange(0, 7 * 365, 9)
    dates = days * DAY + 17000 * DAY
    years = dates.astype("datetime64[s]").astype("datetime64[Y]").astype(int)
    for seconds, groups in ((dates[:81], 2), (dates, 5)):
        folds, rank = left_out_folds(seconds), (years - years[0])[: seconds.size]
        assert len(folds) == min(5, rank.max() + 1) >= groups
        for k, fold in enumerate(folds):
            np.testing.assert_array_equal(fold.left_out, rank % 5 == k)
            np.testing.assert_array_equal(fold.training, rank % 5 != k)


def test_too_few_dates_to_choose_by_are_refused():
    batch, _ = one_year(12)
    with pytest.raises(ArgumentError, match=r"strength: 12 training dates .* Set strength"):
        fitted(SeasonalEMOS(), batch)
    days = np.arange(20) * DAY  # enough, were it not for the gaps
    with pytest.raises(ArgumentError, match="20 training dates within one year"):
        left_out_folds(days)
    assert fitted(SeasonalEMOS(strength=30), batch).chosen_strength.tolist() == [30, 1]


def test_an_endless_strength_gives_the_common_coefficients():
    batch, *_ = world(60)
    method = SeasonalEMOS(1, strength=1e12)
    spool = Spool()
    fields = [batch[key] for key in ("target", "raw_mean", "raw_std")]
    spool.append(fields, batch["weights"], batch["dates"])
    common = SeasonalFit(spool, "normal", 1, (-math.inf, math.inf)).fit_common()
    fitted(method, batch)
    error = (batch["target"] - batch["raw_mean"]).double().std(0, correction=0)
    shared = method.coefficients[0].double() / error
    expected = torch.from_numpy(common[:3])[:, None, None].expand_as(shared)
    torch.testing.assert_close(shared, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", ["truncated_normal", "censored_logistic", "logistic"])
def test_families_fit_their_own_data_better_than_a_normal_does(family):
    g = torch.Generator().manual_seed(0)
    dates, grid = 300, (2, 3)
    mean = 0.3 + 1.5 * torch.rand(dates, *grid, generator=g)
    u = torch.rand(dates, *grid, generator=g).clamp(1e-4, 1 - 1e-4)
    sigma = torch.full_like(mean, 0.9)
    if family == "truncated_normal":
        low = torch.special.ndtr(-mean / sigma)
        truth = mean + sigma * torch.special.ndtri(low + u * (1 - low))
    else:
        truth = mean + sigma * torch.logit(u)
        truth = truth.clamp(min=0) if family == "censored_logistic" else truth
    batch = {"raw_mean": mean, "raw_std": sigma * 0.5, "target": truth}
    batch |= {"weights": torch.ones_like(mean), "dates": torch.arange(dates) * DAY * 9}
    bound = {} if family == "logistic" else {"lower": 0.0}
    forecast = fitted(SeasonalEMOS(0, family, strength=30, **bound), batch)(batch)
    normal = fitted(SeasonalEMOS(0, strength=30), batch)(batch)
    assert forecast.crps(truth).mean() < normal.crps(truth).mean()
    median = forecast.quantile(0.5)
    inside = median > 0 if bound else median > -torch.inf
    half = torch.full_like(median, 0.5)[inside]
    torch.testing.assert_close(forecast.cdf(median)[inside], half, atol=1e-4, rtol=0)
    drawn = forecast.sample(2000, torch.Generator().manual_seed(1))
    torch.testing.assert_close(drawn.mean(1), forecast.mean, atol=0.25, rtol=0)
    torch.testing.assert_close(drawn.std(1), forecast.std, rtol=0.15, atol=0)
    assert forecast.kind == family
    assert ("lower" in forecast.variables()) == bool(bound)


def test_gaps_few_dates_and_still_predictors():
    batch, *_ = world(60)
    batch["raw_mean"][5:20, 0, 0] = torch.nan
    batch["weights"][5:20, 0, 0] = 0
    batch["weights"][2:, 1, 1] = 0
    batch["weights"][:, 2, 2] = 0
    batch["raw_std"][:, 0, 1] = 0
    batch["raw_mean"][:, 0, 2] = 280
    batch["target"][:, 0, 3] = batch["raw_mean"][:, 0, 3]
    forecast = fitted(SeasonalEMOS(1, strength=20), batch)(batch)
    assert forecast.mu[5:20, 0, 0].isnan().all()
    for row, column in [(1, 1), (2, 2)]:
        assert torch.equal(forecast.mu[:, row, column], batch["raw_mean"][:, row, column])
        assert torch.equal(forecast.sigma[:, row, column], batch["raw_std"][:, row, column])
    valid = batch["weights"] > 0
    assert forecast.crps(batch["target"])[valid].isfinite().all()


def test_batches_blocks_and_order_do_not_matter(monkeypatch):
    batch, *_ = world(50)
    whole = fitted(SeasonalEMOS(1, strength=20), batch)
    monkeypatch.setattr("ens10.models.statistical.spool._SAMPLES", 130)
    back = {k: v.flip(0) for k, v in batch.items()}
    cut = fitted(SeasonalEMOS(1, strength=20), back, 7)
    torch.testing.assert_close(cut.coefficients, whole.coefficients, rtol=1e-4, atol=1e-6)
    loaded = SeasonalEMOS(1, strength=20)
    loaded.load_state_dict(whole.state_dict())
    assert torch.equal(loaded(batch).sigma, whole(batch).sigma)
    assert whole.fitted_parameters == 12 * 12


def test_bad_input():
    with pytest.raises(UnknownNameError, match=r"truncated_norml.*did you mean"):
        SeasonalEMOS(family="truncated_norml")
    with pytest.raises(ArgumentError, match="takes no bounds"):
        SeasonalEMOS(lower=0.0)
    with pytest.raises(ArgumentError, match="has no bound"):
        SeasonalEMOS(family="censored_normal")
    with pytest.raises(ArgumentError, match="not below upper"):
        SeasonalEMOS(family="censored_normal", lower=1.0, upper=0.0)
    with pytest.raises(ArgumentError, match="strength"):
        SeasonalEMOS(strength=-1.0)
    with pytest.raises(ArgumentError, match="saw no training batch"):
        SeasonalEMOS().solve()
    batch, *_ = world(10)
    with pytest.raises(ArgumentError, match="no coefficients yet"):
        SeasonalEMOS()(batch)
    method = SeasonalEMOS()
    method.collect(batch)
    with pytest.raises(ArgumentError, match="those before"):
        method.collect(world(10, (4, 4))[0])
