"""Read-ahead into a ring of kept buffers, by threads that live as long as the iteration.

A buffer is filled again only when nothing refers to it any more: whoever keeps a batch keeps its
values, and a loop that keeps none runs in the memory of the ring. A consumer that keeps more
batches than the ring has buffers gets further ones.
"""

import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from ens10.loader.slots import Block, Lease, Slots

Job = TypeVar("Job")
Fill = Callable[[Job, Block], None]
_NEW, _STOP = "make a new one", "no more"


class Ring(Generic[Job]):
    """Jobs with their filled buffers, in order.

    Args:
        jobs: what to fill buffers with.
        fill: does a job, in a reader thread or (without threads) in the caller.
        slots: where buffers come from.
        size: buffers of the ring.
        threads: reader threads; 0 to fill each buffer when it is asked for.
    """

    def __init__(
        self, jobs: Sequence[Job], fill: Fill[Job], slots: Slots, size: int, threads: int
    ) -> None:
        self._jobs, self._fill, self._slots = jobs, fill, slots
        self._threads = min(threads, len(jobs))
        self._size = size if threads else 1  # nothing is read ahead without a thread

    def __iter__(self) -> Generator[tuple[Job, Block], None, None]:
        """Yields each job with its buffer, or raises what the job raised."""
        work = _Work(self._jobs, self._fill, self._slots, self._size)
        readers = [
            threading.Thread(target=_read, args=(work,), name=f"ens10 reader {n}", daemon=True)
            for n in range(self._threads)
        ]
        try:
            for reader in readers:
                reader.start()
            for number, job in enumerate(self._jobs):
                yield job, work.lend(work.wait(number) if readers else work.fill(number))
        finally:
            work.stop(readers)


class _Work:
    """What the readers and the consumer of one iteration share."""

    def __init__(self, jobs: Sequence[Any], fill: Fill[Any], slots: Slots, size: int) -> None:
        self._jobs, self._fill, self._slots = jobs, fill, slots
        self._free: SimpleQueue[Any] = SimpleQueue()
        self._buffers, self._begun = size, 0
        self._lent: list[weakref.ref[Lease]] = []
        self._done: dict[int, Block | BaseException] = {}
        self._changed = threading.Condition()
        self._stopped = False
        for _ in range(size):
            self._free.put(_NEW)

    def begin(self) -> tuple[int, Block] | None:
        """A buffer, as soon as there is one, and the job for it; None when there is no more."""
        item = self._free.get()
        if item is _STOP:
            return None
        with self._changed:
            number = self._begun
            if self._stopped or number == len(self._jobs):
                self._free.put(item)
                return None
            self._begun += 1
        try:
            return number, self._slots.take() if item is _NEW else item
        except BaseException as error:  # as in `carry_out`
            self._finish(number, error)
            return None

    def carry_out(self, number: int, block: Block) -> None:
        """Does a job; an error is kept for the consumer."""
        try:
            self._fill(self._jobs[number], block)
        except BaseException as error:  # whatever it is, the consumer raises it
            self._finish(number, error)
        else:
            self._finish(number, block)

    def _finish(self, number: int, result: Block | BaseException) -> None:
        with self._changed:
            self._done[number] = result
            self._stopped |= isinstance(result, BaseException)
            self._changed.notify_all()

    def fill(self, number: int) -> Block:
        """The buffer of a job, filled now."""
        try:
            item = self._free.get_nowait()
        except Empty:
            item = _NEW
        block: Block = self._slots.take() if item is _NEW else item
        self._fill(self._jobs[number], block)
        return block

    def wait(self, number: int) -> Block:
        """The buffer of a job, when a reader has filled it."""
        with self._changed:
            if self._begun <= number and self._all_lent():
                self._buffers += 1
                self._free.put(_NEW)
            self._changed.wait_for(lambda: number in self._done)
            result = self._done.pop(number)
        if isinstance(result, BaseException):
            raise result
        return result

    def lend(self, block: Block) -> Block:
        """The buffer as an array that gives it back when the last view of it is gone."""
        array, reference = self._slots.lend(block, self._free)
        self._lent.append(reference)
        return array

    def stop(self, readers: Sequence[threading.Thread]) -> None:
        """Ends the readers, after what they are doing, and keeps the buffers."""
        with self._changed:
            self._stopped = True
        for _ in readers:
            self._free.put(_STOP)
        for reader in readers:
            if reader.is_alive() and reader is not threading.current_thread():
                reader.join()
        for result in self._done.values():
            if not isinstance(result, BaseException):
                self._free.put(result)
        self._done.clear()
        self._slots.collect(self._free)

    def _all_lent(self) -> bool:
        self._lent = [lease for lease in self._lent if lease() is not None]
        return len(self._lent) >= self._buffers


def _read(work: _Work) -> None:
    """What a reader thread does; it knows nothing of the consumer, whose end ends it."""
    while (begun := work.begin()) is not None:
        work.carry_out(*begun)
        del begun  # or the thread would keep the buffer while it waits for the next
