"""The synthetic world of each seed, written and prepared once."""

import shutil
import time
from dataclasses import dataclass, fields
from pathlib import Path

from ens10 import catalog
from ens10.convert import prepare
from ens10.errors import FileError
from ens10.experiments.runner.claims import BEAT, claim, holder
from ens10.synthetic import World

YEARS = range(1998, 2008)
DATES = 40


@dataclass(frozen=True)
class WorldSize:
    """How large a world is.

    Attributes:
        grid: rows x columns.
        years: hindcast years.
        dates: start dates in each year.
        levels: of the variables on pressure levels, hPa.
        steps: hours.
        kinds: of variables, "sfc" and "pl".
    """

    grid: str = "46x96"
    years: tuple[int, ...] = tuple(YEARS)
    dates: int = DATES
    levels: tuple[int, ...] = (500, 850)
    steps: tuple[int, ...] = catalog.STEPS_HOURS
    kinds: tuple[catalog.Kind, ...] = ("sfc", "pl")

    @property
    def folder(self) -> str:
        """A name for the folder of such worlds; none for the usual size, which came first."""
        usual = type(self)()
        others = {f.name: getattr(self, f.name) for f in fields(self)}
        found = [f"{self.grid}-{len(self.years)}x{self.dates}"]
        for name, value in others.items():
            if name in ("levels", "steps", "kinds") and value != getattr(usual, name):
                found.append("_".join([name, *map(str, value)]))
        return "" if self == usual else "-".join(found)


_USUAL = WorldSize()


def store_of(folder: Path, seed: int, size: WorldSize = _USUAL, *, wait: bool = False) -> Path:
    """The prepared store of a seed's world, which is made if it is not there.

    Args:
        folder: of this seed: `world` and `store.zarr` are made in it.
        seed: of everything random in the world.
        size: of the world.
        wait: whether to wait where another process is making it.

    Raises:
        FileError: another process is making it, and we do not wait; a world of another size.
    """
    store, mark = folder / "store.zarr", folder / "store.claim"
    if store.exists() and (folder / "world").exists():
        _check_size(folder, size)
    while not store.exists():
        with claim(mark) as ours:
            if not (ours or wait):
                raise FileError(store, f"is being made by {holder(mark)}", "Try again later")
            if ours and not store.exists():
                _world(folder, seed, size)
                prepare(folder / "world", store, truth=folder / "world" / "truth", progress=False)
        if not store.exists():
            time.sleep(BEAT)
    return store


def _check_size(folder: Path, size: WorldSize) -> None:
    """Refuses a world that is there already, but not as it is asked for."""
    world = World.load(folder / "world")
    rows, columns = len(world.grid.latitude()), len(world.grid.longitude())
    held = (f"{rows}x{columns}", len(world.years), len(world.month_days))
    asked = (size.grid.lower(), len(size.years), size.dates)
    if held != asked:
        told = "is of {} points, {} years and {} dates".format(*held)
        told += ", not of {}, {} and {}".format(*asked)
        raise FileError(folder / "world", told, "Ask for its size, or work in another folder")


def _world(folder: Path, seed: int, size: WorldSize) -> None:
    if (folder / "world").exists():
        return
    partial = folder / "world.partial"
    shutil.rmtree(partial, ignore_errors=True)  # of a call that was interrupted
    names = [name for kind in size.kinds for name in catalog.names_of_kind(kind)]
    world = World(
        size.grid, size.years, size.dates, names, seed, levels=size.levels, steps=size.steps
    )
    world.write(partial)
    partial.rename(folder / "world")
