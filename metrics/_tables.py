"""Convert arrays of any library to DataArrays, for scores whose result is a table or curve."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, checked_axes, core_first, loop_shape
from ens10.metrics._dispatch import backend_of, dask_array, fill_masked, on_host
from ens10.metrics._labels import check_alike, checked_core
from ens10.metrics._reduce import Over, check_unique, list_dimensions

Core = Mapping[str, Mapping[str, Dim]]  # array -> its core dimensions: our name -> the caller's


def as_labelled(
    arrays: Mapping[str, Any], core: Core | None = None, *, unlike: Sequence[str] = ()
) -> dict[str, xr.DataArray]:
    """Convert arrays to DataArrays that broadcast by dimension name; lazy ones stay lazy.

    Args:
        arrays: arrays of one library, or plain numbers, by argument name.
        core: for some arrays, dimensions that the others lack: the name that each gets, and the
            axis (or dimension of a DataArray) that it is.
        unlike: arrays that need not have the units of the others.

    Returns:
        DataArrays; core dimensions are named as in `core`. The other axes of plain arrays are
        named `dim_0`, `dim_1`, ... in the order of the scores' axes. Tensors lose their gradients.

    Raises:
        ArgumentError: arrays of several libraries, or that do not match.
    """
    core = dict(core or {})
    arrays = {name: fill_masked(array) for name, array in arrays.items()}
    dims = {name: tuple(axes.values()) for name, axes in core.items()}
    if backend_of(arrays) == "xarray":
        checked_core(arrays, dims)
        check_alike(arrays, [name for name in arrays if name not in unlike])
        return {
            name: _rename_dims(name, array, core.get(name, {})) if isinstance(array, xr.DataArray)
            else xr.DataArray(array)
            for name, array in arrays.items()
        }  # fmt: skip
    transposed = core_first({k: _on_host(v) for k, v in arrays.items()}, dims)
    loops = {k: tuple(v.shape[len(dims.get(k, ())) :]) for k, v in transposed.items()}
    shape = loop_shape(loops, dims)
    result = {}
    for name, array in transposed.items():
        core_names = tuple(core.get(name, {}))
        sizes = array.shape[: len(core_names)]
        wide = _broadcast(array, (*sizes, *shape)) if loops[name] else array
        outer = [f"dim_{i}" for i in range(len(shape))] if loops[name] else []
        result[name] = xr.DataArray(wide, dims=[*core_names, *outer])
    return result


def names_of(arrays: Mapping[str, xr.DataArray], dim: Over, original: Any) -> list[str]:
    """Return the names of the dimensions that the caller's argument `dim` selects.

    Args:
        arrays: as `as_labelled` returns them, without core dimensions.
        dim: numbers of axes (of arrays) or names (of DataArrays), or "all".
        original: one of the arrays as the caller passed it.

    Raises:
        ArgumentError: no such dimension, or None.
    """
    dims = list(dict.fromkeys(str(d) for array in arrays.values() for d in array.dims))
    if dim is None:
        raise ArgumentError("dim", "a table is a sum over dimensions", 'Pass them, or dim="all"')
    if dim == "all":
        return dims
    requested = list_dimensions(dim)
    check_unique(requested)
    if not isinstance(original, xr.DataArray):
        some = max(arrays.values(), key=lambda array: array.ndim)
        return [f"dim_{i}" for i in checked_axes("scores", some, requested)]
    for name in requested:
        if name not in dims:
            raise ArgumentError("dim", f"no dimension {name!r}, only {tuple(dims)}")
    return [str(name) for name in requested]


def _rename_dims(name: str, array: xr.DataArray, dim_names: Mapping[str, Dim]) -> xr.DataArray:
    for new, old in dim_names.items():
        if new != old and new in array.dims:
            reason = f"{new!r} is another one of {array.dims}, and stands for {old!r} in the result"
            raise ArgumentError(f"{name}'s dimension", reason, "Rename it")
    return array.rename({str(old): new for new, old in dim_names.items() if old != new})


def _on_host(value: Any) -> Any:
    return on_host(value) if hasattr(value, "detach") else _array(value)


def _array(value: Any) -> Any:

    return value if hasattr(value, "ndim") else np.asarray(value)


def _broadcast(array: Any, shape: tuple[int, ...]) -> Any:

    if backend_of({"array": array}) == "dask":
        return dask_array().broadcast_to(array, shape)
    return np.broadcast_to(array, shape)
