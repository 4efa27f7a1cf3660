"""Pareto tails of isotonic regression: beyond the training range, against scipy's distribution."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import expon, genpareto

from ens10.errors import UnknownNameError
from ens10.models.statistical.isotonic import IsotonicRegression
from ens10.models.statistical.pareto_tails import (
    PROBABILITY,
    SHARES,
    common_shape,
    excess_quantiles,
    mean_and_shape,
)


@pytest.mark.parametrize("shape", [-0.4, -0.1, 0.0, 0.2, 0.35])
def test_moments_find_the_parameters(shape):
    sample = genpareto.rvs(shape, scale=3.0, size=400_000, random_state=1)
    mean, found = mean_and_shape(sample)
    assert found == pytest.approx(shape, abs=0.02)
    assert mean * (1 - found) == pytest.approx(3.0, rel=0.02)


@settings(deadline=None)
@given(st.floats(-0.5, 0.5).map(lambda shape: round(shape, 4)), st.floats(0.01, 100))
def test_quantiles_are_those_of_scipy(shape, mean):
    got = excess_quantiles(
        torch.tensor([[mean]], dtype=torch.float64), torch.tensor(shape).double()
    )
    expected = genpareto.isf(SHARES, shape, scale=mean * (1 - shape))
    np.testing.assert_allclose(got[:, 0, 0], expected, rtol=1e-5)


def test_few_excesses_have_no_shape_of_their_own():
    assert np.isnan(mean_and_shape(np.empty(0))).all()
    mean, shape = mean_and_shape(np.arange(1.0, 10.0))
    assert (mean, np.isnan(shape)) == (5.0, True)
    assert common_shape(np.array([np.nan, 0.1, 0.3, 9.0])) == pytest.approx(0.3)
    assert common_shape(np.array([np.nan, 3.0])) == 0.5
    assert common_shape(np.array([np.nan])) == 0.0


def batch(dates=3000, grid=(2, 3), seed=0):
    """Truth m + an exponential variable, of which every quantile is known."""
    random = np.random.default_rng(seed)
    mean = random.uniform(0, 4, (dates, *grid))
    truth = mean + random.exponential(2.0, mean.shape)
    arrays = {"raw_mean": mean, "raw_std": np.ones_like(mean), "target": truth}
    made = {name: torch.tensor(values, dtype=torch.float32) for name, values in arrays.items()}
    return made | {"weights": torch.ones(dates, *grid), "dates": torch.arange(dates) * 86400}


def fitted(data, **options):
    method = IsotonicRegression(**options)
    method.collect(data)
    method.solve()
    return method


@pytest.mark.parametrize("tails", ["upper", "both"])
def test_quantiles_beyond_the_training_range(tails):
    data = batch()
    method = fitted(data, tails=tails, nodes=8)
    plain = fitted(data, nodes=8)
    at = {name: values[:1] for name, values in data.items()} | {
        "raw_mean": torch.full((1, 2, 3), 2.0)
    }
    forecast = method(at)
    levels = np.array(forecast.levels)
    assert levels[-1] == pytest.approx(0.9999)
    assert (forecast.values.diff(dim=1) >= 0).all()
    assert (levels < PROBABILITY).sum() == (len(SHARES) if tails == "both" else 2)
    upper = forecast.values[0, -len(SHARES) :].mean((1, 2)).numpy()
    expected = 2 + expon.isf(PROBABILITY * np.array(SHARES), scale=2.0)
    np.testing.assert_allclose(upper, expected, rtol=0.15)
    inside = np.isin(np.round(levels, 6), np.round(plain(at).levels, 6)) & (levels < 0.9)
    inside &= levels > PROBABILITY
    kept = [k for k, p in enumerate(plain(at).levels) if PROBABILITY < p < 0.9]
    torch.testing.assert_close(forecast.values[:, inside], plain(at).values[:, kept])


def test_high_quantiles_score_better():
    """By the quantile loss at 0.999 on other dates, against the regression at 1,000 levels."""
    data, test = batch(400), batch(4000, seed=1)
    losses = {}
    for tails in ("none", "upper"):
        high = fitted(data, tails=tails, nodes=8, levels=1000)(test).quantile(0.999)
        error = test["target"] - high
        losses[tails] = float(torch.maximum(0.999 * error, -0.001 * error).mean())
    assert losses["upper"] < 0.9 * losses["none"]


def test_a_checkpoint_keeps_the_tails():
    data = batch(500)
    method = fitted(data, tails="both", nodes=4)
    other = IsotonicRegression(tails="both", nodes=4)
    other.load_state_dict(method.state_dict())
    torch.testing.assert_close(other(data).values, method(data).values)
    assert "tail_shapes" not in fitted(data, nodes=4).state_dict()


def test_a_point_without_truth_is_missing_alone():
    data = batch(500)
    data["target"][:, 0, 0] = torch.nan
    values = fitted(data, tails="both", nodes=4)(data).values
    assert values[..., 0, 0].isnan().all()
    assert values.flatten(2)[..., 1:].isfinite().all()


def test_unknown_tails_are_refused():
    with pytest.raises(UnknownNameError, match="upper"):
        IsotonicRegression(tails="lower")
