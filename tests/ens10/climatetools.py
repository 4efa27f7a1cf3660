"""A store with several years of start dates, and the climate of its dates by hand."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ens10 import prepare
from ens10.store import open_store
from ens10.synthetic import World

YEARS = range(2000, 2006)  # clean: trains on 2000-2002, validates 2003, tests 2004-2005


def yearly_store(folder: Path) -> Path:
    """A store of 13 start dates a year, all round the year."""
    names = ["sst", "t2m", "z"]
    world = World("4x8", YEARS, 13, names, seed=4, members=2, levels=[850], steps=[48])
    world.write(folder / "w")
    return prepare(folder / "w", folder / "s")


def sample(
    store: Path, name: str, month_days: list[str], years: set[int] | range, **place: float
) -> npt.NDArray[np.float64]:
    """Members by hand: every start date on these month-days, valid in these years, in float64."""
    field = open_store(store, "pl" if place else "sfc")[name].sel(step=48, **place).load()
    chosen = [
        n
        for n, (start, valid) in enumerate(
            zip(field.time.values, field.valid_time.values, strict=True)
        )
        if str(start)[5:10] in month_days and int(str(valid)[:4]) in years
    ]
    members = field.isel(time=chosen).transpose("time", "number", ...).to_numpy()
    return members.reshape(-1, *members.shape[2:]).astype(np.float64)


def month_days(store: Path) -> list[str]:
    """The calendar of a store, as MM-DD."""
    return sorted({str(t)[5:10] for t in open_store(store, "sfc").time.values})
