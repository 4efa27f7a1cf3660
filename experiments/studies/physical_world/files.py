"""The world as GRIB files in ENS-10's layout."""

import datetime as dt
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ens10.catalog import MODEL_YEAR, variable
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
            if years := [year for year, other in units if other == date]:
                _write_date(work, path, world, date, years)

    write_folder(folder, write)
    return len(units)


def _write_date(
    work: Path, folder: Path, world: PhysicalWorld, date: str, years: Sequence[int]
) -> None:
    forecasts = Encoder(GRID, members=world.members)
    truths = Encoder(GRID, data_type="an", members=0)
    kinds = dict.fromkeys(variable(name).kind for name, _ in CHANNELS)
    with ExitStack() as stack:
        paths = {kind: folder / f"output.{kind}.{MODEL_YEAR}{date}" for kind in kinds}
        files = {k: stack.enter_context(path.open("wb")) for k, path in paths.items()}
        for year in years:
            fields, start = read_unit(work, year, date), world.start(year, date)
            day = {"date": int(f"{start:%Y%m%d}")}
            for position, (name, level) in enumerate(CHANNELS):
                file, about = files[variable(name).kind], {**day, "level": level}
                for s, step in enumerate(STEPS):
                    for number, run in enumerate(fields["forecast"], 1):
                        place = {**about, "step": step, "number": number}
                        field = run[s, position]
                        file.write(forecasts.message(field, variable(name), **place))
            _write_truth(folder / "truth", truths, fields["nature"], start)


def _write_truth(folder: Path, encoder: Encoder, nature: Array, start: dt.date) -> None:
    for s, step in enumerate(STEPS):
        valid = start + dt.timedelta(hours=step)
        with (folder / f"era5.{valid.year}").open("ab") as file:
            for name, level in TRUTH:
                field = nature[s, CHANNELS.index((name, level))]
                day = int(f"{valid:%Y%m%d}")
                file.write(encoder.message(field, variable(name), date=day, level=level))
