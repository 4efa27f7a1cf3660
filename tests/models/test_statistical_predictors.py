"""EMOS with predictors: ridge and boosting against closed forms, scipy and a plain reference."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, stats

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.statistical import EMOS, BoostedEMOS, RidgeEMOS
from ens10.models.statistical.log_linear_loops import boost, mean_score, no_samples, ridge_fit

CRITERIA = ("likelihood", "crps")
DATES, CHANNELS = 120, 3


def score(criterion, r, mu, sigma):
    """Scores of a normal forecast, by scipy's distribution."""
    if criterion == "likelihood":
        return -stats.norm.logpdf(r, mu, sigma) - 0.5 * math.log(2 * math.pi)
    z = (r - mu) / sigma
    inner = z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi)
    return sigma * inner


def samples(n=150, k=4, seed=0):
    """Standardised predictors with a constant, response and equal weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(k, n))
    x = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    r = 0.8 * x[0] - 0.3 * x[1] + np.exp(0.4 * x[2] - 0.5) * rng.normal(size=n)
    r = (r - r.mean()) / r.std()
    return np.concatenate([np.ones((1, n)), x]), r, np.full(n, 1 / n)


def batch_of(dates=DATES, grid=(2, 3), channels=CHANNELS, seed=0, step=6):
    """Dates whose truth depends on features and season, differently at each point."""
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(dates, channels, *grid, generator=g)
    mean = 280 + 3 * torch.randn(dates, *grid, generator=g)
    std = 0.5 + torch.rand(dates, *grid, generator=g)
    times = torch.arange(dates) * 86400 * step
    slope = 1 + torch.rand(*grid, generator=g)
    noise = torch.randn(dates, *grid, generator=g)
    season = torch.cos(times * (2 * math.pi / (365.2425 * 86400)))[:, None, None]
    truth = mean + 1.5 + slope * features[:, 0] + 0.7 * season + 0.8 * std * noise
    return {
        "features": features, "raw_mean": mean, "raw_std": std, "target": truth,
        "weights": torch.ones(dates, *grid), "dates": times,
    }  # fmt: skip


def solved(method, batch):
    method.collect(batch)
    method.solve()
    return method


def crps(forecast, batch):
    fields = batch["target"], forecast.mu, forecast.sigma
    return score("crps", *(field.double().numpy() for field in fields)).mean()


@pytest.mark.parametrize("criterion", CRITERIA)
def test_scores_are_those_of_scipy(criterion):
    rng = np.random.default_rng(0)
    r, mu, eta, w = rng.normal(size=(4, 50))
    w = np.abs(w)
    wanted = w @ score(criterion, r, mu, np.exp(eta))
    assert mean_score(criterion == "likelihood", r, w, mu, eta) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_ridge_against_scipy_optimize(criterion, strength):
    x, r, w = samples()
    rng = np.random.default_rng(1)
    prior, penalty = 0.2 * rng.normal(size=(2, 5)), strength * rng.random((2, 5))
    w = w * rng.random(len(w))
    w /= w.sum()

    def objective(flat):
        b, g = flat.reshape(2, -1)
        off = flat - prior.ravel()
        return w @ score(criterion, r, b @ x, np.exp(g @ x)) + 0.5 * penalty.ravel() @ off**2

    wanted = optimize.minimize(objective, np.zeros(10), method="BFGS", options={"gtol": 1e-9})
    found = ridge_fit(criterion == "likelihood", x, r, w, prior, penalty, np.zeros((2, 5)))
    assert objective(found.ravel()) <= wanted.fun + 1e-12
    np.testing.assert_allclose(found.ravel(), wanted.x, atol=2e-5)


def test_ridge_with_a_constant_scale_is_ridge_regression():
    """Given sigma, the likelihood's location is sklearn's Ridge(alpha=n penalty sigma^2)."""
    x, r, w = samples()
    n = r.size
    penalty = np.full((2, 5), 0.1)
    penalty[:, 0] = 0.0
    penalty[1, 1:] = 1e12  # no predictor of the scale
    none = np.zeros((2, 5))
    b, g = ridge_fit(True, x, r, w, none, penalty, none)
    np.testing.assert_allclose(g[1:], 0, atol=1e-10)
    variance = math.exp(2 * g[0])
    alpha = n * 0.1 * variance * np.diag([0.0, 1, 1, 1, 1])
    closed = np.linalg.solve(x @ x.T + alpha, x @ r)
    np.testing.assert_allclose(b, closed, rtol=1e-6, atol=1e-8)
    assert variance == pytest.approx(np.mean((r - b @ x) ** 2), rel=1e-6)


def slow_boosting(criterion, x, r, rate, steps, left_out_x, left_out_r):
    """Messner et al. (2017), section 2c, step by step, with differences for the gradients."""
    n, small = r.size, 1e-6
    b, g = np.zeros(len(x)), np.zeros(len(x))

    def total(b, g, x, r):
        return score(criterion, r, b @ x, np.exp(g @ x))

    path = [total(b, g, left_out_x, left_out_r).sum()]
    for _ in range(steps):
        mu, eta = b @ x, g @ x
        by_mu = score(criterion, r, mu + small, np.exp(eta))
        by_mu = (by_mu - score(criterion, r, mu - small, np.exp(eta))) / (2 * small)
        by_eta = score(criterion, r, mu, np.exp(eta + small))
        by_eta = (by_eta - score(criterion, r, mu, np.exp(eta - small))) / (2 * small)
        trials = []
        for part, by in ((0, by_mu), (1, by_eta)):
            fits = [-(by @ row) / n for row in x]
            best = int(np.argmax(np.abs(fits)))
            trial = [b.copy(), g.copy()]
            trial[part][best] += rate * fits[best]
            trials.append(trial)
        scores = [total(*trial, x, r).mean() for trial in trials]
        b, g = trials[int(scores[1] < scores[0])]
        path.append(total(b, g, left_out_x, left_out_r).sum())
    return np.stack([b, g]), np.array(path)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_boosting_against_a_plain_reference(criterion):
    x, r, w = samples(k=6)
    left_out_x, left_out_r, _ = samples(n=40, k=6, seed=5)
    wanted, path = slow_boosting(criterion, x, r, 0.1, 60, left_out_x, left_out_r)
    likelihood = criterion == "likelihood"
    found, scores = boost(likelihood, x, r, w, 0.1, 60, left_out_x, left_out_r, np.ones(40))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(scores, path, rtol=1e-6)
    assert (found == 0).any()  # predictors that were never selected


@pytest.mark.parametrize("criterion", CRITERIA)
def test_boosting_without_end_is_the_fit_itself(criterion):
    x, r, w = samples()
    likelihood, none = criterion == "likelihood", np.zeros((2, 5))
    wanted = ridge_fit(likelihood, x, r, w, none, none, none)
    found, _ = boost(likelihood, x, r, w, 0.1, 8000, *no_samples(5))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_whole_method_at_one_point_against_scipy(criterion):
    """Coefficients come back in units of the features, from the raw fields of a batch."""
    batch = batch_of(grid=(1, 1))
    found = solved(RidgeEMOS(criterion=criterion, strength=0.0), batch)(batch)
    fields = {k: v.double().numpy().squeeze() for k, v in batch.items()}
    phase = 2 * math.pi * fields["dates"] / (365.2425 * 86400)
    log_std = np.log(fields["raw_std"])
    mean = (fields["raw_mean"] - 280) / 3
    rows = [np.ones(DATES), *fields["features"].T, mean, np.cos(phase), np.sin(phase), log_std]
    x, error = np.stack(rows), fields["target"] - fields["raw_mean"]

    def forecast(flat):
        b, g = flat.reshape(2, -1)
        return b @ x, np.exp(g @ x)

    def objective(flat):
        return score(criterion, error, *forecast(flat)).mean()

    fitted = optimize.minimize(objective, np.zeros(16), method="BFGS", options={"gtol": 1e-8})
    mu, sigma = forecast(fitted.x)
    np.testing.assert_allclose(
        found.mu.double().numpy().squeeze() - fields["raw_mean"], mu, atol=2e-4
    )
    np.testing.assert_allclose(found.sigma.numpy().squeeze(), sigma, rtol=2e-4)


@pytest.mark.parametrize(("first", "stored", "tolerance"), [(0, 10, 2e-3), (1, 8, 1e-5)])
def test_the_target_alone_gives_eight_coefficients_and_not_the_four_of_emos(
    first, stored, tolerance
):
    """Without penalty and season: 1, m, s and log s, both in the location and in the log scale.

    The loader's features of the target are m and s; m is a predictor of its own, too, so that two
    of ten coefficients are not determined, and their difference of 1e5 costs digits in float32.
    """
    batch = batch_of(grid=(1, 1), seed=4)
    mean, std = batch["raw_mean"], batch["raw_std"]
    features = [(mean - 280) / 3, (std - 1) / 0.3]
    batch["features"] = torch.stack(features[first:], 1)
    method = solved(RidgeEMOS(strength=0.0, harmonics=0), batch)
    forecast = method(batch)
    assert method.fitted_parameters == stored
    m, s = (field.double().numpy().squeeze() for field in features)
    one, log_std = np.ones(DATES), np.log(std.double().numpy().squeeze())
    error = (batch["target"] - mean).double().numpy().squeeze()
    assert np.linalg.matrix_rank(np.stack([one, m, s, m, log_std])) == 4

    def least(of_location, of_scale):
        """The least mean score of the likelihood with these predictors, by scipy."""
        x, y = np.stack(of_location), np.stack(of_scale)

        def objective(flat):
            b, g = flat[: len(x)], flat[len(x) :]
            return score("likelihood", error, b @ x, np.exp(g @ y)).mean()

        return optimize.minimize(objective, np.zeros(len(x) + len(y)), options={"gtol": 1e-8}).fun

    fields = batch["target"], forecast.mu, forecast.sigma
    ours = score("likelihood", *(field.double().numpy() for field in fields)).mean()
    assert ours == pytest.approx(least([one, m, s, log_std], [one, m, s, log_std]), abs=tolerance)
    assert ours < least([one, m], [one, log_std]) - 0.02  # EMOS with a log link
    of_spread = method({**batch, "raw_std": 2 * std}).mu - forecast.mu
    assert of_spread.abs().min() > 0.1


METHODS = {
    "ridge": lambda **options: RidgeEMOS(**options),
    "boosting": lambda **options: BoostedEMOS(**options),
    "boosting at each point": lambda **options: BoostedEMOS(stop="point", steps=100, **options),
    "global ridge": lambda **options: RidgeEMOS(local=False, **options),
    "global boosting": lambda **options: BoostedEMOS(local=False, **options),
}


@pytest.mark.parametrize("name", METHODS)
def test_each_is_calibrated_out_of_sample_and_near_the_best(name):
    batch = batch_of(300)
    test = {k: v[::2] for k, v in batch.items()}
    train = {k: v[1::2] for k, v in batch.items()}
    method = solved(METHODS[name](), train)
    forecast = method(test)
    raw = crps(type(forecast)(test["raw_mean"], test["raw_std"]), test)
    best = float((0.8 * test["raw_std"] / math.sqrt(math.pi)).mean())
    assert best < crps(forecast, test) < best + 0.2 * (raw - best)
    z = (test["target"] - forecast.mu) / forecast.sigma
    assert 0.85 < z.square().mean() < 1.25
    shape = (2, 3) if method.local else (1, 1)
    assert method.location.shape == (1 + CHANNELS + 1 + 2 + 1, *shape)
    assert method.fitted_parameters == 2 * 8 * math.prod(shape)


@pytest.mark.parametrize("name", METHODS)
def test_a_slope_of_the_mean_is_found_without_the_target_among_the_inputs(name):
    batch = batch_of(300)
    damped = batch | {"target": batch["target"] - 0.4 * (batch["raw_mean"] - 280)}
    method = solved(METHODS[name](), damped)
    assert method.location[1 + CHANNELS].numpy() == pytest.approx(-0.4, abs=0.07)


def test_many_features_of_noise_are_drawn_to_common_coefficients():
    """Annual cycles differ between points, and nothing but the first of 25 features matters."""
    batch = batch_of(240, grid=(4, 4), channels=25)
    phase = batch["dates"] * (2 * math.pi / (365.2425 * 86400))
    batch["target"] = batch["target"] + torch.linspace(-2, 2, 16).reshape(4, 4) * torch.cos(
        phase
    ).reshape(-1, 1, 1)
    test = {k: v[::2] for k, v in batch.items()}
    train = {k: v[1::2] for k, v in batch.items()}
    method = solved(RidgeEMOS(criterion="crps"), train)
    own, features, _ = method.chosen_strength.tolist()
    assert features > own
    scores = [
        crps(solved(RidgeEMOS(criterion="crps", strength=same), train)(test), test)
        for same in (own, features)
    ]
    assert crps(method(test), test) < 0.99 * min(scores), scores


@pytest.mark.parametrize("name", METHODS)
def test_constant_and_collinear_predictors(name):
    batch = batch_of()
    one = solved(METHODS[name](), batch)
    extra = torch.cat([batch["features"], torch.full((DATES, 1, 2, 3), 7.0)], 1)
    constant = solved(METHODS[name](), batch | {"features": extra})
    position = 1 + CHANNELS
    assert (constant.location[position] == 0).all()
    assert (constant.log_scale[position] == 0).all()
    more = constant(batch | {"features": extra})
    np.testing.assert_allclose(more.mu, one(batch).mu, atol=1e-3)
    twice = torch.cat([batch["features"], batch["features"][:, :1]], 1)
    collinear = solved(METHODS[name](), batch | {"features": twice})
    forecast = collinear(batch | {"features": twice})
    assert torch.isfinite(forecast.mu).all()
    assert torch.isfinite(forecast.sigma).all()
    assert abs(crps(forecast, batch) - crps(one(batch), batch)) < 0.02


@pytest.mark.parametrize("name", ["ridge", "boosting"])
def test_missing_dates_and_points(name):
    batch = batch_of()
    weights = batch["weights"].clone()
    weights[::3, 0, 0] = 0
    weights[8:, 0, 1] = 0  # too few are left
    weights[:, 0, 2] = 0
    truth = torch.where(weights > 0, batch["target"], torch.nan)
    gaps = batch | {"weights": weights, "target": truth}
    method = solved(METHODS[name](), gaps)
    forecast = method(batch)
    for column in (1, 2):
        np.testing.assert_array_equal(forecast.mu[:, 0, column], batch["raw_mean"][:, 0, column])
        np.testing.assert_allclose(
            forecast.sigma[:, 0, column], batch["raw_std"][:, 0, column], rtol=1e-6
        )
    kept = [n for n in range(DATES) if n % 3]
    alone = {k: v[kept] for k, v in batch.items()}
    alone = {k: v if v.ndim == 1 else v[..., :1, :1] for k, v in alone.items()}
    options = {"strength": 0.0} if name == "ridge" else {"stop": "none", "steps": 30}
    without = solved(METHODS[name](**options), gaps)(batch)
    one = solved(METHODS[name](**options), alone)
    corner = {k: v if v.ndim == 1 else v[..., :1, :1] for k, v in batch.items()}
    np.testing.assert_allclose(without.mu[:, 0, 0], one(corner).mu[:, 0, 0], atol=1e-3)
    raw = batch["raw_mean"].clone()
    raw[0, 1, 1] = torch.nan
    std = torch.where(torch.isnan(raw), torch.nan, batch["raw_std"])
    hole = method(batch | {"raw_mean": raw, "raw_std": std})
    assert torch.isnan(hole.mu).nonzero().tolist() == [[0, 1, 1]]
    assert torch.isnan(hole.sigma).nonzero().tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("name", ["ridge", "boosting"])
def test_blocks_and_threads_change_nothing(name, monkeypatch):
    batch = batch_of(40, grid=(4, 5))
    whole = solved(METHODS[name](), batch)
    monkeypatch.setattr("ens10.models.statistical.spool._SAMPLES", 120)
    parts = METHODS[name]()
    for first in range(0, 40, 10):
        parts.collect({k: v[first : first + 10] for k, v in batch.items()})
    parts.solve()
    np.testing.assert_array_equal(parts.location, whole.location)
    np.testing.assert_array_equal(parts.log_scale, whole.log_scale)


@pytest.mark.parametrize("local", [True, False])
def test_likelihood_of_emos_with_a_constant_spread_is_least_squares(local):
    batch = batch_of(grid=(1, 1)) | {"raw_std": torch.ones(DATES, 1, 1)}
    emos = solved(EMOS(local, criterion="likelihood"), batch)
    mean, truth = (batch[key].double().numpy().ravel() for key in ("raw_mean", "target"))
    slope, intercept = np.polyfit(mean, truth, 1)
    residual = truth - intercept - slope * mean
    forecast = emos(batch)
    np.testing.assert_allclose(forecast.mu.numpy().ravel(), intercept + slope * mean, rtol=1e-6)
    np.testing.assert_allclose(forecast.sigma.numpy().ravel(), residual.std(), rtol=1e-4)
    other = solved(EMOS(local), batch)(batch)
    assert crps(other, batch) < crps(forecast, batch)
    with pytest.raises(UnknownNameError, match="criterion"):
        EMOS(criterion="mae")


def test_a_perfect_ensemble_and_no_spread_stay_finite():
    batch = batch_of()
    for change in ({"target": batch["raw_mean"]}, {"raw_std": torch.zeros(DATES, 2, 3)}):
        for method in (RidgeEMOS(), BoostedEMOS()):
            forecast = solved(method, batch | change)(batch | change)
            assert torch.isfinite(forecast.mu).all()
            assert torch.isfinite(forecast.sigma).all()


@pytest.mark.parametrize("name", ["ridge", "boosting"])
def test_a_feature_far_outside_its_training_range_gives_no_absurd_scale(name):
    batch = batch_of()
    batch["target"] += batch["raw_std"] * torch.sinh(
        batch["features"][:, 1]
    )  # its scale depends on it
    method = solved(METHODS[name](), batch)
    largest = method(batch).sigma.max(0).values
    rain = {key: value[:1].clone() for key, value in batch.items()}
    rain["features"][:, 1] = 1e6 * method.log_scale[2].sign()
    sigma = method(rain).sigma[0]
    depends = method.log_scale[2].abs() > 1e-4
    assert depends.sum() >= 3
    torch.testing.assert_close(sigma[depends], 10 * largest[depends])
    assert (sigma <= 10.001 * largest).all()
    assert (method(batch).sigma < 10 * largest).all()


def test_older_fits_have_no_limit_of_the_scale():
    batch = batch_of()
    method = solved(METHODS["ridge"](), batch)
    older = {key: value for key, value in method.state_dict().items() if key != "limit"}
    loaded = METHODS["ridge"]()
    loaded.load_state_dict(older)
    assert loaded.limit.isinf().all()
    torch.testing.assert_close(loaded(batch).sigma, method(batch).sigma)


def test_a_checkpoint_gives_the_same_forecast():
    batch = batch_of(60)
    for method, empty in ((RidgeEMOS(), RidgeEMOS()), (BoostedEMOS(), BoostedEMOS())):
        solved(method, batch)
        empty.load_state_dict(method.state_dict())
        assert torch.equal(empty(batch).mu, method(batch).mu)
        assert torch.equal(empty(batch).sigma, method(batch).sigma)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: BoostedEMOS().solve(), ArgumentError, "no training batch"),
        (lambda: BoostedEMOS(criterion="mae"), UnknownNameError, "crps"),
        (lambda: BoostedEMOS(stop="early"), UnknownNameError, "common"),
        (lambda: BoostedEMOS(rate=0.0), ArgumentError, "rate"),
        (lambda: BoostedEMOS(rate=2.0), ArgumentError, "rate"),
        (lambda: BoostedEMOS(steps=0), ArgumentError, "steps"),
        (lambda: RidgeEMOS(strength=-1.0), ArgumentError, "strength"),
    ],
)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_features_that_do_not_fit():
    batch = batch_of(60)
    method = solved(RidgeEMOS(strength=1.0), batch)
    with pytest.raises(ArgumentError, match="has 2 features, but RidgeEMOS was fitted to 3"):
        method(batch | {"features": batch["features"][:, :2]})
    with pytest.raises(ArgumentError, match="not their members"):
        RidgeEMOS().collect(batch | {"features": batch["features"][:, None]})
