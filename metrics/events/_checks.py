"""What arguments of scores of events must be."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._dispatch import refuse_datasets
from ens10.metrics._labels import check_alike

EventEstimator = Literal["plain", "fair"]


def check_probability(name: str, values: Any) -> None:
    """Refuse probabilities outside [0, 1]; NaN is let through.

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
            "Give probabilities, not per cent",
        )


def check_event(name: str, values: Any) -> None:
    """Refuse what is not 0 or 1 (or True or False); NaN is let through.

    Raises:
        ArgumentError: other values.
    """
    other = (values != 0) & (values != 1) & (values == values)  # not NaN
    if bool(other.any()):
        first = values[other].reshape(-1)[0] if values.ndim else values
        raise ArgumentError(
            name,
            f"{int(other.sum())} values are neither 0 nor 1, such as {float(first):.6g}",
            "Give 1 where the event happened, see exceedance_event",
        )


def check_estimator(estimator: str, members: int, nan: str) -> None:
    """Refuse an estimator that is unknown or undefined for the number of members.

    With "skip-members" the number is that of the points, which are then NaN instead.

    Raises:
        UnknownNameError: another estimator.
        ArgumentError: the fair one of a single member.
    """
    if estimator not in get_args(EventEstimator):
        raise UnknownNameError("estimator", estimator, get_args(EventEstimator))
    if estimator == "fair" and members < 2 and nan != "skip-members":
        raise ArgumentError(
            "members",
            f"the fair estimator is undefined for {members} member{'' if members == 1 else 's'}",
            "Give two or more, or take the plain estimator",
        )


def check_members(members: Any, member_dim: int | str, estimator: str, nan: str) -> None:
    """The same before anything lazy is built; an axis that is not there is refused later.

    Raises:
        UnknownNameError: another estimator.
        ArgumentError: the fair one of a single member, or a Dataset in the place of an array.
    """
    refuse_datasets({"members": members})
    if isinstance(members, xr.DataArray):
        size = members.sizes.get(member_dim, 2)
    else:
        shape = np.shape(members)
        there = not isinstance(member_dim, str) and -len(shape) <= (member_dim or 0) < len(shape)
        size = shape[member_dim or 0] if there else 2
    check_estimator(estimator, int(size), nan)


def check_units(arrays: Mapping[str, Any]) -> None:
    """Refuse DataArrays of different units, for scores that have no unit themselves.

    Raises:
        ArgumentError: units or coordinates that differ.
    """
    if any(isinstance(array, xr.DataArray) for array in arrays.values()):
        check_alike(arrays, list(arrays))


def check_sizes(arrays: Mapping[str, xr.DataArray]) -> None:
    """Refuse dimensions of several lengths, which nothing else sees where there are no coordinates.

    Raises:
        ArgumentError: such a dimension.
    """
    known: dict[str, tuple[str, int]] = {}
    for name, array in arrays.items():
        for dim, size in array.sizes.items():
            first, other = known.setdefault(str(dim), (name, size))
            if size != other:
                told = str(dim).lstrip("_")
                raise ArgumentError(name, f"{told} is {size} long, and {other} in {first}")
