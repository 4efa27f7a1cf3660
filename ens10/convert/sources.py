"""Sources of a store's fields: a lazy dataset, or GRIB messages with packed integers.

GRIB messages are not decoded: the store keeps their integers as they are packed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import xarray as xr

from ens10.convert.empty_store import StorePart
from ens10.convert.plan import Source
from ens10.convert.workers import dead_worker_error, processes
from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.grib import LatLonGrid, MessageList, is_grib, scan
from ens10.identity import member_labels
from ens10.packed16.layout import Field
from ens10.places import is_url
from ens10.progress import track
from ens10.selection import Selection
from ens10.source import open_source
from ens10.source.folders import files_in
from ens10.source.gribs import GribFields, Missing, Parts, field_reader, is_copy
from ens10.source.layout import read_values, tidy, with_forecast_dims
from ens10.source.names import Names
from ens10.source.pairing import pair_truth
from ens10.source.regridding import Regrid
from ens10.source.stores import is_zarr
from ens10.stations import has_stations
from ens10.untrusted import is_file_name

_LARGEST_IN_MEMORY = 2**31  # bytes of the data of stations


@dataclass(frozen=True)
class DatasetFields:
    """The fields of one date and step of a lazy dataset.

    Attributes:
        dataset: variables over ([level,] number, latitude, longitude).
        picks: variable and level index of each part.
        where: source, date and step, for messages.
    """

    dataset: xr.Dataset
    picks: tuple[tuple[str, int | None], ...]
    where: str

    @property
    def may_be_empty(self) -> bool:
        """True if a field may be missing without being known to be, as NaN in a file."""
        return not has_stations(self.dataset)

    @contextmanager
    def open(self) -> Iterator[Callable[[int], Sequence[Field]]]:
        """Read all fields at once, since one chunk of the source may hold several of them."""
        in_memory = read_values(self.dataset, self.where)
        values = {
            name: field.to_numpy().astype(np.float32, copy=False)
            for name, field in in_memory.data_vars.items()
        }

        def read(part: int) -> Sequence[Field]:
            name, level = self.picks[part]
            return list(values[name] if level is None else values[name][level])

        yield read

    def origin(self, part: int) -> str:  # noqa: ARG002
        """Return "", since the position of a dataset's fields in their files is unknown."""
        return ""

    def place(self, part: int, member: int) -> str:
        """Return source, date, step, level and member, for messages."""
        name, level = self.picks[part]
        number = member_labels(self.dataset["number"])[member]
        pressure = "" if level is None else f", {self.dataset['level'].to_numpy()[level]:g} hPa"
        return f"{self.where}, {name}{pressure}, number {number}"


class DatasetForecasts:
    """Forecasts in a lazy dataset.

    Args:
        template: the dataset, which has every dimension.
        label: where it comes from, for messages.

    Attributes:
        template: as given; its coordinates, dimensions and attributes shape the store.
        label: as given.
    """

    def __init__(self, template: xr.Dataset, label: str) -> None:
        self.template, self.label = template, label

    def fields(self, place: tuple[int, int], parts: Sequence[StorePart]) -> DatasetFields:
        """Return the fields of one date and step, for a worker to read."""
        i, j = place
        lazy = self.template.isel(time=i, step=j)
        where = f"{self.label}: {str(lazy['time'].to_numpy())[:13]}, step {lazy['step'].item()}"
        # Without this, each unit would carry the whole graph.
        (culled,) = dask.optimize(lazy)  # type: ignore[no-untyped-call, attr-defined]
        return DatasetFields(culled, tuple((p.variable, p.level) for p in parts), where)

    def max_bytes(self, place: tuple[int, int], parts: Sequence[StorePart]) -> int:  # noqa: ARG002
        """Return the maximum number of bytes of all fields of one date and step."""
        sizes = self.template.sizes
        return len(parts) * sizes["number"] * sizes["latitude"] * sizes["longitude"] * 4

    def at(self, times: Any) -> "DatasetForecasts":
        """Return the forecasts of some start dates."""
        return DatasetForecasts(self.template.sel(time=times), self.label)


