"""The sums of a weighted mean, of arrays of any library, and the division that makes the mean.

`mean_over`, `mean_state` and `finish_mean` are these two functions with different labels; the
compiled sums of fields in `_field_sums` are their fast path for whole forecasts.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from ens10.metrics._dispatch import library_of

Sums = TypeVar("Sums")  # an array of any library


def weighted_sums(
    values: Any,
    w: Any,
    axes: Any,
    *,
    number: Any = 1.0,
    add: Callable[[Any, Any], Any] | None = None,
) -> tuple[Any, Any]:
    """Return sum(w s) and sum(w) over points, or over sums of points.

    Args:
        values: scores s of points, or their sums over points of equal weight; arrays of any
            library.
        w: weights of the same library, which broadcast to the values.
        axes: axes that are summed over, names for DataArrays.
        number: how many points each value is the sum of.
        add: function from an array and axes to its sums; None for the plain sum.
    """
    add = add or _sum
    return add(values * w, axes), add(number * w, axes)


def leave_out_missing(values: Any, w: Any) -> tuple[Any, Any]:
    """Return values and weights that are 0 where either is NaN."""
    xp, missing = library_of(values), (values != values) | (w != w)
    # a product with 0 would keep the NaN, and its gradient
    return xp.where(missing, 0.0, values), xp.where(missing, 0.0, w)


def _sum(values: Any, axes: Any) -> Any:
    return values.sum(axes, skipna=False) if isinstance(values, xr.DataArray) else values.sum(axes)


def ratio(total: Sums, weight: Sums) -> Sums:
    """Return the mean total / weight; NaN where the weight is 0."""
    numerator: Any = total
    mean: Sums = numerator / library_of(weight).where(weight == 0, np.nan, weight)
    return mean
