"""Memory of the loader: reusable buffers, a read-ahead ring of them, and a cache of dates.

Threads fill the buffers ahead of the consumer. A buffer is filled again only when nothing refers to
it any more: a consumer that keeps a batch keeps its values, and gets further buffers; a loop that
keeps none runs in the memory of the ring.

The cache holds a fixed part of the dates. Epochs are permutations, so a cache of the most recently
used dates forgets each date just before it is needed again, while a fixed part is hit whenever its
turn comes: a quarter of the dates in memory saves a quarter of the reading.
"""

import math
import re
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError
from ens10.loader.content import Arrays, Content, Shapes
from ens10.loader.member_subset import Subset
from ens10.loader.samples import Samples

Block = npt.NDArray[np.uint8]
Allocator = Callable[[int], Block]
_ALIGNMENT = 64


def plain_memory(size: int) -> Block:
    """Allocate ordinary memory.

    It begins at a cache line: sums over a batch are rounded in an order that depends on where its
    numbers lie, and a training should give the same bits again.
    """
    block = np.empty(size + _ALIGNMENT, np.uint8)
    first = -block.ctypes.data % _ALIGNMENT
    return block[first : first + size]


class BufferLayout:
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
        """Return the arrays, as views of a block."""
        places = self._places.items()
        return {key: block[a:b].view(dtype).reshape(s) for key, (a, b, dtype, s) in places}


class Lease:
    """A block in use: numpy arrays made from it keep it alive; see `BlockPool.lend`."""

    def __init__(self, block: Block) -> None:
        self._block = block  # which lives as long as the arrays, also without its `BlockPool`
        self.__array_interface__ = block.__array_interface__


class BlockPool:
    """A pool of memory blocks of one size, allocated as needed and reused by later iterations.

    Args:
        size: bytes of a block.
        allocate: function that allocates a block, e.g. in pinned memory.
    """

    def __init__(self, size: int, allocate: Allocator = plain_memory) -> None:
        self.size, self._allocate = size, allocate
        self._free_blocks: SimpleQueue[Any] = SimpleQueue()
        self._return_queue: SimpleQueue[Any] = SimpleQueue()
        self._leases: list[weakref.ref[Lease]] = []

    def take(self) -> Block:
        """Return an unused block; a new one if there is none."""
        for queue in (self._free_blocks, self._return_queue):
            block = _first_block(queue)
            if block is not None:
                return block
        return self._allocate(self.size)

    def lend(
        self, block: Block, return_queue: "SimpleQueue[Any]"
    ) -> tuple[Block, "weakref.ref[Lease]"]:
        """Return a block as an array; the block is free again once all its views are gone.

        The return does not run Python code: Python delivers Ctrl-C between two instructions, and an
        exception in a destructor is lost.

        Args:
            block: to lend.
            return_queue: the queue that the block is put into afterwards.

        Returns:
            The array, and a reference that is dead once the block is returned.
        """
        lease = Lease(block)
        # the queue ignores its second argument, which is the reference
        reference = weakref.ref(lease, partial(return_queue.put, block))
        self._leases = [ref for ref in self._leases if ref() is not None]
        self._leases.append(reference)
        return np.asarray(lease), reference

    def collect(self, return_queue: "SimpleQueue[Any]") -> None:
        """Register a queue whose returned blocks are reused, now and later."""
        while (block := _first_block(return_queue)) is not None:
            self._free_blocks.put(block)
        self._return_queue = return_queue

    def free(self) -> None:
        """Free the blocks that are not in use."""
        self._free_blocks, self._return_queue = SimpleQueue(), SimpleQueue()


def _first_block(queue: "SimpleQueue[Any]") -> Block | None:
    while True:
        try:
            item = queue.get_nowait()
        except Empty:
            return None
        if isinstance(item, np.ndarray):
            return item


Fill = Callable[[Any, Block], None]


