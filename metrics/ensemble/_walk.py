"""How compiled loops go over arrays of any strides: flat memory, places and steps.

A kernel that took arrays would be compiled anew for every layout; one that takes memory, the place
of the first number and the steps along the axes is compiled once for each dtype.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Held:
    """The memory of an array, one-dimensional, and where its numbers are.

    Attributes:
        memory: all numbers between the first and the last one of the array.
        first: the place of the array's first number.
        steps: numbers from one place to the next, along each axis.
    """

    memory: npt.NDArray[Any]
    first: int
    steps: tuple[int, ...]


def held(array: npt.NDArray[Any], *, writeable: bool = False) -> Held:
    """The memory of an array that is not empty; a copy if its numbers are not aligned."""
    if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
        memory = array.reshape(-1)
        memory.flags.writeable = writeable
        counts = [1, *np.cumprod(array.shape[:0:-1]).tolist()][: array.ndim]
        return Held(memory, 0, tuple(counts[::-1]))
    item = array.dtype.itemsize
    odd = any(s % item for s, n in zip(array.strides, array.shape, strict=True) if n > 1)
    if odd or not array.flags.aligned or not array.dtype.isnative:
        array = np.array(array, dtype=array.dtype.newbyteorder("="))
    sizes = zip(array.shape, array.strides, strict=True)
    steps = tuple(s // item if n > 1 else 0 for n, s in sizes)
    reach = [(n - 1) * s for n, s in zip(array.shape, steps, strict=True)]
    back = sum(r for r in reach if r < 0)
    ahead = tuple(slice(None, None, -1 if r < 0 else 1) for r in reach)
    memory = np.lib.stride_tricks.as_strided(
        array[ahead], (sum(r for r in reach if r > 0) - back + 1,), (item,), writeable=writeable
    )
    return Held(memory, -back, steps)


@dataclass(frozen=True)
class Walk:
    """An order in which all points are visited, with as few and as long rows as there can be.

    Attributes:
        shape: of the walk, the fastest axis last; int64.
        steps: of each array along the axes of the walk; (arrays, axes), int64.
        firsts: where each array begins; int64.
    """

    shape: Integers
    steps: Integers
    firsts: Integers


def walk(shape: Sequence[int], arrays: Sequence[Held]) -> Walk:
    """A walk over points that several arrays have in common.

    Args:
        shape: of the points, none of its lengths 0.
        arrays: with one step for each axis of `shape`, 0 where a number is for all points.
    """
    steps = np.array([a.steps for a in arrays], dtype=np.int64).reshape(len(arrays), len(shape))
    axes = [n for n, size in enumerate(shape) if size > 1]
    axes.sort(key=lambda n: -int(np.abs(steps[:, n]).max()))
    sizes: list[int] = []
    joined: list[Integers] = []
    for n in axes:
        if joined and np.array_equal(joined[-1], steps[:, n] * shape[n]):
            sizes[-1] *= shape[n]
            joined[-1] = steps[:, n]
        else:
            sizes.append(shape[n])
            joined.append(steps[:, n])
    if not sizes:
        sizes, joined = [1], [np.zeros(len(arrays), np.int64)]
    firsts = np.array([a.first for a in arrays], dtype=np.int64)
    return Walk(np.array(sizes, np.int64), np.ascontiguousarray(np.stack(joined, 1)), firsts)
