"""Write model-climate quantiles into a store, several consecutive month-days at a time.

    STORE/climate   one array a channel over (judged_year, month_day, step, quantile, latitude,
                    longitude), float32; a chunk is one month-day and step

A chunk is written under a temporary name, synced and renamed: an existing chunk is complete and is
not written again. Windows of consecutive month-days overlap and share the members that were read,
so that each chunk of the members is read less than twice. The bytes depend only on the data and the
options.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
import zarr

from ens10.channels import attributes_of, channel_names, resolve
from ens10.climate import years_of
from ens10.cores import usable_cores
from ens10.durable import clear_leftovers, whole_file, write_whole
from ens10.errors import FileError, UnknownNameError
from ens10.file_locks import folder_lock
from ens10.progress import track
from ens10.protocol import protocol_of, reference_of
from ens10.quantiles.members import StoreMembers, quantiles_of
from ens10.quantiles.model import rows_within
from ens10.quantiles.options import ClimateDates, ClimateOptions, quantile_levels
from ens10.splits import split_dates
from ens10.stations import as_row
from ens10.stations import coordinates as station_coordinates
from ens10.store import consolidate, create_array, forecasts, write_coordinates
from ens10.store.manifest import (
    COPY,
    METADATA_UNIT,
    NAME,
    assemble_manifest,
    files_of,
    read_manifest,
    to_json_types,
)
from ens10.untrusted import parse_json

_OUTER = ("judged_year", "month_day", "step")
_DIMS = (*_OUTER, "quantile", "latitude", "longitude")


@dataclass(frozen=True)
class ClimateArrays:
    """Arrays, coordinates and file names of STORE/climate."""

    store: Path
    dataset: xr.Dataset
    channels: list[str]
    steps: list[float]
    month_days: list[str]
    judged_years: list[int]
    levels: npt.NDArray[np.float64]
    climatologies: dict[float, ClimateDates]

    @property
    def folder(self) -> Path:
        """Return the folder of the group."""
        return self.store / "climate"

    def members(self, channel: str, step: float) -> StoreMembers:
        """Return the reader of the members of a channel at a step."""
        return StoreMembers(self.store, channel, step, self.dataset)

    def file(self, channel: str, position: tuple[int, int, int]) -> Path:
        """Return the file of the chunk at a position along judged_year, month_day and step."""
        return self.folder.joinpath(channel, "c", *map(str, position), "0", "0", "0")

    def finish(self) -> None:
        """Add the climate to the store's consolidated metadata, if it has any."""
        metadata = parse_json((self.store / "zarr.json").read_text())
        if "consolidated_metadata" in metadata:
            consolidate(self.store)


def create_climate(store: Path, options: ClimateOptions) -> ClimateArrays:
    """Return the arrays of a climate; create them if they do not exist.

    Raises:
        UnknownNameError: the store lacks a channel or a step.
        FileError: the store has a climate made with other options.
    """
    arrays = _plan_arrays(store, as_row(forecasts(store, dask=False)), options)
    attributes = _attributes(arrays, options)
    if arrays.folder.exists():
        group = zarr.open_group(store, mode="r", use_consolidated=False)
        climate: Any = group.get("climate")
        group_attributes = dict(climate.attrs) if climate is not None else {}
        if {name: group_attributes.get(name) for name in attributes} == attributes:
            return arrays
        if "protocol" in group_attributes:
            reason = "made with other options or from other dates"
            raise FileError(arrays.folder, reason, "Remove it first")
        shutil.rmtree(arrays.folder)  # of a creation that was interrupted: there are no values yet
    _create(arrays, attributes)
    return arrays


def check_climate(dataset: xr.Dataset, options: ClimateOptions) -> tuple[list[str], list[float]]:
    """Check the channels and steps of a climate before any computation, and return them.

    Args:
        dataset: forecasts, lazy or not.
        options: options of the climate.

    Raises:
        UnknownNameError: the forecasts lack a channel or a step.
        ArgumentError: their years are too few for the protocol.
    """
    names = channel_names(dataset)
    channels = list(dict.fromkeys(resolve(name, names, "climate") for name in options.channels))
    stored_steps = dataset["step"].to_numpy().tolist()
    for step in options.steps:
        if step not in stored_steps:
            raise UnknownNameError("climate: step", step, stored_steps)
    valid = dataset["valid_time"].sel(step=options.steps[0]).to_numpy()
    split_dates(protocol_of(options.protocol), dataset["time"].to_numpy(), valid)
    return channels, sorted(set(options.steps))


