"""Files whose values encode their own coordinates, so that swapped axes are visible.

A value has seven digits, DSMCRLL: date, step, member and channel (one digit each, counted from 0),
row (one digit) and longitude column (two digits). 2310427 is date 2, step 3, member 1, channel 0,
row 4, column 27. All of them are exact in GRIB's 16-bit packing and in float32.
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ens10.catalog import VARIABLES
from ens10.errors import ArgumentError
from ens10.grib import Encoder, LatLonGrid


def coded_value(
    date: int, step: int, member: int, channel: int, row: npt.ArrayLike, column: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """Return the value that encodes a position; indices count from 0, row and column broadcast.

    Raises:
        ArgumentError: a position that is negative or needs more digits than there are for it.
    """
    positions = {"date": date, "step": step, "member": member, "channel": channel, "row": row}
    for name, position in positions.items():
        if np.min(position) < 0 or np.max(position) > 9:
            raise ArgumentError(name, "only positions 0 to 9 have a digit of their own")
    if np.min(column) < 0 or np.max(column) > 99:
        raise ArgumentError("column", "only columns 0 to 99 have digits of their own")
    prefix = ((date * 10 + step) * 10 + member) * 10 + channel
    return np.asarray(1000.0 * prefix + 100.0 * np.asarray(row) + np.asarray(column))


def write_coded(
    folder: Path | str,
    *,
    starts: Sequence[dt.date],
    steps: Sequence[int] = (0, 24, 48),
    members: int = 3,
    variables: Sequence[str] = ("t2m", "msl"),
    levels: Sequence[int] = (500,),
    shape: tuple[int, int] = (8, 16),
) -> Path:
    """Write one file of coded values for each start date.

    Args:
        folder: output folder; created if missing.
        starts: start dates (at most 10).
        steps: lead times in hours (at most 10).
        members: size of the ensemble (at most 10).
        variables: names in the catalogue.
        levels: levels in hPa of the variables on pressure levels.
        shape: rows (at most 10) and columns (at most 100).

    Returns:
        The folder. Channels are numbered in the order variable, then level.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rows, columns = shape
    encoder = Encoder(LatLonGrid(rows, columns, 90.0, -90.0, 0.0, 360.0 / columns), members=members)
    row, column = np.arange(rows)[:, None], np.arange(columns)[None, :]
    channels = [
        (VARIABLES[name], level)
        for name in variables
        for level in (levels if VARIABLES[name].kind == "pl" else (0,))
    ]
    for d, start in enumerate(starts):
        date = int(f"{start:%Y%m%d}")
        with (folder / f"coded.{start:%Y%m%d}").open("wb") as file:
            for s, step in enumerate(steps):
                for c, (variable, level) in enumerate(channels):
                    for m in range(members):
                        values = coded_value(d, s, m, c, row, column)
                        label = {"date": date, "step": step, "number": m + 1, "level": level}
                        file.write(encoder.message(values, variable, **label))
    return folder
