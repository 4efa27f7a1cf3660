"""Scores of the mean, the median and the spread, and the binned relation of spread and error."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.calibration import (
    bias,
    ensemble_error,
    ensemble_variance,
    mae,
    mae_median,
    rmse,
    spread_bin_sums,
    spread_edges,
    spread_error_by_bins,
    spread_error_ensemble,
    spread_error_ratio,
    spread_inflation,
)

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(4, 6, 5)) * 3, RNG.normal(size=(4, 5))
MEAN, VARIANCE = X.mean(axis=1), X.var(axis=1, ddof=1)
W = np.arange(1, 6.0)


def kinds(*arrays):
    yield "numpy", arrays
    yield "torch", [torch.tensor(a) for a in arrays]
    yield "dask", [da.from_array(a, chunks=(2, -1, 2) if a.ndim == 3 else 2) for a in arrays]
    dims = ("dim_0", "number", "dim_1")
    yield "xarray", [xr.DataArray(a, dims=dims if a.ndim == 3 else dims[::2]) for a in arrays]


def weighted(values):
    return np.average(values, weights=np.broadcast_to(W, values.shape))


def test_scores_of_points_in_every_library():
    for kind, (x, y) in kinds(MEAN, Y):
        w = {"numpy": W, "torch": torch.tensor(W), "dask": W}.get(
            kind, xr.DataArray(W, dims="dim_1")
        )
        options = {"dim": "all", "weights": w}
        assert float(bias(x, y, **options)) == pytest.approx(weighted(MEAN - Y))
        assert float(mae(x, y, **options)) == pytest.approx(weighted(abs(MEAN - Y)))
        assert float(rmse(x, y, weights=w)) == pytest.approx(weighted((MEAN - Y) ** 2) ** 0.5)
        np.testing.assert_allclose(rmse(x, y, dim=None), abs(MEAN - Y))
        np.testing.assert_allclose(bias(x, y), MEAN - Y)
        if kind in ("dask", "xarray"):
            assert type(rmse(x, y)) is type(x)


def test_moments_of_ensembles_in_every_library():
    for kind, (x, y) in kinds(X, Y):
        axis = "number" if kind == "xarray" else 1
        np.testing.assert_allclose(ensemble_error(x, y, member_dim=axis), MEAN - Y, atol=1e-14)
        np.testing.assert_allclose(ensemble_variance(x, member_dim=axis), VARIANCE, rtol=1e-13)
        wanted = abs(np.median(X, axis=1) - Y)
        np.testing.assert_allclose(mae_median(x, y, member_dim=axis), wanted, atol=1e-14)
        found = spread_error_ensemble(x, y, member_dim=axis)
        wanted = (7 / 6 * VARIANCE.mean() / ((MEAN - Y) ** 2).mean()) ** 0.5
        assert float(found) == pytest.approx(wanted, rel=1e-13)


def test_moments_of_the_members_that_are_there():
    x = X.copy()
    x[RNG.random(x.shape) < 0.4] = np.nan
    x[0, :, 0], x[1, :, 1], x[1, 3, 1] = np.nan, np.nan, 1.0
    few = (~np.isnan(x)).sum(axis=1)
    with np.errstate(all="ignore"):
        where = few < 2
        variance = np.where(where, np.nan, np.nanvar(np.where(where[:, None], 0, x), 1, ddof=1))
        middle = np.nanmedian(np.where((few == 0)[:, None], 0, x), axis=1)
    middle = np.where(few == 0, np.nan, middle)
    errors = np.nansum(x, axis=1) / np.where(few == 0, np.nan, few) - Y
    both = variance * (few + 1) / np.maximum(few, 1), np.where(where, np.nan, errors)
    ratio = (np.nanmean(both[0]) / np.nanmean(both[1] ** 2)) ** 0.5
    options = {"nan": "skip-members"}
    for kind, (given, y) in kinds(x, Y):
        options["member_dim"] = "number" if kind == "xarray" else 1
        found = ensemble_variance(given, **options)
        np.testing.assert_allclose(found, variance, rtol=1e-12)
        np.testing.assert_allclose(mae_median(given, y, **options), abs(middle - Y), rtol=1e-12)
        np.testing.assert_allclose(ensemble_error(given, y, **options), errors, rtol=1e-12)
        found = spread_error_ensemble(given, y, **options)
        assert float(found) == pytest.approx(ratio, rel=1e-12)


def test_spread_matches_error_of_exchangeable_members():
    M = 4
    x = np.random.default_rng(5).normal(size=(M + 1, 400_000)) * 3
    mean, variance = x[:M].mean(axis=0), x[:M].var(axis=0, ddof=1)
    ratio = spread_error_ratio(mean, variance, x[M], members=M)
    assert ratio == pytest.approx(1.0, abs=0.01)
    assert spread_error_ensemble(x[:M], x[M], member_dim=0) == pytest.approx(ratio)
    without = spread_error_ratio(mean, variance, x[M])
    assert ratio / without == pytest.approx((5 / 4) ** 0.5)


def test_ratio_leaves_out_what_either_misses():
    mean, variance, y = MEAN.copy(), VARIANCE.copy(), Y.copy()
    mean[0, 0] = variance[1, 1] = y[2, 2] = np.nan
    assert np.isnan(spread_error_ratio(mean, variance, y))
    there = ~np.isnan(mean + variance + y)
    wanted = (variance[there].mean() / ((mean - y)[there] ** 2).mean()) ** 0.5
    for _, given in kinds(mean, variance, y):
        assert float(spread_error_ratio(*given, nan="omit")) == pytest.approx(wanted)


@pytest.mark.parametrize("level", [5e4, 1e5])
def test_moments_in_float32(level):
    rng = np.random.default_rng(1)
    x = (level + 5 * rng.normal(size=(10, 3000))).astype(np.float32)
    y = (level + 5 * rng.normal(size=3000)).astype(np.float32)
    wide = x.astype(float)
    for kind in (np.asarray, torch.tensor):
        variance = np.asarray(ensemble_variance(kind(x), member_dim=0))
        assert variance.dtype == np.float32
        np.testing.assert_allclose(variance, wide.var(axis=0, ddof=1), atol=1e-6 * 25)
        error = ensemble_error(kind(x), kind(y), member_dim=0)
        np.testing.assert_allclose(error, wide.mean(axis=0) - y, atol=1e-6 * 5)
        error = mae_median(kind(x), kind(y), member_dim=0)
        np.testing.assert_allclose(error, abs(np.median(wide, axis=0) - y), atol=1e-6 * 5)


def test_gradients():
    x, y = torch.tensor(X, requires_grad=True), torch.tensor(Y, requires_grad=True)
    check = torch.autograd.gradcheck
    assert check(lambda a, b: mae_median(a, b, member_dim=1), (x, y))
    assert check(lambda a, b: spread_error_ensemble(a, b, member_dim=1), (x, y))
    holes = torch.tensor(np.where(RNG.random(X.shape) < 0.2, np.nan, X), requires_grad=True)
    spread_error_ensemble(holes, y, member_dim=1, nan="skip-members").backward()
    assert bool(holes.grad.isfinite().all())
    mean, variance = (torch.tensor(a, requires_grad=True) for a in (MEAN, VARIANCE))
    assert check(lambda *a: spread_error_ratio(*a, members=6), (mean, variance, y))


def test_labels():
    x, y = (
        xr.DataArray(a, dims=("time", "number", "x")[:: 4 - a.ndim], attrs={"units": "K"})
        for a in (X, Y)
    )
    assert ensemble_variance(x, member_dim="number").attrs["units"] == "(K)2"
    assert rmse(x.mean("number", keep_attrs=True), y).attrs["units"] == "K"
    found = spread_error_ensemble(x.chunk(time=1), y, member_dim="number", dim="time")
    assert found.name == "spread_error"
    assert found.attrs["units"] == "1"
    assert dask.is_dask_collection(found)


def test_binned_spread_and_error():
    sums = spread_bin_sums(MEAN, VARIANCE, Y, edges=[2.5, 3.0], members=6, weights=W)
    found, spread = spread_error_by_bins(sums), VARIANCE**0.5
    inside = [spread < 2.5, (spread >= 2.5) & (spread < 3), spread >= 3]
    wide = np.broadcast_to(W, Y.shape)
    for i, here in enumerate(inside):
        variance = np.average(VARIANCE[here], weights=wide[here]) * 7 / 6
        error2 = np.average(((MEAN - Y) ** 2)[here], weights=wide[here])
        assert float(found["spread"][i]) == pytest.approx(variance**0.5)
        assert float(found["rmse"][i]) == pytest.approx(error2**0.5)
        assert float(found["ratio"][i]) == pytest.approx((variance / error2) ** 0.5)
        assert int(found["points"][i]) == here.sum()
    assert found["lower"].values.tolist() == [0, 2.5, 3]
    assert found["upper"].values.tolist() == [2.5, 3, np.inf]


def test_bins_add_over_blocks_and_libraries():
    edges = spread_edges(VARIANCE, 4)
    assert np.histogram(VARIANCE**0.5, [0, *edges, 99])[0].tolist() == [5, 5, 5, 5]
    y = Y.copy()
    y[1, 2] = np.nan
    options = {"edges": edges, "members": 6, "nan": "omit"}
    whole = spread_bin_sums(MEAN, VARIANCE, y, **options)
    assert int(whole["count"]) == 19
    assert int(whole["missing"]) == 1
    halves = [spread_bin_sums(MEAN[i], VARIANCE[i], y[i], **options) for i in ([0, 3], [1, 2])]
    xr.testing.assert_allclose(halves[0] + halves[1], whole)
    for _, given in kinds(MEAN, VARIANCE, y):
        xr.testing.assert_allclose(spread_bin_sums(*given, **options).compute(), whole)
    by_row = spread_bin_sums(MEAN, VARIANCE, y, **options, dim=1)
    xr.testing.assert_allclose(by_row.sum("dim_0"), whole)
    assert np.isnan(spread_bin_sums(MEAN, VARIANCE, y, edges=edges)["weight"]).all()


def test_larger_spreads_go_with_larger_errors():
    rng = np.random.default_rng(2)
    sigma = rng.gamma(4, 1, 200_000)
    variance, y = sigma**2, sigma * rng.normal(size=sigma.size)
    sums = spread_bin_sums(np.zeros_like(y), variance, y, edges=spread_edges(variance, 10))
    np.testing.assert_allclose(spread_error_by_bins(sums)["ratio"], 1, atol=0.03)


def test_what_they_refuse():
    for members in (1, 0):
        with pytest.raises(ArgumentError, match="members: a spread needs two or more"):
            spread_inflation(members)
    for kind in (np.asarray, torch.tensor):
        with pytest.raises(ArgumentError, match="members: a variance needs two or more, got 1"):
            spread_error_ensemble(kind(X[:, :1]), kind(Y), member_dim=1)
    for function in (mae_median, ensemble_error, spread_error_ensemble):
        with pytest.raises(ArgumentError, match="y: shapes that do not fit"):
            function(X, X, member_dim=1)
        with pytest.raises(UnknownNameError, match="nan: 'skip' is not known"):
            function(X, Y, member_dim=1, dim="all", nan="skip")
    with pytest.raises(ArgumentError, match="edges: they are not finite, or do not rise"):
        spread_bin_sums(MEAN, VARIANCE, Y, edges=[2, 1])
    with pytest.raises(ArgumentError, match="variance: some are negative"):
        spread_bin_sums(MEAN, -VARIANCE, Y, edges=[2])
    with pytest.raises(ArgumentError, match="weights: some are negative"):
        spread_bin_sums(MEAN, VARIANCE, Y, edges=[2], weights=-W)
    with pytest.raises(ArgumentError, match="sums: variables missing: weight"):
        spread_error_by_bins(xr.Dataset())
    with pytest.raises(ArgumentError, match="bins: expected two or more"):
        spread_edges(VARIANCE, 1)
    with pytest.raises(ArgumentError, match="variance: it has no values"):
        spread_edges(VARIANCE * np.nan)