def _plan_arrays(store: Path, dataset: xr.Dataset, options: ClimateOptions) -> ClimateArrays:
    channels, steps = check_climate(dataset, options)
    time = dataset["time"].to_numpy().astype("M8[s]")
    valid = dataset["valid_time"].sel(step=steps).transpose("step", "time").to_numpy()
    rules, window = protocol_of(options.protocol), options.window
    rows = zip(steps, valid.astype("M8[s]"), strict=True)
    climatologies = {step: ClimateDates(time, row, rules, window) for step, row in rows}
    first = climatologies[steps[0]]
    levels = quantile_levels(options.levels, options.protocol)
    axes = (channels, steps, first.calendar, first.judged_years())
    return ClimateArrays(store, dataset, *axes, levels, climatologies)


def _attributes(arrays: ClimateArrays, options: ClimateOptions) -> dict[str, Any]:
    """Return the attributes of the climate, equal for equal options and dates."""
    first = arrays.climatologies[arrays.steps[0]]
    rules, rolling_years = protocol_of(options.protocol), first.rolling_years
    dates = years_of(first.time if rolling_years else first.valid_time)
    years = {int(year) for i in arrays.judged_years for year in dates[first.eligible(i)]}
    rolling = f"the {rolling_years} years that end with judged_year"
    rule = rolling if rolling_years else "the training years"
    reference = reference_of(rules)
    extra = {} if isinstance(reference, str) else {"rules": reference}  # of a user's protocol
    return {
        "protocol": rules.name, **extra, "years": sorted(years), "climate_years": rule,
        "window": options.window, "levels": arrays.levels.size, "method": "linear",
        "channels": arrays.channels, "dates": int(first.time.size),
    }  # fmt: skip


def _create(arrays: ClimateArrays, attributes: dict[str, Any]) -> None:
    root = zarr.open_group(arrays.store, mode="r+", use_consolidated=False)
    group = root.create_group("climate")
    coordinates = _coordinates(arrays)
    shape = [coordinates.sizes[dim] for dim in _DIMS]
    chunks = [1 if dim in _OUTER else coordinates.sizes[dim] for dim in _DIMS]
    for name in arrays.channels:
        labels = {**attributes_of(name), **_units_of(arrays, name)}
        create_array(group, name, shape, _DIMS, chunks=chunks, attributes=labels)
    points = station_coordinates(coordinates)
    write_coordinates(group, coordinates, [*_DIMS, "members", *points])
    group.attrs.update(attributes)  # last: a group with attributes is complete


def _units_of(arrays: ClimateArrays, name: str) -> dict[str, Any]:
    attributes = arrays.members(name, arrays.steps[0]).field.attrs
    return {"units": attributes["units"]} if "units" in attributes else {}


def _coordinates(arrays: ClimateArrays) -> xr.Dataset:
    dataset = arrays.dataset
    members = [
        [[_count(arrays.climatologies[step], year, day, dataset) for step in arrays.steps]
         for day in arrays.month_days]
        for year in arrays.judged_years
    ]  # fmt: skip
    attrs = {"long_name": "year of the valid date that is judged, 0 for any but the climate years"}
    return xr.Dataset(
        coords={
            "judged_year": ("judged_year", np.array(arrays.judged_years, np.int64), attrs),
            "month_day": ("month_day", np.array(arrays.month_days, np.dtypes.StringDType())),
            "step": ("step", np.array(arrays.steps), dict(dataset["step"].attrs)),
            "quantile": ("quantile", arrays.levels, {"units": "1"}),
            "latitude": dataset["latitude"],
            "longitude": dataset["longitude"],
            "members": (_OUTER, np.array(members, np.int64), {"long_name": "size of the sample"}),
            **station_coordinates(dataset),
        }
    )


def _count(climatology: ClimateDates, year: int, month_day: str, dataset: xr.Dataset) -> int:
    dates = climatology.positions(month_day, climatology.eligible(year))
    return int(dates.size * dataset.sizes["number"])


def record_climate(store: Path, options: ClimateOptions) -> None:
    """Add the climate to the manifest of a store, as `prepare` does.

    A store in preparation has no manifest yet, and is not changed.

    Raises:
        DamagedFileError: the manifest is damaged.
    """
    path = store / NAME
    if not path.exists():
        return
    manifest = read_manifest(store)
    plan_options = {**manifest.plan["options"], "climate": to_json_types(options)}
    plan = {**manifest.plan, "options": plan_options}
    files = ["zarr.json", *(f"climate/{name}" for name in files_of(store / "climate"))]
    rows = [row for row in manifest.units[METADATA_UNIT] if not row[0].startswith("climate/")]
    _, *units, _, _, _ = path.read_bytes().split(b"\n")
    lines = [line.removesuffix(b",") for line in units]
    content = assemble_manifest(store, plan, lines, rows, files)
    (store / COPY).parent.mkdir(parents=True, exist_ok=True)
    for file in (path, store / COPY):
        write_whole(file, content.tobytes())


