"""Least squares at each grid point, against numpy's solver, a known law and `verify`."""

import numpy as np
import pytest

from ens10.experiments.runner.pointwise import DESIGNS, attained_skill, normal_of_points
from ens10.metrics import verify
from ens10.store import open_store


def simulated(dates, seed):
    """A design (N, 1, 2, 3) and a batch whose truth is raw + b0 + b1 x1 + b2 x2 + (a s + d) eps."""
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(dates, 1, 2, 3))
    design[..., 0] = 1
    spread = rng.uniform(0.5, 2.0, (dates, 1, 2))
    raw = rng.normal(280, 5, (dates, 1, 2))
    bias = np.einsum("nhwk,wk->nhw", design, [[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]])
    noise = (np.array([1.5, 0.8]) * spread + np.array([0.2, 0.4])) * rng.normal(size=raw.shape)
    return design, {"raw_mean": raw, "raw_std": spread, "target": raw + bias + noise}


def test_coefficients_are_those_of_numpy_and_the_spread_is_that_of_the_law():
    design, batch = simulated(20000, 0)
    mu, sigma = normal_of_points(design, batch, design, batch)
    for w in range(2):
        error = (batch["target"] - batch["raw_mean"])[:, 0, w]
        wanted = design[:, 0, w] @ np.linalg.lstsq(design[:, 0, w], error, rcond=None)[0]
        np.testing.assert_allclose(mu[:, 0, w], batch["raw_mean"][:, 0, w] + wanted, atol=1e-9)
    true = np.array([1.5, 0.8]) * batch["raw_std"] + np.array([0.2, 0.4])
    np.testing.assert_allclose(sigma, true, rtol=0.1)


def test_the_optimum_and_raw_are_those_of_verify(world, store):
    found = attained_skill(world, store)
    data = open_store(store, "truth")["t2m"]
    truth = data.squeeze("step", drop=True) if "step" in data.dims else data
    best = world.optimum("t2m")
    chosen = best["time"][np.isin(best["valid_time"].dt.year, (2004, 2005))].to_numpy()
    best, truth = best.sel(time=chosen), truth.sel(time=chosen)
    wanted = float(verify(best, truth, ("crps",), weights="cell")["crps"])
    assert found["optimum"] == pytest.approx(wanted, rel=1e-5)
    assert found["raw"] > found["optimum"]
    assert all(np.isfinite(found[name]) and found[name] < 100 for name in DESIGNS)
