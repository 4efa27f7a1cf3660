"""The CRPS functions against properscoring, closed forms and each other."""

import dask
import numpy as np
import properscoring
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import crps_ensemble, crps_normal
from ens10.metrics._call import RechunkWarning

POINTS = ("time", "latitude")


def normals(n=500, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) * 5, rng.uniform(0.01, 5, n), rng.normal(size=n) * 8


def tensors(*arrays):
    return tuple(torch.tensor(a, requires_grad=True) for a in arrays)


def labelled(*arrays):
    return tuple(xr.DataArray(a.reshape(5, -1), dims=POINTS, attrs={"units": "K"}) for a in arrays)


def test_normal_equals_properscoring():
    mu, sigma, y = normals()
    wanted = properscoring.crps_gaussian(y, mu, sigma)
    for got in (crps_normal(mu, sigma, y), crps_normal(*tensors(mu, sigma, y)).detach().numpy()):
        assert np.abs(got - wanted).max() < 1e-12 * wanted.mean()


def test_normal_is_the_integral_of_the_squared_cdf_error():
    below = quad(lambda x: norm.cdf(x, 1.0, 2.0) ** 2, -40, 2.5, epsabs=1e-12)[0]
    above = quad(lambda x: norm.sf(x, 1.0, 2.0) ** 2, 2.5, 40, epsabs=1e-12)[0]
    assert crps_normal(1.0, 2.0, 2.5) == pytest.approx(below + above, abs=1e-10)


@settings(deadline=None, max_examples=50)
@given(
    mu=st.floats(-1e3, 1e3),
    sigma=st.floats(0, 1e3),
    y=st.floats(-1e3, 1e3),
    scale=st.floats(1e-2, 1e2),
)
def test_normal_is_bounded_by_the_distance_and_scales(mu, sigma, y, scale):
    score, distance = float(crps_normal(mu, sigma, y)), abs(y - mu)
    slack = 1e-12 * (1 + distance + sigma)
    assert distance - sigma / np.sqrt(np.pi) - slack <= score
    assert score <= distance + (np.sqrt(2) - 1) / np.sqrt(np.pi) * sigma + slack
    scaled = crps_normal(scale * mu, scale * sigma, scale * y)
    # below the smallest normal number (2e-308) a product loses digits
    rounding = 1e-300 + 1e-9 * scale * (abs(mu) + abs(y))
    assert scaled == pytest.approx(scale * score, rel=1e-9, abs=rounding)


def test_normal_of_zero_spread_is_the_distance():
    mu, sigma, y = np.array([1.0, 1.0, 1.0]), np.array([0.0, -0.0, 0.0]), np.array([3.0, -1.0, 1.0])
    np.testing.assert_array_equal(crps_normal(mu, sigma, y), [2.0, 2.0, 0.0])
    np.testing.assert_array_equal(crps_normal(*tensors(mu, sigma, y)).detach(), [2.0, 2.0, 0.0])


