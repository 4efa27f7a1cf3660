"""The levels of quantile forecasts: checked, and matched with the axis that they belong to."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, checked_axes, loop_shape
from ens10.metrics._dispatch import backend_of
from ens10.metrics._labels import checked_core

Levels = npt.NDArray[np.float64]


def checked_levels(levels: Sequence[float] | npt.NDArray[Any] | float) -> Levels:
    """Levels of quantiles as float64, shape (K,).

    Raises:
        ArgumentError: none, some outside (0, 1), or not rising.
    """
    found = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    if found.ndim != 1 or not found.size:
        raise ArgumentError("levels", f"expected one for each quantile, got shape {found.shape}")
    outside = found[~((found > 0) & (found < 1))]
    if outside.size:
        raise ArgumentError("levels", f"{outside[0]:g} is not between 0 and 1")
    if (np.diff(found) <= 0).any():
        raise ArgumentError(
            "levels", f"they do not rise: {found.tolist()}", "Sort levels and quantiles alike"
        )
    return found


def levels_of(values: Any, levels: Any, quantile_dim: Dim) -> Levels:
    """Checked levels that are as many as the quantiles, and what their coordinate says.

    Raises:
        ArgumentError: no such dimension, another number of levels, other levels than the
            coordinate of the dimension.
    """
    found = checked_levels(levels)
    if isinstance(values, xr.DataArray):
        checked_core({"values": values}, {"values": [quantile_dim]})
        size, index = values.sizes[quantile_dim], values.indexes.get(quantile_dim)
    else:
        axis = checked_axes("values", values, [quantile_dim])[0]
        size, index = values.shape[axis], None
    if size != found.size:
        raise ArgumentError("levels", f"{found.size} levels for {size} quantiles")
    # stored levels may be float32
    if index is not None and not np.allclose(index.to_numpy().astype(float), found, atol=1e-6):
        raise ArgumentError(
            "levels", f"{found.tolist()}, but {quantile_dim} has {index.tolist()}", "Give the same"
        )
    return found


def along(values: Any, y: Any, levels: Levels, quantile_dim: Dim) -> tuple[Any, Any]:
    """Observations and levels that broadcast to quantiles, elementwise.

    Raises:
        ArgumentError: observations that do not fit, or with a quantile dimension of their own.
    """
    if isinstance(values, xr.DataArray):
        checked_core({"values": values, "y": y}, {"values": [quantile_dim]})
        dtype = values.dtype if values.dtype.kind == "f" else np.float64
        return y, xr.DataArray(levels.astype(dtype), dims=[quantile_dim])
    axis = checked_axes("values", values, [quantile_dim])[0]
    ones = (1,) * axis + (-1,) + (1,) * (values.ndim - 1 - axis)
    loops = tuple(n for i, n in enumerate(values.shape) if i != axis)
    observed = y if hasattr(y, "shape") else np.asarray(y)
    loop_shape({"values": loops, "y": tuple(observed.shape)}, {"values": (axis,)})
    if observed.ndim:
        shape = (1,) * (len(loops) - observed.ndim) + tuple(observed.shape)
        y = observed.reshape((*shape[:axis], 1, *shape[axis:]))
    if backend_of({"values": values}) == "torch":
        floating = values if values.dtype.is_floating_point else values.double()
        return y, floating.new_tensor(levels.tolist()).reshape(ones)
    dtype = values.dtype if values.dtype.kind == "f" else np.float64
    return y, levels.astype(dtype).reshape(ones)