_RUN = 12  # month-days in a run: with 4 more on either side, a chunk is read 20 / 12 times
_WINDOW_BYTES = 256 << 20  # of members in a worker


def write_climate(
    store: Path | str, options: ClimateOptions, *, workers: int | None = None,
    progress: bool = False,
) -> list[Path]:  # fmt: skip
    """Write the missing chunks of STORE/climate.

    Args:
        store: a local store, complete or in preparation.
        options: channels, steps, levels, window and protocol.
        workers: number of threads (sorting and reading release the lock); None for one per core.
        progress: show a progress bar.

    Returns:
        The files of all chunks, relative to the store, sorted.

    Raises:
        UnknownNameError: the store lacks a channel or a step.
        FileError: the store has a climate made with other options, or another process writes it.
    """
    store = Path(store)
    arrays = create_climate(store, options)
    count = workers or usable_cores()
    in_use = FileError(arrays.folder, "another process is writing it", "Wait for it to end")
    with folder_lock(arrays.folder, in_use), ThreadPoolExecutor(count) as pool:
        runs = list(_runs(arrays))
        futures = [pool.submit(_write_run, run) for run in runs]
        try:
            for future in track(as_completed(futures), "climate", len(runs), progress):
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    arrays.finish()
    record_climate(store, options)
    return sorted(path.relative_to(store) for run in runs for path in run.files)


@dataclass(frozen=True)
class _Run:
    """Consecutive month-days, for one channel, step and judged year."""

    members: StoreMembers
    climatology: ClimateDates
    eligible: npt.NDArray[np.bool_]
    levels: npt.NDArray[np.float64]
    month_days: Sequence[str]
    files: Sequence[Path]

    def dates(self, month_day: str) -> npt.NDArray[np.int64]:
        """Return positions of the climate's dates that start on a month-day."""
        return np.flatnonzero((self.climatology.month_days == month_day) & self.eligible)


def _runs(arrays: ClimateArrays) -> Iterator[_Run]:
    calendar = list(enumerate(arrays.month_days))
    for name, (j, step) in product(arrays.channels, enumerate(arrays.steps)):
        members, climatology = arrays.members(name, step), arrays.climatologies[step]
        for i, year in enumerate(arrays.judged_years):
            eligible = climatology.eligible(year)
            for first in range(0, len(calendar), _RUN):
                run = calendar[first : first + _RUN]
                files = [arrays.file(name, (i, n, j)) for n, _ in run]
                days = [day for _, day in run]
                yield _Run(members, climatology, eligible, arrays.levels, days, files)


def _write_run(run: _Run) -> None:
    """Write the missing chunks of a run, a block of rows of all chunks at a time."""
    missing = [(day, file) for day, file in zip(run.month_days, run.files, strict=True)
               if not file.exists()]  # fmt: skip
    if not missing:
        return
    sizes = run.members.field.sizes
    rows, columns = sizes["latitude"], sizes["longitude"]
    windows = [run.climatology.window_days(day) for day, _ in missing]
    max_dates = max(sum(run.dates(day).size for day in window) for window in windows)
    height = rows_within(_WINDOW_BYTES, max_dates * sizes["number"] * columns * 4, rows)
    with ExitStack() as stack:
        for _, path in missing:
            path.parent.mkdir(parents=True, exist_ok=True)
            clear_leftovers(path.parent)
        part_files = [stack.enter_context(whole_file(path)) for _, path in missing]
        for first in range(0, rows, height):
            block = slice(first, min(first + height, rows))
            for file, quantiles in zip(part_files, _slide(run, windows, block), strict=True):
                for n, field in enumerate(quantiles):
                    begin = (n * rows + first) * columns * 4
                    os.pwrite(file.fileno(), np.ascontiguousarray(field, "<f4").data, begin)


def _slide(
    run: _Run, windows: Sequence[Sequence[str]], rows: slice
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the quantiles of successive windows, for some rows.

    Members are read once and cached as long as a window contains their month-day.
    """
    cached_members: dict[str, list[npt.NDArray[np.float32]]] = {}
    for window in windows:
        for day in [day for day in cached_members if day not in window]:
            del cached_members[day]
        for day in window:
            if day not in cached_members:
                cached_members[day] = [run.members.read(int(n), rows) for n in run.dates(day)]
        sample = [part for day in window for part in cached_members[day]]
        if sample:
            yield quantiles_of(sample, run.levels)
        else:
            points = (rows.stop - rows.start) * run.members.field.sizes["longitude"]
            yield np.full((run.levels.size, points), np.nan, np.float32)
