"""GRIB edition 1 messages, put together from a header and a field's own packing."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import eccodes
import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import VARIABLES, Variable
from ens10.errors import ArgumentError
from ens10.export.packing import (
    Simple,
    bitmap_section,
    data_section,
    exact_packing,
    kept_packing,
    signed,
)
from ens10.grib import Encoder, LatLonGrid, to_float32
from ens10.grib.grid import from_header
from ens10.grib.packing import same_bits
from ens10.packed16.layout import Field, Packed

_INSTEAD = "Export to netCDF"
_MARK = float(np.finfo(np.float64).max)
_INDICATOR, _MOST_BYTES = 8, 1 << 23  # longer messages need ecCodes' own way to say so
# Octets of the product section, from its first.
_FLAGS, _LEVEL, _DATE, _CENTURY, _DECIMAL, _NUMBER = 7, 9, 12, 24, 26, 49
_IN_PASCAL = bytes([210])  # type of level, ECMWF's own; 100 is hPa
_HAS_BITMAP = 64
_NOTHING = Simple(np.zeros(0, np.uint32), 0.0, 0, 0, 0, None)  # a field of zeros


@dataclass(frozen=True)
class Label:
    """What a message says about its field."""

    variable: Variable
    level: float
    time: np.datetime64
    step: int
    number: int


class Messages:
    """Makes messages on one grid.

    Args:
        grid: of every field.
        members: size of the ensemble, or 0 for analyses and single forecasts.

    Raises:
        ArgumentError: edition 1 cannot hold the grid.
    """

    def __init__(self, grid: LatLonGrid, members: int) -> None:
        kinds = ("pf", "cf") if members else ("an", "fc")
        try:
            self._encoders = {kind: Encoder(grid, kind, members) for kind in kinds}
        except eccodes.CodesInternalError as error:
            reason = f"GRIB edition 1 cannot tell the grid {grid} ({error})"
            raise ArgumentError("to", reason, _INSTEAD) from error
        self._grid, self._members = grid, members
        self._blank = np.zeros((grid.rows, grid.columns))
        self._heads: dict[tuple[str, str, float, int], tuple[bytes, bytes]] = {}

    def message(self, field: Field, label: Label) -> bytes:
        """A message that ecCodes decodes to the field's very values.

        Raises:
            ArgumentError: edition 1 cannot hold the field or what is said about it.
        """
        values = to_float32(field, (self._grid.rows, self._grid.columns))
        product, grid = self._sections(label)
        for packing in _packings(field, values):
            made = _assembled(product, grid, packing)
            if same_bits(_decoded(made, values.shape), values):
                return made
        made = _as_ieee(_assembled(product, grid, _NOTHING), values)
        if not same_bits(_decoded(made, values.shape), values):
            raise ArgumentError("to", f"GRIB does not hold {label.variable.name} exactly", _INSTEAD)
        return made

    def _sections(self, label: Label) -> tuple[bytes, bytes]:
        """The product and grid sections, made by ecCodes once for each variable, level, step."""
        kinds = ("pf", "cf") if self._members else ("fc", "an")
        kind = kinds[0 if (label.number if self._members else label.step) else 1]
        key = (kind, label.variable.name, label.level, label.step)
        if key not in self._heads:
            self._heads[key] = self._made_sections(kind, label)
        head, grid = self._heads[key]
        product = bytearray(head)
        moment = label.time.astype("datetime64[s]").item()
        if moment.second:
            raise ArgumentError("dates", f"{moment} has seconds, GRIB edition 1 none", _INSTEAD)
        century, year = divmod(moment.year - 1, 100)
        product[_DATE : _DATE + 5] = bytes(
            [year + 1, moment.month, moment.day, moment.hour, moment.minute]
        )
        product[_CENTURY] = century + 1
        product[_NUMBER] = label.number
        return bytes(product), grid

    def _made_sections(self, kind: str, label: Label) -> tuple[bytes, bytes]:
        try:
            message = self._encoders[kind].message(
                self._blank, label.variable, date=20000101, step=label.step, level=int(label.level)
            )
        except eccodes.CodesInternalError as error:
            what = f"{label.variable.name} at level {label.level}, step {label.step}"
            raise ArgumentError(
                "to", f"GRIB edition 1 has no {what} ({error})", _INSTEAD
            ) from error
        first = _INDICATOR + int.from_bytes(message[8:11], "big")
        last = first + int.from_bytes(message[first : first + 3], "big")
        product = bytearray(message[_INDICATOR:first])
        if label.level != int(label.level):
            product[_LEVEL : _LEVEL + 3] = _IN_PASCAL + round(label.level * 100).to_bytes(2, "big")
        return bytes(product), message[first:last]


def _packings(field: Field, values: npt.NDArray[np.float32]) -> Iterator[Simple]:
    """The simple packings that may hold a field, the one that it came with first."""
    own = kept_packing(field) if isinstance(field, Packed) else None
    if own is not None:
        yield own
    exact = exact_packing(values)
    if exact is not None:
        yield exact


def _assembled(product: bytes, grid: bytes, simple: Simple) -> bytes:
    """The message of a packed field."""
    about = bytearray(product)
    about[_FLAGS] = 128 | (_HAS_BITMAP if simple.present is not None else 0)
    about[_DECIMAL : _DECIMAL + 2] = signed(simple.decimal)
    bitmap = b"" if simple.present is None else bitmap_section(simple.present)
    body = bytes(about) + grid + bitmap + data_section(simple) + b"7777"
    size = _INDICATOR + len(body)
    if size >= _MOST_BYTES:
        raise ArgumentError("to", f"a field of {size} bytes is too long for GRIB 1", _INSTEAD)
    return b"GRIB" + size.to_bytes(3, "big") + b"\x01" + body


def _as_ieee(message: bytes, values: npt.NDArray[np.float32]) -> bytes:
    """A message with its field as IEEE numbers of 32 bits, by ecCodes."""
    gaps = np.isnan(values)
    handle = eccodes.codes_new_from_message(message)
    try:
        if gaps.any():
            eccodes.codes_set(handle, "bitmapPresent", 1)
            eccodes.codes_set(handle, "missingValue", _MARK)
        eccodes.codes_set(handle, "packingType", "grid_ieee")
        eccodes.codes_set(handle, "precision", 1)
        flat = np.where(gaps, _MARK, values.astype(np.float64)).ravel()
        eccodes.codes_set_values(handle, flat)
        return bytes(eccodes.codes_get_message(handle))
    finally:
        eccodes.codes_release(handle)


def _decoded(message: bytes, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    handle = eccodes.codes_new_from_message(message)
    try:
        eccodes.codes_set(handle, "missingValue", _MARK)
        values = eccodes.codes_get_values(handle)
    finally:
        eccodes.codes_release(handle)
    values[values == _MARK] = np.nan
    single: npt.NDArray[np.float32] = values.astype(np.float32).reshape(shape)
    return single


def variable_of(field: xr.DataArray) -> Variable:
    """What GRIB calls a field: by the catalogue, or by its attribute `paramId`.

    Raises:
        ArgumentError: neither knows it.
    """
    name, kind = str(field.name), "pl" if "level" in field.dims else "sfc"
    if name in VARIABLES:
        return replace(VARIABLES[name], kind=kind)  # type: ignore[arg-type]
    number = field.attrs.get("paramId", field.attrs.get("GRIB_paramId"))
    if number is None:
        raise ArgumentError(
            "variables",
            f"{name} has no GRIB parameter number (attribute paramId)",
            f"{_INSTEAD}, or leave it out",
        )
    units = str(field.attrs.get("units", ""))
    return Variable(name, name, int(number), kind, units, name, "", (-np.inf, np.inf))  # type: ignore[arg-type]


def grid_of(dataset: xr.Dataset) -> LatLonGrid:
    """The grid as GRIB edition 1 can tell it, in thousandths of a degree.

    Raises:
        ArgumentError: it is not regular, or needs more digits.
    """
    latitude, longitude = (dataset[d].to_numpy().astype(float) for d in ("latitude", "longitude"))
    ends = [(round(float(c[0]), 3), round(float(c[-1]), 3)) for c in (latitude, longitude)]
    grid, scan = from_header((latitude.size, longitude.size), ends[0], ends[1])
    same = (
        scan.roll == 0
        and not scan.northward
        and np.allclose(grid.latitude(), latitude, rtol=0, atol=1e-5)
        and np.allclose(grid.longitude(), longitude, rtol=0, atol=1e-5)
    )
    if not same:
        reason = "the grid is not regular to a thousandth of a degree, as GRIB edition 1 needs"
        raise ArgumentError("to", reason, _INSTEAD)
    return grid
