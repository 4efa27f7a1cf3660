"""Scores of tensors on any device equal those of numpy in double precision, with gradients."""

import numpy as np
import pytest
import torch

from ens10 import metrics
from ens10.metrics import families

M, V, H, W = 10, 3, 5, 6
LEVELS = np.linspace(0, 1, 21)
# mean absolute error by dtype, relative to the mean size of the scores or gradients
TOLERANCE = {torch.float64: 1e-11, torch.float32: 1e-5}


def arrays():
    """Inputs by name; none lies at a tie or a kink, where gradients are any of several."""
    rng = np.random.default_rng(0)
    mu, sigma = rng.normal(size=(H, W)), 0.5 + rng.random((H, W))
    return {
        "members": mu + sigma * rng.normal(size=(M, H, W)),
        "many": mu + sigma * rng.normal(size=(25, H, W)),
        "gappy": np.where(rng.random((M, H, W)) < 0.2, np.nan, rng.normal(size=(M, H, W))),
        "fields": rng.normal(size=(M, V, H, W)),
        "variables": rng.normal(size=(V, H, W)),
        "member_weights": 0.1 + rng.random((M, H, W)),
        "deviations": 0.5 + rng.random((V, H, W)),
        "shares": np.full((V, H, W), 1 / V),
        "mu": mu,
        "sigma": sigma,
        "positive": 1 + rng.random((H, W)),
        "y": mu + sigma * rng.normal(size=(H, W)),
        "event": (rng.random((H, W)) < 0.5).astype(float),
        "probability": 0.05 + 0.9 * rng.random((H, W)),
        "climate": np.sort(1.5 * rng.normal(size=(len(LEVELS), H, W)), axis=0),
        "quantiles": np.sort(rng.normal(size=(5, H, W)), axis=0),
    }


def score(name, **options):
    return lambda *given: getattr(metrics, name)(*given, **options)


def weighted_members(members, weights, y):
    given = {"estimator": "fair", "member_dim": 0, "member_weights": weights}
    return metrics.crps_ensemble(members, y, **given)


ENSEMBLE = {"estimator": "fair", "member_dim": 0}
FIVE = [0.1, 0.3, 0.5, 0.7, 0.9]
CASES = {
    "ensemble plain": (score("crps_ensemble", estimator="plain", member_dim=0), "members y"),
    "ensemble almost fair": (
        score("crps_ensemble", estimator="almost_fair", member_dim=0),
        "members y",
    ),
    "ensemble of 25": (score("crps_ensemble", **ENSEMBLE), "many y"),
    "ensemble with weights": (weighted_members, "members member_weights y"),
    "ensemble with gaps": (score("crps_ensemble", **ENSEMBLE, nan="skip-members"), "gappy y"),
    "threshold-weighted": (score("twcrps_ensemble", **ENSEMBLE, lower=-0.3), "members y"),
    "outcome-weighted": (score("owcrps_ensemble", **ENSEMBLE, lower=-2.0, upper=3.0), "members y"),
    "threshold-weighted normal": (score("twcrps_normal", lower=0.2), "mu sigma y"),
    "energy": (score("energy_score", **ENSEMBLE, variable_dim=1), "fields variables"),
    "variogram": (score("variogram_score", **ENSEMBLE, variable_dim=1), "fields variables"),
    "spectral": (score("spectral_crps", **ENSEMBLE, longitude_dim=-1), "members y"),
    "mixture": (score("crps_normal_mixture", component_dim=0), "variables deviations shares y"),
    "quantiles": (
        score("crps_quantiles", levels=FIVE, quantile_dim=0, rule="mean"),
        "quantiles y",
    ),
    "Bernstein": (score("crps_bernstein", coefficient_dim=0), "quantiles y"),
    "error of the median": (score("mae_median", member_dim=0), "members y"),
    "variance": (score("ensemble_variance", member_dim=0), "members"),
    "Brier": (score("brier_score"), "probability event"),
    "logarithmic": (score("logarithmic_score"), "probability event"),
    "EFI": (
        score("efi", method="exact", member_dim=0, quantile_dim=0, levels=LEVELS),
        "members climate",
    ),
}


def family_inputs(cls):
    """Inputs of a family by the domains of its parameters, and where the truth has to lie."""
    free = [p for name, p in cls.parameters.items() if name not in cls.bounds]
    names = {"real": ["mu", "probability"], "nonnegative": ["sigma"], "positive": ["positive"]}
    given = [names[p.domain][-1 if p.unit == "1" else 0] for p in free]
    return " ".join([*given, "positive" if cls.support[0] == 0 else "y"])


def family(name, of):
    def value(*given):
        names = [p for p in families.FAMILIES[name].parameters if p not in ("lower", "upper")]
        return of(name, dict(zip(names, given[:-1], strict=True)), given[-1])

    return value


for _name, _cls in families.FAMILIES.items():
    _given = family_inputs(_cls)
    CASES[f"CRPS, {_name}"] = (family(_name, families.crps), _given)
    CASES[f"log score, {_name}"] = (family(_name, families.log_score), _given)
WITHOUT_GRADIENT = {  # arguments that scores are not differentiated by
    "Brier": ("event",),
    "logarithmic": ("event",),
    "EFI": ("climate",),
    "mixture": ("shares",),
}


def require_close(found, wanted, dtype):
    assert found.dtype == dtype
    found, wanted = found.detach().cpu().double().numpy(), np.asarray(wanted)
    finite = np.isfinite(wanted)  # a log score is infinite outside the support
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    error = np.abs(found[finite] - wanted[finite]).mean()
    assert error <= TOLERANCE[dtype] * max(np.abs(wanted[finite]).mean(), 1e-3), error


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numpy(device, name, dtype):
    function, given = CASES[name]
    held = [arrays()[key] for key in given.split()]
    tensors = [torch.from_numpy(a).to(dtype) for a in held]
    found = function(*(device(t) for t in tensors))
    assert found.device.type == device.type
    require_close(found, function(*(t.double().numpy() for t in tensors)), dtype)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_cpu(device, name):
    function, given = CASES[name]
    tensors = [torch.from_numpy(arrays()[key]) for key in given.split()]
    free = [key not in WITHOUT_GRADIENT.get(name, ()) for key in given.split()]
    wanted = gradients(function, tensors, free)
    found = gradients(function, [device(t) for t in tensors], free)
    for one, other in zip(found, wanted, strict=True):
        assert one.device.type == device.type
        require_close(one, other, torch.float64)


def gradients(function, tensors, free):
    fresh = [t.detach() for t in tensors]  # on CUDA, copies of leaves are no leaves
    leaves = [t.requires_grad_() if f else t for t, f in zip(fresh, free, strict=True)]
    value = function(*leaves)
    torch.where(value.isfinite(), value, 0).sum().backward()
    return [t.grad for t in leaves if t.grad is not None]
