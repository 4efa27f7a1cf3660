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
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError
from ens10.loader.content import Arrays, Content, Shapes
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


Job = TypeVar("Job")
Fill = Callable[[Job, Block], None]
_NEW, _STOP = "make a new one", "no more"


class Ring(Generic[Job]):
    """An iterable of jobs with their filled buffers, in order, read ahead by threads.

    Args:
        jobs: descriptions of the content of each buffer.
        fill: fills a buffer for a job, in a reader thread or (without threads) in the caller.
        pool: source of the buffers.
        size: number of buffers in the ring.
        threads: number of reader threads; 0 to fill each buffer on demand.
    """

    def __init__(
        self, jobs: Sequence[Job], fill: Fill[Job], pool: BlockPool, size: int, threads: int
    ) -> None:
        self._jobs, self._fill, self._pool = jobs, fill, pool
        self._threads = min(threads, len(jobs))
        self._size = size if threads else 1  # nothing is read ahead without a thread

    def __iter__(self) -> Generator[tuple[Job, Block], None, None]:
        """Yield each job with its buffer, or raise the error of the job."""
        state = _RingState(self._jobs, self._fill, self._pool, self._size)
        readers = [
            threading.Thread(target=_read, args=(state,), name=f"ens10 reader {n}", daemon=True)
            for n in range(self._threads)
        ]
        try:
            for reader in readers:
                reader.start()
            for number, job in enumerate(self._jobs):
                yield job, state.lend(state.wait(number) if readers else state.fill(number))
        finally:
            state.stop(readers)


class _RingState:
    """State shared by the reader threads and the consumer of one iteration.

    A signal may raise an exception in the consumer at any call, so that it holds no locks: queues,
    whose operations are indivisible, pass the buffers on.
    """

    def __init__(self, jobs: Sequence[Any], fill: Fill[Any], pool: BlockPool, size: int) -> None:
        self._jobs, self._fill, self._pool = jobs, fill, pool
        self._free_queue: SimpleQueue[Any] = SimpleQueue()
        self._result_queue: SimpleQueue[tuple[int, Block | BaseException]] = SimpleQueue()
        self._buffer_count, self._next_job = size, 0
        self._leases: list[weakref.ref[Lease]] = []
        self._results: dict[int, Block | BaseException] = {}
        self._reader_lock = threading.Lock()
        self._stopped = False
        for _ in range(size):
            self._free_queue.put(_NEW)

    def begin(self) -> tuple[int, Block] | None:
        """Wait for a free buffer; return it with the next job, or None when all are done."""
        with self._reader_lock:
            number = self._next_job
            if self._stopped or number == len(self._jobs):
                return None
            item = self._free_queue.get()
            if self._stopped:
                self._free_queue.put(item)
                return None
            self._next_job += 1
        try:
            return number, self._pool.take() if item is _NEW else item
        except BaseException as error:  # as in `carry_out`
            self._finish(number, error)
            return None

    def carry_out(self, number: int, block: Block) -> None:
        """Execute a job; store an error for the consumer."""
        try:
            self._fill(self._jobs[number], block)
        except BaseException as error:  # whatever it is, the consumer raises it
            self._finish(number, error)
        else:
            self._finish(number, block)

    def _finish(self, number: int, result: Block | BaseException) -> None:
        if isinstance(result, BaseException):
            self._stopped = True
        self._result_queue.put((number, result))

    def fill(self, number: int) -> Block:
        """Fill and return the buffer of a job in the calling thread."""
        try:
            item = self._free_queue.get_nowait()
        except Empty:
            item = _NEW
        block: Block = self._pool.take() if item is _NEW else item
        self._fill(self._jobs[number], block)
        return block

    def wait(self, number: int) -> Block:
        """Return the buffer of a job once a reader thread has filled it."""
        if self._next_job <= number and self._all_in_use():
            self._buffer_count += 1
            self._free_queue.put(_NEW)
        while number not in self._results:
            self._results.update([self._result_queue.get()])
        result = self._results.pop(number)
        if isinstance(result, BaseException):
            raise result
        return result

    def lend(self, block: Block) -> Block:
        """Return the buffer as an array; it is reused when the array's last view is gone."""
        array, reference = self._pool.lend(block, self._free_queue)
        self._leases.append(reference)
        return array

    def stop(self, readers: Sequence[threading.Thread]) -> None:
        """Stop the readers after their current jobs, and keep the buffers."""
        self._stopped = True
        self._free_queue.put(_STOP)  # for the reader that waits for a buffer
        for reader in readers:
            if reader.is_alive() and reader is not threading.current_thread():
                reader.join()
        while not self._result_queue.empty():
            self._results.update([self._result_queue.get()])
        for result in self._results.values():
            self._free_queue.put(result)
        self._results.clear()
        self._pool.collect(self._free_queue)

    def _all_in_use(self) -> bool:
        self._leases = [lease for lease in self._leases if lease() is not None]
        return len(self._leases) >= self._buffer_count


def _read(state: _RingState) -> None:
    """Run a reader thread, which ends when `stop` or the last job ends it."""
    while (task := state.begin()) is not None:
        state.carry_out(*task)
        del task  # or the thread would keep the buffer while it waits for the next


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
        match = _SIZE.fullmatch(cache.strip())
        if not match:
            reason = f"{cache!r} is not a size"
            raise ArgumentError("cache", reason, 'Choose one such as "2GB", or 0.25')
        size = float(match["number"]) * _UNITS[match["unit"].upper()]
        return list(positions[: int(size // _layout(content, rows).size)])
    if not 0 <= cache <= 1:
        reason = f"{cache} is not a share of the dates"
        raise ArgumentError("cache", reason, 'Choose 0 to 1, or "2GB"')
    return list(positions[: round(cache * len(positions))])


def _layout(content: Content, rows: slice) -> Layout:
    shapes = content.shapes(rows.stop - rows.start)
    return Layout({key: (shape, np.float32) for key, shape in shapes.items()})
