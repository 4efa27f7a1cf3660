"""Random numbers that depend on the seed and a point's coordinates, not on chunks or order.

A number is a hash (the finaliser of splitmix64; Steele et al. 2014, doi:10.1145/2660193.2660195)
of the seed and of the point's coordinate along each dimension (its position along dimensions
without coordinates). A date scored alone therefore gets the same numbers as among others, if it
has its coordinate. The numbers have 23 bits, which float32 holds exactly.
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import backend_of
from ens10.metrics._tables import as_labelled

Keys = npt.NDArray[np.uint64]
_GOLDEN, _ONE, _TWO = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def scramble(keys: Keys) -> Keys:
    """Scramble 64-bit numbers by a bijection, so that neighbours become uncorrelated."""
    z = (keys ^ (keys >> np.uint64(30))) * _ONE
    z = (z ^ (z >> np.uint64(27))) * _TWO
    return z ^ (z >> np.uint64(31))


def uniform(*keys: Any, dtype: Any = np.float64) -> npt.NDArray[np.floating[Any]]:
    """Return uniform numbers inside (0, 1) from the keys of dimensions, which broadcast."""
    from ens10.metrics._random_loops import to_uniform

    total = np.zeros(1, dtype=np.uint64)
    for key in keys:
        total = total + key
    shape = np.broadcast_shapes(*(np.shape(key) for key in keys))
    numbers = np.empty(total.size, dtype)
    to_uniform(np.ascontiguousarray(total).reshape(-1), numbers)
    return numbers.reshape(shape)


def dimension_keys(arrays: Mapping[str, xr.DataArray], seed: int) -> list[xr.DataArray]:
    """Return keys for the positions along each dimension; their sum is the key of a point.

    Args:
        arrays: DataArrays without core dimensions.
        seed: any whole number.

    Returns:
        uint64, one with each dimension (chunked as the arrays are) and one without any.

    Raises:
        ArgumentError: a seed that is not a whole number.
    """
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
        raise ArgumentError("seed", f"expected a whole number, got {seed!r}")
    start = scramble(np.array([int(seed) % 2**64], dtype=np.uint64) + _GOLDEN)
    keys = [xr.DataArray(start[0])]
    dims = dict.fromkeys(dim for array in arrays.values() for dim in array.dims)
    for dim in dims:
        holder = [a for a in arrays.values() if dim in a.dims]
        indexes = [a.indexes[dim] for a in holder if dim in a.indexes]
        labels = indexes[0].to_numpy() if indexes else np.arange(holder[0].sizes[dim])
        salt = np.array([_hash(str(dim))], dtype=np.uint64) + start
        key = xr.DataArray(scramble(scramble(_bits(labels) + salt)), dims=[dim])
        lengths = [a.variable.chunksizes[dim] for a in holder if a.chunks is not None]
        keys.append(key.chunk({dim: lengths[0]}) if lengths else key)
    return keys


def draws(
    arrays: Mapping[str, Any],
    core: Mapping[str, Mapping[str, int | str]],
    seed: int,
    unlike: Sequence[str] = (),
) -> Any:
    """Return random numbers in (0, 1) for the points of some arrays, in their library.

    Args:
        arrays: the arguments of a score by name; of one library.
        core: by array, the dimensions that points lack: the name they get, and their axis.
        seed: any whole number.
        unlike: arrays that need not have the units of the others.

    Raises:
        ArgumentError: arrays that do not match, units that differ, a seed that is no number.
    """
    labelled = as_labelled(arrays, core, unlike=unlike)
    points = {
        name: array.isel(dict.fromkeys(core.get(name, {}), 0), drop=True)
        for name, array in labelled.items()
    }
    numbers_of_points = xr.apply_ufunc(
        uniform,
        *dimension_keys(points, seed),
        kwargs={"dtype": _dtype(points)},
        dask="parallelized",
        output_dtypes=[_dtype(points)],
    )
    kind = backend_of(dict(arrays))
    if kind == "xarray":
        return numbers_of_points
    if kind == "torch":
        like = next(a for a in arrays.values() if hasattr(a, "new_tensor"))
        numbers = numbers_of_points.to_numpy()
        torch: Any = import_module("torch")  # integer tensors would cut the numbers off
        dtype = like.dtype if like.dtype.is_floating_point else None
        return torch.as_tensor(numbers, dtype=dtype, device=like.device)
    return numbers_of_points.data


def _dtype(arrays: Mapping[str, xr.DataArray]) -> Any:
    dtype = np.result_type(*(a.dtype for a in arrays.values() if a.ndim), np.float32)
    return np.float32 if dtype == np.float32 else np.float64


def _bits(labels: npt.NDArray[Any]) -> Keys:
    """Return 64 bits for each label; equal numbers and times have equal bits in any dtype."""
    if labels.dtype.kind in "mM":
        microseconds = labels.astype(f"{labels.dtype.kind}8[us]").astype(np.int64)
        return microseconds.view(np.uint64)
    if labels.dtype.kind in "iufb":
        return (labels.astype(np.float64) + 0.0).view(np.uint64)  # + 0.0: no negative zero
    return np.array([_hash(str(label)) for label in labels], dtype=np.uint64)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
