"""Reliability, resolution and uncertainty of the quantile score."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import norm

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.calibration import (
    quantile_score,
    quantile_score_decomposition,
    quantile_score_sums,
)

RNG = np.random.default_rng(0)
LEVELS = (0.1, 0.5, 0.8)
Q, Y = np.sort(RNG.normal(size=(6, 3, 5)), axis=1), RNG.normal(size=(6, 5))
EDGES = np.linspace(-2, 2, 17)
OPTIONS = {"levels": LEVELS, "quantile_dim": 1, "edges": EDGES}


def test_parts_by_search():
    w = np.arange(1.0, 6)
    found = quantile_score_decomposition(quantile_score_sums(Q, Y, **OPTIONS, weights=w))
    wide, y = np.broadcast_to(w, Y.shape).ravel(), Y.ravel()
    for i, p in enumerate(LEVELS):

        def total(c, here, p=p):
            d = y[here] - c
            return (wide[here] * np.maximum(p * d, (p - 1) * d)).sum()

        q = Q[:, i].ravel()
        score, bins = total(q, slice(None)) / wide.sum(), np.digitize(q, EDGES)
        best = sum(min(total(e, bins == b) for e in EDGES) for b in set(bins)) / wide.sum()
        uncertainty = min(total(e, slice(None)) for e in EDGES) / wide.sum()
        part = found.isel(quantile=i)
        assert float(part["quantile_score"]) == pytest.approx(score, rel=1e-12)
        assert float(part["reliability"]) == pytest.approx(score - best, rel=1e-11)
        assert float(part["resolution"]) == pytest.approx(uncertainty - best, rel=1e-11)
        assert float(part["uncertainty"]) == pytest.approx(uncertainty, rel=1e-12)
        for b in range(len(EDGES) + 1):
            chosen = float(part["conditional_quantile"][b])
            assert np.isnan(chosen) == (b not in bins)
            if b in bins:
                least = min(total(e, bins == b) for e in EDGES)
                assert total(chosen, bins == b) == pytest.approx(least, abs=1e-12)
    both = found["reliability"] - found["resolution"] + found["uncertainty"]
    np.testing.assert_allclose(both, found["quantile_score"], atol=1e-14)
    wanted = quantile_score(Q, Y, levels=LEVELS, quantile_dim=1, dim="all", weights=w)
    np.testing.assert_allclose(found["quantile_score"], wanted, rtol=1e-12)


def test_true_and_wrong_forecasts():
    rng = np.random.default_rng(1)
    centre, level = rng.normal(size=200_000), np.array([0.2, 0.9])
    y = 5e4 + centre + rng.normal(size=centre.size)
    q = 5e4 + centre + norm.ppf(level)[:, None]
    options = {"levels": level, "quantile_dim": 0, "edges": 5e4 + np.linspace(-6, 6, 97)}

    def parts(values):
        return quantile_score_decomposition(quantile_score_sums(values, y, **options))

    true, shifted, climate = parts(q), parts(q + 0.5), parts(np.mean(q, axis=1)[:, None] + 0 * y)
    # of the standard normal: p quantile score of the best constant is phi(z) sd
    np.testing.assert_allclose(true["uncertainty"], 2**0.5 * norm.pdf(norm.ppf(level)), rtol=0.01)
    np.testing.assert_allclose(true["quantile_score"], norm.pdf(norm.ppf(level)), rtol=0.01)
    assert (abs(true["reliability"]) < 2e-3).all()
    assert (shifted["reliability"] > 0.015).all()
    np.testing.assert_allclose(shifted["resolution"], true["resolution"], rtol=0.03)
    np.testing.assert_allclose(climate["resolution"], 0, atol=1e-9)


def test_sums_of_blocks_add_and_keep_dimensions():
    y = Y.copy()
    y[3, 2] = np.nan
    whole = quantile_score_sums(Q, y, **OPTIONS, nan="omit")
    parts = [quantile_score_sums(Q[i], y[i], **OPTIONS, nan="omit") for i in ([0, 3], [1, 2, 4, 5])]
    xr.testing.assert_allclose(parts[0] + parts[1], whole)
    assert whole["missing"].values.tolist() == [1, 1, 1]
    rows = quantile_score_sums(Q, y, **OPTIONS, nan="omit", dim=1)
    xr.testing.assert_allclose(rows.sum("dim_0"), whole)
    spoilt = quantile_score_decomposition(quantile_score_sums(Q, y, **OPTIONS, dim=1))
    assert np.isnan(spoilt["reliability"]).any("quantile").values.tolist() == [0, 0, 0, 1, 0, 0]
    assert np.isnan(spoilt["conditional_quantile"]).all("forecast_bin").isel(dim_0=3).all()


@pytest.mark.parametrize("kind", ["torch", "dask", "xarray"])
def test_in_every_library(kind):
    wanted, options = quantile_score_sums(Q, Y, **OPTIONS), OPTIONS
    if kind == "torch":
        q, y = torch.tensor(Q), torch.tensor(Y)
    elif kind == "dask":
        q, y = da.from_array(Q, chunks=(4, 2, 3)), da.from_array(Y, chunks=2)
    else:
        q = xr.DataArray(Q, dims=("dim_0", "p", "dim_1")).chunk(dim_0=2)
        y, options = xr.DataArray(Y, dims=("dim_0", "dim_1")), OPTIONS | {"quantile_dim": "p"}
    found = quantile_score_sums(q, y, **options)
    assert dask.is_dask_collection(found) == (kind != "torch")
    finished = quantile_score_decomposition(found)
    assert dask.is_dask_collection(finished) == (kind != "torch")
    xr.testing.assert_allclose(found.compute(), wanted)
    xr.testing.assert_allclose(finished.compute(), quantile_score_decomposition(wanted))


def test_what_they_refuse():
    with pytest.raises(ArgumentError, match="levels: they do not rise"):
        quantile_score_sums(Q, Y, **OPTIONS | {"levels": (0.5, 0.1, 0.8)})
    with pytest.raises(ArgumentError, match="edges: they are not finite, or do not rise"):
        quantile_score_sums(Q, Y, **OPTIONS | {"edges": [1, 1]})
    with pytest.raises(ArgumentError, match="y: shapes that do not fit"):
        quantile_score_sums(Q, Q, **OPTIONS)
    with pytest.raises(UnknownNameError, match="nan: 'drop' is not known"):
        quantile_score_sums(Q, Y, **OPTIONS, nan="drop")
    with pytest.raises(ArgumentError, match="sums: variables missing: observed_weight"):
        quantile_score_decomposition(xr.Dataset())


def test_forecast_bins_and_constants_are_two_arguments():
    """Exact constants are quantiles of the observations; ten bins of the forecasts."""
    rng = np.random.default_rng(4)
    centre = rng.normal(size=600)
    y, q = centre + rng.normal(size=600), 0.8 * centre + 0.6
    p, edges = 0.75, np.quantile(q, np.arange(1, 10) / 10)
    options = {"levels": [p], "quantile_dim": 0, "edges": edges, "constants": np.unique(y)}
    sums = quantile_score_sums(q[None], y, **options)
    assert sums["observed_weight"].sizes == {
        "quantile": 1, "forecast_bin": 10, "observed_bin": 601,
    }  # fmt: skip
    found = quantile_score_decomposition(sums).isel(quantile=0)

    def best(values):
        constant = np.quantile(values, p, method="inverted_cdf")
        return np.maximum(p * (values - constant), (p - 1) * (values - constant)).sum(), constant

    groups = [y[np.digitize(q, edges) == k] for k in range(10)]
    of_bins = sum(best(group)[0] for group in groups) / y.size
    uncertainty = best(y)[0] / y.size
    score = np.maximum(p * (y - q), (p - 1) * (y - q)).mean()
    assert float(found["uncertainty"]) == pytest.approx(uncertainty, rel=1e-12)
    assert float(found["resolution"]) == pytest.approx(uncertainty - of_bins, rel=1e-11)
    assert float(found["reliability"]) == pytest.approx(score - of_bins, rel=1e-11)
    found_constants = [best(group)[1] for group in groups]
    np.testing.assert_allclose(found["conditional_quantile"], found_constants, rtol=0.02, atol=0.02)
    coarse = quantile_score_decomposition(
        quantile_score_sums(q[None], y, **options | {"constants": None})
    )
    assert float(coarse["uncertainty"][0]) > uncertainty  # the edges are not exact
    with pytest.raises(ArgumentError, match="constants: they are not finite, or do not rise"):
        quantile_score_sums(q[None], y, **options | {"constants": [1.0, 1.0]})
