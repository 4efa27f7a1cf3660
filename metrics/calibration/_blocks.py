"""Sums over points in one pass: by blocks, so that lazy arrays stay lazy and caches are kept."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.metrics._call import RechunkWarning
from ens10.metrics._dispatch import dask_array
from ens10.metrics._labels import joined_message

MEMBER = "__core__"
STAT = "__stat__"
_VALUES = 2**19  # of the largest array, looked at together: 2 MiB in float32
Kernel = Callable[..., npt.NDArray[np.float64]]


def block_sums(
    name: str, kernel: Kernel, arrays: Sequence[xr.DataArray], dims: Sequence[str], size: int
) -> xr.DataArray:
    """Additive statistics of points, over some of their dimensions.

    Args:
        name: of the caller, for the warning that chunks of members are joined.
        kernel: takes the arrays with shape (kept, reduced), those with the dimension `MEMBER` with
            that first, and returns float64 (kept, size): sums over the reduced points.
        arrays: DataArrays that fit by dimension names; all or none of them lazy or not.
        dims: what is summed over.
        size: number of statistics.

    Returns:
        float64 over the other dimensions and `STAT`; lazy if an array is.
    """
    points = list(dict.fromkeys(d for a in arrays for d in a.dims if d != MEMBER))
    kept, reduced = [d for d in points if d not in dims], [d for d in points if d in dims]
    labels = [[d for d in (MEMBER, *kept, *reduced) if d in a.dims] for a in arrays]
    ordered = [a.transpose(*own) for a, own in zip(arrays, labels, strict=True)]
    block = partial(_block, kernel, labels, kept, reduced, size)
    blocks = [len(a.variable.chunksizes[MEMBER]) for a in arrays if a.chunks and MEMBER in a.dims]
    if max(blocks, default=1) > 1:
        text = joined_message(name, "members", blocks)
        warnings.warn(text, RechunkWarning, stacklevel=4)
    if any(a.chunks is not None for a in arrays):
        made = _on_dask(block, ordered, labels, kept, reduced, size)
    else:
        made = block(*(a.to_numpy() for a in ordered)).sum(axis=_places(kept, reduced))
    coords = {d: a.indexes[d] for a in arrays for d in a.indexes if d in kept}
    return xr.DataArray(made, dims=[*kept, STAT], coords=coords)


def _places(kept: Sequence[Any], reduced: Sequence[Any]) -> tuple[int, ...]:
    return tuple(range(len(kept), len(kept) + len(reduced)))


def _on_dask(
    block: Any,
    arrays: Sequence[xr.DataArray],
    labels: Sequence[Sequence[Any]],
    kept: Sequence[Any],
    reduced: Sequence[Any],
    size: int,
) -> Any:
    da = dask_array()
    pairs: list[Any] = []
    for array, own in zip(arrays, labels, strict=True):
        lazy = da.asarray(array.data)
        pairs += [lazy.rechunk({own.index(MEMBER): -1}) if MEMBER in own else lazy, tuple(own)]
    made = da.blockwise(
        block,
        (*kept, *reduced, STAT),
        *pairs,
        new_axes={STAT: size},
        adjust_chunks=dict.fromkeys(reduced, 1),
        concatenate=True,
        dtype=np.float64,
        meta=np.empty((0,) * (len(kept) + len(reduced) + 1)),
    )
    return made.sum(axis=_places(kept, reduced))


def _block(
    kernel: Kernel,
    labels: Sequence[Sequence[Any]],
    kept: Sequence[Any],
    reduced: Sequence[Any],
    size: int,
    *blocks: npt.NDArray[Any],
) -> npt.NDArray[np.float64]:
    """The sums of one block, with axes of length 1 where it was summed."""
    sizes = {d: n for own, b in zip(labels, blocks, strict=True) for d, n in zip(own, b.shape, strict=True)}  # noqa: E501  # fmt: skip
    points = [*kept, *reduced]
    shape = [*(sizes[d] for d in kept), *(1 for _ in reduced), size]
    out = np.zeros(shape)
    core = sizes.get(MEMBER, 1)
    for part in _parts([sizes[d] for d in points], max(1, _VALUES // core)):
        chosen = dict(zip(points, part, strict=True))
        ready = [
            _flat(b[tuple(chosen.get(d, slice(None)) for d in own)], own, kept, reduced, chosen)
            for own, b in zip(labels, blocks, strict=True)
        ]
        place = (*part[: len(kept)], *(slice(None) for _ in reduced))
        out[place] += kernel(*ready).reshape(out[place].shape)
    return out


def _parts(sizes: Sequence[int], most: int) -> list[tuple[slice, ...]]:
    """Boxes of up to `most` points, as long as they can be along the last dimensions."""
    lengths, left = [], most
    for n in reversed(sizes):
        lengths.append(max(1, min(n, left)))
        left = max(1, left // max(1, n))
    steps = list(reversed(lengths))
    if 0 in sizes:
        return []
    starts = np.ndindex(*(-(-n // step) for n, step in zip(sizes, steps, strict=True)))
    return [
        tuple(slice(i * s, min((i + 1) * s, n)) for i, s, n in zip(at, steps, sizes, strict=True))
        for at in starts
    ]


def _flat(
    array: npt.NDArray[Any],
    own: Sequence[Any],
    kept: Sequence[Any],
    reduced: Sequence[Any],
    chosen: dict[Any, slice],
) -> npt.NDArray[Any]:
    """Shape ([members,] kept, reduced) of a part whose axes are `own`."""
    front = [array.shape[0]] if MEMBER in own else []
    lengths = {d: s.stop - s.start for d, s in chosen.items()}
    have = [array.shape[list(own).index(d)] if d in own else 1 for d in (*kept, *reduced)]
    full = [*front, *(lengths[d] for d in (*kept, *reduced))]
    flat = (*front, int(np.prod(full[len(front) : len(front) + len(kept)], dtype=int)), -1)
    if not reduced:
        flat = (*flat[:-1], 1)
    return np.broadcast_to(np.reshape(array, (*front, *have)), full).reshape(flat)
