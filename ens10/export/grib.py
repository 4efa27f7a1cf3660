"""Forecasts and truth as GRIB edition 1, message by message."""

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, DamagedFileError, FileError
from ens10.export.cells import Cell, cells_of, check_for_grib
from ens10.export.message import Label, Messages, grid_of
from ens10.export.packing import field_of_record
from ens10.grib.packing import same_bits
from ens10.packed16.layout import DamagedChunkError, Field, checked_values, parse
from ens10.places import is_url
from ens10.progress import track
from ens10.store.chunks import MEND
from ens10.store.form import Form, check


def write_grib(
    path: Path, store: Path | str, dataset: xr.Dataset, kind: str, progress: bool
) -> None:
    """Writes every field of a dataset as a message, by date, step, variable, level and member.

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
        shown = track(cells, "export", len(cells), progress)
        if kind == "truth":
            _write_truth(file, shown, dataset)
        else:
            _write_forecasts(file, shown, dataset, store)


def _write_forecasts(
    file: BinaryIO, cells: Iterable[Cell], dataset: xr.Dataset, store: Path | str
) -> None:
    numbers = [int(number) for number in dataset["number"].to_numpy()]
    single = numbers == [0]
    messages = Messages(grid_of(dataset), 0 if single else max(*numbers, len(numbers)))
    chunks = _Chunks(store, dataset)
    for cell in cells:
        for number, field in zip(numbers, chunks.fields(cell), strict=True):
            label = Label(cell.variable, cell.level, cell.time, cell.step, number)
            file.write(messages.message(field, label))


def _write_truth(file: BinaryIO, cells: Iterable[Cell], dataset: xr.Dataset) -> None:
    """Analyses at the valid times; two forecasts of one time share one, which must be the same."""
    messages = Messages(grid_of(dataset), 0)
    written: dict[tuple[str, float, np.datetime64], Cell] = {}
    for cell in cells:
        values = _values(dataset, cell)
        twin = written.setdefault((cell.name, cell.level, cell.valid), cell)
        if twin is cell:
            label = Label(cell.variable, cell.level, cell.valid, 0, 0)
            file.write(messages.message(values, label))
        elif not same_bits(_values(dataset, twin), values):
            raise ArgumentError(
                "kind",
                f"the truth of {cell.name} at {str(cell.valid)[:13]} differs between the starts "
                f"{str(twin.time)[:13]} and {str(cell.time)[:13]}",
                "Export to netCDF",
            )


def _values(dataset: xr.Dataset, cell: Cell) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    part = dataset[cell.name].isel(cell.where)
    return np.ascontiguousarray(part.to_numpy(), dtype=np.float32)


class _Chunks:
    """The chunks of a local store, for a dataset that is a part of it."""

    def __init__(self, store: Path | str, dataset: xr.Dataset) -> None:
        if is_url(store):
            raise ArgumentError("store", "GRIB is exported from local stores", "Copy it first")
        self._store, self._dataset = Path(store), dataset
        self._forms: dict[str, Form] = {}
        self._places: dict[str, list[int]] = {
            str(dim): dataset[f"place_of_{dim}"].to_numpy().tolist() for dim in dataset.dims
        }

    def fields(self, cell: Cell) -> list[Field]:
        """The members of a cell as the store keeps them."""
        array = self._store / ("pl" if "level" in cell.where else "sfc") / cell.name
        if cell.name not in self._forms:
            self._forms[cell.name] = Form.read((array / "zarr.json").read_text())
        form = self._forms[cell.name]
        if form.codec != "packed16":
            return list(_values(self._dataset, cell))
        place = [str(self._places[dim][n]) for dim, n in cell.where.items()]
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
    kept = [checked_values(chunk, records, n, rows * columns) for n in members]
    return [
        field_of_record(records[n], values, (rows, columns))
        for n, values in zip(members, kept, strict=True)
    ]
