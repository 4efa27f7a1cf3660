"""Mixtures of normals as a forecast distribution, against scipy and quadrature."""

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import integrate, stats

from ens10.errors import ArgumentError
from ens10.metrics import crps_normal_mixture, verify
from ens10.metrics._ops import NUMPY
from ens10.metrics._ops_torch import TORCH
from ens10.metrics.distributions import Distribution, Normal, NormalMixture
from ens10.metrics.distributions._mixture_loops import scores_and_gradients
from ens10.metrics.distributions.mixture import crps_of_components


@pytest.fixture(scope="module")
def parts():
    rng = np.random.default_rng(0)
    shape = (6, 4, 3, 2)
    weights = rng.dirichlet(np.ones(4), (6, 3, 2)).transpose(0, 3, 1, 2)
    return 3 * rng.standard_normal(shape), rng.uniform(0.1, 2, shape), weights


@pytest.fixture(scope="module")
def y():
    return 2 * np.random.default_rng(1).standard_normal((6, 3, 2))


def test_against_scipy_at_each_point(parts, y):
    known = NormalMixture(*parts)
    for n, i, j in np.ndindex(y.shape):
        mu, sigma, share = (part[n, :, i, j] for part in parts)
        one = stats.norm(mu, sigma)
        assert known.cdf(y)[n, i, j] == pytest.approx((share * one.cdf(y[n, i, j])).sum())
        density = (share * one.pdf(y[n, i, j])).sum()
        assert known.log_score(y)[n, i, j] == pytest.approx(-np.log(density))
        mean = (share * mu).sum()
        assert known.mean[n, i, j] == pytest.approx(mean)
        square = (share * (sigma**2 + mu**2)).sum() - mean**2
        assert known.std[n, i, j] == pytest.approx(np.sqrt(square))
        if j == 0 and i == 0:
            below, above = (
                integrate.quad(f, *ends, points=sorted(mu), limit=400)[0]
                for f, ends in (
                    (lambda x, s=share, d=one: (s * d.cdf(x)).sum() ** 2, (-40, y[n, i, j])),
                    (lambda x, s=share, d=one: (s * d.sf(x)).sum() ** 2, (y[n, i, j], 40)),
                )
            )
            assert known.crps(y)[n, i, j] == pytest.approx(below + above, rel=1e-6)


def test_quantiles_invert_the_cdf_also_far_out(parts):
    known = NormalMixture(*parts)
    levels = np.array([1e-12, 1e-4, 0.1, 0.5, 0.9, 1 - 1e-9])
    quantiles = known.quantile(levels)
    for level, value in zip(levels, quantiles, strict=True):
        np.testing.assert_allclose(known.cdf(value), level, rtol=1e-9)
    ends = known.quantile(np.array([0.0, 1.0]))
    assert (ends[0] == -np.inf).all()
    assert (ends[1] == np.inf).all()


def test_a_gap_between_components_and_a_component_of_no_weight():
    mu = np.array([-1e3, 1e3, 5e5]).reshape(3, 1, 1)
    known = NormalMixture(mu, np.ones((3, 1, 1)), np.array([0.25, 0.75, 0]).reshape(3, 1, 1))
    quantiles = known.quantile(np.array([0.2499, 0.2501, 0.625])).ravel()
    one = stats.norm()
    expected = [-1e3 + one.ppf(0.2499 / 0.25), 1e3 + one.ppf(0.0001 / 0.75), 1e3]
    np.testing.assert_allclose(quantiles, expected, rtol=1e-6, atol=1e-9)


def test_one_component_is_the_normal(y):
    mu, sigma = 0.3 * y, 1 + y**2
    known = NormalMixture(*(a[:, None] for a in (mu, sigma, np.ones_like(mu))))
    normal = Normal(mu, sigma)
    for name in ("crps", "cdf", "log_score"):
        np.testing.assert_allclose(getattr(known, name)(y), getattr(normal, name)(y), rtol=1e-9)
    np.testing.assert_allclose(known.quantile(0.3), normal.quantile(0.3), rtol=1e-12)


def test_tensors_give_the_same(parts, y):
    ours = NormalMixture(*parts)
    theirs = NormalMixture(*(torch.tensor(part) for part in parts))
    for name in ("crps", "cdf", "log_score"):
        value = getattr(theirs, name)(torch.tensor(y))
        np.testing.assert_allclose(value, getattr(ours, name)(y), rtol=1e-9)
    p = np.array([0.01, 0.4])
    np.testing.assert_allclose(theirs.quantile(p), ours.quantile(p), rtol=1e-6)
    for name in ("mean", "std"):
        np.testing.assert_allclose(getattr(theirs, name), getattr(ours, name), rtol=1e-12)


def test_a_store_and_its_scores(parts, y):
    coords = {
        "time": np.datetime64("2001-01-01", "ns") + np.arange(6) * np.timedelta64(1, "D"),
        "latitude": [60.0, 0.0, -60.0], "longitude": [0.0, 180.0], "step": 48,
    }  # fmt: skip
    coords["valid_time"] = ("time", coords["time"] + np.timedelta64(2, "D"))
    dataset = NormalMixture(*parts).to_dataset(coords, "K")
    assert dataset.attrs["forecast_kind"] == "normal_mixture"
    assert dataset["component_weights"].attrs["units"] == "1"
    again = Distribution.from_dataset(dataset)
    np.testing.assert_array_equal(again.quantile(0.2), NormalMixture(*parts).quantile(0.2))
    truth = xr.DataArray(
        y, dims=("time", "latitude", "longitude"),
        coords={"time": coords["valid_time"][1], "latitude": coords["latitude"],
                "longitude": coords["longitude"]},
    )  # fmt: skip
    scores = verify(dataset, truth, ["crps", "bias"], weights="none")
    expected = crps_normal_mixture(*parts, y, component_dim=1).mean()
    assert float(scores["crps"]) == pytest.approx(expected)
    assert float(scores["bias"]) == pytest.approx((NormalMixture(*parts).mean - y).mean())