@dataclass(frozen=True)
class PackedFields:
    """The messages of one date and step.

    Attributes:
        members: the parts of the fields of all members, of each chunk.
        files: the number of each file in the store's plan.
        grid: of the fields.
    """

    members: tuple[tuple[Parts, ...], ...]
    files: dict[Path, int]
    grid: LatLonGrid
    may_be_empty = False

    @contextmanager
    def open(self) -> Iterator[Callable[[int], Sequence[Field]]]:
        """Open each file once."""
        with field_reader(self.grid) as read:
            yield lambda part: [read(parts) for parts in self.members[part]]

    def origin(self, part: int) -> str:
        """Return FILE:BYTE+LENGTH of each member, with the file's number.

        A dash stands for a missing field, and for one that is computed: a sum of messages, or one
        in other units.
        """
        messages = [p[0].message if p and is_copy(p) else None for p in self.members[part]]
        return " ".join(
            "-" if m is None else f"{self.files[m.path]}:{m.offset}+{m.length}" for m in messages
        )

    def place(self, part: int, member: int) -> str:
        """Return file and byte of one member."""
        parts = self.members[part][member]
        return parts[-1].message.place if parts else "no message"


class GribForecasts:
    """Forecasts in GRIB files.

    Args:
        fields: the fields of the files.
        template: the fields as a dataset.
        file_numbers: number of each file in the store's plan.
        time_indices: index of each date of the template among the times of `fields`.

    Attributes:
        template: as given; its coordinates, dimensions and attributes shape the store.
    """

    def __init__(
        self,
        fields: GribFields,
        template: xr.Dataset,
        file_numbers: dict[Path, int],
        time_indices: list[int],
    ) -> None:
        self.template = template
        self._fields = fields
        self._file_numbers, self._time_indices = file_numbers, time_indices

    def fields(self, place: tuple[int, int], parts: Sequence[StorePart]) -> PackedFields:
        """Return the fields of one date and step, for a worker to read."""
        chunks = tuple(self._members(place, part) for part in parts)
        paths = {one.message.path for chunk in chunks for field in chunk for one in field or ()}
        files = {path: self._file_numbers[path] for path in paths}
        return PackedFields(chunks, files, self._fields.grid)

    def _members(self, place: tuple[int, int], part: StorePart) -> tuple[Parts, ...]:
        i, j = self._time_indices[place[0]], place[1]
        if part.level is None:
            return tuple(self._fields.messages(part.variable, i, j))
        level = float(self.template["level"].to_numpy()[part.level])
        levels = self._fields.levels[part.variable]
        if level not in levels:
            return (None,) * len(self._fields.numbers)
        return tuple(self._fields.messages(part.variable, i, j, levels.index(level)))

    def max_bytes(self, place: tuple[int, int], parts: Sequence[StorePart]) -> int:
        """Return the maximum number of bytes of all fields of one date and step."""
        fields = (field for part in parts for field in self._members(place, part))
        total = sum(map(_bytes_per_value, fields))
        return total * self.template.sizes["latitude"] * self.template.sizes["longitude"]

    def at(self, times: Any) -> "GribForecasts":
        """Return the forecasts of some start dates."""
        places = self.template.indexes["time"].get_indexer(times.to_numpy()).tolist()
        template = self.template.isel(time=places)
        return GribForecasts(
            self._fields,
            template,
            self._file_numbers,
            [self._time_indices[place] for place in places],
        )


# what is read at one date and step: `may_be_empty` is True if a field may be missing without being
# known to be, `open` yields a function from a part's index to its members, and `origin` and `place`
# say where they are stored
Fields = DatasetFields | PackedFields
Forecasts = DatasetForecasts | GribForecasts


