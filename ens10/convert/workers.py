"""Work on many units at once: in this process, in others on this machine, or on a cluster.

A unit may be done twice, by a worker that was taken for dead and by the one in its place: both
write the same bytes, and each file gets its name in one step.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any

from ens10.convert.files import Folder
from ens10.convert.units import Unit, work
from ens10.errors import ArgumentError, FileError

_SMALL = 1 << 30  # bytes of a source that one process has done before others have started
_BATCH = 32  # units of each worker that are described to dask at a time
_MOST_DEATHS = 3
Done = Callable[[str], None]


def workers_for(size: int, workers: int | None) -> int:
    """The number of processes for a source of so many bytes.

    Raises:
        ArgumentError: fewer than one was asked for.
    """
    if workers is None:
        return 1 if size < _SMALL else len(os.sched_getaffinity(0))
    if workers < 1:
        raise ArgumentError("workers", f"{workers} workers", "Give at least 1")
    return workers


def work_on(
    folder: Folder, units: Iterable[Unit], workers: int, scheduler: str | None, done: Done
) -> None:
    """Does all units.

    Args:
        folder: of the store.
        units: in the order in which they are begun.
        workers: processes on this machine; 1 works in this process.
        scheduler: address of a dask.distributed scheduler, used instead if given.
        done: is told the name of each unit when it is done.

    Raises:
        FileError: workers died again and again; and whatever a unit raises.
    """
    if scheduler is not None:
        _on_cluster(folder, units, scheduler, done)
    elif workers > 1:
        _in_processes(folder, units, workers, done)
    else:
        for unit in units:
            done(work(folder, unit))


def _in_processes(folder: Folder, units: Iterable[Unit], workers: int, done: Done) -> None:
    left = iter(units)
    while batch := list(islice(left, _BATCH * workers)):
        deaths = 0
        while batch:
            try:
                _batch_in_processes(folder, batch, workers, done)
                break
            except BrokenProcessPool as error:
                deaths += 1
                if deaths > _MOST_DEATHS:
                    raise _died(folder) from error
                batch = [unit for unit in batch if not folder.entry(unit.name).exists()]


def _batch_in_processes(folder: Folder, batch: list[Unit], workers: int, done: Done) -> None:
    callbacks: Any = import_module("dask.callbacks")
    from dask.multiprocessing import get

    graph = {unit.name: (work, folder, unit) for unit in batch}
    told = callbacks.Callback(posttask=lambda key, *_: done(key))
    with processes(workers) as pool, told:
        get(graph, list(graph), num_workers=workers, pool=pool, chunksize=1, optimize_graph=False)


@contextmanager
def processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with this one, however it ends."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Ends this process when the one that started it ends, even by SIGKILL."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _died(folder: Folder) -> FileError:
    return FileError(
        folder.path,
        "worker processes ended without a word, again and again (out of memory, or a script that "
        'calls prepare without `if __name__ == "__main__"`)',
        "Run again with fewer --workers: it resumes",
    )


def _on_cluster(folder: Folder, units: Iterable[Unit], scheduler: str, done: Done) -> None:
    try:
        distributed: Any = import_module("distributed")
    except ModuleNotFoundError as error:
        raise ArgumentError(
            "scheduler", "the package distributed is not installed", "pip install distributed"
        ) from error
    with _connected(distributed.Client, scheduler) as client:
        left = iter(units)

        def submit(unit: Unit) -> Any:
            key = f"ens10-{folder.token}-{unit.name}"
            return client.submit(work, folder, unit, key=key, pure=False)

        def ahead() -> int:
            """Units to have in hand: two for each thread, while workers come and go."""
            return 2 * max(int(sum(client.ncores().values())), 1)

        running = distributed.as_completed(
            [submit(unit) for unit in islice(left, ahead())], loop=client.loop
        )
        try:
            for future in running:
                done(future.result())
                future.release()
                for unit in islice(left, max(ahead() - running.count(), 0)):
                    running.add(submit(unit))
        except distributed.KilledWorker as error:
            raise _died(folder) from error


@contextmanager
def _connected(client: Any, scheduler: str) -> Iterator[Any]:
    try:
        connected = client(scheduler, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            "scheduler", f"no scheduler answers at {scheduler} ({error})", "Check the address"
        ) from error
    with connected:
        yield connected
