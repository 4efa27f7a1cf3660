"""Sums over points per bin, block by block, so that lazy arrays stay lazy."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.metrics._dispatch import dask_array

Array = npt.NDArray[Any]
_SLAB = 2**17  # points at a time: temporary arrays then stay in the cache


def sums_over(
    kernel: Callable[..., Array],
    arrays: Sequence[xr.DataArray],
    dims: Sequence[str],
    new: Mapping[str, int],
) -> xr.DataArray:
    """Sums over some dimensions that a kernel computes; the blocks of lazy arrays are added.

    Args:
        kernel: from one 2-d array for each of `arrays`, (points that stay, points that are summed
            over), to sums of shape (points that stay, *sizes of `new`), in float64.
        arrays: DataArrays that fit each other by dimension names.
        dims: the dimensions that are summed over.
        new: names and sizes of the dimensions of a sum.

    Returns:
        Sums over the other dimensions and `new`, with the coordinates of the former.
    """
    order = list(dict.fromkeys(str(d) for array in arrays for d in array.dims))
    kept = [d for d in order if d not in dims]
    order = [*kept, *dims]
    ready = [array.transpose(*(d for d in order if d in array.dims)) for array in arrays]
    places = [tuple(order.index(str(d)) for d in array.dims) for array in ready]
    block = partial(_of_block, kernel=kernel, places=places, kept=len(kept))
    if any(array.chunks is not None for array in ready):
        sums = _lazy(block, ready, places, len(kept), tuple(new.values()))
    else:
        sums = block(*(array.to_numpy() for array in ready))
        sums = sums.reshape(*sums.shape[: len(kept)], *new.values())
    coords = {k: v for a in ready[::-1] for k, v in a.coords.items() if set(v.dims) <= set(kept)}
    return xr.DataArray(sums, dims=[*kept, *new], coords=coords)


def _of_block(
    *blocks: Array, kernel: Callable[..., Array], places: Sequence[tuple[int, ...]], kept: int
) -> Array:
    """Sums of one block: the axes that stay, axes of length 1 for the others, the new ones."""
    ndim = 1 + max((place for axes in places for place in axes), default=-1)
    wide = []
    for block, axes in zip(blocks, places, strict=True):
        missing = tuple(i for i in range(ndim) if i not in axes)
        wide.append(np.expand_dims(block, missing))
    wide = list(np.broadcast_arrays(*wide))
    shape = wide[0].shape
    rows = [b.reshape(math.prod(shape[:kept]), math.prod(shape[kept:])) for b in wide]
    step = max(1, _SLAB // max(rows[0].shape[0], 1))
    slabs = range(0, max(rows[0].shape[1], 1), step)
    sums = np.asarray(sum(kernel(*(row[:, i : i + step] for row in rows)) for i in slabs))
    return sums.reshape(*shape[:kept], *(1,) * (ndim - kept), *sums.shape[1:])


def _lazy(
    block: Callable[..., Array],
    arrays: Sequence[xr.DataArray],
    places: Sequence[tuple[int, ...]],
    kept: int,
    new: tuple[int, ...],
) -> Any:
    ndim = 1 + max(place for axes in places for place in axes)
    added = tuple(range(ndim, ndim + len(new)))
    parts = dask_array().blockwise(
        block,
        (*range(ndim), *added),
        *(part for a, axes in zip(arrays, places, strict=True) for part in (a.data, axes)),
        new_axes=dict(zip(added, new, strict=True)),
        adjust_chunks=dict.fromkeys(range(kept, ndim), 1),
        dtype=np.float64,
        meta=np.empty((0,) * (ndim + len(new))),
    )
    return parts.sum(axis=tuple(range(kept, ndim)))


def binned(index: Array, weights: Iterable[Array], n: int) -> Array:
    """Sums of several weights by bin.

    Args:
        index: (points that stay, points), bins from 0 to n - 1.
        weights: each (points that stay, points).
        n: number of bins.

    Returns:
        (number of weights, points that stay, n), float64.
    """
    rows = index.shape[0]
    flat = (np.arange(rows)[:, None] * n + index).ravel()
    sums = [np.bincount(flat, w.ravel(), minlength=rows * n) for w in weights]
    return np.stack([s.reshape(rows, n) for s in sums]).astype(np.float64)  # of no points: integers
