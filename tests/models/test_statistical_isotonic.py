import numpy as np
import pytest
import torch
from scipy.optimize import isotonic_regression, minimize

from ens10.errors import ArgumentError
from ens10.metrics.distributions import Normal
from ens10.models.statistical import EMOS
from ens10.models.statistical.isotonic import IsotonicRegression, node_values, step_functions


def world(dates=600, grid=(2, 3), seed=0):
    """Truth of a skewed distribution whose centre bends with the ensemble mean."""
    g = torch.Generator().manual_seed(seed)
    mean = 3 * torch.randn(dates, *grid, generator=g)
    noise = torch.empty(dates, *grid).exponential_(generator=g)
    truth = 4 * torch.sigmoid(2 * mean) + noise * torch.where(mean > 0, 1.5, 0.3)
    return {
        "raw_mean": mean,
        "raw_std": torch.ones(dates, *grid),
        "target": truth,
        "weights": torch.ones(dates, *grid),
        "dates": torch.arange(dates) * 86400,
    }


def fitted(method, batch):
    for i in range(0, len(batch["dates"]), 97):
        method.collect({k: v[i : i + 97] for k, v in batch.items()})
    method.solve()
    return method


def slow_fit(x, y, threshold):
    """The antitonic fit by its min-max formula, at the distinct x."""
    known = np.unique(x)
    hit = [(y[x == k] <= threshold).astype(float) for k in known]

    def mean(a, b):
        return np.concatenate(hit[a : b + 1]).mean()

    count = len(known)
    return known, [
        min(max(mean(a, b) for b in range(i, count)) for a in range(i + 1)) for i in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_step_functions_against_the_min_max_formula(seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.integers(0, 15, 30).astype(float))  # with ties
    y = x + 5 * rng.normal(size=30)
    known = np.unique(x)
    made = step_functions(x, y, np.sort(y), known)
    for j, threshold in enumerate(np.sort(y)):
        np.testing.assert_allclose(made[j], slow_fit(x, y, threshold)[1], atol=1e-12)
    assert (np.diff(made, axis=1) <= 1e-12).all()  # a higher mean, a higher distribution
    assert (np.diff(made, axis=0) >= -1e-12).all()
    between = step_functions(x, y, y[:1], np.array([-9.0, (known[3] + known[4]) / 2, 99.0]))
    first = step_functions(x, y, y[:1], known)[0]
    np.testing.assert_allclose(between[0], [first[0], (first[3] + first[4]) / 2, first[-1]])


@pytest.mark.parametrize("seed", range(3))
def test_no_isotonic_forecast_has_less_crps(seed):
    """Against the sum over all intervals between thresholds, minimised by scipy directly."""
    rng = np.random.default_rng(seed)
    x = np.arange(6.0)
    y = rng.permutation(6) + 0.1 * rng.normal(size=6)
    thresholds = np.sort(y)
    hit = (y[None] <= thresholds[:-1, None]).astype(float)
    widths = np.diff(thresholds)[:, None]

    def crps(cdf):
        return float((widths * (cdf - hit) ** 2).sum() / 6)

    ours = step_functions(x, y, thresholds, x)[:-1]
    # falling along x and rising along the thresholds: as an ensemble of conditions on 30 numbers
    falls = {"type": "ineq", "fun": lambda p: -np.diff(p.reshape(5, 6), axis=1).ravel()}
    rises = {"type": "ineq", "fun": lambda p: np.diff(p.reshape(5, 6), axis=0).ravel()}
    start = np.repeat(np.linspace(0.2, 0.8, 5), 6)
    found = minimize(
        lambda p: crps(p.reshape(5, 6)),
        start,
        jac=lambda p: (2 * widths * (p.reshape(5, 6) - hit) / 6).ravel(),
        method="SLSQP",
        bounds=[(0, 1)] * 30,
        constraints=[falls, rises],
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert crps(ours) == pytest.approx(found.fun, rel=1e-5, abs=1e-7)


def test_quantiles_of_few_dates_are_those_of_the_exact_regression():
    batch = world(12)
    method = fitted(IsotonicRegression(levels=4, nodes=12), batch)
    forecast = method(batch)
    x, y = (batch[k][:, 1, 1].double().numpy() for k in ("raw_mean", "target"))
    cdf = np.array([slow_fit(x, y, t)[1] for t in np.sort(y)])
    for n, at in enumerate(np.argsort(np.argsort(x))):
        reached = cdf[:, at][None] >= np.array([0.125, 0.375, 0.625, 0.875])[:, None] - 1e-9
        expected = np.sort(y)[reached.argmax(1)]
        np.testing.assert_allclose(forecast.values[n, :, 1, 1].numpy(), expected, rtol=1e-5)


def rain(dates, seed):
    """Ensemble mean and truth of rain in mm at four points; both are often exactly zero."""
    g = torch.Generator().manual_seed(seed)
    weather, shift, factor = torch.randn(3, dates, 2, 2, generator=g)
    weather = 2 * weather - 1
    amount = weather.clamp(min=0) ** 3
    truth = (weather + 0.5 * shift).clamp(min=0) ** 3 * torch.exp(0.5 * factor)
    return {
        "raw_mean": (10 * amount).round() / 10,  # gauges have tenths of a millimetre: many ties
        "raw_std": torch.ones(dates, 2, 2),
        "target": (10 * truth).round() / 10,
        "weights": torch.ones(dates, 2, 2),
        "dates": torch.arange(dates) * 86400,
    }


def exact_crps(x, y, new_x, new_y):
    """The CRPS of isotonic distributional regression: scipy's fit at each threshold.

    The CRPS of a step function is E|X - y| - E|X - X'| / 2. Between the x of the training the
    probabilities are linear, as in the R package isodistrreg.
    """
    known, group, count = np.unique(x, return_inverse=True, return_counts=True)
    thresholds = np.unique(y)
    cdf = []
    for t in thresholds:
        hit = np.bincount(group, y <= t) / count
        fit = isotonic_regression(hit, weights=count.astype(float), increasing=False).x
        cdf.append(np.interp(new_x, known, fit))
    cdf = np.array(cdf)
    weight = np.diff(cdf, axis=0, prepend=0)
    error = (weight * np.abs(thresholds[:, None] - new_y)).sum(0)
    return error - (np.diff(thresholds)[:, None] * (cdf * (1 - cdf))[:-1]).sum(0)


def test_the_default_comes_within_half_a_percent_of_the_exact_regression():
    train, test = rain(1800, 0), rain(1500, 1)
    forecast = fitted(IsotonicRegression(), train)(test)
    ours = forecast.crps(test["target"]).double().mean().item()
    exact = []
    for i in range(4):
        x, y, new_x, new_y = (
            batch[name].flatten(1).T[i].double().numpy()
            for batch in (train, test)
            for name in ("raw_mean", "target")
        )
        assert 0.2 < (x == 0).mean() < 0.9
        assert 0.2 < (y == 0).mean() < 0.9
        exact.append(exact_crps(x, y, new_x, new_y).mean())
    assert ours == pytest.approx(np.mean(exact), rel=5e-3)


def test_nodes_divide_rank_and_value_evenly():
    """Distinct values if they suffice; otherwise equal steps of rank and value."""
    np.testing.assert_array_equal(node_values(np.array([1.0, 1, 2, 5]), 5), [1, 2, 5, 5, 5])
    np.testing.assert_array_equal(node_values(np.array([3.0, 3, 3]), 2), [3, 3])
    x = np.sort(np.random.default_rng(0).exponential(size=1000))
    nodes = node_values(x, 41)
    assert nodes[0] == x[0]
    assert nodes[-1] == x[-1]
    rank = np.interp(nodes, x, np.linspace(0, 1, 1000))
    np.testing.assert_allclose(np.diff(rank + (nodes - x[0]) / (x[-1] - x[0])), 2 / 40, rtol=1e-9)


def test_a_level_that_is_reached_exactly_is_reached_whatever_the_rounding():
    """Truth that falls with the mean is pooled into one block: the ranked truth itself."""
    batch = world(120, (1, 1))
    rank = batch["raw_mean"].flatten().argsort().argsort().view(-1, 1, 1)
    batch["target"] = 1.0 - rank
    forecast = fitted(IsotonicRegression(levels=20), batch)(batch)
    # (k + 1/2) / 20 of 120 is 6 k + 3
    expected = torch.arange(20.0) * 6 + 3 - 119
    assert torch.equal(forecast.values[0, :, 0, 0], expected)


def test_it_beats_raw_and_emos_where_these_are_wrong():
    train, test = world(1500), world(500, seed=1)
    forecast = fitted(IsotonicRegression(), train)(test)
    emos = fitted(EMOS(local=True), train)(test)
    raw = Normal(test["raw_mean"], test["raw_std"])
    ours, theirs, plain = (float(f.crps(test["target"]).mean()) for f in (forecast, emos, raw))
    assert ours < 0.75 * theirs < 0.75 * plain
    assert (forecast.values.diff(dim=1) >= 0).all()
    # the truth is below each level about as often as it says; a fit this free is a bit too sharp
    fine = fitted(IsotonicRegression(20, 200, 1500), train)(test)
    below = (test["target"].unsqueeze(1) <= fine.values).float().mean((0, 2, 3))
    torch.testing.assert_close(below, (torch.arange(20) + 0.5) / 20, atol=0.06, rtol=0)


def test_more_thresholds_and_nodes_change_little():
    train, test = world(800), world(300, seed=1)
    coarse = fitted(IsotonicRegression(20, 24, 200), train)(test).crps(test["target"]).mean()
    fine = fitted(IsotonicRegression(20, 200, 800), train)(test).crps(test["target"]).mean()
    assert coarse <= fine * 1.03


def test_gaps_and_means_beyond_the_training():
    batch = world(50)
    batch["weights"][:, 0, 0] = 0
    batch["raw_mean"][3:9, 0, 1] = torch.nan
    batch["weights"][3:9, 0, 1] = 0
    batch["weights"][1:, 1, 1] = 0
    batch["raw_mean"][:, 1, 2] = 5
    method = fitted(IsotonicRegression(), batch)
    forecast = method(batch)
    assert forecast.values[:, :, 0, 0].isnan().all()
    assert forecast.values[3:9, :, 0, 1].isnan().all()
    assert (forecast.values[:, :, 1, 1] == batch["target"][0, 1, 1]).all()
    far = {**batch, "raw_mean": torch.full_like(batch["raw_mean"], 1e4)}
    assert (method(far).values[..., 1, 0] <= batch["target"][:, 1, 0].max()).all()
    ranked = batch["target"][:, 1, 2].sort().values
    places = ((torch.arange(20) + 0.5) / 20 * 50 - 1e-6).ceil().long() - 1
    assert torch.equal(forecast.values[0, :, 1, 2], ranked[places])  # one mean: climatology
    loaded = IsotonicRegression()
    loaded.load_state_dict(method.state_dict())
    assert torch.equal(loaded(far).values.nan_to_num(), method(far).values.nan_to_num())


def test_bad_input():
    batch = world(10)
    for name, value in (("levels", 0), ("nodes", 1), ("thresholds", 0)):
        with pytest.raises(ArgumentError, match=f"{name}: {value} is less than"):
            IsotonicRegression(**{name: value})
    with pytest.raises(ArgumentError, match="no coefficients yet"):
        IsotonicRegression()(batch)
    with pytest.raises(ArgumentError, match="saw no training batch"):
        IsotonicRegression().solve()
    method = fitted(IsotonicRegression(), batch)
    with pytest.raises(ArgumentError, match=r"4 x 4 points.*2 x 3"):
        method(world(10, (4, 4)))
