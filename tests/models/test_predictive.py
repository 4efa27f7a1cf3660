import sys

import numpy as np
import properscoring
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models import Ensemble, Normal

few = settings(deadline=None, max_examples=20)


def fields(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normal(seed=0, grid=(3, 4)):
    return Normal(280 + 10 * fields(seed, 2, *grid), fields(seed + 1, 2, *grid).exp())


def coords(count=2, rows=3, columns=4):
    start = np.datetime64("2016-01-01", "ns") + np.arange(count) * np.timedelta64(1, "D")
    return {
        "time": start,
        "valid_time": ("time", start + np.timedelta64(2, "D")),
        "step": 48,
        "latitude": np.linspace(90, -90, rows),
        "longitude": np.arange(columns) * 360 / columns,
    }


@few
@given(seed=st.integers(0, 1000), q=st.floats(0.001, 0.999))
def test_normal_agrees_with_torch_distributions(seed, q):
    forecast = normal(seed)
    oracle = torch.distributions.Normal(forecast.mu, forecast.sigma)
    y = forecast.mu + 3 * fields(seed + 2, 2, 3, 4)
    torch.testing.assert_close(forecast.cdf(y), oracle.cdf(y))
    icdf = oracle.icdf(torch.tensor(q, dtype=torch.float64))
    torch.testing.assert_close(forecast.quantile(q), icdf)
    torch.testing.assert_close(forecast.cdf(forecast.quantile(q)), torch.full_like(y, q))
    torch.testing.assert_close(forecast.mean, oracle.mean)
    torch.testing.assert_close(forecast.std, oracle.stddev)
    expected = properscoring.crps_gaussian(y.numpy(), forecast.mu.numpy(), forecast.sigma.numpy())
    np.testing.assert_allclose(forecast.crps(y).numpy(), expected, rtol=1e-10, atol=1e-12)


def test_quantiles_of_a_vector_come_first():
    q = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    forecast = normal()
    assert forecast.quantile(q).shape == (3, 2, 3, 4)
    torch.testing.assert_close(forecast.quantile(q)[2], forecast.quantile(0.9))
    members = Ensemble(fields(0, 2, 10, 3, 4))
    assert members.quantile(q).shape == (3, 2, 3, 4)
    torch.testing.assert_close(members.quantile(q)[0], members.quantile(0.1))


def test_normal_without_spread_is_its_value():
    mu = torch.tensor([[[1.0, 2.0]]])
    forecast = Normal(mu, torch.zeros_like(mu))
    y = torch.tensor([[[1.0, 1.5]]])
    assert forecast.cdf(y).tolist() == [[[1.0, 0.0]]]
    assert forecast.quantile(0.0).tolist() == mu.tolist()
    assert forecast.crps(y).tolist() == [[[0.0, 0.5]]]


@few
@given(seed=st.integers(0, 1000), members=st.integers(1, 12), percent=st.integers(0, 100))
def test_ensemble_agrees_with_numpy(seed, members, percent):
    x, q = fields(seed, 2, members, 3, 4), percent / 100
    forecast = Ensemble(x)
    expected = np.quantile(x.numpy(), q, axis=1, method="inverted_cdf")
    np.testing.assert_array_equal(forecast.quantile(q).numpy(), expected)
    y = fields(seed + 1, 2, 3, 4)
    share = (x.numpy() <= y.numpy()[:, None]).mean(1)
    np.testing.assert_allclose(forecast.cdf(y).numpy(), share)
    np.testing.assert_allclose(forecast.mean.numpy(), x.numpy().mean(1))
    if members > 1:
        np.testing.assert_allclose(forecast.std.numpy(), x.numpy().std(1, ddof=1))
    else:
        assert forecast.std.isnan().all()
    plain = properscoring.crps_ensemble(y.numpy(), x.numpy(), axis=1)
    np.testing.assert_allclose(forecast.crps(y).numpy(), plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 2, 3, 6, 7, 9, 10])
def test_rounding_of_the_probability_does_not_move_the_rank(rank):
    members = torch.arange(1.0, 11.0).reshape(1, 10, 1, 1)  # float32: 0.1 * 10 is above 1
    assert Ensemble(members).quantile(rank / 10).item() == rank


