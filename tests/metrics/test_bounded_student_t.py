"""Bounded t distributions against integrals of scipy's distribution, gradients and stores."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

from ens10.metrics import score_states, summarise
from ens10.metrics.distributions import location_scale
from ens10.metrics.families import FAMILIES, crps, log_score, pit_interval
from ens10.models import FamilyHead

NAMES = ("truncated_student_t", "censored_student_t")
CASES = [
    (3.0, 0.2, 1.3, -1.0, 2.0, 0.5),
    (1.4, 0.2, 1.3, -1.0, 2.0, -1.7),
    (8.0, 4.0, 1.0, -np.inf, 2.0, 1.0),
    (5.0, -6.0, 1.0, 0.0, np.inf, 0.7),
    (30.0, 0.0, 2.0, 0.3, 0.5, 0.45),
    (2.5, 0.0, 1.0, -np.inf, np.inf, 3.0),
]


def exact(name, df, mu, sigma, lower, upper, x):
    """The distribution function."""
    t = stats.t(df, mu, sigma)
    if x < lower or x >= upper:
        return float(x >= upper)
    if name.startswith("censored"):
        return t.cdf(x)
    return (t.cdf(x) - t.cdf(lower)) / (t.cdf(upper) - t.cdf(lower))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_crps_and_cdf_are_those_of_the_integral(name, case):
    *known, y = case
    given = dict(zip(FAMILIES[name].parameters, known, strict=True))
    ends = max(known[3], -4e3), min(known[4], 4e3)
    marks = sorted({*ends, y, *(p for p in (-20.0, -4.0, 0.0, 4.0, 20.0) if ends[0] < p < ends[1])})
    wanted = sum(
        quad(lambda x: (exact(name, *known, x) - (x >= y)) ** 2, a, b, epsabs=1e-12, limit=200)[0]
        for a, b in pairwise(marks)
    )
    assert float(crps(name, given, y)) == pytest.approx(wanted, rel=2e-6, abs=1e-9)
    assert float(pit_interval(name, given, y)[1]) == pytest.approx(exact(name, *known, y), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_gradients(name, case):
    finite = [v if np.isfinite(v) else float(np.sign(v) * 9.0) for v in case]
    tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in finite]
    assert torch.autograd.gradcheck(lambda *x: FAMILIES[name](*x[:-1]).crps(x[-1]), tensors)


@pytest.mark.parametrize("name", NAMES)
def test_log_score_is_of_the_density_or_the_point_mass(name):
    t, known = stats.t(3.0, 0.2, 1.3), {"df": 3.0, "mu": 0.2, "sigma": 1.3, "lower": -1.0}
    inside = -t.logpdf(0.5) + (t.logsf(-1.0) if name.startswith("truncated") else 0.0)
    assert float(log_score(name, known, 0.5)) == pytest.approx(inside, rel=1e-12)
    assert float(log_score(name, known, -1.5)) == np.inf
    if name.startswith("censored"):
        assert float(log_score(name, known, -1.0)) == pytest.approx(-t.logcdf(-1.0), rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_from_a_head_to_a_score(name, world):
    _, normal, truth = world
    y = torch.as_tensor(normal["mu"].to_numpy())
    head = FamilyHead(name, lower=275.0, df=5.0)
    batch = {"raw_mean": y, "raw_std": torch.ones_like(y)}
    forecast = head(torch.zeros(len(y), 2, *y.shape[1:], dtype=y.dtype), batch)
    q = forecast.quantile(0.7)
    assert (q >= 275.0).all()
    level = forecast.cdf(q)[q > 275.0]
    torch.testing.assert_close(level, torch.full_like(level, 0.7))
    coords = {k: normal[k] for k in ("time", "valid_time", "step", "latitude", "longitude")}
    dataset = forecast.to_dataset(coords, "K")
    assert dataset.attrs["forecast_kind"] == name
    found = summarise(score_states(dataset, truth, ["crps", "coverage_0.5"], weights="none"))
    wanted = forecast.crps(torch.as_tensor(truth.to_numpy()))
    assert float(found["crps"]) == pytest.approx(float(wanted.nanmean()), rel=1e-3)
    assert location_scale(name, y, y * 0 + 1, lower=275.0, df=5.0).crps(y).shape == y.shape