def read_ahead(
    jobs: Sequence[Any], fill: Fill, pool: BlockPool, size: int, threads: int
) -> Generator[tuple[Any, Block], None, None]:
    """Yield jobs with their filled buffers, in order, read ahead by threads.

    An error of a job is raised in its place.

    Args:
        jobs: descriptions of the content of each buffer.
        fill: fills a buffer for a job, in a reader thread or (without threads) in the caller.
        pool: source of the buffers.
        size: number of buffers in the ring.
        threads: number of reader threads; 0 to fill each buffer on demand.
    """
    ring = _Ring(jobs, fill, pool, size if threads else 1)  # nothing is read ahead without a thread
    readers = [
        threading.Thread(target=ring.read, name=f"ens10 reader {n}", daemon=True)
        for n in range(min(threads, len(jobs)))
    ]
    try:
        for reader in readers:
            reader.start()
        for number, job in enumerate(jobs):
            block = (
                ring.wait(number) if readers else ring.fill(number, _first_block(ring.free_queue))
            )
            yield job, ring.lend(block)
    finally:
        # Python handles no signal before these two lines have ended the readers
        ring.stopped = True
        ring.free_queue.put(None)
        ring.collect(readers)


class _Ring:
    """State shared by the reader threads and the consumer of one iteration.

    A signal may raise an exception in the consumer at any call. It therefore holds no lock, which
    would stay locked, but takes results from a queue.
    """

    def __init__(self, jobs: Sequence[Any], fill: Fill, pool: BlockPool, size: int) -> None:
        self._fill, self._pool = fill, pool
        # free blocks, and None for each that may be taken from the pool
        self.free_queue: SimpleQueue[Any] = SimpleQueue()
        self._jobs, self._job_lock, self._next_job = jobs, threading.Lock(), 0
        self._buffer_count, self.stopped = size, False
        self._leases: list[weakref.ref[Lease]] = []
        self._result_queue: SimpleQueue[tuple[int, Block | BaseException]] = SimpleQueue()
        self._results: dict[int, Block | BaseException] = {}
        for _ in range(size):
            self.free_queue.put(None)

    def read(self) -> None:
        """Execute jobs in a reader thread until an error, the last job or the consumer ends it."""
        while True:
            block = self.free_queue.get()
            with self._job_lock:
                number = self._next_job
                if self.stopped or number == len(self._jobs):
                    self.free_queue.put(block)  # which ends the next reader
                    return
                self._next_job += 1
            result: Block | BaseException
            try:
                result = self.fill(number, block)
            except BaseException as error:  # whatever it is, the consumer raises it
                result, self.stopped = error, True
            self._result_queue.put((number, result))
            del block, result  # or the thread would keep the buffer while it waits for the next

    def fill(self, number: int, block: Block | None) -> Block:
        """Fill and return the buffer of a job: a free block, or one of the pool."""
        block = self._pool.take() if block is None else block
        self._fill(self._jobs[number], block)
        return block

    def wait(self, number: int) -> Block:
        """Return the buffer of a job once a reader thread has filled it."""
        if self._next_job <= number and self._all_in_use():
            self._buffer_count += 1
            self.free_queue.put(None)
        while number not in self._results:
            self._results.update([self._result_queue.get()])
        result = self._results.pop(number)
        if isinstance(result, BaseException):
            raise result
        return result

    def lend(self, block: Block) -> Block:
        """Return the buffer as an array; it is reused when the array's last view is gone."""
        array, reference = self._pool.lend(block, self.free_queue)
        self._leases.append(reference)
        return array

    def collect(self, readers: Sequence[threading.Thread]) -> None:
        """Wait for the end of the readers, and keep the buffers."""
        for reader in readers:
            if reader.is_alive() and reader is not threading.current_thread():
                reader.join()
        while not self._result_queue.empty():
            self._results.update([self._result_queue.get()])
        for result in self._results.values():
            if not isinstance(result, BaseException):
                self.free_queue.put(result)
        self._results.clear()
        self._pool.collect(self.free_queue)

    def _all_in_use(self) -> bool:
        self._leases = [lease for lease in self._leases if lease() is not None]
        return len(self._leases) >= self._buffer_count


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(?P<number>\d+(\.\d*)?)\s*(?P<unit>[KMGT]?)B", re.IGNORECASE)


