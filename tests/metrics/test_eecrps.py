"""The CRPS weighted by a frozen EFI: values, states, libraries; and why it must be frozen."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import crps_ensemble, crps_normal, merge_states
from ens10.metrics.extremes import (
    FrozenEFI,
    eecrps,
    eecrps_state,
    efi,
    finish_eecrps,
    frozen_efi,
    origin,
)

LEVELS = np.linspace(0, 1, 101)
AXES = {"member_dim": 0, "quantile_dim": 0, "levels": LEVELS}
EMOS = origin("emos")


def case(seed=0, shape=(4, 5), M=10):
    rng = np.random.default_rng(seed)
    raw = rng.normal(size=(M, *shape)) + rng.normal(size=shape)
    climate = np.sort(1.5 * rng.normal(size=(101, *shape)), axis=0)
    return raw, climate, rng.gamma(2, size=shape)


def labelled(seed=0, shape=(4, 5)):
    raw, climate, scores = case(seed, shape)
    coords = {"time": np.arange(shape[0]), "latitude": np.arange(shape[1]) * 1.0}
    dims = ("time", "latitude")
    units = {"units": "K"}
    x = xr.DataArray(raw, dims=("number", *dims), coords=coords, attrs=units)
    q = xr.DataArray(climate, dims=("quantile", *dims), coords={**coords, "quantile": LEVELS})
    return x, q.assign_attrs(units), xr.DataArray(scores, dims=dims, coords=coords, attrs=units)


def frozen(x, q, source="raw", **options):
    return frozen_efi(x, q, source=source, member_dim="number", quantile_dim="quantile", **options)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 999), method=st.sampled_from(["exact", "ecmwf"]))
def test_both_normalisations(seed, method):
    raw, climate, scores = case(seed)
    index = efi(raw, climate, method=method, **AXES)
    w = np.random.default_rng(seed).random(5)
    top, below = (w * np.abs(index) * scores).sum(), (w * np.abs(index)).sum()
    made = frozen_efi(raw, climate, source="raw", method=method, **AXES)
    tensors = torch.tensor(raw), torch.tensor(climate)
    on_torch = frozen_efi(*tensors, source="raw", method=method, **AXES)
    for one, held, ours in (
        (scores, made, w),
        (torch.tensor(scores), on_torch, torch.tensor(w)),
        (da.from_array(scores, chunks=2), made.map(da.asarray), w),
    ):
        call = {"forecast": EMOS, "dim": "all", "weights": ours}
        got = eecrps(one, held, **call)
        np.testing.assert_allclose(np.asarray(got), top / (4 * w.sum()), rtol=1e-13)
        got = eecrps(one, held, normalisation="weighted", **call)
        np.testing.assert_allclose(np.asarray(got), top / below, rtol=1e-13)
        got = eecrps(one, held, forecast=EMOS)
        np.testing.assert_allclose(np.asarray(got), np.abs(index) * scores, atol=1e-13)


def test_toy_values():
    made = FrozenEFI(np.array([-1.0, 0.5, 0.0]), origin("raw"), "exact")
    scores = np.array([1.0, 4.0, 9.0])
    assert eecrps(scores, made, forecast=EMOS, dim="all") == pytest.approx(3 / 3)
    call = {"forecast": EMOS, "dim": "all", "normalisation": "weighted"}
    assert eecrps(scores, made, **call) == pytest.approx(3 / 1.5)
    assert eecrps(scores, made, weights=np.array([0, 2.0, 1]), **call) == pytest.approx(4)
    assert np.isnan(eecrps(scores, made, weights=np.array([0, 0, 1.0]), **call))


def test_lazily_and_through_a_file(tmp_path):
    x, q, scores = labelled()
    lazy = frozen(x.chunk({"time": 2}), q.chunk({"time": 2}))
    assert dask.is_dask_collection(lazy.values)
    got = eecrps(scores.chunk({"time": 2}), lazy, forecast=EMOS, dim="all")
    assert dask.is_dask_collection(got)
    assert got.attrs["units"] == "K"
    made = frozen(x, q)
    made.to_dataarray().to_netcdf(tmp_path / "efi.nc")
    with xr.open_dataarray(tmp_path / "efi.nc") as held:
        read = FrozenEFI.from_dataarray(held.load())
    assert (read.origin, read.method) == (made.origin, "exact")
    wanted = eecrps(scores, read, forecast=EMOS, dim="all")
    np.testing.assert_allclose(got, wanted, rtol=1e-14)
    with pytest.raises(ArgumentError, match="it was made from 'raw', the forecast that is scored"):
        eecrps(scores, read, forecast=origin("emos", x), dim="all")
    with pytest.raises(ArgumentError, match="no attribute source, method, origin"):
        FrozenEFI.from_dataarray(scores)
    with pytest.raises(ArgumentError, match="raw_efi: it has no labels"):
        made.map(np.asarray).to_dataarray()


@pytest.mark.parametrize("nan", ["omit", "propagate"])
def test_states_of_blocks_merge(nan):
    x, q, scores = labelled(3, (6, 5))
    scores = scores.where(scores < scores.max()) if nan == "omit" else scores
    weights = xr.DataArray(np.arange(1.0, 6), dims="latitude", coords=scores[0].coords).drop_vars(
        "time"
    )
    made, call = frozen(x, q), {"forecast": EMOS, "weights": weights, "nan": nan}
    blocks = [
        eecrps_state(scores[t], made.map(lambda e, t=t: e[t]), keep=("time",), **call)
        for t in (slice(0, 2), slice(2, 6))
    ]
    state = merge_states(blocks).sum("time", keep_attrs=True)
    assert state.attrs == {"efi_source": "raw", "efi_method": "exact"}
    assert state["eecrps_count"] == scores.notnull().sum()
    for normalisation in ("mean", "weighted"):
        got = finish_eecrps(state, normalisation)
        wanted = eecrps(scores, made, dim="all", normalisation=normalisation, **call)
        assert float(got) == pytest.approx(float(wanted), rel=1e-13)
        assert got.attrs["units"] == "K"
    plain = {"forecast": EMOS, "nan": nan}
    arrays = eecrps_state(scores.to_numpy(), made.map(np.asarray), **plain)
    assert float(finish_eecrps(arrays)) == pytest.approx(
        float(eecrps(scores, made, dim="all", **plain)), rel=1e-13
    )
    other = eecrps_state(scores, frozen(x, q, "other"), **call)
    with pytest.raises(ArgumentError, match="different settings"):
        merge_states([eecrps_state(scores, made, **call), other])
    with pytest.raises(UnknownNameError, match="normalisation: 'weigthed' is not known"):
        finish_eecrps(state, "weigthed")


def test_missing_points():
    raw, climate, scores = case(4, (6,))
    raw[0, 1], scores[2] = np.nan, np.nan
    made = frozen_efi(raw, climate, source="raw", **AXES)
    index, there = np.abs(np.asarray(made.values)), [0, 3, 4, 5]
    for normalisation, below in (("mean", 4), ("weighted", index[there].sum())):
        call = {"forecast": EMOS, "dim": "all", "normalisation": normalisation}
        got = eecrps(scores, made, nan="omit", **call)
        assert got == pytest.approx((index * scores)[there].sum() / below)
        assert np.isnan(eecrps(scores, made, **call))


@pytest.mark.parametrize("normalisation", ["mean", "weighted"])
def test_trained_with(normalisation):
    raw, climate, _ = (torch.tensor(a) for a in case(5))
    raw.requires_grad_()
    made = frozen_efi(raw, climate, source="raw", **AXES)
    assert not made.values.requires_grad
    assert not made.map(lambda e: e * raw[0]).values.requires_grad
    frozen_efi(raw, climate, source="raw", method="ecmwf", **AXES)  # whose index has no gradient
    mu, sigma, y = raw.detach()[:3]
    parameters = mu.clone().requires_grad_(), sigma.abs().add(0.1).requires_grad_()

    def loss(mu, sigma):
        scores = crps_normal(mu, sigma, y)
        return eecrps(scores, made, forecast=EMOS, dim="all", normalisation=normalisation)

    assert torch.autograd.gradcheck(loss, parameters)
    loss(*parameters).backward()
    assert raw.grad is None


def best(scores_of, candidates):
    return min(candidates, key=lambda c: float(scores_of(c)))


def test_why_it_is_frozen():
    rng = np.random.default_rng(6)
    n, climate = 4000, LEVELS
    q = np.quantile(rng.normal(0, 1.25, 10**5), climate)[:, None]
    signal = rng.normal(size=n)
    y = signal + 0.75 * rng.normal(size=n)
    noise = rng.normal(size=(10, n))
    raw = signal + 0.3 + 0.5 * rng.normal(size=(10, n))  # biased, too narrow
    made = frozen_efi(raw, q, source="raw", **AXES)

    def forecast(candidate):
        shrunk, spread = candidate
        return shrunk * signal + spread * noise

    def proper(candidate, normalisation="mean"):
        x = forecast(candidate)
        scores = crps_ensemble(x, y, estimator="fair", member_dim=0)
        call = {"forecast": origin("candidate", x), "dim": "all", "normalisation": normalisation}
        return eecrps(scores, made, **call)

    def improper(candidate):
        x = forecast(candidate)
        scores = crps_ensemble(x, y, estimator="fair", member_dim=0)
        return np.mean(np.abs(efi(x, q, **AXES)) * scores)

    shrinkage = [(a, 0.75) for a in (0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25)]
    spreads = [(1.0, s) for s in (0.4, 0.55, 0.75, 1.0, 1.4)]
    for candidates in (shrinkage, spreads):
        for normalisation in ("mean", "weighted"):
            assert best(lambda c, n=normalisation: proper(c, n), candidates) == (1.0, 0.75)
    assert best(improper, shrinkage)[0] <= 0.8  # towards the climate
    own = frozen_efi(forecast((1.0, 0.75)), q, source="mine", **AXES)
    scores = crps_ensemble(forecast((1.0, 0.75)), y, estimator="fair", member_dim=0)
    with pytest.raises(ArgumentError, match="which is improper"):
        eecrps(scores, own, forecast=origin("emos", forecast((1.0, 0.75))), dim="all")
