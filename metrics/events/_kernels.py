"""Checked arguments and scores of events on numpy arrays or tensors, members or categories first.

A NaN is replaced before the arithmetic and put back after it, because the gradient of a masked NaN
is a NaN.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._dispatch import cast, detached, library_of, refuse_datasets
from ens10.metrics._labels import check_alike

EventEstimator = Literal["plain", "fair"]


def check_probability(name: str, values: Any) -> None:
    """Refuse probabilities outside [0, 1]; NaN is accepted.

    Args:
        name: of the argument.
        values: a numpy array or a tensor.

    Raises:
        ArgumentError: some lie outside.
    """
    outside = (values < 0) | (values > 1)
    if bool(outside.any()):
        worst = values[outside] if values.ndim else values
        raise ArgumentError(
            name,
            f"{int(outside.sum())} values are not between 0 and 1, "
            f"from {float(worst.min()):.9g} to {float(worst.max()):.9g}",
            "Pass probabilities, not per cent",
        )


def check_event(name: str, values: Any) -> None:
    """Refuse events other than 0 and 1 (or False and True); NaN is accepted.

    Raises:
        ArgumentError: other values.
    """
    other = (values != 0) & (values != 1) & (values == values)  # not NaN
    if bool(other.any()):
        first = values[other].reshape(-1)[0] if values.ndim else values
        raise ArgumentError(
            name,
            f"{int(other.sum())} values are neither 0 nor 1, such as {float(first):.6g}",
            "Pass 1 where the event happened, see exceedance_event",
        )


def check_estimator(estimator: str, members: int, nan: str) -> None:
    """Refuse an estimator that is unknown or undefined for the number of members.

    With "skip-members" the number differs between points; scores are NaN where it is too small.

    Raises:
        UnknownNameError: an unknown estimator.
        ArgumentError: the fair estimator with a single member.
    """
    if estimator not in get_args(EventEstimator):
        raise UnknownNameError("estimator", estimator, get_args(EventEstimator))
    if estimator == "fair" and members < 2 and nan != "skip-members":
        raise ArgumentError(
            "members",
            f"the fair estimator is undefined for {members} member{'' if members == 1 else 's'}",
            "Pass two or more, or use the plain estimator",
        )


def check_members(members: Any, member_dim: int | str, estimator: str, nan: str) -> None:
    """Check estimator and number of members before lazy arrays are built.

    An axis that does not exist is refused later.

    Raises:
        UnknownNameError: an unknown estimator.
        ArgumentError: the fair estimator with a single member, or a Dataset instead of an array.
    """
    refuse_datasets({"members": members})
    if isinstance(members, xr.DataArray):
        size = members.sizes.get(member_dim, 2)
    else:
        shape = np.shape(members)
        is_axis = not isinstance(member_dim, str) and -len(shape) <= (member_dim or 0) < len(shape)
        size = shape[member_dim or 0] if is_axis else 2
    check_estimator(estimator, int(size), nan)


def check_units(arrays: Mapping[str, Any]) -> None:
    """Refuse DataArrays of different units, for scores that have no unit themselves.

    Raises:
        ArgumentError: units or coordinates that differ.
    """
    if any(isinstance(array, xr.DataArray) for array in arrays.values()):
        check_alike(arrays, list(arrays))


Array = Any  # a numpy array or a tensor


def event_indicator(y: Array, threshold: Array, *, strict: bool) -> Array:
    """Return 1 where y is above the threshold, 0 elsewhere, NaN where one of them is NaN."""
    xp = library_of(y)
    above = cast(y > threshold if strict else y >= threshold, y)
    return xp.where(xp.isnan(y) | xp.isnan(threshold), np.nan, above)


def share_above(members: Array, threshold: Array, *, strict: bool, nan: str) -> tuple[Array, Array]:
    """Return the share of members above the threshold, and the number of members present.

    The share is a quotient of two integers, so that equal shares are bitwise equal.
    """
    xp = library_of(members)
    above, present = (cast(0 * (members[0] > threshold), members) for _ in range(2))
    for member in members:  # added one by one: a table of all members would be copied
        above += member > threshold if strict else member >= threshold
        present += ~xp.isnan(member)
    undefined = present == 0 if nan == "skip-members" else present < len(members)
    present = xp.where(undefined | xp.isnan(threshold), np.nan, present)
    return above / present, present


def exceedance(members: Array, threshold: Array, *, strict: bool, nan: str) -> Array:
    """Return the share of members above the threshold; no gradient."""
    return share_above(members, threshold, strict=strict, nan=nan)[0]


def brier(probability: Array, event: Array, *, check: bool = True) -> Array:
    """Return the Brier score (p - o)^2."""
    xp, missing = library_of(probability), _checked(probability, event, check)
    if xp is np:  # there is no gradient to keep finite
        return (probability - event) ** 2
    error = xp.where(missing, 0.0, probability) - xp.where(missing, 0.0, event)
    return xp.where(missing, np.nan, error**2)


def _checked(probability: Any, event: Any, check: bool) -> Any:
    """Return where one of them is NaN, after an optional check of their values."""
    xp = library_of(probability)
    if check:
        check_probability("probability", detached(probability))
        check_event("event", detached(event))
    return xp.isnan(probability) | xp.isnan(event)


def brier_of_members(
    members: Array, y: Array, threshold: Array, *, estimator: str, strict: bool, nan: str
) -> Array:
    """Return (p - o)^2, p the share of members above, less p (1 - p) / (M - 1) if fair."""
    check_estimator(estimator, len(members), nan)
    p, present = share_above(members, threshold, strict=strict, nan=nan)
    score = (p - event_indicator(y, threshold, strict=strict)) ** 2
    if estimator == "plain":
        return score
    return score - p * (1 - p) / library_of(p).where(present > 1, present - 1, np.nan)


def rps_of_members(
    members: Array, y: Array, thresholds: Array, *, normalised: bool, **options: Any
) -> Array:
    """Return the sum of the Brier scores over the thresholds, which are the first axis."""
    check_rising(thresholds)
    total: Any = sum(brier_of_members(members, y, t, **options) for t in thresholds)
    return total / (len(thresholds) if normalised else 1)


def check_rising(thresholds: Any) -> None:
    """Refuse thresholds (first axis) that fall somewhere, or none at all.

    Raises:
        ArgumentError: such thresholds.
    """
    if len(thresholds) < 1:
        raise ArgumentError("thresholds", "there are none", "Pass one or more")
    if bool((thresholds[1:] < thresholds[:-1]).any()):
        raise ArgumentError("thresholds", "they do not rise", "Sort them along their axis")


def rps_of_probabilities(
    probabilities: Array, category: Array, *, normalised: bool, check: bool
) -> Array:
    """Return the sum over categories of squared differences of cumulative probabilities."""
    xp = library_of(probabilities)
    if check:
        check_categories(detached(probabilities), detached(category))
    missing = xp.isnan(probabilities).any(0) | xp.isnan(category)
    total, below = 0.0, 0.0
    for k, probability in enumerate(xp.where(missing, 0.0, probabilities)[:-1]):
        below = below + in_double(probability)
        total = total + (below - cast(category <= k, below)) ** 2
    total = xp.where(missing, np.nan, total) / (len(probabilities) - 1 if normalised else 1)
    return cast(total, probabilities)


def in_double(array: Any) -> Any:
    """Return a numpy array in float64, and a tensor unchanged."""
    return array.astype(np.float64) if isinstance(array, np.ndarray) else array


def check_categories(probabilities: Any, category: Any) -> None:
    """Refuse invalid category probabilities and category numbers; NaN is accepted.

    Raises:
        ArgumentError: fewer than two categories, probabilities outside [0, 1] or whose sum is
            not 1, categories that are not whole numbers from 0 to K - 1.
    """
    n = len(probabilities)
    if n < 2:
        raise ArgumentError("probabilities", f"{n} categories", "Pass two or more")
    check_probability("probabilities", probabilities)
    off = abs(probabilities.sum(0) - 1)
    if bool((off > 1e-4).any()):
        raise ArgumentError(
            "probabilities",
            f"{int((off > 1e-4).sum())} sums over the categories are not 1",
            "Is category_dim the right one?",
        )
    wrong = (category.round() != category) | (category < 0) | (category >= n)
    wrong = wrong & (category == category)  # not NaN
    if bool(wrong.any()):
        raise ArgumentError(
            "category",
            f"{int(wrong.sum())} values are not one of 0 to {n - 1}",
            "Number the categories from 0",
        )


def logarithmic(
    probability: Array, event: Array, *, clip: float, base: float, check: bool
) -> Array:
    """Return minus the logarithm of the probability of the observed outcome."""
    xp, missing = library_of(probability), _checked(probability, event, check)
    p = xp.clip(probability, clip, 1 - clip) if clip else probability
    came = event == 1
    with np.errstate(divide="ignore"):
        # the branch that is not taken would have an infinite gradient at 0 or 1, times 0 a NaN
        happened = xp.log(xp.where(came & ~missing, p, 1.0))
        failed = xp.log1p(-xp.where(came | missing, 0.0, p))
    return xp.where(missing, np.nan, -(happened + failed) / math.log(base))