def open_forecasts(
    src: Source,
    names: Names,
    selection: Selection,
    missing: Missing,
    workers: int = 1,
    progress: bool = False,
) -> Forecasts:
    """Open the selected part of the forecasts, with all dimensions.

    If the source consists of GRIB files and no names are mapped, the messages are copied with their
    packed integers. Every other source is read through a lazy dataset.

    Raises:
        FileError: they cannot be read.
        MissingDataError: fields or dimensions are missing.
        ArgumentError: the selection is empty, or a selected item does not exist.
    """
    if isinstance(src, xr.Dataset):
        dataset = tidy(src, names, "the dataset", variables=selection.variables)
        return _dataset_forecasts(dataset, "the dataset", selection)
    gribs = grib_files(src) if not (names.variables or names.truth) else []
    if gribs:
        numbers = {path: n for n, path in enumerate(files_in(Path(src)))}
        fields = open_gribs(gribs, selection, missing, workers, progress)
        template = with_forecast_dims(tidy(fields.dataset(), names, src))
        if matches(fields, template):
            return GribForecasts(fields, template, numbers, list(range(template.sizes["time"])))
    dataset = open_source(src, names, missing, variables=selection.variables)
    return _dataset_forecasts(dataset, str(src), selection)


def grib_files(src: Path | str) -> list[Path]:
    """Return the files of a source if all of them are GRIB; otherwise an empty list."""
    files = [] if is_url(src) or is_zarr(Path(src)) else files_in(Path(src))
    return files if all(is_grib(file) for file in files) else []


def _dataset_forecasts(dataset: xr.Dataset, label: str, selection: Selection) -> Forecasts:
    dataset = with_forecast_dims(dataset)
    _check_not_empty(dataset)
    dataset = selection.of_dataset(dataset)
    _check_names(dataset, label)
    _check_dimensions(dataset, label)
    dataset = _load_stations(dataset, label)
    return DatasetForecasts(dataset, label)


def _load_stations(dataset: xr.Dataset, label: str) -> xr.Dataset:
    """Read a dataset of stations into memory, if it fits; other datasets are unchanged.

    Files of stations are often chunked by station, not by date.
    """
    if has_stations(dataset) and dataset.nbytes <= _LARGEST_IN_MEMORY:
        return read_values(dataset, label)
    return dataset


def _check_not_empty(dataset: xr.Dataset) -> None:
    empty = [dim for dim, size in dataset.sizes.items() if not size]
    if empty:
        raise ArgumentError(
            "src", f"nothing along {', '.join(map(str, empty))}", "Select more data"
        )


def _check_names(dataset: xr.Dataset, label: str) -> None:
    """Refuse variables whose names lead out of the folder of a store, or that no folder can have.

    Raises:
        FileError: there is one.
    """
    for name in dataset.data_vars:
        if not is_file_name(name):
            reason = f"the variable {str(name)[:100]!r} cannot have this name in a store"
            raise FileError(label, reason, "Rename it, or leave it out with --variables")


def _check_dimensions(dataset: xr.Dataset, label: str) -> None:
    missing = [
        f"{dim} of {name}"
        for name, field in dataset.data_vars.items()
        for dim in dataset.dims
        if dim not in field.dims and dim != "level"
    ]
    if missing:
        raise MissingDataError(label, missing, "Leave these variables out with --variables")