def test_normal_gradients_are_right_and_finite_at_zero_spread():
    assert torch.autograd.gradcheck(crps_normal, tensors(*normals(20)))
    mu, sigma, y = tensors([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [3.0, -1.0, 1.0])
    crps_normal(mu, sigma, y).sum().backward()
    at_rest = 2 * norm.pdf(0) - np.pi**-0.5
    np.testing.assert_allclose(mu.grad, [-1.0, 1.0, 0.0])
    np.testing.assert_allclose(y.grad, [1.0, -1.0, 0.0])
    np.testing.assert_allclose(sigma.grad, [-(np.pi**-0.5)] * 2 + [at_rest], rtol=1e-6)


def test_normal_gradients_of_broadcast_and_mixed_tensors():
    mu = torch.zeros(3, 1, requires_grad=True)
    sigma = torch.ones(4, dtype=torch.float64, requires_grad=True)
    score = crps_normal(mu, sigma, 0.5)
    score.sum().backward()
    assert score.shape == (3, 4)
    assert score.dtype == torch.float64
    np.testing.assert_allclose(mu.grad, np.full((3, 1), 4 * (1 - 2 * norm.cdf(0.5))), rtol=1e-6)
    np.testing.assert_allclose(sigma.grad, np.full(4, 3 * (2 * norm.pdf(0.5) - np.pi**-0.5)))


def test_normal_refuses_a_negative_spread_everywhere():
    mu, sigma, y = normals(20)
    sigma[3] = -0.25
    with pytest.raises(
        ArgumentError, match=r"sigma: 1 of 20 .* not 0 or more, the lowest is -0\.25"
    ):
        crps_normal(mu, sigma, y)
    with pytest.raises(ArgumentError, match=r"sigma: 1 of 20"):
        crps_normal(*tensors(mu, sigma, y))
    with pytest.raises(ArgumentError, match="sigma"):
        crps_normal(*labelled(mu, sigma, y))
    lazy = crps_normal(*(a.chunk(time=2) for a in labelled(mu, sigma, y)))
    with pytest.raises(ArgumentError, match="sigma"):
        lazy.compute()
    assert torch.isfinite(crps_normal(*tensors(mu, sigma, y), check=False)).all()


def test_normal_propagates_nan():
    base = np.array([1.0, 2.0])
    for place in range(3):
        arrays = [base, base, base]
        arrays[place] = np.array([np.nan, 2.0])
        for got in (crps_normal(*arrays), crps_normal(*tensors(*arrays)).detach().numpy()):
            assert np.isnan(got).tolist() == [True, False]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_single_precision_at_geopotential_scale(library):
    rng = np.random.default_rng(1)
    spread = rng.uniform(5, 60, (1, 20000))
    x = (5e4 + rng.normal(size=(10, 20000)) * spread).astype("f4")
    y = (5e4 + rng.normal(size=20000) * 1.2 * spread[0]).astype("f4")
    mu, sigma = x.mean(axis=0), x.std(axis=0)
    as_given = torch.tensor if library == "torch" else np.asarray
    for M in (10, 51):
        x = np.concatenate([x] * 6)[:M]
        got = crps_ensemble(as_given(x), as_given(y), estimator="plain", member_dim=0)
        wanted = properscoring.crps_ensemble(y.astype("f8"), x.astype("f8"), axis=0)
        assert str(got.dtype).endswith("float32")
        assert np.abs(np.asarray(got) - wanted).mean() < 1e-6 * wanted.mean()
    got = crps_normal(as_given(mu), as_given(sigma), as_given(y))
    wanted = properscoring.crps_gaussian(*(a.astype("f8") for a in (y, mu, sigma)))
    assert str(got.dtype).endswith("float32")
    assert np.abs(np.asarray(got) - wanted).mean() < 1e-6 * wanted.mean()


@pytest.mark.parametrize("M", [1, 2, 3, 10, 16, 17, 51])
def test_plain_ensemble_equals_properscoring(M):
    rng = np.random.default_rng(M)
    x, y = rng.normal(size=(6, M, 30)), rng.normal(size=(6, 30))
    wanted = properscoring.crps_ensemble(y, x, axis=1)
    numpy = crps_ensemble(x, y, estimator="plain", member_dim=1)
    torch_ = crps_ensemble(*tensors(x, y), estimator="plain", member_dim=-2).detach().numpy()
    for got in (numpy, torch_):
        assert np.abs(got - wanted).max() < 1e-12 * wanted.mean()


def test_toy_values():
    def score(estimator, **options):
        x = np.array([1.0, 2.0, 3.0])
        return crps_ensemble(x, 1.5, estimator=estimator, member_dim=0, **options)

    assert score("plain") == pytest.approx(5 / 6 - 4 / 9, abs=1e-15)
    assert score("fair") == pytest.approx(5 / 6 - 4 / 6, abs=1e-15)
    almost = 0.95 * score("fair") + 0.05 * score("plain")
    assert score("almost_fair") == pytest.approx(almost, abs=1e-15)
    assert score("almost_fair", alpha=0.0) == pytest.approx(score("plain"), abs=1e-15)


def test_fair_score_estimates_the_normals_own():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(4, 200_000))
    fair = crps_ensemble(x, 0.7, estimator="fair", member_dim=0)
    assert fair.mean() == pytest.approx(
        crps_normal(0.0, 1.0, 0.7), abs=5 * fair.std() / 200_000**0.5
    )


@pytest.mark.parametrize("estimator", ["plain", "fair", "almost_fair"])
@pytest.mark.parametrize("M", [3, 20])
def test_ensemble_gradients(M, estimator):
    rng = np.random.default_rng(5)
    x, y = tensors(rng.normal(size=(2, M, 3)), rng.normal(size=(2, 3)))
    options = {"estimator": estimator, "member_dim": 1}
    assert torch.autograd.gradcheck(lambda a, b: crps_ensemble(a, b, **options), (x, y))


@settings(deadline=None, max_examples=40)
@given(M=st.integers(2, 24), axis=st.integers(0, 2), shift=st.floats(-50, 50))
def test_ensemble_is_exchangeable_and_shift_invariant(M, axis, shift):
    rng = np.random.default_rng(M)
    x, y = rng.normal(size=(2, 3, M)), rng.normal(size=(2, 3))
    base = crps_ensemble(x, y, estimator="fair", member_dim=2)
    moved = np.moveaxis(rng.permuted(x, axis=2), 2, axis) + shift
    got = crps_ensemble(moved, y + shift, estimator="fair", member_dim=axis)
    np.testing.assert_allclose(got, base, atol=1e-12)


def test_ensemble_of_one_value_has_no_spread_term():
    x = np.full((4, 5), 3.0)
    for estimator in ("plain", "fair"):
        got = crps_ensemble(x, np.arange(5.0), estimator=estimator, member_dim=0)
        np.testing.assert_array_equal(got, np.abs(3.0 - np.arange(5.0)))


@pytest.mark.parametrize("M", [4, 20])
def test_ensemble_propagates_nan(M):
    x, y = np.zeros((M, 3)), np.zeros(3)
    x[1, 0], y[2] = np.nan, np.nan
    for a, b in ((x, y), tensors(x, y)):
        got = torch.as_tensor(crps_ensemble(a, b, estimator="fair", member_dim=0)).detach()
        assert torch.isnan(got).tolist() == [True, False, True]