def test_ensemble_estimator():
    x = torch.tensor([1.0, 2.0, 3.0]).reshape(1, 3, 1, 1)
    y = torch.tensor(1.5).reshape(1, 1, 1)
    assert Ensemble(x).crps(y).item() == pytest.approx(5 / 6 - 4 / 9)
    assert Ensemble(x, estimator="fair").crps(y).item() == pytest.approx(5 / 6 - 4 / 6)
    with pytest.raises(UnknownNameError, match="did you mean 'fair'"):
        Ensemble(x, estimator="fairr")


def test_a_missing_member_gives_no_probability():
    x = torch.tensor([1.0, torch.nan]).reshape(1, 2, 1, 1)
    assert Ensemble(x).cdf(torch.zeros(1, 1, 1)).isnan().all()


def test_normal_samples_have_its_moments_and_follow_the_seed():
    forecast = normal()
    draws = forecast.sample(20000, torch.Generator().manual_seed(1))
    assert draws.shape == (2, 20000, 3, 4)
    error = (draws.mean(1) - forecast.mu) / forecast.sigma
    assert error.abs().max() < 5 / 20000**0.5
    torch.testing.assert_close(draws.std(1), forecast.sigma, rtol=0.03, atol=0)
    again = forecast.sample(20000, torch.Generator().manual_seed(1))
    assert torch.equal(draws, again)


def test_ensemble_samples_are_whole_members():
    members = torch.arange(5.0).reshape(1, 5, 1, 1) + 10 * torch.arange(2.0).reshape(2, 1, 1, 1)
    x = members.expand(2, 5, 3, 4)
    draws = Ensemble(x).sample(200, torch.Generator().manual_seed(1))
    assert draws.shape == (2, 200, 3, 4)
    assert torch.equal(draws, draws[:, :, :1, :1].expand_as(draws))
    for date in range(2):
        assert sorted(set(draws[date, :, 0, 0].tolist())) == x[date, :, 0, 0].tolist()


def test_normal_dataset():
    forecast = normal()
    dataset = forecast.to_dataset(coords(), "K")
    assert dataset.attrs == {"forecast_kind": "normal"}
    assert dataset["mu"].dims == ("time", "latitude", "longitude")
    assert dataset["sigma"].attrs["units"] == "K"
    np.testing.assert_array_equal(dataset["sigma"], forecast.sigma)
    assert dataset["valid_time"].dims == ("time",)
    assert dataset["step"].item() == 48


def test_ensemble_dataset():
    x = fields(0, 2, 5, 3, 4)
    dataset = Ensemble(x).to_dataset(coords(), "m2 s-2")
    assert dataset.attrs["forecast_kind"] == "ensemble"
    assert dataset["members"].dims == ("time", "number", "latitude", "longitude")
    assert dataset["number"].values.tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_array_equal(dataset["members"], x)
    chosen = Ensemble(x).to_dataset({**coords(), "number": range(5)}, "m2 s-2")
    assert chosen["number"].values.tolist() == [0, 1, 2, 3, 4]


ZERO = torch.zeros(1, 1, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: normal().quantile(-0.1), "q:"),
        (lambda: normal().quantile(1.5), "q:"),
        (lambda: normal().quantile(float("nan")), "q:"),
        (lambda: normal().quantile(torch.full((2, 2), 0.5)), "q:"),
        (lambda: Normal(ZERO, ZERO - 1).crps(ZERO), "sigma"),
        (lambda: Normal(torch.zeros(1, 2, 3), torch.zeros(1, 2, 4)), "sigma"),
        (lambda: Ensemble(torch.zeros(3, 2)), r"expected \(N, M, H, W\)"),
        (lambda: normal().to_dataset(coords(rows=5), "K"), "do not fit"),
        (
            lambda: normal().to_dataset(
                {name: x for name, x in coords().items() if name not in ("step", "time")}, "K"
            ),
            "time, step missing",
        ),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_the_crps_of_training_goes_to_the_kernel_without_detours():
    """At most 23 Python calls, of which 11 are torch's own."""
    mu, sigma, y = (fields(seed, 1, 3, 4) for seed in range(3))
    forecast = Normal(mu.requires_grad_(), sigma.exp(), positive=True)
    forecast.crps(y)
    calls = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code) if event == "call" else None)
    try:
        forecast.crps(y)
    finally:
        sys.setprofile(None)
    names = [f"{code.co_filename}:{code.co_name}" for code in calls]
    assert len([name for name in names if "test_predictive" not in name]) <= 23, names
