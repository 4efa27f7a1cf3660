"""Kept memory for batches: taken, lent to the consumer, and taken back when nobody refers to it."""

import math
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

Block = npt.NDArray[np.uint8]
Allocator = Callable[[int], Block]
_ALIGNMENT = 64


def plain_memory(size: int) -> Block:
    """Ordinary memory of this many bytes.

    It begins at a cache line: sums over a batch are rounded in an order that depends on where its
    numbers lie, and a training should give the same bits again.
    """
    block = np.empty(size + _ALIGNMENT, np.uint8)
    first = -block.ctypes.data % _ALIGNMENT
    return block[first : first + size]


class Layout:
    """Where the arrays of a batch lie in one block of memory.

    Args:
        arrays: shape and type of each.
    """

    def __init__(self, arrays: Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]) -> None:
        self._places: dict[str, tuple[int, int, np.dtype[Any], tuple[int, ...]]] = {}
        offset = 0
        for key, (shape, dtype) in arrays.items():
            kind = np.dtype(dtype)
            size = math.prod(shape) * kind.itemsize
            self._places[key] = (offset, offset + size, kind, shape)
            offset += -(-size // _ALIGNMENT) * _ALIGNMENT
        self.size = offset

    def views(self, block: Block) -> dict[str, npt.NDArray[Any]]:
        """The arrays, as views of a block."""
        return {
            key: block[first:last].view(dtype).reshape(shape)
            for key, (first, last, dtype, shape) in self._places.items()
        }


class Lease:
    """A block that is lent: numpy arrays made from it keep it alive; see `Slots.lend`."""

    def __init__(self, block: Block) -> None:
        self._block = block  # which lives as long as the arrays, also without its `Slots`
        self.__array_interface__ = block.__array_interface__


class Slots:
    """Blocks of one size, made as they are needed and kept from one iteration to the next.

    Args:
        size: bytes of a block.
        allocate: makes a block, such as pinned memory.
    """

    def __init__(self, size: int, allocate: Allocator = plain_memory) -> None:
        self.size, self._allocate = size, allocate
        self._spare: SimpleQueue[Any] = SimpleQueue()
        self._late: SimpleQueue[Any] = SimpleQueue()
        self._lent: list[weakref.ref[Lease]] = []

    def take(self) -> Block:
        """A block that nobody uses; a new one if there is none."""
        for queue in (self._spare, self._late):
            block = _first_block(queue)
            if block is not None:
                return block
        return self._allocate(self.size)

    def lend(self, block: Block, home: "SimpleQueue[Any]") -> tuple[Block, "weakref.ref[Lease]"]:
        """Return a block as an array; the block is free again once all its views are gone.

        What returns it is no Python code: Python delivers Ctrl-C between two instructions, and an
        exception in a destructor is lost.

        Args:
            block: to lend.
            home: the queue that gets it back.

        Returns:
            The array, and a reference that is dead once the block is returned.
        """
        lease = Lease(block)
        # the queue ignores its second argument, which is the reference
        reference = weakref.ref(lease, partial(home.put, block))
        self._lent = [lent for lent in self._lent if lent() is not None]
        self._lent.append(reference)
        return np.asarray(lease), reference

    def collect(self, returned: "SimpleQueue[Any]") -> None:
        """Keeps the blocks that came back to a queue, and those that come later."""
        while (block := _first_block(returned)) is not None:
            self._spare.put(block)
        self._late = returned

    def free(self) -> None:
        """Lets go of the blocks that are not in use."""
        self._spare, self._late = SimpleQueue(), SimpleQueue()


def _first_block(queue: "SimpleQueue[Any]") -> Block | None:
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            return None
        if isinstance(item, np.ndarray):
            return item
