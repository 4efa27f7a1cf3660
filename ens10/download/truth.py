"""ERA5 at the valid hours of chosen forecasts: one netCDF file for each year.

An hour is fetched into a small file of its own in `.parts`; when all hours of a year are there
they become one file. Nothing that came is fetched again.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import xarray as xr

from ens10.download.arco import URL, URL_VARIABLE, Era5
from ens10.download.choice import Choice
from ens10.download.files import Manner, Report
from ens10.download.folder import check_space, free_space, inside, size_text
from ens10.download.record import NAME, Entry, Record, checksum
from ens10.download.remote import TransientError
from ens10.download.retry import Patience
from ens10.download.truthfile import hours_of, merge, write
from ens10.errors import Ens10Error, FileError, MissingDataError
from ens10.machine_errors import machine_error
from ens10.progress import track

T = TypeVar("T")
_PARTS = ".parts"
_BYTES = 4  # of a value
_MUCH = 3  # times as much is read as is written
_AGAIN = "Run the same command again: what is there is kept"


def fetch_truth(folder: Path, choice: Choice, base: str | None, manner: Manner) -> Report:
    """Brings the truth into a folder; see `ens10.download.download`."""
    years = _by_year(choice.hours)
    targets = {year: inside(folder, f"era5.{year}.nc") for year in years}
    inside(folder, _PARTS)
    inside(folder, NAME)
    era5 = Era5(base or os.environ.get(URL_VARIABLE) or URL, choice)
    record = Record(folder)
    coming = {}
    for year, hours in years.items():
        held = _held(targets[year], era5, choice, record, manner.check)
        coming[year] = [hour for hour in hours if hour not in held]
    report = _report(folder, coming, targets, era5, choice)
    _tell(report, era5, choice, coming, manner)
    check_space(folder, report.left)
    if manner.dry_run:
        return report
    (folder / _PARTS).mkdir(parents=True, exist_ok=True)
    wrong = _fetch(folder, [h for hours in coming.values() for h in hours], era5, choice, manner)
    for year, hours in coming.items():
        name = targets[year].name
        if hours and not any(hour in wrong for hour in hours):
            record.forget(name)  # first: a run that is killed here leaves no wrong record
            merge(targets[year], [_part(folder, hour) for hour in hours], choice, era5.source)
        if targets[year].exists() and record.get(name) is None:
            size = targets[year].stat().st_size
            record.add(name, Entry(checksum(targets[year]), size, era5.source))
    if wrong:
        raise MissingDataError(folder, [wrong[hour] for hour in sorted(wrong)], _AGAIN)
    shutil.rmtree(folder / _PARTS)
    return report


def _by_year(hours: Sequence[datetime]) -> dict[int, list[datetime]]:
    years: dict[int, list[datetime]] = defaultdict(list)
    for hour in hours:
        years[hour.year].append(hour)
    return dict(years)


def _part(folder: Path, hour: datetime) -> Path:
    return inside(folder / _PARTS, f"era5.{hour:%Y-%m-%dT%H}.nc")


def _held(path: Path, era5: Era5, choice: Choice, record: Record, check: bool) -> set[datetime]:
    """The hours that a year's file has.

    Raises:
        FileError: it is another file than the one recorded, or has other fields than those wanted.
    """
    if not path.exists():
        return set()
    entry = record.get(path.name)
    if entry is not None:
        size = path.stat().st_size
        if size != entry.size or (check and checksum(path) != entry.sha256):
            raise FileError(
                path, f"not the file that was fetched, by {NAME}", "Remove it to fetch it again"
            )
    hours = hours_of(path, era5.grid, choice)
    if hours is None:
        raise FileError(
            path, "it holds other fields, or another grid", "Give another folder, or remove it"
        )
    return hours


def _report(
    folder: Path, coming: dict[int, list[datetime]], targets: dict[int, Path], era5: Era5,
    choice: Choice,
) -> Report:  # fmt: skip
    points = int(np.prod([values.size for values in era5.grid.values()]))
    hour = points * choice.field_count * _BYTES
    here = sum(target.stat().st_size for target in targets.values() if target.exists())
    left = hour * sum(len(hours) for hours in coming.values())
    return Report(
        folder=folder,
        kept=tuple(targets[year].name for year, hours in coming.items() if not hours),
        fetched=tuple(targets[year].name for year, hours in coming.items() if hours),
        size=here + left,
        left=left,
        free=free_space(folder),
    )


def _tell(
    report: Report, era5: Era5, choice: Choice, coming: dict[int, list[datetime]], manner: Manner
) -> None:
    hours = [hour for of_year in coming.values() for hour in of_year]
    levels = f" at {', '.join(map(str, choice.levels))} hPa" if choice.upper else ""
    manner.say(f"ERA5 from {era5.source}: {', '.join(choice.variables)}{levels}")
    if not hours:
        manner.say(f"All {len(choice.hours)} hours are in {report.folder}")
        return
    try:
        size = _patiently(lambda: era5.size(hours), manner.patience)
    except TransientError as error:
        raise FileError(era5.source, f"cannot be read ({error})", "Check the connection") from error
    manner.say(
        f"{len(hours)} hours, {len(report.fetched)} files: about {size_text(size)} to read, at "
        f"most {size_text(report.left)} to write, {size_text(report.free)} free in {report.folder}"
    )
    if size > _MUCH * report.left:
        manner.say(
            "The store keeps all levels of an hour in one piece; the Climate Data Store sends "
            "those wanted alone (--cds FILE)"
        )


def _fetch(
    folder: Path, hours: Sequence[datetime], era5: Era5, choice: Choice, manner: Manner
) -> dict[datetime, str]:
    """Fetches hours into files of their own; what went wrong, by hour.

    Threads read the store, and this one alone writes: the netCDF library bears no more than one.
    """
    wrong = {}
    left = [hour for hour in hours if not _is_part(_part(folder, hour), hour, era5, choice)]
    with ThreadPoolExecutor(manner.jobs) as pool:
        coming = {pool.submit(_read, era5, choice, hour, manner.patience): hour for hour in left}
        try:
            for future in track(as_completed(coming), "download", len(left), manner.progress):
                hour = coming.pop(future)
                try:
                    write(future.result(), _part(folder, hour), era5.source)
                except (TransientError, Ens10Error) as error:
                    wrong[hour] = f"{hour:%Y-%m-%dT%H} ({str(error).rstrip('.')})"
        except BaseException as error:
            manner.stop.set()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, OSError):
                other = FileError(folder, f"cannot be written to ({error})", _AGAIN)
                raise machine_error(error) or other from error
            raise
    return wrong


def _is_part(path: Path, hour: datetime, era5: Era5, choice: Choice) -> bool:
    return path.exists() and hours_of(path, era5.grid, choice) == {hour}


def _read(era5: Era5, choice: Choice, hour: datetime, patience: Patience) -> xr.Dataset:
    """All fields of one hour; each variable is one large object and is asked for again alone."""
    return xr.Dataset(
        {name: _patiently(partial(era5.read, name, hour), patience) for name in choice.variables}
    )


def _patiently(action: Callable[[], T], patience: Patience) -> T:
    """The result of reading the store; what the back ends of fsspec raise may pass."""

    def once() -> T:
        try:
            return action()
        except Ens10Error:
            raise
        except Exception as error:  # they have no base in common
            raise TransientError(f"{type(error).__name__}: {error}") from error

    return patience.call(once)
