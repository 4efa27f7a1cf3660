"""Which library holds the arrays of a call, told without importing torch or dask."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, listing

Backend = Literal["torch", "xarray", "dask", "numpy"]
Array = npt.NDArray[np.floating[Any]]


def backend_of(arrays: dict[str, Any]) -> Backend:
    """The library that holds all of `arrays`; plain numbers fit every library.

    Args:
        arrays: the arguments of a score by name.

    Raises:
        ArgumentError: arrays of two libraries that do not mix, such as torch and numpy, or a
            Dataset in the place of an array.
    """
    refuse_datasets(arrays)
    found = {name: _one(value) for name, value in arrays.items() if not np.isscalar(value)}
    kinds = set(found.values())
    if kinds <= {"numpy"}:
        return "numpy"
    if kinds <= {"numpy", "dask"}:
        return "dask"
    if len(kinds) > 1:
        told = ", ".join(f"{name} is {kind}" for name, kind in found.items())
        raise ArgumentError(next(iter(found)), f"arrays of several libraries ({told})", "Give one")
    return kinds.pop()


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
                f"a DataArray is wanted, not a Dataset (its variables: {listing(names) or 'none'})",
                f"Choose one variable, such as ds[{names[0] if names else '...'}]",
            )


def _one(value: Any) -> Backend:
    if isinstance(value, xr.DataArray):
        return "xarray"
    torch, dask = sys.modules.get("torch"), sys.modules.get("dask.array")
    if torch is not None and isinstance(value, torch.Tensor):
        return "torch"
    if dask is not None and isinstance(value, dask.Array):
        return "dask"
    return "numpy"


def common_dtype(*arrays: Any) -> np.dtype[np.floating[Any]]:
    """The floating dtype of a result: the arrays' own, or float64 for integers.

    Plain numbers do not widen float32 (numpy's promotion rules since 2.0).
    """
    held = (a if np.isscalar(a) or hasattr(a, "dtype") else np.asarray(a) for a in arrays)
    dtype = np.result_type(*(a if np.isscalar(a) else a.dtype for a in held))
    return dtype if np.issubdtype(dtype, np.floating) else np.dtype(np.float64)


def compilable(array: Any) -> Any:
    """The array as compiled loops take it: contiguous, and half precision as float32."""
    dtype = np.float32 if array.dtype == np.float16 else array.dtype
    return np.ascontiguousarray(array, dtype=dtype)


def on_host(tensor: Any) -> Any:
    """A tensor's values as a numpy array; bfloat16, which numpy lacks, as float32."""
    values = tensor.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()


def dask_array() -> Any:
    """`dask.array`, which has no type hints, imported when a lazy array is there."""
    return import_module("dask.array")