class CachedContent:
    """Reader of dates, with a cache of some of them, decoded and normalised.

    Args:
        content: reads dates.
        dates: positions of the dates to cache.
        rows: the rows of the grid that may be read.

    Attributes:
        hits: number of reads that were answered from the cache.
        cached_bytes: memory that the cache uses.
    """

    def __init__(self, content: Content, dates: Sequence[int], rows: slice) -> None:
        self.samples: Samples = content.samples
        self._content, self._rows, self._cached_dates = content, rows, frozenset(dates)
        self._layout = _layout(content, rows)
        self._cache: dict[int, Arrays] = {}
        self._lock = threading.Lock()
        self.hits = 0

    def __getstate__(self) -> dict[str, object]:
        # A worker process has its own cache: sending the memory would take longer than reading.
        return {**self.__dict__, "_cache": {}, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def cached_bytes(self) -> int:
        """Memory that the cache uses."""
        return len(self._cache) * self._layout.size

    def shapes(self, rows: int) -> Shapes:
        """Return the shapes of a date's arrays, with `rows` rows."""
        return self._content.shapes(rows)

    def of_members(self, subset: Subset) -> NoReturn:  # noqa: ARG002
        """Refuse subsets of members, which are drawn anew in each epoch.

        Raises:
            ArgumentError: always.
        """
        reason = "views of a date are drawn anew in each epoch, and cannot be kept"
        raise ArgumentError("cache", reason, "Leave it out, or train on fields")

    def read(self, i: int, out: Arrays, rows: slice) -> int:
        """Write the arrays of date `i`, and return the bytes read from the data."""
        if i not in self._cached_dates:
            return self._content.read(i, out, rows)
        cached_arrays, count = self._cache.get(i), 0
        if cached_arrays is None:
            cached_arrays = self._layout.views(np.empty(self._layout.size, np.uint8))
            count = self._content.read(i, cached_arrays, self._rows)
            with self._lock:
                self._cache[i] = cached_arrays
        else:
            with self._lock:
                self.hits += 1
        first = rows.start - self._rows.start
        for key, values in out.items():
            values[...] = cached_arrays[key][..., first : first + values.shape[-2], :]
        return count


def size_of(name: str, text: str, examples: str = "2GB or 500 MB") -> float:
    """Return the bytes of a size such as "2GB".

    Raises:
        ArgumentError: it is no size; `name` is the argument.
    """
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise ArgumentError(name, f"{text!r} is not a size", f"Choose such as {examples}")
    return float(match["number"]) * _UNITS[match["unit"].upper()]


def dates_that_fit(
    cache: str | float, positions: Sequence[int], content: Content, rows: slice
) -> list[int]:
    """Return the first of these dates that fit into the cache.

    Args:
        cache: a size such as "2GB" or "500 MB", or a share of the dates from 0 to 1.
        positions: of the dates, in order.
        content: reader of dates, for the size of one.
        rows: the rows that are cached.

    Raises:
        ArgumentError: neither a size nor a share.
    """
    if isinstance(cache, str):
        size = size_of("cache", cache, "2GB, or 0.25")
        return list(positions[: int(size // _layout(content, rows).size)])
    if not 0 <= cache <= 1:
        reason = f"{cache} is not a share of the dates"
        raise ArgumentError("cache", reason, 'Choose 0 to 1, or "2GB"')
    return list(positions[: round(cache * len(positions))])


def _layout(content: Content, rows: slice) -> BufferLayout:
    shapes = content.shapes(rows.stop - rows.start)
    return BufferLayout({key: (shape, np.float32) for key, shape in shapes.items()})
