"""The CRPS with weights of levels (Gneiting and Ranjan 2011), against quadrature."""

from itertools import pairwise

import numpy as np
import pytest
import torch
import xarray as xr
from scipy.integrate import quad

from ens10.errors import UnknownNameError
from ens10.metrics import crps_ensemble, crps_quantiles, quantile_score, qwcrps_ensemble

WEIGHTS = {
    "centre": lambda p: p * (1 - p),
    "tails": lambda p: (2 * p - 1) ** 2,
    "left": lambda p: (1 - p) ** 2,
    "right": lambda p: p**2,
}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(7, 5)), RNG.normal(size=7)
LEVELS = [0.1, 0.25, 0.5, 0.8]
Q = np.sort(RNG.normal(size=(7, 4)), axis=1)


def integral(quantile, y, weight, breaks):
    """2 int (1{y < q} - p) (q - y) v dp by quadrature between breaks."""

    def part(p):
        gap = quantile(p) - y
        return 2 * ((gap > 0) - p) * gap * weight(p)

    ends = [0.0, *breaks, 1.0]
    return sum(quad(part, *e, limit=400)[0] for e in pairwise(ends))


@pytest.mark.parametrize("emphasis", WEIGHTS)
def test_ensembles_are_scored_by_the_integral(emphasis):
    got = qwcrps_ensemble(X, Y, emphasis=emphasis, member_dim=1)
    for row, y, score in zip(np.sort(X, axis=1), Y, got, strict=True):
        step = lambda p, row=row: row[min(int(p * 5), 4)]  # noqa: E731
        wanted = integral(step, y, WEIGHTS[emphasis], [0.2, 0.4, 0.6, 0.8])
        assert score == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("emphasis", WEIGHTS)
def test_quantiles_are_scored_by_the_integral_or_the_mean(emphasis):
    weight = WEIGHTS[emphasis]
    options = {"levels": LEVELS, "quantile_dim": 1, "emphasis": emphasis}
    got = crps_quantiles(Q, Y, **options, rule="linear")
    for q, y, score in zip(Q, Y, got, strict=True):
        line = lambda p, q=q: np.interp(p, LEVELS, q)  # noqa: E731
        crossing = [float(np.interp(y, q, LEVELS))] if q[0] < y < q[-1] else []
        wanted = integral(line, y, weight, sorted([*LEVELS, *crossing]))
        assert score == pytest.approx(wanted, rel=1e-8)
    scores = quantile_score(Q, Y, levels=LEVELS, quantile_dim=1)
    wanted = 2 * (scores * weight(np.array(LEVELS))).mean(axis=1)
    np.testing.assert_allclose(crps_quantiles(Q, Y, **options, rule="mean"), wanted, rtol=1e-12)


def test_the_weights_add_up_to_the_crps():
    """(1 - p)^2 + p^2 + 2 p (1 - p) is 1, and tails are 1 - 4 p (1 - p)."""
    scores = {k: qwcrps_ensemble(X, Y, emphasis=k, member_dim=1) for k in WEIGHTS}
    plain = crps_ensemble(X, Y, estimator="plain", member_dim=1)
    np.testing.assert_allclose(scores["left"] + scores["right"] + 2 * scores["centre"], plain)
    np.testing.assert_allclose(scores["tails"] + 4 * scores["centre"], plain)
    options = {"levels": LEVELS, "quantile_dim": 1, "rule": "linear"}
    scores = {k: crps_quantiles(Q, Y, **options, emphasis=k) for k in WEIGHTS}
    np.testing.assert_allclose(
        scores["left"] + scores["right"] + 2 * scores["centre"], crps_quantiles(Q, Y, **options)
    )


def test_crossing_equal_and_missing_quantiles():
    q = np.array([[2.0, 1.0, 1.0, 3.0], [1.0, np.nan, 2.0, 3.0]])
    options = {"levels": LEVELS, "quantile_dim": 1, "rule": "linear", "emphasis": "right"}
    got = crps_quantiles(q, np.array([1.5, 0.0]), **options)
    line = lambda p: np.interp(p, LEVELS, q[0])  # noqa: E731
    breaks = sorted([*LEVELS, 0.175, 0.575])
    assert got[0] == pytest.approx(integral(line, 1.5, WEIGHTS["right"], breaks), rel=1e-8)
    assert np.isnan(got[1])
    assert np.isnan(qwcrps_ensemble(q[1], 0.0, emphasis="left", member_dim=0))


def test_in_every_library_with_gradients():
    wanted = qwcrps_ensemble(X, Y, emphasis="tails", member_dim=1)
    named = xr.DataArray(X, dims=("n", "m"), attrs={"units": "K"}).chunk(n=3)
    lazy = qwcrps_ensemble(named, xr.DataArray(Y, dims="n"), emphasis="tails", member_dim="m")
    np.testing.assert_array_equal(lazy, wanted)
    assert lazy.attrs["units"] == "K"
    single = qwcrps_ensemble(np.float32(X), np.float32(Y), emphasis="tails", member_dim=1)
    assert single.dtype == np.float32
    x, q, y = (torch.tensor(a, requires_grad=True) for a in (X, Q, Y))
    np.testing.assert_allclose(
        qwcrps_ensemble(x, y, emphasis="tails", member_dim=1).detach(), wanted, rtol=1e-12
    )
    call = lambda x, y: qwcrps_ensemble(x, y, emphasis="left", member_dim=1)  # noqa: E731
    assert torch.autograd.gradcheck(call, (x, y))
    options = {"levels": LEVELS, "quantile_dim": 1, "rule": "linear", "emphasis": "right"}
    assert torch.autograd.gradcheck(lambda q, y: crps_quantiles(q, y, **options), (q, y))


def test_an_unknown_emphasis():
    with pytest.raises(UnknownNameError, match="emphasis"):
        qwcrps_ensemble(X, Y, emphasis="center", member_dim=1)
    with pytest.raises(UnknownNameError, match="emphasis"):
        crps_quantiles(Q, Y, levels=LEVELS, quantile_dim=1, rule="mean", emphasis="both")
