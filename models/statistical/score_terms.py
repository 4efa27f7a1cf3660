"""Scores of families of distributions with first and second derivatives, for Newton's method."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from scipy import special

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.families import FAMILIES
from ens10.models.statistical.base import Criterion
from ens10.models.statistical.newton import Floats

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
    """A score and its derivatives, arrays of one shape.

    Args:
        value: the score.
        first: its derivatives by location, logarithm of the scale and third parameter.
        second: its second derivatives by those of index i and j with i <= j.
    """

    value: Floats
    first: Sequence[Floats]
    second: Mapping[tuple[int, int], Floats]


# of location, scale and perhaps a third parameter, of bounds and observations
Function = Callable[[Sequence[Floats], Sequence[Floats], Floats], Any]
ScoreTerms = Callable[[Sequence[Floats], Sequence[Floats], Floats], Terms]


def check_bounds(family: str, lower: float, upper: float) -> None:
    """Refuse bounds of a family without, and none or unordered ones of a bounded family.

    Raises:
        ArgumentError: such bounds.
    """
    if FAMILIES[family].bounds:
        if not lower < upper:
            raise ArgumentError("lower", f"{lower} is not below upper, {upper}")
        if math.isinf(lower) and math.isinf(upper):
            raise ArgumentError("lower", f"{family} has no bound", "Pass lower, upper or both")
    elif not (math.isinf(lower) and math.isinf(upper)):
        raise ArgumentError("lower", f"{family} takes no bounds", f"Choose truncated_{family}")


def check_family(name: str) -> None:
    """Refuse a family without location and scale.

    Raises:
        UnknownNameError: another family; the message lists the known ones.
    """
    if name not in get_args(FamilyName):
        raise UnknownNameError("family", name, get_args(FamilyName))


def score_of(family: str, criterion: Criterion = "crps") -> ScoreTerms:
    """Return a score of a family with location and scale, and its derivatives.

    The normal's are exact. For the other families the first derivatives are exact
    (`ens10.metrics.families`) and the second ones differences of these.

    Args:
        family: one of `FamilyName`.
        criterion: "crps", or "likelihood" for the negative log likelihood.
    """
    if family == "normal":
        return _normal_crps if criterion == "crps" else _normal_log_score
    kernel: Any = FAMILIES[family].kernels["crps" if criterion == "crps" else "log_score"]

    def value(parameters: Sequence[Floats], bounds: Sequence[Floats], y: Floats) -> Floats:
        arrays = np.broadcast_arrays(*parameters, *bounds, y)
        return np.asarray(kernel.apply_to_numpy(kernel.value, *arrays))

    def slopes(parameters: Sequence[Floats], bounds: Sequence[Floats], y: Floats) -> Any:
        arrays = np.broadcast_arrays(*parameters, *bounds, y)
        by_mu, by_sigma, *_ = kernel.apply_to_numpy(kernel.partials, *arrays)
        return by_mu, by_sigma * parameters[1]

    return with_differences(value, slopes, _STEP)


def with_differences(value: Function, slopes: Function, step: float) -> ScoreTerms:
    """Add second derivatives to a score by differences of the first ones.

    Their error affects only Newton's steps: the minimum is where the first derivatives vanish.

    Args:
        value: function of parameters, bounds and observations that returns the score.
        slopes: function of the same that returns the first derivatives.
        step: of the differences; that of the location is relative to the scale.
    """

    def terms(parameters: Sequence[Floats], bounds: Sequence[Floats], y: Floats) -> Terms:
        location, scale, *third = parameters
        size = step * scale
        moved = [[location + size, scale, *third], [location, scale * math.exp(step), *third]]
        moved += [[location, scale, x + step] for x in third]
        first = slopes(parameters, bounds, y)
        rows = [
            [(new - old) / by for new, old in zip(slopes(p, bounds, y), first, strict=True)]
            for p, by in zip(moved, [size, step, step], strict=False)
        ]
        second = {
            (i, j): rows[i][j] if i == j else 0.5 * (rows[i][j] + rows[j][i])
            for i in range(len(rows))
            for j in range(i, len(rows))
        }
        return Terms(value(parameters, bounds, y), first, second)

    return terms


def _normal_crps(parameters: Sequence[Floats], _: Sequence[Floats], y: Floats) -> Terms:
    """Return the exact terms of the CRPS (Gneiting et al. 2005, doi:10.1175/MWR2904.1)."""
    mu, sigma = parameters
    z = (y - mu) / sigma
    double_phi = np.exp(-0.5 * z * z) * (2 / math.sqrt(2 * math.pi))
    by_mu = 1 - 2 * special.ndtr(z)
    excess = double_phi - 1 / math.sqrt(math.pi)
    bent = double_phi * z
    second = {(0, 0): double_phi / sigma, (0, 1): bent, (1, 1): sigma * (bent * z + excess)}
    return Terms(sigma * (excess - z * by_mu), (by_mu, sigma * excess), second)


def _normal_log_score(parameters: Sequence[Floats], _: Sequence[Floats], y: Floats) -> Terms:
    """Return the exact terms of the negative log likelihood without its constant."""
    mu, sigma = parameters
    z = (y - mu) / sigma
    square, slope = z * z, -z / sigma
    second = {(0, 0): 1 / (sigma * sigma), (0, 1): -2 * slope, (1, 1): 2 * square}
    return Terms(np.log(sigma) + 0.5 * square, (slope, 1 - square), second)
