"""Variable axes of forecasts and observations, and weights of variables."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, checked_axes
from ens10.metrics._dispatch import as_array, refuse_datasets
from ens10.metrics._labels import check_alike, checked_core
from ens10.metrics._reduce import list_dimensions

Axes = dict[str, tuple[Dim, ...]]


def variable_axes(
    members: Any, y: Any, member_dim: Dim, variable_dim: Dim | Sequence[Dim]
) -> tuple[Axes, tuple[int, ...]]:
    """Return the core axes of a multivariate score, and the shape of the variables.

    Axis numbers are those of `members`, with its member axis; the axes of `y` are found from the
    right, as arrays broadcast.

    Args:
        members: the ensemble.
        y: observations, without member axis.
        member_dim: the member axis.
        variable_dim: the axis or axes of a norm or a sum.

    Returns:
        The argument `core` of `apply`, and the lengths of the variable axes.

    Raises:
        ArgumentError: no variable axis, no such axis, observations of other variables, or a
            Dataset in the place of an array.
    """
    refuse_datasets({"members": members, "y": y})
    dims = tuple(list_dimensions(variable_dim))
    if not dims or member_dim in dims:
        raise ArgumentError(
            "variable_dim", f"expected one or several axes beside {member_dim!r}, got {dims}"
        )
    if isinstance(members, xr.DataArray):
        core: Axes = {"members": (member_dim, *dims), "y": dims}
        checked_core({"members": members}, {"members": core["members"]})
        lengths = [tuple(array.sizes[d] for d in dims if d in array.dims)
                   for array in (members, y) if isinstance(array, xr.DataArray)]  # fmt: skip
    else:
        core = _axes_by_number(members, y, member_dim, dims)
        lengths = [tuple(np.shape(a)[int(axis)] for axis in core[name][-len(dims) :])
                   for name, a in (("members", members), ("y", y))]  # fmt: skip
    shape = lengths[0]
    if len(lengths[-1]) == len(shape) and lengths[-1] != shape:
        raise ArgumentError(
            "y", f"{lengths[-1]} variables, and the members have {shape}", "Pass the same ones"
        )
    return core, shape


def _axes_by_number(members: Any, y: Any, member_dim: Dim, dims: Sequence[Dim]) -> Axes:
    ndim, y_ndim = len(np.shape(members)), len(np.shape(y))
    array = members if hasattr(members, "ndim") else np.asarray(members)
    member, *variables = checked_axes("members", array, (member_dim, *dims))
    back = tuple(axis - (axis > member) - (ndim - 1) for axis in variables)
    if y_ndim > ndim - 1 or any(axis < -y_ndim for axis in back):
        raise ArgumentError(
            "y",
            f"shape {tuple(np.shape(y))} does not have the variables of members of shape "
            f"{tuple(np.shape(members))} (axes {tuple(dims)}, member axis {member_dim})",
            "Pass the members' shape without the member axis",
        )
    return {"members": (member, *variables), "y": back}


def size_of(members: Any, dim: Dim) -> int:
    """Return the length of one axis of the members."""
    if isinstance(members, xr.DataArray):
        return int(members.sizes.get(dim, 0))
    shape = np.shape(members)
    return int(shape[int(dim)])


def root_weights(weights: Any, members: Any, core: Axes, shape: tuple[int, ...]) -> Any:
    """Return square roots of the variables' weights, in the shape of the variables, or None.

    Args:
        weights: numbers, an array of any library or a DataArray that broadcasts to the variables.
        members: the ensemble, whose coordinates the weights must have if both are labelled.
        core: from `variable_axes`.
        shape: shape of the variables.

    Raises:
        ArgumentError: negative weights (tensors are not checked), or ones that do not fit.
    """
    if weights is None:
        return None
    if isinstance(weights, xr.DataArray):
        weights = _order_dims(weights, members, core["members"][1:])
    try:
        fits = np.broadcast_shapes(np.shape(weights), shape) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(
            "variable_weights",
            f"shape {tuple(np.shape(weights))} does not broadcast to the variables' {shape}",
        )
    if hasattr(weights, "movedim"):  # a tensor: looking at it would wait for the device
        return weights.detach().sqrt().expand(shape)
    values = as_array(weights, dtype=np.float64)
    if not (values >= 0).all():
        raise ArgumentError("variable_weights", "some are negative or NaN", "Pass 0 or more")
    return np.sqrt(np.broadcast_to(values, shape))


def _order_dims(weights: xr.DataArray, members: Any, dims: Sequence[Dim]) -> Any:
    extra = [d for d in weights.dims if d not in dims]
    if extra:
        raise ArgumentError(
            "variable_weights", f"dimensions {extra} are not variable dimensions, which are {dims}"
        )
    check_alike({"members": members, "variable_weights": weights}, ())
    absent = {d: 1 for d in dims if d not in weights.dims}
    return weights.expand_dims(absent).transpose(*dims).to_numpy()


def flatten(array: Any, leading: int, variables: int) -> Any:
    """Reshape to (leading axes, all variables in one axis, all points in one axis)."""
    shape = tuple(array.shape)
    outer = shape[leading + variables :]
    inner = shape[leading : leading + variables]
    return array.reshape(*shape[:leading], math.prod(inner), math.prod(outer))