def test_xarray_is_lazy_and_equals_numpy_whatever_the_chunks():
    rng = np.random.default_rng(7)
    x = xr.DataArray(rng.normal(size=(4, 10, 6)), dims=("time", "number", "latitude"))
    x.attrs["units"] = "K"
    y = xr.DataArray(rng.normal(size=(6, 4)), dims=("latitude", "time"))
    options = {"estimator": "fair", "member_dim": "number"}
    wanted = crps_ensemble(x.values, y.values.T, estimator="fair", member_dim=1)
    with pytest.warns(RechunkWarning, match="its 4 chunks are joined"):
        lazy = crps_ensemble(x.chunk(time=1, number=3), y.chunk(time=3), **options)
    assert dask.is_dask_collection(lazy)
    assert lazy.dims == ("time", "latitude")
    assert lazy.attrs["units"] == "K"
    assert lazy.attrs["estimator"] == "fair"
    np.testing.assert_array_equal(lazy.values, wanted)
    np.testing.assert_array_equal(crps_ensemble(x, y, **options).values, wanted)


def test_xarray_normal_is_lazy_and_equals_numpy():
    mu, sigma, y = normals(100)
    eager = labelled(mu, sigma, y)
    lazy = crps_normal(*(a.chunk(time=n) for a, n in zip(eager, (1, 2, 5), strict=True)))
    assert dask.is_dask_collection(lazy)
    np.testing.assert_array_equal(lazy.values.ravel(), crps_normal(mu, sigma, y))
    np.testing.assert_array_equal(crps_normal(*eager).values.ravel(), crps_normal(mu, sigma, y))


def test_bare_dask_arrays_stay_lazy():
    rng = np.random.default_rng(8)
    x = xr.DataArray(rng.normal(size=(4, 10, 6)), dims=("a", "m", "b")).chunk(a=2, m=3, b=4).data
    y = rng.normal(size=(4, 6))
    with pytest.warns(RechunkWarning):
        got = crps_ensemble(x, y, estimator="plain", member_dim=1)
    assert dask.is_dask_collection(got)
    wanted = crps_ensemble(np.asarray(x), y, estimator="plain", member_dim=1)
    np.testing.assert_array_equal(got.compute(), wanted)
    normal = crps_normal(x[:, 0], 1.0, y)
    assert dask.is_dask_collection(normal)
    np.testing.assert_array_equal(normal.compute(), crps_normal(np.asarray(x)[:, 0], 1.0, y))


def test_different_coordinates_are_refused():
    mu = xr.DataArray(np.zeros(3), dims="time", coords={"time": [0, 1, 2]})
    with pytest.raises(ArgumentError, match=r"y: its time differs .* \(0, 3 is in one only\)"):
        crps_normal(mu, 1.0, mu.assign_coords(time=[1, 2, 3]))


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor])
@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (3, 3), (2,)])
def test_observations_with_a_member_axis_are_refused(shape, convert):
    # (2, 3) and (1, 3) would broadcast to a mean absolute error
    x, y = convert(np.zeros((2, 3))), convert(np.zeros(shape))
    with pytest.raises(ArgumentError, match="y: shapes that do not fit each other"):
        crps_ensemble(x, y, estimator="plain", member_dim=0)


def test_lists_are_arrays_and_plain_numbers_keep_single_precision():
    assert crps_ensemble([1.0, 2.0, 3.0], 1.5, estimator="plain", member_dim=0).shape == ()
    assert crps_normal([1, 2], [0, 0], 1).tolist() == [0.0, 1.0]
    single = np.zeros(3, dtype="f4")
    assert crps_normal(single, 1.0, 0.5).dtype == np.float32
    assert crps_ensemble(single, 0.5, estimator="fair", member_dim=0).dtype == np.float32


NAMED = xr.DataArray(np.zeros((1, 3)), dims=("number", "time"))
ALONE = "estimator is undefined for 1 member"
AXIS = "number of one of the 2 axes of members"


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"estimator": "fair"}, ArgumentError, f"fair {ALONE}"),
        ({"estimator": "almost_fair"}, ArgumentError, f"almost_fair {ALONE}"),
        ({"estimator": "fare"}, UnknownNameError, "did you mean 'fair'"),
        ({"member_dim": 2}, ArgumentError, AXIS),
        ({"member_dim": "number"}, ArgumentError, AXIS),
        ({"members": torch.zeros(1, 3)}, ArgumentError, "several libraries"),
        (
            {"members": NAMED, "y": NAMED, "member_dim": "number"},
            ArgumentError, "has the dimension 'number' of the forecast",
        ),
        (
            {"members": NAMED, "y": NAMED[0], "member_dim": "member"},
            ArgumentError, "no dimension 'member'",
        ),
    ],
)  # fmt: skip
def test_bad_arguments_of_the_ensemble_are_named(changes, error, words):
    call = {"members": np.zeros((1, 3)), "y": np.zeros(3), "estimator": "plain", "member_dim": 0}
    with pytest.raises(error, match=words):
        crps_ensemble(**call | changes)
