"""One entry of the index of GRIB messages."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ens10.grib.grid import LatLonGrid, Scan


@dataclass(frozen=True, slots=True)
class Message:
    """Where one GRIB message lies and what field it holds.

    Attributes:
        path: the file.
        offset: first byte of the message in the file.
        length: number of bytes.
        edition: GRIB edition, 1 or 2.
        param_id: ECMWF parameter number.
        short_name: GRIB short name, such as `2t`.
        name: cfgrib's name, such as `t2m`.
        units: of the values.
        level_type: such as `surface` or `isobaricInhPa`.
        level: in the units of the level type.
        time: start (reference) time, datetime64[s].
        step: hours from the start to the end of the field's validity.
        number: ensemble member, or None where the message names none.
        data_type: such as `pf`, `cf` or `an`.
        packing: such as `grid_simple`.
        bits: bits per value.
        grid: the grid, as fields are laid out in this package.
        scan: how the message's values are ordered.
    """

    path: Path
    offset: int
    length: int
    edition: int
    param_id: int
    short_name: str
    name: str
    units: str
    level_type: str
    level: int
    time: np.datetime64
    step: int
    number: int | None
    data_type: str
    packing: str
    bits: int
    grid: LatLonGrid
    scan: Scan

    @property
    def place(self) -> str:
        """File and byte, for messages to the user."""
        return f"{self.path} at byte {self.offset}"
