"""The CRPS of zonal waves, held to its definition, to single waves and to symmetries."""

import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights
from ens10.metrics.multivariate import spectral_crps
from ens10.metrics.multivariate.spectral import _weights

CALL = {"member_dim": 1, "longitude_dim": 2}


def case(seed, shape=(5, 6, 8)):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape), rng.normal(size=shape[:1] + shape[2:])


def defined(x, y, factor, w=1.0):
    """Of (rows, members, longitudes): all W coefficients, by a sum over the columns."""
    W, M = x.shape[-1], x.shape[1]
    angle = 2 * np.pi * np.outer(np.arange(W), np.arange(W)) / W
    base = (np.cos(angle) - 1j * np.sin(angle)) / W
    c, d = x.astype(np.float64) @ base, y.astype(np.float64) @ base
    away = np.abs(c - d[:, None]).mean(axis=1)
    gaps = np.abs(c[:, :, None] - c[:, None]).sum(axis=(1, 2)) / 2
    each = np.broadcast_to(w, W // 2 + 1)[np.minimum(np.arange(W), W - np.arange(W))]
    return (each * (away - factor * gaps / M**2)).sum(-1)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 999), st.integers(2, 9), st.integers(2, 17), st.booleans())
def test_is_its_definition(seed, M, W, weighted):
    x, y = case(seed, (3, M, W))
    w = np.random.default_rng(seed).random(W // 2 + 1) if weighted else None
    for estimator, factor in (("plain", 1.0), ("fair", M / (M - 1))):
        wanted = defined(x, y, factor, 1.0 if w is None else w)
        for make in (np.asarray, torch.tensor, lambda a: torch.tensor(a, requires_grad=True)):
            got = spectral_crps(make(x), make(y), estimator=estimator, wave_weights=w, **CALL)
            got = got.detach() if hasattr(got, "detach") else got
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("W", [7, 8, 720])
def test_one_wave_of_error_scores_its_amplitude(W):
    x = 2 * np.pi * np.arange(W) / W
    waves = [np.full(W, 3.0), 3 * np.cos(x + 0.3), 3 * np.sin(3 * x)]
    if W % 2 == 0:
        waves.append(3 * np.cos(W / 2 * x))
    truth = np.random.default_rng(0).normal(size=W)
    got = spectral_crps(truth + np.array(waves)[:, None], truth, estimator="plain", **CALL)
    np.testing.assert_allclose(got, 3.0, rtol=1e-12)


@pytest.mark.parametrize("W", [7, 8])
def test_parseval(W):
    field = np.random.default_rng(1).normal(size=W)
    squares = np.abs(np.fft.rfft(field, norm="forward")) ** 2
    assert (_weights(None, W) * squares).sum() == pytest.approx((field**2).mean(), rel=1e-14)


def test_longitude_zero_is_anywhere():
    x, y = case(2)
    wanted = spectral_crps(x, y, estimator="fair", **CALL)
    moved = np.roll(x, 3, axis=-1), np.roll(y, 3, axis=-1)
    np.testing.assert_allclose(spectral_crps(*moved, estimator="fair", **CALL), wanted, rtol=1e-13)
    turned = x[..., ::-1], y[..., ::-1]
    np.testing.assert_allclose(spectral_crps(*turned, estimator="fair", **CALL), wanted, rtol=1e-13)


@pytest.mark.parametrize("spread", [5.0, 60.0])
@pytest.mark.parametrize("center", [5e4, 1e5])
def test_float32(center, spread):
    x, y = ((center + spread * a).astype(np.float32) for a in case(3, (40, 10, 72)))
    wanted = defined(x, y, 10 / 9)
    for make in (np.asarray, torch.tensor, lambda a: torch.tensor(a, requires_grad=True)):
        got = spectral_crps(make(x), make(y), estimator="fair", **CALL)
        got = got.detach().numpy() if hasattr(got, "detach") else got
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-6 * wanted.mean())


@pytest.mark.parametrize("axes", [(0, 1), (1, 3), (3, 1), (2, -4)])
def test_all_libraries_agree(axes):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3, 4, 5, 6))
    member, longitude = axes
    longitude %= 4
    y = rng.normal(size=np.delete(x.shape, member))
    left = [i for i in range(4) if i not in {member, longitude}]
    places = [*left, member, longitude]
    ordered = np.transpose(x, places).reshape(-1, x.shape[member], x.shape[longitude])
    truth = np.transpose(np.expand_dims(y, member), places).reshape(-1, x.shape[longitude])
    wanted = defined(ordered, truth, 1.0).reshape([x.shape[i] for i in left])
    lazy = da.from_array(x, chunks=dict.fromkeys(left, 2))
    for members, observed in ((x, y), (torch.tensor(x), torch.tensor(y)), (lazy, y)):
        got = spectral_crps(
            members, observed, estimator="plain", member_dim=member, longitude_dim=axes[1]
        )
        assert isinstance(got, type(members))
        np.testing.assert_allclose(got, wanted, atol=1e-13)


