"""The synthetic world of each seed, written and prepared once."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from ens10 import catalog
from ens10.convert import prepare
from ens10.errors import FileError
from ens10.experiments.matrix.claims import claim, holder
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
    """

    grid: str = "46x96"
    years: tuple[int, ...] = tuple(YEARS)
    dates: int = DATES
    levels: tuple[int, ...] = (500, 850)
    steps: tuple[int, ...] = catalog.STEPS_HOURS


_USUAL = WorldSize()


def store_of(folder: Path, seed: int, size: WorldSize = _USUAL) -> Path:
    """The prepared store of a seed's world, which is made if it is not there.

    Args:
        folder: of this seed: `world` and `store.zarr` are made in it.
        seed: of everything random in the world.
        size: of the world.

    Raises:
        FileError: another process is making it.
    """
    store = folder / "store.zarr"
    if store.exists():
        return store
    mark = folder / "store.claim"
    with claim(mark) as ours:
        if not ours:
            raise FileError(store, f"is being made by {holder(mark)}", "Try again later")
        if not store.exists():
            _world(folder, seed, size)
            prepare(folder / "world", store, truth=folder / "world" / "truth", progress=False)
    return store


def _world(folder: Path, seed: int, size: WorldSize) -> None:
    if (folder / "world").exists():
        return
    partial = folder / "world.partial"
    shutil.rmtree(partial, ignore_errors=True)  # of a call that was interrupted
    names = [*catalog.names_of_kind("sfc"), *catalog.names_of_kind("pl")]
    world = World(
        size.grid, size.years, size.dates, names, seed, levels=size.levels, steps=size.steps
    )
    world.write(partial)
    partial.rename(folder / "world")
