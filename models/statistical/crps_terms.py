"""CRPS of location-scale families with first and second derivatives, for Newton's method."""

import math
from typing import Literal, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt
from scipy import special

from ens10.errors import UnknownNameError
from ens10.metrics.distributions.formula import Formula
from ens10.metrics.families import FAMILIES

Floats = npt.NDArray[np.float64]
FamilyName = Literal[
    "normal",
    "logistic",
    "truncated_normal",
    "censored_normal",
    "truncated_logistic",
    "censored_logistic",
]
_STEP = 1e-5  # of sigma: error and rounding of the differences are both some 1e-6


class Terms(NamedTuple):
    """CRPS and its derivatives by location and scale, arrays of one shape."""

    value: Floats
    by_mu: Floats
    by_sigma: Floats
    mu_mu: Floats
    mu_sigma: Floats
    sigma_sigma: Floats


def check_family(name: str) -> None:
    """Refuse a family without location and scale.

    Raises:
        UnknownNameError: another family; the message lists the known ones.
    """
    if name not in get_args(FamilyName):
        raise UnknownNameError("family", name, get_args(FamilyName))


def is_bounded(name: str) -> bool:
    """Return True if the family has bounds."""
    return name.startswith(("truncated", "censored"))


def crps_terms(
    family: str, mu: Floats, sigma: Floats, y: Floats, bounds: tuple[Floats, Floats] | None
) -> Terms:
    """Return the CRPS and its derivatives at each sample.

    The normal's are exact. For the other families the first derivatives are exact
    (`ens10.metrics.families`) and the second ones finite differences of these, which affect only
    Newton's steps: the minimum is where the first derivatives vanish.

    Args:
        family: name.
        mu: location.
        sigma: scale, above 0.
        y: observations.
        bounds: lower and upper, of bounded families.
    """
    if family == "normal":
        return _normal(mu, sigma, y)
    formula = cast("Formula", FAMILIES[family].formula("crps"))
    args = (*(bounds or ()), y)
    step = _STEP * sigma
    value = formula.apply_to_numpy(formula.value, *np.broadcast_arrays(mu, sigma, *args))

    def slopes(mu: Floats, sigma: Floats) -> tuple[Floats, Floats]:
        derivatives = formula.apply_to_numpy(
            formula.partials,  # type: ignore[arg-type]
            *np.broadcast_arrays(mu, sigma, *args),
        )
        return derivatives[0], derivatives[1]

    by_mu, by_sigma = slopes(mu, sigma)
    moved_mu, cross = slopes(mu + step, sigma)
    _, moved_sigma = slopes(mu, sigma + step)
    return Terms(
        value,
        by_mu,
        by_sigma,
        (moved_mu - by_mu) / step,
        (cross - by_sigma) / step,
        (moved_sigma - by_sigma) / step,
    )


def _normal(mu: Floats, sigma: Floats, y: Floats) -> Terms:
    """Return the exact terms of the normal (Gneiting et al. 2005, doi:10.1175/MWR2904.1)."""
    z = (y - mu) / sigma
    phi = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    by_mu = 1 - 2 * special.ndtr(z)
    by_sigma = 2 * phi - 1 / math.sqrt(math.pi)
    curvature = 2 * phi / sigma
    bent = curvature * z
    return Terms(sigma * (by_sigma - z * by_mu), by_mu, by_sigma, curvature, bent, bent * z)
