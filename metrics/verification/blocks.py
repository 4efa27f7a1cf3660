"""Blocks of dates: how many are read together, and where they are worked on."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from os import sched_getaffinity
from typing import Any, TypeVar

import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
BLOCK_VALUES = 2**22  # values of a forecast in a block: 16 MiB in float32
LOCAL = ("threads", "processes")


def blocks_of(
    forecast: xr.Dataset, values: int | None = None, *, beside: int = 0
) -> Iterator[slice]:
    """Dates that are read together: whole chunks of stored data, at most so many values.

    Args:
        forecast: its chunks are those of dask, or of the file that it is read from.
        values: `BLOCK_VALUES` if None. A chunk that holds more is a block by itself.
        beside: how many values are read of other data on all these dates.
    """
    n = forecast.sizes["time"]
    most = BLOCK_VALUES if values is None else values
    each = max(1, most * n // max(1, beside + sum(v.size for v in forecast.values())))
    start = stop = 0
    for length in _chunks(forecast, n):
        if stop > start and stop + length - start > each:
            yield slice(start, stop)
            start = stop
        stop += length
    if stop > start:
        yield slice(start, stop)


def _chunks(forecast: xr.Dataset, n: int) -> tuple[int, ...]:
    found: set[tuple[int, ...]] = set()
    for variable in forecast.values():
        if variable.chunks is not None:
            found.add(tuple(variable.variable.chunksizes["time"]))
        elif not variable.variable._in_memory:
            length = int((variable.encoding.get("preferred_chunks") or {}).get("time", 1))
            found.add(tuple(min(length, n - i) for i in range(0, n, max(1, length))))
    return min(found, key=len) if found else (1,) * n


def in_order(
    read: Callable[[A], B], work: Callable[[B], C], blocks: Iterable[A], scheduler: Any = None
) -> Iterator[C]:
    """The results of work on blocks, in order, a bounded number of them at a time.

    Args:
        read: gives what a block holds.
        work: gives the result.
        blocks: what there is to do.
        scheduler: None to work here while a thread reads ahead; "threads" or "processes" of this
            machine, one for each core; a `distributed.Client`, or the address of a scheduler.

    Raises:
        UnknownNameError, ArgumentError: no such scheduler.
    """
    if scheduler is None:
        with ThreadPoolExecutor(1, "ens10-read") as pool:
            for block in _ahead(pool.submit, read, blocks, 2):
                yield work(block)
        return
    with _submitting(scheduler) as (submit, number):
        yield from _ahead(submit, partial(_both, read, work), blocks, 2 * number)


def _both(read: Callable[[A], B], work: Callable[[B], C], block: A) -> C:
    return work(read(block))


def _ahead(
    submit: Callable[..., "Future[C]"], task: Callable[[A], C], blocks: Iterable[A], number: int
) -> Iterator[C]:
    """Results in order, with so many tasks begun before they are asked for."""
    left, running = iter(blocks), deque[Any]()
    try:
        for block in left:
            running.append(submit(task, block))
            if len(running) > number:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()


@contextmanager
def _submitting(scheduler: Any) -> Iterator[tuple[Callable[..., Any], int]]:
    """A function like `Executor.submit`, and how many tasks it works on at once."""
    if isinstance(scheduler, str) and "://" not in scheduler:
        if scheduler not in LOCAL:
            raise UnknownNameError("scheduler", scheduler, (*LOCAL, "tcp://HOST:PORT"))
        number = len(sched_getaffinity(0))
        pool: Executor = (
            ThreadPoolExecutor(number, "ens10-score")
            if scheduler == "threads"
            else ProcessPoolExecutor(number, get_context("spawn"))
        )
        with pool:
            yield pool.submit, number
        return
    try:
        distributed: Any = import_module("distributed")
    except ModuleNotFoundError as error:
        raise ArgumentError(
            "scheduler",
            f"distributed cannot be imported ({error})",
            "Install it with: pip install 'ens10[cluster]'",
        ) from error
    if isinstance(scheduler, distributed.Client):
        yield _on(scheduler)
        return
    if not isinstance(scheduler, str):
        raise ArgumentError(
            "scheduler", f"{type(scheduler).__name__} is none", "Give an address or a Client"
        )
    try:
        client = distributed.Client(scheduler, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            "scheduler", f"no scheduler answers at {scheduler} ({error})", "Check the address"
        ) from error
    with client:
        yield _on(client)


def _on(client: Any) -> tuple[Callable[..., Any], int]:
    return partial(client.submit, pure=False), max(int(sum(client.ncores().values())), 1)
