"""Standard errors of Brier terms and of the ROC area, against Jacobians, placements, simulation."""

import numpy as np
import pytest
import xarray as xr

from ens10.metrics import brier_decomposition, event_sums, merge_states, roc_curve

TERMS = ("brier", "reliability", "resolution", "uncertainty")


def drawn(rng, n, members=5):
    p = rng.integers(0, members + 1, size=n) / members
    return p, (rng.random(n) < 0.1 + 0.7 * p).astype(float)


def siegert(p, o, place):
    """Siegert (2014): J C J' with the covariance of the columns of indicators, events, sums."""
    n, bins = len(p), place.max() + 1
    A = np.eye(bins)[place]
    B, C = A * o[:, None], A * p[:, None]
    a, b, c, y = A.sum(0), B.sum(0), C.sum(0), o.sum()
    keep = a > 0
    A, B, C, a, b, c = A[:, keep], B[:, keep], C[:, keep], a[keep], b[keep], c[keep]

    def error(jacobian, columns):
        columns = columns - columns.mean(0)
        return np.sqrt(jacobian @ (columns.T @ columns) @ jacobian)

    gap = b - c
    rel = np.concatenate([-(gap**2) / (n * a**2), 2 * gap / (n * a), -2 * gap / (n * a)])
    res = np.concatenate([-(b / a - y / n) * (b / a + y / n) / n, 2 / n * (b / a - y / n)])
    return {
        "reliability": error(rel, np.hstack([A, B, C])),
        "resolution": error(res, np.hstack([A, B])),
        "uncertainty": abs(1 - 2 * y / n) / n * np.sqrt(((o - o.mean()) ** 2).sum()),
    }


@pytest.mark.parametrize("binning", [{"members": 5}, {"bins": 3}, {"bins": 10}])
def test_standard_errors_of_brier_terms_are_those_of_siegert(binning):
    p, o = drawn(np.random.default_rng(1), 400)
    if "bins" in binning:
        p = np.clip(p + 0.05 * np.random.default_rng(2).normal(size=p.size), 0, 1)
    sums = event_sums(p, o, dim="all", **binning)
    found = brier_decomposition(sums, standard_errors=True)
    edges = np.arange(1, binning.get("bins", 5)) / binning.get("bins", 5)
    place = np.digitize(p, edges) if "bins" in binning else np.rint(5 * p).astype(int)
    for name, value in siegert(p, o, place).items():
        assert float(found[f"{name}_standard_error"]) == pytest.approx(value, rel=1e-9), name
    score = (p - o) ** 2
    if "members" in binning:
        wanted = score.std() / np.sqrt(score.size)
        assert float(found["brier_standard_error"]) == pytest.approx(wanted, rel=1e-9)
    else:
        assert np.isnan(found["brier_standard_error"])
    plain = brier_decomposition(sums)
    assert not any("standard_error" in str(k) for k in plain)
    xr.testing.assert_identical(found[list(plain)], plain)


def test_standard_errors_are_the_spread_over_samples():
    rng = np.random.default_rng(3)
    samples, n = 3000, 300
    p, o = drawn(rng, (samples, n))
    sums = event_sums(p, o, dim=1, members=5)
    terms = brier_decomposition(sums, standard_errors=True)
    roc = roc_curve(sums)
    for name in TERMS:
        spread = float(terms[name].std())
        assert float(terms[f"{name}_standard_error"].mean()) == pytest.approx(spread, rel=0.1)
    assert float(roc["area_standard_error"].mean()) == pytest.approx(float(roc["area"].std()), 0.05)


def delong(p, o):
    """Variance of the placements of events and non-events (DeLong et al. 1988)."""
    psi = (p[o == 1][:, None] > p[o == 0]) + 0.5 * (p[o == 1][:, None] == p[o == 0])
    of_events, of_others = psi.mean(1), psi.mean(0)
    return np.sqrt(of_events.var(ddof=1) / of_events.size + of_others.var(ddof=1) / of_others.size)


@pytest.mark.parametrize("seed", range(4))
def test_the_error_of_the_area_is_that_of_delong(seed):
    p, o = drawn(np.random.default_rng(seed), 150)
    roc = roc_curve(event_sums(p, o, dim="all", members=5))
    assert float(roc["area_standard_error"]) == pytest.approx(delong(p, o), rel=1e-9)
    halves = [
        event_sums(a, b, dim="all", members=5) for a, b in ((p[:60], o[:60]), (p[60:], o[60:]))
    ]
    merged = roc_curve(merge_states(halves))["area_standard_error"]
    assert float(merged) == pytest.approx(delong(p, o), rel=1e-9)


def test_equal_weights_do_not_matter_and_degenerate_samples():
    p, o = drawn(np.random.default_rng(5), 80)
    one, three = (
        event_sums(p, o, dim="all", members=5, weights=np.full(80, w)) for w in (1.0, 3.0)
    )
    for function in (roc_curve, lambda s: brier_decomposition(s, standard_errors=True)):
        xr.testing.assert_allclose(function(one), function(three))
    never = event_sums(p, 0 * o, dim="all", members=5)
    assert np.isnan(roc_curve(never)["area_standard_error"])
    assert (
        float(brier_decomposition(never, standard_errors=True)["uncertainty_standard_error"]) == 0
    )
    missing = event_sums(p, np.where(o == 1, np.nan, o), dim="all", members=5)
    found = brier_decomposition(missing, standard_errors=True)
    assert found.to_dataarray().isnull().all()


def test_probabilities_on_edges_of_bins():
    """Ours belong to the bin above, those of R's `cut` to the bin below: 10 members, 10 bins."""
    rng = np.random.default_rng(6)
    p, o = drawn(rng, 2000, members=10)
    bins = brier_decomposition(event_sums(p, o, dim="all", bins=10))
    shares = brier_decomposition(event_sums(p, o, dim="all", members=10))
    below = brier_decomposition(event_sums(np.maximum(p - 1e-9, 0), o, dim="all", bins=10))
    assert float(bins["brier"]) == pytest.approx(float(below["brier"]), abs=1e-8)
    for found, merged in ((bins, (0.9, 1.0)), (below, (0.0, 0.1))):
        lost = p[np.isin(p, merged)], o[np.isin(p, merged)]
        rates = [lost[1][lost[0] == q].mean() for q in merged]
        counts = [(lost[0] == q).sum() for q in merged]
        mean = np.average(rates, weights=counts)
        scatter = sum(c * (r - mean) ** 2 for c, r in zip(counts, rates, strict=True)) / p.size
        difference = float(shares["resolution"] - found["resolution"])
        assert difference == pytest.approx(scatter, abs=1e-8)
    assert abs(float(bins["resolution"] - below["resolution"])) < 1e-3