@dataclass(frozen=True)
class Inputs:
    """Forecasts and truth, and how the names in each of them map to ours.

    Attributes:
        src: the forecasts.
        truth: the truth; None if it is in `src`, or if there is none.
        names: of the forecasts, and of the truth unless that has a mapping of its own.
        truth_names: of the truth alone; its `variables` and `truth` mean the same.
        regrid: how truth on another grid is interpolated; None if it is not.
    """

    src: Source
    truth: Source | None
    names: Names
    truth_names: Names | None = None
    regrid: Regrid | None = None

    def names_of_truth(self) -> Names | None:
        """Return the mapping to open the truth with; None if there is no truth.

        Raises:
            ArgumentError: there is a mapping for the truth, but no truth.
        """
        if self.truth_names is None:
            if self.truth is None and not self.names.truth:
                return None
            group = self.names.group if self.truth is None else ""
            return replace(self.names, variables=self.names.truth, truth={}, group=group)
        names = self.truth_names
        mapping = replace(names, variables={**names.truth, **names.variables}, truth={})
        if self.truth is None and not mapping.variables:
            raise ArgumentError(
                "truth_names",
                "no truth is given, and it names no variable of the forecasts' file as truth",
                "Pass the truth with --truth, or name it under `variables` in --truth-names FILE",
            )
        return mapping

    def names_of_forecasts(self) -> Names:
        """Return the mapping to open the forecasts with, without the names of truth."""
        if self.truth is not None:  # whose names do not concern the forecasts
            return replace(self.names, truth={})
        truth_mapping = self.names_of_truth()
        return replace(self.names, truth=truth_mapping.variables) if truth_mapping else self.names


def _open_truth(inputs: Inputs, names: Names, missing: Missing) -> xr.Dataset:
    """Open the truth, from its own source or from the forecasts' variables."""
    truth_source = inputs.src if inputs.truth is None else inputs.truth
    if isinstance(truth_source, xr.Dataset):
        return tidy(truth_source, names, "truth", optional_dimensions=True)
    return open_source(truth_source, names, missing, optional_dimensions=True)


def open_inputs(
    inputs: Inputs,
    selection: Selection,
    missing: Missing,
    workers: int = 1,
    progress: bool = False,
) -> tuple[Forecasts, xr.Dataset | None]:
    """Open the forecasts and the truth of their valid dates.

    Returns:
        The forecasts, of the dates that have truth if `missing` is "skip"; and the truth, over
        (time, step[, level], latitude, longitude), or None if there is none.
    """
    names = inputs.names_of_forecasts()
    forecasts = open_forecasts(inputs.src, names, selection, missing, workers, progress)
    truth_mapping = inputs.names_of_truth()
    if truth_mapping is None:
        return forecasts, None
    truth = _open_truth(inputs, truth_mapping, missing)
    paired_truth = pair_truth(forecasts.template, truth, missing, regrid=inputs.regrid)
    paired_truth = _load_stations(paired_truth, "truth")
    return forecasts.at(paired_truth["time"]), paired_truth


def _bytes_per_value(parts: Parts) -> int:
    """Return the bytes of a value in the store: 2 if it stays packed, 4 as float32."""
    if parts is None:
        return 0
    if not is_copy(parts):
        return 4
    meaning = parts[0].message.meaning
    return 2 if meaning.packing == "grid_simple" and meaning.bits <= 16 else 4


def open_gribs(
    files: Sequence[Path], selection: Selection, missing: Missing, workers: int, progress: bool
) -> GribFields:
    """Index GRIB files in several processes, and return the selected fields.

    Raises:
        FileError: a file is damaged, or files disagree in grid, units or levels.
        MissingDataError: fields are missing.
        UnknownNameError: a selected item is in none of the files.
    """
    show_bar = progress and len(files) > 1
    with ExitStack() as stack:
        scans: Iterable[MessageList] = map(scan, files)
        if workers > 1 and len(files) > 1:
            scans = stack.enter_context(processes(workers)).map(scan, files)
        try:
            lists = list(track(scans, "index", len(files), show_bar))
        except BrokenProcessPool as error:
            raise dead_worker_error(files[0].parent) from error
    return GribFields(lists, missing, selection)


def matches(fields: GribFields, dataset: xr.Dataset) -> bool:
    """Return True if a dataset has the names and coordinates of the fields, in the same order."""
    if not set(map(str, dataset.data_vars)) <= set(fields.levels):
        return False  # recognised under another name, and possibly converted
    axes = fields.coordinates()
    values = {name: value[1] if isinstance(value, tuple) else value for name, value in axes.items()}
    return all(
        np.array_equal(dataset[name].to_numpy(), expected) for name, expected in values.items()
    )
