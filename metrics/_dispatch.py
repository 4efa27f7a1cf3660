"""Find the library of arrays (numpy, torch, xarray, dask) without importing torch or dask."""

import sys
from collections.abc import Mapping
from importlib import import_module
from numbers import Number
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, listing

Backend = Literal["torch", "xarray", "dask", "numpy"]
Array = npt.NDArray[np.floating[Any]]
_SCALARS = (Number, np.generic, str, bytes)  # `np.isscalar` breaks a graph of `torch.compile`


def backend_of(arrays: dict[str, Any]) -> Backend:
    """Return the library that all of `arrays` belong to; plain numbers fit every library.

    Args:
        arrays: the arguments of a score by name.

    Raises:
        ArgumentError: arrays of two libraries that do not mix, such as torch and numpy, or a
            Dataset in the place of an array.
    """
    refuse_datasets(arrays)
    libraries = {
        name: _library(value) for name, value in arrays.items() if not isinstance(value, _SCALARS)
    }
    kinds = set(libraries.values())
    if kinds <= {"numpy"}:
        return "numpy"
    if kinds <= {"numpy", "dask"}:
        return "dask"
    if len(kinds) > 1:
        description = ", ".join(f"{name} is {kind}" for name, kind in libraries.items())
        raise ArgumentError(
            next(iter(libraries)),
            f"arrays of several libraries ({description})",
            "Pass all from one library",
        )
    return kinds.pop()


def library_of(array: Any) -> Any:
    """Return the module with the functions of an array's library: numpy, dask.array, torch, xarray.

    The array may be a plain number, whose library is numpy.
    """
    kind = _library(array)
    if kind == "dask":
        return dask_array()
    return {"numpy": np, "xarray": xr, "torch": sys.modules.get("torch")}[kind]


def refuse_datasets(arrays: Mapping[str, Any]) -> None:
    """Refuse a Dataset in the place of an array.

    Raises:
        ArgumentError: one of them is a Dataset; the message lists its variables.
    """
    for name, value in arrays.items():
        if isinstance(value, xr.Dataset):
            names = [repr(str(n)) for n in value.data_vars]
            raise ArgumentError(
                name,
                f"expected a DataArray, not a Dataset (its variables: {listing(names) or 'none'})",
                f"Choose one variable, such as ds[{names[0] if names else '...'}]",
            )


def _library(value: Any) -> Backend:
    if isinstance(value, xr.DataArray):
        return "xarray"
    torch, dask = sys.modules.get("torch"), sys.modules.get("dask.array")
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    if dask is not None and isinstance(value, dask.Array):
        return "dask"
    return "numpy"


def fill_masked(value: Any) -> Any:
    """Return an array in which masked values are NaN; an array without a mask is unchanged.

    This is the one place where a numpy mask becomes a missing value. The scores ignore masks:
    `np.asarray` would drop them, and the fill value would be scored.

    Args:
        value: anything. Masked arrays of numpy, dask arrays of them and DataArrays of such dask
            arrays are converted; integers and truth values become float64.
    """
    if isinstance(value, xr.DataArray):
        if value.chunks is None:  # xarray itself makes NaN of the masks of numpy arrays
            return value
        filled = fill_masked(value.data)
        return value if filled is value.data else value.copy(data=filled)
    if isinstance(value, np.ma.MaskedArray):
        floats = np.ma.asarray(value, dtype=common_dtype(value))
        return floats.filled(np.nan)
    if isinstance(getattr(value, "_meta", None), np.ma.MaskedArray):
        dtype = common_dtype(value)
        return value.map_blocks(fill_masked, dtype=dtype, meta=np.empty((0,) * value.ndim, dtype))
    return value


def as_array(values: Any, dtype: Any = None) -> npt.NDArray[Any]:
    """Convert numbers to a numpy array, in which masked values are NaN."""
    return np.asarray(fill_masked(values), dtype=dtype)


def common_dtype(*arrays: Any) -> np.dtype[np.floating[Any]]:
    """Return the floating dtype of a result: that of the arrays, or float64 for integers.

    Plain numbers do not widen float32 (numpy's promotion rules since 2.0).
    """
    typed = (a if np.isscalar(a) or hasattr(a, "dtype") else np.asarray(a) for a in arrays)
    dtype = np.result_type(*(a if np.isscalar(a) else a.dtype for a in typed))
    return dtype if np.issubdtype(dtype, np.floating) else np.dtype(np.float64)


def compilable(array: Any) -> Any:
    """Return the array as compiled loops need it: contiguous, half precision as float32."""
    dtype = np.float32 if array.dtype == np.float16 else array.dtype
    return np.ascontiguousarray(array, dtype=dtype)


_SMALL = 2**15  # numbers: fewer take numpy about a millisecond, and nobody waits for a compiler


def uses_loops(array: Any) -> bool:
    """Return True if compiled loops compute a score of an array of numpy or torch.

    They take numbers of single or double precision in the memory of the host, if there are many.
    """
    size, dtype, torch = array.size, array.dtype, sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if type(array) not in (torch.Tensor, torch.nn.Parameter) or array.device.type != "cpu":
            return False
        size, wide = array.numel(), dtype in (torch.float32, torch.float64)
        return wide and size >= _SMALL and array.layout == torch.strided
    return size >= _SMALL and dtype in (np.dtype(np.float32), np.dtype(np.float64))


def on_host(tensor: Any) -> Any:
    """Return a tensor's values as a numpy array; bfloat16, which numpy lacks, as float32."""
    values = tensor.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()


def cast(values: Any, like: Any) -> Any:
    """Return a numpy array or a tensor in the dtype of another."""
    return values.to(like.dtype) if hasattr(values, "to") else np.asarray(values, dtype=like.dtype)


def sorted_first(x: Any) -> Any:
    """Return a numpy array or a tensor sorted along its first axis; NaN goes last."""
    return x.sort(dim=0).values if hasattr(x, "detach") else np.sort(x, axis=0)


def detached(value: Any) -> Any:
    """Return a tensor without its gradient; anything else unchanged."""
    return value.detach() if hasattr(value, "detach") else value


def dask_array() -> Any:
    """Import `dask.array` (which has no type hints); called for lazy arrays only."""
    return import_module("dask.array")
