"""Split arrays of any memory layout into few flat pieces, for compiled contiguous loops."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_SMALL = 2**20  # numbers: copying a smaller piece takes less time than calls for its parts


def in_memory_order(array: Array, points: int) -> tuple[int, ...]:
    """Return the axes of an array, its last `points` axes sorted by decreasing stride."""
    lead = array.ndim - points
    tail = sorted(range(lead, array.ndim), key=lambda axis: -abs(array.strides[axis]))
    return (*range(lead), *tail)


def flat_pieces(
    inputs: Sequence[Array], outputs: Sequence[Array], points: int
) -> Iterator[tuple[list[Array], list[Array]]]:
    """Split arrays along their first point axes until the rest is flat in memory.

    Args:
        inputs: arrays whose last `points` axes have one shape; copied where a small piece is not
            flat. Their pieces are read-only.
        outputs: likewise; their pieces are always views.
        points: number of point axes.

    Yields:
        The pieces of inputs and of outputs, their point axes joined into one.
    """
    arrays = [*inputs, *outputs]
    if not all(_is_flat(a, points) for a in outputs) or not (
        inputs[0].size <= _SMALL or all(_is_flat(a, points) for a in inputs)
    ):
        for part in zip(*(np.moveaxis(a, a.ndim - points, 0) for a in arrays), strict=True):
            yield from flat_pieces(part[: len(inputs)], part[len(inputs) :], points - 1)
        return
    flat = [a.reshape(*a.shape[: a.ndim - points], -1) for a in arrays]
    for a in flat[: len(inputs)]:
        a.flags.writeable = False  # one type for the compiler, whatever the caller holds
    yield flat[: len(inputs)], flat[len(inputs) :]


def _is_flat(array: Array, points: int) -> bool:
    """Return True if the point axes can be joined without a copy."""
    axes = [axis for axis in range(array.ndim - points, array.ndim) if array.shape[axis] > 1]
    return all(array.strides[a] == array.strides[b] * array.shape[b] for a, b in pairwise(axes))


def contiguous(array: Array) -> Array:
    """Return an aligned array whose numbers lie side by side, read-only; a copy if need be."""
    array = np.require(array, requirements=["C", "A"]).view()
    array.flags.writeable = False
    return array
