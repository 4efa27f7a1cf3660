"""Forecasts and truth of a store as GRIB edition 1, message by message."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xarray as xr

from ens10.catalog import Variable
from ens10.errors import ArgumentError, DamagedFileError, FileError
from ens10.export.message import Label, Messages, field_of_record, grid_of, variable_of
from ens10.grib.packing import same_bits
from ens10.packed16.layout import DamagedChunkError, Field, parse, read_values
from ens10.places import is_url
from ens10.progress import track
from ens10.stations import has_stations
from ens10.store.chunks import MEND, Form, check

_REMEDY = "Export to netCDF"
_MOST_IN_OCTET, _MOST_IN_TWO_OCTETS = 255, 65535


@dataclass(frozen=True)
class Cell:
    """One variable and level at one date and step.

    Attributes:
        label: of its messages, without a member.
        name: of the variable in the dataset.
        valid: valid time.
        positions: positions in the dataset along time, step and level.
    """

    label: Label
    name: str
    valid: np.datetime64
    positions: dict[str, int]


def check_for_grib(dataset: xr.Dataset, kind: str) -> None:
    """Refuse data that GRIB edition 1 cannot describe.

    Raises:
        ArgumentError: statistics, predictions, stations, steps that are no hours, levels in parts
            of a Pa, members beyond 255.
    """
    if "forecast_kind" in dataset.attrs or kind in ("statistics", "climate"):
        data_kind = "predictions" if "forecast_kind" in dataset.attrs else kind
        raise ArgumentError("to", f"GRIB holds no {data_kind}", _REMEDY)
    if has_stations(dataset):
        raise ArgumentError("to", "GRIB holds grids, and these are stations", _REMEDY)
    steps, units = dataset["step"].to_numpy(), dataset["step"].attrs.get("units", "h")
    if units != "h" or np.any(steps != steps.astype(np.int64)) or steps.min() < 0:
        raise ArgumentError("steps", f"GRIB needs whole hours, not {units}", _REMEDY)
    valid_times = dataset["valid_time"].transpose("time", "step").to_numpy()
    lead_times = valid_times - dataset["time"].to_numpy()[:, None]
    if np.any(lead_times != steps.astype("timedelta64[h]")[None, :]):
        raise ArgumentError("steps", "a valid time is not the start plus the step", _REMEDY)
    for number in dataset["number"].to_numpy() if "number" in dataset.dims else ():
        if not 0 <= number <= _MOST_IN_OCTET:
            raise ArgumentError("members", f"GRIB has no member {number}", _REMEDY)
    levels = dataset["level"].to_numpy() if "level" in dataset.dims else np.array([1])
    pascal = np.round(levels * 100.0)
    is_fractional = levels != levels.astype(np.int64)
    if np.any(is_fractional & ((pascal / 100.0 != levels) | (pascal > _MOST_IN_TWO_OCTETS))):
        raise ArgumentError("levels", "GRIB edition 1 has whole hPa or Pa only", _REMEDY)


def cells_of(dataset: xr.Dataset) -> Iterator[Cell]:
    """Yield all fields' cells by date and step, then variable and level."""
    parts = [part for field in dataset.data_vars.values() for part in _variable_levels(field)]
    valid_times = dataset["valid_time"].transpose("time", "step").to_numpy()
    steps = dataset["step"].to_numpy().tolist()
    for i, time in enumerate(dataset["time"].to_numpy()):
        for j, step in enumerate(steps):
            for variable, name, level, level_position in parts:
                positions = {"time": i, "step": j, **level_position}
                label = Label(variable, level, time, int(step))
                yield Cell(label, name, valid_times[i, j], positions)


def _variable_levels(field: xr.DataArray) -> list[tuple[Variable, str, float, dict[str, int]]]:
    """Return a variable on each of its levels."""
    variable, name = variable_of(field), str(field.name)
    if "level" not in field.dims:
        return [(variable, name, 0, {})]
    levels: list[Any] = field["level"].to_numpy().tolist()
    variable_levels = np.atleast_1d(field.attrs.get("levels_hpa", levels)).tolist()
    present = [(n, float(level)) for n, level in enumerate(levels) if level in variable_levels]
    return [(variable, name, level, {"level": n}) for n, level in present]


