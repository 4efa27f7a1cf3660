"""Model-climate quantiles into a store, a run of month-days at a time.

    STORE/climate   one array a channel over (judged_year, month_day, step, quantile, latitude,
                    longitude), float32; a chunk is one month-day and step

A chunk is written beside its place, synced and renamed: one that exists is whole, and is not made
again. The window slides over a run of month-days, so that each chunk of the members is read less
than twice. The bytes depend on the data and the options alone.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ens10.errors import FileError
from ens10.progress import track
from ens10.quantiles.kernel import quantiles_of
from ens10.quantiles.layout import ClimateArrays, create_climate
from ens10.quantiles.members import StoreMembers
from ens10.quantiles.model import rows_within
from ens10.quantiles.options import ClimateOptions
from ens10.quantiles.record import record_climate
from ens10.quantiles.window import Climatology

_RUN = 12  # month-days in a run: with 4 more on either side, a chunk is read 20 / 12 times
_WINDOW_BYTES = 256 << 20  # of members that a worker holds


def write_climate(
    store: Path | str,
    options: ClimateOptions,
    *,
    workers: int | None = None,
    progress: bool = False,
) -> list[Path]:
    """Writes STORE/climate, or what is not there yet.

    Args:
        store: a local store, complete or in preparation.
        options: channels, steps, levels, window and protocol.
        workers: threads (sorting and reading release the interpreter); None for one a core.
        progress: show a progress bar.

    Returns:
        The files of all chunks, relative to the store, sorted.

    Raises:
        UnknownNameError: the store lacks a channel or a step.
        FileError: the store has a climate made with other options, or another process writes it.
    """
    store = Path(store)
    arrays = create_climate(store, options)
    count = workers or len(os.sched_getaffinity(0))
    with _alone(arrays.folder), ThreadPoolExecutor(count) as pool:
        units = list(_units(arrays))
        futures = [pool.submit(_write_run, unit) for unit in units]
        try:
            for future in track(as_completed(futures), "climate", len(units), progress):
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    arrays.finish()
    record_climate(store, options)
    return sorted(path.relative_to(store) for unit in units for path in unit.files)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds the folder against other processes, as long as this one lives."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in folder.rglob("*.part"):
            left.unlink()
        yield
    except BlockingIOError as error:
        raise FileError(folder, "another process is writing it", "Wait for it to end") from error
    finally:
        os.close(handle)


@dataclass(frozen=True)
class _Run:
    """Month-days that follow each other, for one channel, step and year judged."""

    members: StoreMembers
    climatology: Climatology
    eligible: npt.NDArray[np.bool_]
    levels: npt.NDArray[np.float64]
    month_days: Sequence[str]
    files: Sequence[Path]

    def dates(self, month_day: str) -> npt.NDArray[np.int64]:
        """Positions of the climate's dates that start on a month-day."""
        return np.flatnonzero((self.climatology.month_days == month_day) & self.eligible)


def _units(arrays: ClimateArrays) -> Iterator[_Run]:
    calendar = list(enumerate(arrays.month_days))
    for name, (j, step) in product(arrays.channels, enumerate(arrays.steps)):
        members, climatology = arrays.members(name, step), arrays.climatologies[step]
        for i, year in enumerate(arrays.judged_years):
            eligible = climatology.eligible(year)
            for first in range(0, len(calendar), _RUN):
                run = calendar[first : first + _RUN]
                files = [arrays.file(name, (i, n, j)) for n, _ in run]
                days = [day for _, day in run]
                yield _Run(members, climatology, eligible, arrays.levels, days, files)


def _write_run(run: _Run) -> None:
    """Writes the chunks of a run that are not there, some rows of all of them at a time."""
    left = [(day, file) for day, file in zip(run.month_days, run.files, strict=True)
            if not file.exists()]  # fmt: skip
    if not left:
        return
    sizes = run.members.about.sizes
    rows, columns = sizes["latitude"], sizes["longitude"]
    windows = [run.climatology.around(day) for day, _ in left]
    most = max(sum(run.dates(day).size for day in window) for window in windows)
    height = rows_within(_WINDOW_BYTES, most * sizes["number"] * columns * 4, rows)
    with ExitStack() as stack:
        parts = [file.with_name(file.name + ".part") for _, file in left]
        for part in parts:
            part.parent.mkdir(parents=True, exist_ok=True)
        opened = [stack.enter_context(part.open("wb")) for part in parts]
        for first in range(0, rows, height):
            block = slice(first, min(first + height, rows))
            for file, quantiles in zip(opened, _slide(run, windows, block), strict=True):
                for n, field in enumerate(quantiles):
                    begin = (n * rows + first) * columns * 4
                    os.pwrite(file.fileno(), np.ascontiguousarray(field, "<f4").data, begin)
        for file in opened:
            os.fsync(file.fileno())
    for part, (_, path) in zip(parts, left, strict=True):
        part.rename(path)


def _slide(
    run: _Run, windows: Sequence[Sequence[str]], rows: slice
) -> Iterator[npt.NDArray[np.float32]]:
    """Quantiles of one window after the other, of some rows; members are kept while needed."""
    held: dict[str, list[npt.NDArray[np.float32]]] = {}
    for window in windows:
        for day in [day for day in held if day not in window]:
            del held[day]
        for day in window:
            if day not in held:
                held[day] = [run.members.read(int(n), rows) for n in run.dates(day)]
        sample = [part for day in window for part in held[day]]
        if sample:
            yield quantiles_of(sample, run.levels)
        else:
            points = (rows.stop - rows.start) * run.members.about.sizes["longitude"]
            yield np.full((run.levels.size, points), np.nan, np.float32)