def test_invalid_parameters_are_refused(parts, y):
    mu, sigma, weights = parts
    with pytest.raises(ArgumentError, match="sigma"):
        NormalMixture(mu, sigma[:, :2], weights)
    with pytest.raises(ArgumentError, match="expected"):
        NormalMixture(mu[0, 0], sigma[0, 0], weights[0, 0])
    with pytest.raises(ArgumentError, match="add up"):
        NormalMixture(mu, sigma, 2 * weights).crps(y)


def awkward_parts(seed=2, components=5, points=300):
    """Equal components, deviations of 0, shares of 0, far ones, and observations on a component."""
    rng = np.random.default_rng(seed)
    shape = (components, points)
    mu, sigma = 3 * rng.standard_normal(shape), rng.uniform(0.05, 2, shape)
    shares = rng.dirichlet(np.ones(components), points).T.copy()
    y = 2 * rng.standard_normal(points)
    mu[1, :40] = mu[0, :40]
    sigma[:2, 10:60] = 0
    sigma[:, 60:80] = 0
    y[30:70] = mu[2, 30:70]
    mu[3, 80:120] *= 1e6
    shares[4, 100:140] = 0
    shares /= shares.sum(0)
    return mu, sigma, shares, y


def test_compiled_loops_equal_the_traced_formula():
    parts = awkward_parts()
    score, _ = scores_and_gradients(*parts)
    wanted = crps_of_components(NUMPY, *parts)
    np.testing.assert_allclose(score, wanted, rtol=1e-12, atol=1e-13)
    many = awkward_parts(components=12, points=1)  # fewer points than a block
    np.testing.assert_allclose(
        scores_and_gradients(*many)[0], crps_of_components(NUMPY, *many), rtol=1e-12
    )


def test_compiled_gradients_equal_those_of_autograd():
    mu, sigma, shares, y = awkward_parts()
    regular = slice(140, None)  # elsewhere the score has kinks
    _, partials = scores_and_gradients(mu, sigma, shares, y)
    tensors = [torch.tensor(v[..., regular], requires_grad=True) for v in (mu, sigma, shares, y)]
    crps_of_components(TORCH, *tensors).sum().backward()
    for partial, tensor in zip(partials, tensors, strict=True):
        np.testing.assert_allclose(partial[..., regular], tensor.grad, rtol=1e-9, atol=1e-12)
        assert np.isfinite(partial).all()


def test_mixtures_that_are_missing_or_infinite():
    mu, sigma, shares, y = (part[..., 140:148].copy() for part in awkward_parts())
    mu[0, 0], sigma[1, 1], shares[2, 2], y[3], y[4] = np.nan, np.nan, np.nan, np.nan, np.inf
    with np.errstate(all="ignore"):
        score, _ = scores_and_gradients(mu, sigma, shares, y)
    assert np.isnan(score[:4]).all()
    assert score[4] == np.inf
    assert np.isfinite(score[5:]).all()


def test_single_precision_tensors_keep_their_type_and_broadcast():
    mu, sigma, shares, y = awkward_parts()
    tensors = [torch.tensor(v, dtype=torch.float32).requires_grad_() for v in (mu, sigma, y)]
    weights = torch.tensor(shares[:, 0], dtype=torch.float32)
    score = crps_normal_mixture(*tensors[:2], weights, tensors[2], component_dim=0, check=False)
    assert score.dtype == torch.float32
    score.sum().backward()
    assert all(t.grad.dtype == torch.float32 for t in tensors)
    wanted = crps_normal_mixture(
        *(t.detach().numpy() for t in tensors[:2]), weights.numpy(), tensors[2].detach().numpy(),
        component_dim=0,
    )  # fmt: skip
    np.testing.assert_array_equal(score.detach(), wanted)


def test_probabilities_of_single_precision_weights_do_not_exceed_one():
    """Eleven weights in float32 can add up to 1 + 1e-7."""
    rng = np.random.default_rng(3)
    shape = (11, 40, 50)
    weights = rng.dirichlet(np.ones(11), shape[1:]).transpose(2, 0, 1).astype(np.float32)
    assert weights.astype(np.float64).sum(0).max() > 1
    known = NormalMixture(np.zeros(shape, np.float32), np.ones(shape, np.float32), weights)
    assert known.cdf(np.full(shape[1:], 50.0, np.float32)).max() <= 1


def test_masked_scores_of_missing_observations_leave_finite_gradients():
    mu, sigma, shares, y = (torch.tensor(part[..., 140:150]) for part in awkward_parts())
    y[3] = torch.nan
    logits = shares.log().requires_grad_()
    score = crps_normal_mixture(mu, sigma, logits.softmax(0), y, component_dim=0)
    torch.where(y.isnan(), 0, score).sum().backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad[:, 3] == 0).all()
    assert (logits.grad[:, 4] != 0).any()
