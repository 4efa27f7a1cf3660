"""Check and prepare the input of extreme indices: members and model-climate quantiles."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, checked_axes
from ens10.metrics._dispatch import Array, compilable, refuse_datasets
from ens10.metrics._labels import check_alike, checked_core

Levels = npt.NDArray[np.float64]
_CLOSE = 1e-6  # tolerance for levels stored as float32
_FEW = 512  # below so many points, dates are processed together


def checked_levels(
    members: Any, climate: Any, member_dim: Dim, quantile_dim: Dim, levels: Any
) -> Levels:
    """Check that members and climate match, and return the levels of the climate's quantiles.

    Args:
        members: at least two along `member_dim`.
        climate: quantiles along `quantile_dim`.
        member_dim: member axis or dimension.
        quantile_dim: quantile axis or dimension of the climate.
        levels: levels in [0, 1]; None for those of the coordinate.

    Raises:
        ArgumentError: axes or coordinates that do not match, other units, one member, or levels
            that are missing, do not ascend, lie outside [0, 1] or differ in number from quantiles.
    """
    refuse_datasets({"members": members, "climate": climate})
    members, climate = (a if hasattr(a, "ndim") else np.asarray(a) for a in (members, climate))
    _check_two(_size(members, "members", member_dim))
    count = _size(climate, "climate", quantile_dim)
    check_alike({"members": members, "climate": climate}, ("members", "climate"))
    coordinate = None
    if isinstance(climate, xr.DataArray) and quantile_dim in climate.coords:
        coordinate = climate[quantile_dim].to_numpy()
    if coordinate is None and levels is None:
        raise ArgumentError(
            "levels",
            "the climate has no coordinate of levels",
            "Pass them, such as np.linspace(0, 1, 101)",
        )
    checked: Levels = np.asarray(coordinate if levels is None else levels, dtype=np.float64)
    if checked.shape != (count,):
        raise ArgumentError("levels", f"shape {checked.shape} for {count} quantiles of the climate")
    if not (np.diff(checked) > 0).all() or not (checked[0] >= 0 and checked[-1] <= 1):
        raise ArgumentError("levels", "they do not ascend from 0 or more to 1 or less")
    if coordinate is not None and not np.allclose(checked, coordinate, rtol=0, atol=_CLOSE):
        raise ArgumentError("levels", "they differ from the climate's coordinate", "Leave them out")
    return checked


def drop_coords(climate: Any) -> Any:
    """Drop the coordinates that describe the climate only, such as its sample sizes."""
    return climate.reset_coords(drop=True) if isinstance(climate, xr.DataArray) else climate


def check_even(levels: Levels, count: int | None, name: str) -> None:
    """Refuse levels that are not evenly spaced from 0 to 1, or not `count` in number.

    Raises:
        ArgumentError: such levels; for a `count` of None, fewer than 3 levels.
    """
    expected = count or max(levels.size, 3)
    if levels.size != expected or not np.allclose(levels, np.linspace(0, 1, expected), 0, _CLOSE):
        raise ArgumentError(
            "climate",
            f"{name} needs {count or '3 or more'} quantiles at levels evenly from 0 to 1, "
            f"got {levels.size} from {levels[0]:g} to {levels[-1]:g}",
            "Prepare a climate with these levels",
        )


def place_of(levels: Levels, level: float) -> int:
    """Return the position of a level.

    Raises:
        ArgumentError: the climate does not have it.
    """
    place = int(np.abs(levels - level).argmin())
    if abs(levels[place] - level) > _CLOSE:
        raise ArgumentError(
            "climate", f"no quantile at level {level:g}", "Prepare a climate with 101 levels"
        )
    return place


def over_points(kernel: Callable[[Array, Array], Array], members: Array, climate: Array) -> Array:
    """Apply a kernel of (M, N) and (K, N) to arrays whose other axes broadcast.

    A climate that is used for many dates is not copied for each of them.
    """
    loops = np.broadcast_shapes(members.shape[1:], climate.shape[1:])
    x = np.broadcast_to(members, (members.shape[0], *loops))
    q = np.broadcast_to(climate, (climate.shape[0], *loops))
    split_first = len(loops) > 1 and 0 not in loops and x[:, 0].size // x.shape[0] >= _FEW
    if split_first and not (x.flags.c_contiguous and q.flags.c_contiguous):
        return np.stack([over_points(kernel, x[:, n], q[:, n]) for n in range(loops[0])])
    flat = (as_read_only(a).reshape(a.shape[0], -1) for a in (x, q))
    return kernel(*flat).reshape(loops).astype(members.dtype, copy=False)


def as_read_only(array: Array) -> Array:
    """Return the array as compiled loops need it: contiguous and read-only."""
    view: Array = compilable(array).view()
    view.flags.writeable = False
    return view


def check_quantiles_ascend(q: Array) -> None:
    """Refuse quantiles (K, N) that do not ascend; points where all are NaN are accepted.

    Raises:
        ArgumentError: some do not, or some of a point are NaN.
    """
    from ens10.metrics.extremes import _kernels

    refuse(*_kernels.inspect(q))


def refuse(code: int, point: int) -> None:
    """Raise the error for a kernel's status code.

    Raises:
        ArgumentError: quantiles of the point do not ascend, or some of them are NaN.
    """
    from ens10.metrics.extremes import _kernels

    where = f"at point {point} of a field"
    if code == _kernels.UNSORTED:
        raise ArgumentError(
            "climate", f"quantiles that do not ascend {where}", "Sort them, by level"
        )
    if code == _kernels.PARTLY_NAN:
        raise ArgumentError(
            "climate", f"NaN among the quantiles {where}", "All or none of a point may be missing"
        )


def sort_members(x: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return members (M, N) sorted, missing ones last, and the number present, (N,)."""
    return np.sort(x, axis=0), (~np.isnan(x)).sum(axis=0)


def member_quantiles(
    sorted_x: Array, count: npt.NDArray[np.int64], levels: Levels
) -> npt.NDArray[np.float64]:
    """Return quantiles (numpy's "linear") of the members present, (levels, N), in float64.

    Args:
        sorted_x: sorted members, from `sort_members`.
        count: number of members present, from `sort_members`.
        levels: levels in [0, 1].
    """
    M = sorted_x.shape[0]
    if (count == M).all():  # rows instead of places that differ from point to point
        rows = levels * (M - 1)
        low = np.floor(rows).astype(np.int64)
        lower = sorted_x[low].astype(np.float64)
        part = (rows - low).reshape(-1, 1)
        upper = sorted_x[np.minimum(low + 1, M - 1)]
    else:
        last = np.maximum(count - 1, 0)
        rows = levels.reshape(-1, 1) * last
        low = np.floor(rows).astype(np.int64)
        lower = np.take_along_axis(sorted_x, low, axis=0).astype(np.float64)
        part, upper = rows - low, np.take_along_axis(sorted_x, np.minimum(low + 1, last), axis=0)
    quantiles: npt.NDArray[np.float64] = lower + (upper - lower) * part
    return quantiles


def _size(array: Any, name: str, dim: Dim) -> int:
    if isinstance(array, xr.DataArray):
        checked_core({name: array}, {name: (dim,)})
        return int(array.sizes[dim])
    return int(array.shape[checked_axes(name, array, (dim,))[0]])


def _check_two(M: int) -> None:
    if M < 2:
        raise ArgumentError("members", f"{M} member is not a distribution", "Pass two or more")