def test_the_sphere_is_a_weighted_mean_of_rows():
    rng = np.random.default_rng(5)
    coords = {"latitude": [60.0, 0.0, -60.0], "longitude": np.arange(8) * 45.0}
    dims = ("time", "number", "latitude", "longitude")
    x = xr.DataArray(rng.normal(size=(2, 4, 3, 8)), coords, dims, attrs={"units": "K"})
    y = x.isel(number=0, drop=True) + 1.0
    y.attrs["units"] = "K"
    call = {"estimator": "almost_fair", "member_dim": "number", "longitude_dim": "longitude"}
    rows = spectral_crps(x.chunk(time=1), y, **call)
    assert rows.chunks is not None
    assert (rows.dims, rows.attrs["units"]) == (("time", "latitude"), "K")
    area = xr.DataArray(area_weights(coords["latitude"]), dims="latitude")
    got = spectral_crps(x, y, dim="latitude", weights=area, **call)
    np.testing.assert_allclose(got, (rows * area).mean("latitude"))
    for order in (slice(None, None, -1), [3, 4, 5, 6, 7, 0, 1, 2]):
        turned = spectral_crps(x.isel(longitude=order), y.isel(longitude=order), **call)
        np.testing.assert_allclose(turned, rows)
    for part in (slice(0, 4), [0, 2, 1, 3, 4, 5, 6, 7]):
        with pytest.raises(ArgumentError, match="'longitude' does not go once round the Earth"):
            spectral_crps(x.isel(longitude=part), y.isel(longitude=part), **call)


@pytest.mark.parametrize("W", [5, 6])
@pytest.mark.parametrize("estimator", ["plain", "fair", "almost_fair"])
def test_gradients(estimator, W):
    x, y = (torch.tensor(a, requires_grad=True) for a in case(6, (2, 3, W)))
    assert torch.autograd.gradcheck(
        lambda m, o: spectral_crps(m, o, estimator=estimator, **CALL), (x, y)
    )


def test_members_that_coincide_have_finite_gradients():
    x = torch.ones(1, 4, 8, requires_grad=True)
    spectral_crps(x, torch.ones(1, 8), estimator="fair", **CALL).backward()
    np.testing.assert_array_equal(x.grad, np.zeros((1, 4, 8)))


def test_fair_scores_do_not_depend_on_the_number_of_members():
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(20000, 12, 6)), rng.normal(size=(20000, 6))
    means = {}
    for estimator in ("plain", "fair"):
        for M in (2, 12):
            score = spectral_crps(x[:, :M], y, estimator=estimator, **CALL)
            means[estimator, M] = score.mean(), score.std() / np.sqrt(20000)
    (one, e1), (other, e2) = means["fair", 2], means["fair", 12]
    assert abs(one - other) < 4 * np.hypot(e1, e2)
    assert means["plain", 2][0] > 1.2 * means["plain", 12][0]


def test_members_too_smooth_lose():
    rng = np.random.default_rng(8)
    spectrum = np.array([1.0, 1.0, 0.5, 0.3, 0.2])

    def fields(damp, *shape):
        parts = rng.normal(size=(*shape, 5)) + 1j * rng.normal(size=(*shape, 5))
        return np.fft.irfft(parts * spectrum * damp, n=8, norm="forward")

    y = fields(1.0, 20000)

    def mean(damp):
        return spectral_crps(fields(damp, 20000, 10), y, estimator="fair", **CALL).mean()

    true = mean(1.0)
    small_scales = np.array([1, 1, 1, 1, 1]) - np.array([0, 0, 0, 0.5, 0.8])
    assert true < mean(small_scales) - 0.02
    assert true < mean(1.3) - 0.02
    assert true < mean(0.7) - 0.02


@pytest.mark.parametrize("make", [np.asarray, torch.tensor, da.asarray])
def test_missing_values(make):
    x, y = case(9)
    x[1, 2, 3], y[3, 0] = np.nan, np.nan
    got = np.asarray(spectral_crps(make(x), make(y), estimator="plain", **CALL))
    np.testing.assert_array_equal(np.isnan(got), [False, True, False, True, False])


X, Y = case(10)
REFUSED = {
    "an estimator": (
        {"estimator": "faire"}, UnknownNameError, "'faire' is not known; did you mean 'fair'",
    ),
    "one member": (
        {"members": X[:, :1]}, ArgumentError, "fair estimator is undefined for 1 member",
    ),
    "two longitudes": (
        {"longitude_dim": (0, 2)}, ArgumentError, "longitude_dim: expected one axis",
    ),
    "the members as longitude": (
        {"longitude_dim": 1}, ArgumentError, "one or several axes beside 1",
    ),
    "four weights": (
        {"wave_weights": np.ones(4)}, ArgumentError,
        r"wave_weights: expected 5 numbers of 0 or more \(wave numbers 0 to 4\), got shape \(4,\)",
    ),
    "negative weights": (
        {"wave_weights": -np.ones(5)}, ArgumentError, "with negative or NaN ones",
    ),
    "fewer columns": (
        {"y": Y[:, :7]}, ArgumentError, r"y: \(7,\) variables, and the members have \(8,\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_is_refused(which):
    changes, error, words = REFUSED[which]
    with pytest.raises(error, match=words):
        spectral_crps(**{"members": X, "y": Y, **CALL, "estimator": "fair", **changes})


def test_a_dimension_that_is_not_there():
    x = xr.DataArray(np.zeros((3, 4)), dims=("m", "longitude"))
    with pytest.raises(ArgumentError, match="members has no dimension 'lon'"):
        spectral_crps(x, x[0], estimator="plain", member_dim="m", longitude_dim="lon")
    with pytest.raises(ArgumentError, match="expected one or several axes beside 'm'"):
        spectral_crps(x, x[0], estimator="plain", member_dim="m", longitude_dim=None)
