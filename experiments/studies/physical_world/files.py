"""The world as GRIB files in ENS-10's layout, and a prepared store as one file."""

import datetime as dt
import hashlib
import shutil
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from ens10.catalog import MODEL_YEAR, variable
from ens10.durable import whole_path
from ens10.errors import FileError, MissingDataError
from ens10.experiments.studies.physical_world.fields import CHANNELS, GRID, Array
from ens10.experiments.studies.physical_world.production import (
    STEPS,
    PhysicalWorld,
    is_complete,
    read_unit,
    unit_path,
)
from ens10.grib import Encoder
from ens10.partial import write_folder

TRUTH = (("t2m", 0), ("z", 500), ("t", 850), ("tp", 0), ("si10", 0))
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # of a file in a zip archive: the same store, the same bytes


def write_world(work: Path, folder: Path, available: bool = False) -> int:
    """Write `output.{sfc,pl}.2018MMDD` and, in `truth/`, `era5.YYYY` for each valid year.

    Args:
        work: folder of the units.
        folder: output folder, which appears when it is complete.
        available: leave out units that are not simulated yet.

    Returns:
        The number of start dates.

    Raises:
        FileError: the folder is there already, no unit is simulated, or one is damaged.
        MissingDataError: units are missing.
    """
    world = PhysicalWorld.load(work)
    missing = [unit for unit in world.units if not is_complete(unit_path(work, *unit))]
    if len(missing) == len(world.units):
        raise FileError(
            work, f"none of its {len(missing)} units is simulated", "Run `simulate` first"
        )
    if missing and not available:
        names = [f"{year}-{date}" for year, date in missing]
        raise MissingDataError(work, names, "Run `simulate` again, or pass --available")
    if folder.exists():
        raise FileError(folder, "is there already", "Choose another folder")
    units = [unit for unit in world.units if unit not in missing]

    def write(path: Path) -> None:
        (path / "truth").mkdir(parents=True)
        for date in world.dates:
            years = [year for year, other in units if other == date]
            _write_date(work, path, world, date, years)

    write_folder(folder, write)
    return len(units)


def _write_date(
    work: Path, folder: Path, world: PhysicalWorld, date: str, years: Sequence[int]
) -> None:
    forecasts = Encoder(GRID, members=world.members)
    truths = Encoder(GRID, data_type="an", members=0)
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for year in years:
            fields, start = read_unit(work, year, date), world.start(year, date)
            for name, level in CHANNELS:
                kind = variable(name).kind
                if kind not in files:
                    path = folder / f"output.{kind}.{MODEL_YEAR}{date}"
                    files[kind] = stack.enter_context(path.open("wb"))
                _write_members(files[kind], forecasts, fields["forecast"], (name, level), start)
            _write_truth(folder / "truth", truths, fields["nature"], start)


def _write_members(
    file: BinaryIO, encoder: Encoder, runs: Array, channel: tuple[str, int], start: dt.date
) -> None:
    position = CHANNELS.index(channel)
    for s, step in enumerate(STEPS):
        for number, run in enumerate(runs, 1):
            message = encoder.message(
                run[s, position],
                variable(channel[0]),
                date=int(f"{start:%Y%m%d}"),
                step=step,
                number=number,
                level=channel[1],
            )
            file.write(message)


def _write_truth(folder: Path, encoder: Encoder, nature: Array, start: dt.date) -> None:
    for s, step in enumerate(STEPS):
        valid = start + dt.timedelta(hours=step)
        with (folder / f"era5.{valid.year}").open("ab") as file:
            for name, level in TRUTH:
                field = nature[s, CHANNELS.index((name, level))]
                day = int(f"{valid:%Y%m%d}")
                file.write(encoder.message(field, variable(name), date=day, level=level))


def archive(store: Path, file: Path) -> str:
    """Pack a prepared store into one zip file; the same store gives the same bytes.

    Args:
        store: folder that `ens10 prepare` wrote.
        file: the archive; its folder exists.

    Returns:
        The SHA-256 checksum of the archive.

    Raises:
        FileError: no store is there; the archive would be in the store, in no folder, or is one.
    """
    if not (store / "zarr.json").is_file():
        raise FileError(store, "no prepared store", "Run `ens10 prepare` first")
    if file.resolve().is_relative_to(store.resolve()):
        raise FileError(file, "is inside the store that it would hold", "Choose another place")
    if file.is_dir() or not file.parent.is_dir():
        reason = "is a folder" if file.is_dir() else "its folder does not exist"
        raise FileError(file, reason, "Name a file in a folder that is there")
    paths = sorted(path for path in store.rglob("*") if path.is_file())
    with (
        whole_path(file) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as zip_file,
    ):
        for path in paths:
            name = (Path(store.name) / path.relative_to(store)).as_posix()
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.compress_type = zipfile.ZIP_DEFLATED
            with zip_file.open(entry, "w", force_zip64=True) as out, path.open("rb") as source:
                shutil.copyfileobj(source, out)
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
