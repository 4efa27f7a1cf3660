"""Fields of small GRIB files for the tests of the data path."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ens10.grib import LatLonGrid

GRID = LatLonGrid(5, 8, 60.0, 40.0, 0.0, 45.0)
REAL = Path(__file__).parents[1] / "data" / "era5-levels-members.grib"
Field = tuple[str, int, int, int, int]  # variable, level, date, step, number


def values_of(field: Field) -> npt.NDArray[np.float64]:
    """Values that tell every field, and every point of it, from the others."""
    seed = [ord(c) for c in field[0]] + list(field[1:])
    return np.random.default_rng(seed).normal(size=(GRID.rows, GRID.columns)) + 280.0


def cube(
    names: Sequence[tuple[str, int]] = (("t2m", 0), ("z", 500)),
    dates: Sequence[int] = (20160101, 20160105, 20160108),
    steps: Sequence[int] = (24, 48),
    members: int = 3,
) -> list[Field]:
    """Every combination of the axes."""
    return [
        (name, level, date, step, number)
        for date in dates
        for step in steps
        for number in range(1, members + 1)
        for name, level in names
    ]
