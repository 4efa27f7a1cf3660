"""Execution of work units: in this process, in several processes, or on a dask cluster.

A unit whose entry exists is complete. A unit may be executed twice, by a worker that was taken for
dead and by its replacement: both write the same bytes, and each file gets its name in one step.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from ens10.convert.files import Folder, Writer
from ens10.cores import usable_cores
from ens10.errors import ArgumentError, FileError
from ens10.extras import cluster_library

_SMALL_SOURCE = 1 << 30  # bytes; one process is done with it before others have started
_BATCH = 32  # groups of each worker that are described to dask at a time
GROUP_BYTES = 1 << 24  # bytes of the units of a group
_MAX_DEATHS = 3
_PRELOADED = ["ens10.convert.work_units"]
Notify = Callable[[str], None]


class Unit(Protocol):
    """A unit of work that is independent of all others.

    Attributes:
        name: name of its entry.
    """

    @property
    def name(self) -> str:
        """Unique name of its entry."""

    def write(self, writer: Writer) -> None:
        """Pass its files to the writer."""


Group = tuple[Unit, ...]


def work(folder: Folder, group: Group) -> list[str]:
    """Execute the incomplete units of a group; return the names of all.

    Small files of all units are written in one batch, since a sync takes about as long for many
    files as for one. After an error, the units that were complete before it are still written.
    """
    with Writer(folder) as writer:
        for unit in group:
            if not folder.entry(unit.name).exists():
                with writer.unit(unit.name):
                    unit.write(writer)
    return [unit.name for unit in group]


def workers_for(size: int, workers: int | None) -> int:
    """Return the number of processes for a source of `size` bytes.

    Args:
        size: bytes of the source.
        workers: number that the user chose; None for one process, or for a large source as many as
            there are cores.

    Raises:
        ArgumentError: `workers` is less than 1.
    """
    if workers is None:
        return 1 if size < _SMALL_SOURCE else usable_cores()
    if workers < 1:
        raise ArgumentError("workers", f"{workers} workers", "Choose at least 1")
    return workers


def group_units(units: Iterable[tuple[int, Unit]]) -> Iterator[Group]:
    """Group units to a few megabytes, large ones by themselves, in their order.

    Args:
        units: for each unit, the bytes that it writes, and the unit.
    """
    group: list[Unit] = []
    total = 0
    for size, unit in units:
        if group and total + size > GROUP_BYTES:
            yield tuple(group)
            group, total = [], 0
        group.append(unit)
        total += size
    if group:
        yield tuple(group)


def work_on(
    folder: Folder, groups: Iterable[Group], workers: int, scheduler: str | None, notify: Notify
) -> None:
    """Execute all units.

    Args:
        folder: of the store.
        groups: of units, in the order in which they are begun.
        workers: processes on this machine; 1 works in this process.
        scheduler: address of a dask.distributed scheduler, whose workers are used instead; None
            for none.
        notify: called with the name of each completed unit.

    Raises:
        FileError: worker processes died repeatedly.
        ArgumentError: no scheduler answers at the address.
        Exception: any error of a unit.
    """
    if scheduler is not None:
        _on_cluster(folder, groups, scheduler, notify)
    elif workers > 1:
        _in_processes(folder, groups, workers, notify)
    else:
        for group in groups:
            for name in work(folder, group):
                notify(name)


def _in_processes(folder: Folder, groups: Iterable[Group], workers: int, notify: Notify) -> None:
    remaining_groups, deaths = iter(groups), 0
    batch: list[Group] = []
    while batch := batch or list(islice(remaining_groups, _BATCH * workers)):
        try:
            with processes(workers) as pool:  # once: to start takes as long as many groups
                while batch:
                    _in_pool(pool, folder, batch, workers, notify)
                    batch, deaths = list(islice(remaining_groups, _BATCH * workers)), 0
        except BrokenProcessPool as error:
            deaths += 1
            if deaths > _MAX_DEATHS:
                raise dead_worker_error(folder.path) from error
            batch = [group for group in batch if not _is_complete(folder, group)]


def _is_complete(folder: Folder, group: Group) -> bool:
    return all(folder.entry(unit.name).exists() for unit in group)


def _in_pool(
    pool: ProcessPoolExecutor, folder: Folder, batch: list[Group], workers: int, notify: Notify
) -> None:
    callbacks: Any = import_module("dask.callbacks")
    from dask.multiprocessing import get

    graph = {group[0].name: (work, folder, group) for group in batch}

    def notify_units(key: str, *_: object) -> None:
        for unit in graph[key][2]:
            notify(unit.name)

    with callbacks.Callback(posttask=notify_units):
        get(graph, list(graph), num_workers=workers, pool=pool, chunksize=1, optimize_graph=False)


@contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Start a pool of processes that end with this process, however it ends.

    Where the system can fork, one process imports the modules and becomes all of them.
    """
    if "forkserver" in multiprocessing.get_all_start_methods():
        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
    else:
        context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """End this process when its parent ends, even by SIGKILL.

    Ctrl-C reaches both processes: only the parent handles it, and ends the work in order.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def dead_worker_error(path: Path) -> FileError:
    """Return the error for worker processes that ended without a result."""
    reason = (
        "worker processes ended without a word, again and again (out of memory, or a script that "
        'calls prepare without `if __name__ == "__main__"`)'
    )
    return FileError(path, reason, "Run again with fewer --workers: it resumes")


def _on_cluster(folder: Folder, groups: Iterable[Group], scheduler: str, notify: Notify) -> None:
    distributed = cluster_library()
    with _connect(distributed.Client, scheduler) as client:
        remaining_groups = iter(groups)

        def submit(group: Group) -> Any:
            key = f"ens10-{folder.token}-{group[0].name}"
            return client.submit(work, folder, group, key=key, pure=False)

        def count_ahead() -> int:
            """Return the number of groups to submit ahead: two for each thread."""
            return 2 * max(int(sum(client.ncores().values())), 1)

        futures = distributed.as_completed(
            [submit(group) for group in islice(remaining_groups, count_ahead())], loop=client.loop
        )
        try:
            for future in futures:
                for name in future.result():
                    notify(name)
                future.release()
                for group in islice(remaining_groups, max(count_ahead() - futures.count(), 0)):
                    futures.add(submit(group))
        except distributed.KilledWorker as error:
            raise dead_worker_error(folder.path) from error


@contextmanager
def _connect(client: Any, scheduler: str) -> Iterator[Any]:
    try:
        connection = client(scheduler, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = f"no scheduler answers at {scheduler} ({error})"
        raise ArgumentError("scheduler", reason, "Check the address") from error
    with connection:
        yield connection
