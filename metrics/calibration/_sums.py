"""What additive tables have in common: arguments, missing points, edges of bins."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, checked_axes
from ens10.metrics._reduce import Nan, Over
from ens10.metrics._tables import as_labelled, names_of
from ens10.metrics.calibration._blocks import STAT, Kernel, block_sums

Floats = npt.NDArray[np.float64]


def sums_over(
    name: str,
    kernel: Kernel,
    size: int,
    arrays: Mapping[str, Any],
    core: Mapping[str, Mapping[str, Dim]],
    *,
    dim: Over,
    weights: Any,
    nan: str,
    unlike: Sequence[str] = (),
    extra: Sequence[xr.DataArray] = (),
) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Sums of a kernel over points, which leaves out those with a NaN and counts them.

    Args:
        name: of the caller.
        kernel: as for `block_sums`, of the arrays, the weights and `extra`; its last two
            statistics are the numbers of points with and without a value.
        size: number of its other statistics.
        arrays: as the caller gave them; of the first all dimensions but its core are points'.
        core: dimensions of arrays that points have not; one that is not `MEMBER` is kept.
        dim: what is summed over.
        weights: of points, or None.
        nan: "propagate" makes the sums NaN where a point is left out; "omit" does not.
        unlike: arrays that need not have the units of the others.
        extra: more arrays for the kernel, by dimension names.

    Returns:
        The sums over the kept dimensions and `STAT`; how many points have a value; how many not.

    Raises:
        ArgumentError: arrays that do not fit, no such dimension, negative weights.
        UnknownNameError: another policy.
    """
    if nan not in get_args(Nan):
        raise UnknownNameError("nan", nan, get_args(Nan))
    given = dict(arrays) | ({} if weights is None else {"weights": weights})
    found = as_labelled(given, core, unlike=[*unlike, "weights"])
    if weights is not None:
        _check_weights(found, as_labelled(arrays, core, unlike=unlike))
    named = {name for dims in core.values() for name in dims}
    points = {k: v.isel({d: 0 for d in named if d in v.dims}, drop=True) for k, v in found.items()}
    names = names_of(points, dim, next(iter(arrays.values())))
    w = found.pop("weights", xr.DataArray(1.0))
    total = block_sums(name, kernel, [*found.values(), w, *extra], names, size + 2)
    sums, count, missing = (total.isel({STAT: place}) for place in (slice(None, -2), -2, -1))
    if nan == "propagate":
        sums = sums.where(missing == 0)
    told = {"units": "1"}
    count = count.astype(np.int64).assign_attrs(long_name="number of points", **told)
    missing = missing.astype(np.int64).assign_attrs(long_name="points left out", **told)
    return sums, count, missing


def _check_weights(found: Mapping[str, xr.DataArray], points: Mapping[str, xr.DataArray]) -> None:
    """Refuse weights below 0, or that are of more points than there are.

    Raises:
        ArgumentError: such weights.
    """
    w = found["weights"]
    if any(found[name].sizes != array.sizes for name, array in points.items()):
        raise ArgumentError("weights", "a shape that does not broadcast to the points")
    extra = sorted({str(d) for d in w.dims} - {str(d) for a in points.values() for d in a.dims})
    if extra:
        raise ArgumentError("weights", f"dimensions {extra} that the points have not")
    if w.chunks is None and bool((w < 0).any()):
        raise ArgumentError("weights", "some are negative")


def core_size(name: str, array: Any, dim: Dim) -> int:
    """The length of a core dimension; 1 if a DataArray lacks it, which is refused later.

    Raises:
        ArgumentError: an array has no such axis, or a Dataset in its place.
    """
    if isinstance(array, xr.DataArray):
        return int(array.sizes.get(dim, 1))
    axis = checked_axes(name, array, [dim])[0]
    return int(array.shape[axis])


def binned(index: npt.NDArray[np.int64], bins: int, *values: Floats) -> Floats:
    """Sums of values in each bin, shape (rows, number of values * bins).

    Args:
        index: bins of points, (rows, points).
        bins: how many there are.
        *values: (rows, points), 0 where a point does not count.
    """
    K = index.shape[0]
    flat = (index + np.arange(K)[:, None] * bins).ravel()
    sums = [np.bincount(flat, v.ravel(), minlength=K * bins).reshape(K, bins) for v in values]
    return np.concatenate(sums, axis=1)


def counts_last(there: npt.NDArray[np.bool_]) -> Floats:
    """The number of points with and without a value, shape (rows, 2)."""
    present = there.sum(axis=1)
    return np.stack([present, there.shape[1] - present], axis=1).astype(np.float64)


def checked_edges(edges: Sequence[float] | npt.NDArray[Any], least: int = 1) -> Floats:
    """Edges of bins as float64.

    Raises:
        ArgumentError: fewer than `least`, not finite, or not rising.
    """
    found = np.asarray(edges, dtype=np.float64)
    if found.ndim != 1 or found.size < least:
        raise ArgumentError("edges", f"expected {least} or more, got shape {found.shape}")
    if not np.isfinite(found).all() or (np.diff(found) <= 0).any():
        raise ArgumentError("edges", "they are not finite, or do not rise")
    return found


def written(edges: Floats) -> str:
    """Edges as a text attribute, which compares, merges and goes to netCDF exactly."""
    return " ".join(repr(float(e)) for e in edges)


def read_edges(sums: xr.Dataset) -> Floats:
    """The edges that `written` wrote."""
    return np.array([float(e) for e in str(sums.attrs["edges"]).split()])


def checked_sums(sums: Any, names: Sequence[str], maker: str) -> xr.Dataset:
    """A Dataset that has these variables.

    Raises:
        ArgumentError: it is none, or lacks one.
    """
    lacking = [n for n in names if n not in getattr(sums, "data_vars", ())]
    if not isinstance(sums, xr.Dataset) or lacking:
        raise ArgumentError("sums", f"they lack {', '.join(lacking)}", f"Give those of {maker}")
    return sums
