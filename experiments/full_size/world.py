"""A synthetic year of ENS-10's size, as GRIB files: 105 start dates from April to March.

A year that begins in April has valid dates in two calendar years, so that years can be told apart
for training (78 dates of 1998) and for the test (27 dates of 1999).
"""

import argparse
import datetime as dt
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ens10 import catalog
from ens10.progress import track
from ens10.synthetic import World

YEARS = (1998, 1999)
BEGINS = "0401"
TARGET_STEP = 48


class Year(World):
    """A world of one year: each month-day once, those before April in the second calendar year."""

    def _starts(self, month_day: str) -> list[dt.date]:
        first, second = super()._starts(month_day)
        return [second if month_day < BEGINS else first]


def year(grid: str, dates: int | None = None) -> Year:
    """The year's world: the 11 surface variables at the target's step, 10 members.

    Args:
        grid: rows x columns.
        dates: how many of the 105, evenly; None for all.
    """
    return Year(grid, YEARS, dates, catalog.names_of_kind("sfc"), seed=0, steps=(TARGET_STEP,))


def write(world: Year, folder: Path, workers: int) -> None:
    """Writes the world's files, the forecasts of several days at a time."""
    (folder / "truth").mkdir(parents=True)
    days = world.month_days
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        done = pool.map(world._write_forecasts, [folder] * len(days), days)
        for _ in track(done, "forecasts", len(days)):
            pass
    for day in track(days, "truth", len(days)):
        world._write_truth(folder, day)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the world."""
    parser = argparse.ArgumentParser(prog="python -m ens10.experiments.full_size.world")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--grid", default="361x720")
    parser.add_argument("--dates", type=int)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    given = parser.parse_args(arguments)
    write(year(given.grid, given.dates), given.folder, given.workers)
    return 0


if __name__ == "__main__":
    # by its name, so that the processes find the class
    from ens10.experiments.full_size.world import main as start

    sys.exit(start())