def write_grib(
    path: Path, store: Path | str, dataset: xr.Dataset, kind: str, progress: bool
) -> None:
    """Write every field as a message, by date, step, variable, level and member.

    Args:
        path: the file; what is there is replaced.
        store: the store that the dataset is of.
        dataset: with coordinates `place_of_...`, positions in the store.
        kind: "truth", or anything else for forecasts.
        progress: show a progress bar.

    Raises:
        ArgumentError: the data are not what GRIB edition 1 can hold.
        FileError: a chunk is missing.
        DamagedFileError: a chunk is damaged.
    """
    check_for_grib(dataset, kind)
    cells = list(cells_of(dataset))
    with path.open("wb") as file:
        tracked_cells = track(cells, "export", len(cells), progress)
        if kind == "truth":
            _write_truth(file, tracked_cells, dataset)
        else:
            _write_forecasts(file, tracked_cells, dataset, store)


def _write_forecasts(
    file: BinaryIO, cells: Iterable[Cell], dataset: xr.Dataset, store: Path | str
) -> None:
    numbers = [int(number) for number in dataset["number"].to_numpy()]
    single = numbers == [0]
    messages = Messages(grid_of(dataset), 0 if single else max(*numbers, len(numbers)))
    chunks = _Chunks(store, dataset)
    for cell in cells:
        for number, field in zip(numbers, chunks.fields(cell), strict=True):
            file.write(messages.message(field, replace(cell.label, number=number)))


def _write_truth(file: BinaryIO, cells: Iterable[Cell], dataset: xr.Dataset) -> None:
    """Write one analysis per valid time; truth of several starts must agree."""
    messages = Messages(grid_of(dataset), 0)
    first_cells: dict[tuple[str, float, np.datetime64], Cell] = {}
    for cell in cells:
        values = _read_values(dataset, cell)
        first_cell = first_cells.setdefault((cell.name, cell.label.level, cell.valid), cell)
        if first_cell is cell:
            file.write(messages.message(values, replace(cell.label, time=cell.valid, step=0)))
        elif not same_bits(_read_values(dataset, first_cell), values):
            reason = (
                f"the truth of {cell.name} at {str(cell.valid)[:13]} differs between the starts "
                f"{str(first_cell.label.time)[:13]} and {str(cell.label.time)[:13]}"
            )
            raise ArgumentError("kind", reason, "Export to netCDF")


def _read_values(
    dataset: xr.Dataset, cell: Cell
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    part = dataset[cell.name].isel(cell.positions)
    return np.ascontiguousarray(part.to_numpy(), dtype=np.float32)


class _Chunks:
    """Reader of the packed chunks of a local store, for a dataset that is a part of it."""

    def __init__(self, store: Path | str, dataset: xr.Dataset) -> None:
        if is_url(store):
            raise ArgumentError("store", "GRIB is exported from local stores", "Copy it first")
        self._store, self._dataset = Path(store), dataset
        self._forms: dict[str, Form] = {}
        self._places: dict[str, list[int]] = {
            str(dim): dataset[f"place_of_{dim}"].to_numpy().tolist() for dim in dataset.dims
        }

    def fields(self, cell: Cell) -> list[Field]:
        """Return the members of a cell as the store packs them."""
        array = self._store / ("pl" if "level" in cell.positions else "sfc") / cell.name
        if cell.name not in self._forms:
            self._forms[cell.name] = Form.read((array / "zarr.json").read_text())
        form = self._forms[cell.name]
        if form.codec != "packed16":
            return list(_read_values(self._dataset, cell))
        place = [str(self._places[dim][n]) for dim, n in cell.positions.items()]
        file = array.joinpath("c", *place, "0", "0", "0")
        try:
            return _fields_of_chunk(file, form, self._places["number"])
        except FileNotFoundError as error:
            raise FileError(file, "the chunk is missing", MEND) from error
        except DamagedChunkError as error:
            raise DamagedFileError(file, error.offset, error.reason, MEND) from error


def _fields_of_chunk(file: Path, form: Form, members: list[int]) -> list[Field]:
    chunk = check(np.fromfile(file, np.uint8), form)
    fields, rows, columns = form.field_shape
    records = parse(chunk.data, fields, rows, columns, chunk.size)
    values = ((n, read_values(chunk, records, n, rows * columns)) for n in members)
    return [field_of_record(records[n], part, (rows, columns)) for n, part in values]
