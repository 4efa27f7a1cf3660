"""The ring of kept buffers and the threads that fill it."""

import gc
import sys
import threading
import time

import numpy as np
import pytest
from waiting import wait_until

from ens10.loader.buffers import BlockPool, plain_memory, read_ahead

SIZE = 8


def fill(job, block):
    block.view(np.int64)[0] = job


def value(block):
    return int(block.view(np.int64)[0])


def readers():
    return [t for t in threading.enumerate() if t.name.startswith("ens10 reader")]


def counting():
    made = []

    def allocate(size):
        made.append(np.empty(size, np.uint8))
        return made[-1]

    return made, BlockPool(SIZE, allocate)


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_jobs_come_in_order_in_the_memory_of_the_ring(threads, size):
    made, pool = counting()
    rng = np.random.default_rng(0)

    def slowly(job, block):
        time.sleep(rng.random() * 1e-3)
        fill(job, block)

    for _ in range(3):
        seen = [
            (job, value(block)) for job, block in read_ahead(range(20), slowly, pool, size, threads)
        ]
        assert seen == [(n, n) for n in range(20)]
    assert len(made) <= max(2, size) + 1  # one is held by the loop when an iteration begins
    assert not readers()


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_a_batch_that_is_kept_keeps_its_values(threads):
    made, pool = counting()
    kept = [block[:4] for _, block in read_ahead(range(30), fill, pool, 2, threads)]
    assert [int(part.view(np.int32)[0]) for part in kept] == list(range(30))
    assert len(made) >= 30
    made, pool = counting()
    some = [b for n, b in read_ahead(range(30), fill, pool, 2, threads) if n % 5 == 0]
    assert [value(block) for block in some] == list(range(0, 30, 5))
    assert len(made) <= 6 + 4
    assert not readers()


@pytest.mark.parametrize("threads", [0, 1, 2, 4])
def test_an_error_comes_at_its_batch_as_itself(threads):
    error = OSError("the file is gone")

    def failing(job, block):
        if job == 3:
            raise error
        fill(job, block)

    seen = []

    def consume():
        for job, block in read_ahead(range(9), failing, BlockPool(SIZE), 2, threads):
            seen.append((job, value(block)))

    with pytest.raises(OSError, match="the file is gone") as caught:
        consume()
    assert caught.value is error
    assert seen == [(0, 0), (1, 1), (2, 2)]
    assert not readers()


def test_nothing_is_begun_after_an_error():
    begun = []

    def failing(job, block):
        begun.append(job)
        if job == 1:
            raise OSError("gone")

    ring = iter(read_ahead(range(9), failing, BlockPool(SIZE), 6, 1))
    next(ring)
    wait_until(lambda: not readers())
    with pytest.raises(OSError, match="gone"):
        next(ring)
    assert begun == [0, 1]


def test_no_memory_for_a_buffer():
    def allocate(size):
        raise MemoryError("no more")

    for threads in (0, 1, 2):
        with pytest.raises(MemoryError, match="no more"):
            list(read_ahead(range(3), fill, BlockPool(SIZE, allocate), 2, threads))
    assert not readers()


@pytest.mark.parametrize("how", ["break", "forget", "cycle", "error"])
def test_leaving_early_ends_the_threads(how):
    def ring():
        return read_ahead(range(1000), fill, BlockPool(SIZE), 3, 2)

    if how == "break":
        for job, _ in ring():
            if job == 2:
                break
    elif how == "forget":
        iterator = ring()
        next(iterator)
        assert readers()
        del iterator
    elif how == "cycle":
        iterator = ring()
        next(iterator)
        cycle = [iterator]
        cycle.append(cycle)
        del iterator, cycle
        gc.collect()
    else:
        with pytest.raises(ZeroDivisionError):
            sum(1 // job for job, _ in ring())
    gc.collect()
    assert not readers()


def test_an_iterator_that_was_not_begun_has_no_threads():
    iterator = iter(read_ahead(range(5), fill, BlockPool(SIZE), 2, 2))
    assert not readers()
    del iterator
    assert list(read_ahead([], fill, BlockPool(SIZE), 2, 2)) == []


def test_reading_ahead_stops_at_the_size_of_the_ring():
    begun = []
    ring = iter(read_ahead(range(50), lambda job, _: begun.append(job), BlockPool(SIZE), 3, 2))
    for count in (3, 4):
        held = next(ring)
        wait_until(lambda: len(begun) >= count)  # noqa: B023
        time.sleep(0.05)  # in which a wrong one might begin another
        assert sorted(begun) == list(range(count))
    del held
    ring.close()


def test_views_in_other_threads_keep_the_buffer():
    """A slice that a slow consumer holds is not written to, wherever it is let go of."""
    pool, wrong, jobs = BlockPool(SIZE), [], []

    def consumer(job, part):
        time.sleep(2e-3)
        wrong.extend([job] if value(part) != job else [])

    for job, block in read_ahead(range(60), fill, pool, 2, 2):
        thread = threading.Thread(target=consumer, args=(job, block[:]))
        thread.start()
        jobs.append(thread)
        del block
    for thread in jobs:
        thread.join()
    assert not wrong
    assert not readers()


def test_blocks_begin_at_a_cache_line():
    assert all(plain_memory(size).ctypes.data % 64 == 0 for size in (1, 63, 1000, 10**6, 4 * 10**7))


def test_the_end_of_a_lease_runs_no_python_in_which_an_interrupt_would_be_lost():
    """Ctrl-C raises between two instructions; in a destructor the exception is only printed."""
    _, pool = counting()
    blocks = [block for _, block in read_ahead([7], fill, pool, 1, 0)]
    called = []

    def note(frame, event, _):
        if event == "call":
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        blocks.clear()
    finally:
        sys.setprofile(None)
    assert called == []
    assert value(pool.take()) == 7  # it came back
