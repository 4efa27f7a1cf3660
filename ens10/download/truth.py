"""Download of ERA5 at the valid hours of forecasts: one netCDF file for each year.

The source is a Zarr store in the layout of ARCO-ERA5
(https://github.com/google-research/arco-era5): variables over (time, latitude, longitude) and
(time, level, latitude, longitude), hourly, 0.25 degree, one chunk for each hour with all 37 levels,
so that one level costs as much to read as all of them. The public store is Zarr format 2, although
its name ends in -v3; any Zarr store, local or remote, with these names and dimensions will do.

Each hour is written to a small file in `.parts`; when all hours of a year exist they become one
file. No hour is downloaded twice.
"""

import math
import os
import shutil
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import dask
import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.catalog import VARIABLES
from ens10.download.choice import ERA5_NAMES, Choice
from ens10.download.files import DownloadSettings, Report, fetching_pool
from ens10.download.local_files import (
    NAME,
    Entry,
    Record,
    check_space,
    checksum,
    free_space,
    path_in,
    size_text,
)
from ens10.download.remote import RetryPolicy, TransientError, check_scheme, redact
from ens10.durable import whole_path
from ens10.errors import ArgumentError, Ens10Error, FileError, MissingDataError
from ens10.machine_errors import writing_netcdf
from ens10.partial import Partial
from ens10.places import for_xarray, for_zarr, is_url
from ens10.progress import track
from ens10.source.units import check_range

URL = (
    "https://storage.googleapis.com/gcp-public-data-arco-era5/ar/full_37-1h-0p25deg-chunk-1.zarr-v3"
)
URL_VARIABLE = "ENS10_ERA5_URL"
_DIMS = ("time", "level", "latitude", "longitude")
_ANON = {"anon": True}
_GOOGLE = {"token": "anon"}
_ANONYMOUS: dict[str, dict[str, Any]] = {"gs": _GOOGLE, "gcs": _GOOGLE, "s3": _ANON}
_TOLERANCE_DEGREES = 1e-3
_SAMPLED_CHUNKS = 3  # chunks of each variable whose size is requested


class Era5:
    """Selected fields of a Zarr store in the layout of ARCO-ERA5.

    Args:
        url: of the store, or its path on this machine.
        choice: the selected fields.

    Raises:
        ArgumentError: a URL that needs another package, or a spacing that does not fit the grid.
        FileError: no Zarr store, or variables in other units.
        MissingDataError: variables, levels or hours are missing.

    Attributes:
        choice: the selected fields.
        source: the URL or path, without user name and password.
    """

    def __init__(self, url: str, choice: Choice) -> None:
        if is_url(url):
            check_scheme(url)
        self.source, self._url, self.choice = redact(url), url, choice
        self._options = _ANONYMOUS.get(url.partition("://")[0])
        store = _open_era5(url, self._options)
        short_names = {ERA5_NAMES[name]: name for name in choice.variables}
        _check_contents(store, short_names, choice, self.source)
        fields = store[list(short_names)].rename(short_names)
        fields = fields.drop_vars([c for c in fields.coords if c not in _DIMS])
        for name in choice.variables:
            _check_units(name, fields[name], self.source)
        if choice.upper:
            fields = fields.sel(level=list(choice.levels))
        self._fields = fields.isel(_pick_points(fields, choice.spacing))

    @property
    def grid(self) -> dict[str, npt.NDArray[Any]]:
        """Latitudes and longitudes of the selected points."""
        return {d: self._fields[d].to_numpy() for d in ("latitude", "longitude")}

    def size(self, hours: Sequence[datetime]) -> int:
        """Estimate the bytes to read for some hours from the sizes of a few chunks."""
        index = self._fields.indexes["time"].get_indexer(np.array(hours, "datetime64[ns]"))
        total = 0.0
        for name in self.choice.variables:
            count, size = self._chunks(ERA5_NAMES[name], np.asarray(index))
            total += count * size
        return round(total)

    def read(self, name: str, hour: datetime) -> xr.DataArray:
        """Return one variable at one hour, over (time, [level,] latitude, longitude), float32.

        Raises:
            MissingDataError: the store has no values there, which Zarr returns as missing.
            FileError: values outside the variable's valid range.
        """
        lazy_field = self._fields[name].sel(time=[np.datetime64(hour, "ns")])
        field = lazy_field.load().transpose(*_DIMS, missing_dims="ignore").astype(np.float32)
        missing = field.isnull()
        gaps = missing.all(("latitude", "longitude")) if name == "sst" else missing
        if bool(gaps.any()):
            raise MissingDataError(self.source, [f"values of {ERA5_NAMES[name]}"])
        check_range(name, float(field.min()), float(field.max()), ERA5_NAMES[name])
        return field

    def _chunks(self, name: str, index: npt.NDArray[np.int64]) -> tuple[int, float]:
        """Return the number of chunks of a variable that are read, and their mean size in bytes."""
        import fsspec
        import zarr

        group = zarr.open_group(for_zarr(self._url), mode="r", storage_options=self._options)
        array = group[name]
        if not isinstance(array, zarr.Array):
            raise FileError(self.source, f"{name} is no array", "Give another store")
        shape = array.shards or array.chunks
        chunk_numbers = np.unique(index // shape[0])
        others = math.prod(-(-n // c) for n, c in zip(array.shape[1:], shape[1:], strict=True))
        files, path = fsspec.filesystem("file"), self._url
        if is_url(self._url):
            files, path = fsspec.core.url_to_fs(self._url, **(self._options or {}))
        sizes = []
        for n in chunk_numbers[:: max(1, chunk_numbers.size // _SAMPLED_CHUNKS)][:_SAMPLED_CHUNKS]:
            key = array.metadata.encode_chunk_key((int(n), *[0] * (len(shape) - 1)))
            try:
                size = files.size(f"{path}/{name}/{key}")
            except FileNotFoundError:
                continue  # a chunk without values, for which `read` raises an error
            sizes.append(math.prod(shape) * array.dtype.itemsize if size is None else size)
        return chunk_numbers.size * others, float(np.mean(sizes)) if sizes else 0.0


def _open_era5(url: str, options: dict[str, Any] | None) -> xr.Dataset:
    if not is_url(url) and not Path(url).exists():
        raise FileError(url, "no such folder", "Give the URL or path of a Zarr store")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            store: xr.Dataset = xr.open_zarr(for_xarray(url), chunks=None, storage_options=options)
    except ImportError:  # of a package to install
        raise
    except Exception as error:  # the back ends of fsspec have no error in common
        reason = f"no Zarr store that can be read ({type(error).__name__}: {error})"
        raise FileError(redact(url), reason, "Check the URL and the connection") from error
    return store


def _check_contents(
    store: xr.Dataset, short_names: dict[str, str], choice: Choice, source: str
) -> None:
    missing = [name for name in short_names if name not in store.data_vars]
    missing += [f"the coordinate {d}" for d in _DIMS if d not in store.coords and (
        d != "level" or choice.upper)]  # fmt: skip
    if not missing and choice.upper:
        levels = store["level"].to_numpy()
        missing += [f"level {level} hPa" for level in choice.levels if level not in levels]
    if not missing:
        index = store.indexes["time"]
        hours = np.array(choice.hours, "datetime64[ns]")
        present = index.get_indexer(hours) >= 0
        pairs = zip(choice.hours, present, strict=True)
        missing += [f"{hour:%Y-%m-%dT%H}" for hour, is_present in pairs if not is_present]
    if missing:
        raise MissingDataError(source, missing, "Choose other dates or fields, or another store")


def _check_units(name: str, field: xr.DataArray, source: str) -> None:
    """Raise an error if a field has other units; `m**2 s**-2` and `m2 s-2` are the same."""
    expected = VARIABLES[name].units
    units = str(field.attrs.get("units", expected)).replace("**", "").replace("^", "")
    if units not in (expected, "(0 - 1)" if expected == "1" else expected):
        reason = f"{ERA5_NAMES[name]} is in {units}, not in {expected}"
        raise FileError(source, reason, "Give another store")


def _pick_points(fields: xr.Dataset, spacing: float) -> dict[str, slice]:
    """Return slices of rows and columns with a spacing in degrees, from the first of each.

    Raises:
        ArgumentError: the spacing is not a multiple of the grid's.
    """
    picks = {}
    for dim in ("latitude", "longitude"):
        points = fields[dim].to_numpy().astype(np.float64)
        delta = float(np.abs(np.diff(points)).min()) if points.size > 1 else spacing
        step = round(spacing / delta)
        if step < 1 or abs(step * delta - spacing) > _TOLERANCE_DEGREES:
            reason = (
                f"{spacing:g} degrees is no multiple of the {delta:g} between the {dim}s of ERA5"
            )
            raise ArgumentError("spacing", reason, f"Give a multiple of {delta:g}")
        picks[dim] = slice(None, None, step)
    return picks


_COORDINATES = {
    "time": {"standard_name": "time", "long_name": "valid time"},
    "level": {
        "standard_name": "air_pressure", "long_name": "pressure", "units": "hPa", "positive": "down"
    },
    "latitude": {"standard_name": "latitude", "units": "degrees_north"},
    "longitude": {"standard_name": "longitude", "units": "degrees_east"},
}  # fmt: skip


def hours_of(path: Path, era5: Era5) -> set[datetime] | None:
    """Return the hours of a file; None if its fields or grid differ from the choice.

    Raises:
        FileError: it cannot be read.
    """
    try:
        with xr.open_dataset(path, engine="netcdf4") as dataset:
            matches = set(dataset.data_vars) == set(era5.choice.variables)
            matches &= all(np.array_equal(dataset[d], era5.grid[d]) for d in era5.grid)
            if era5.choice.upper:
                matches &= dataset["level"].to_numpy().tolist() == list(era5.choice.levels)
            times = dataset["time"].to_numpy().astype("datetime64[s]").tolist()
    except (OSError, ValueError, KeyError) as error:
        raise FileError(path, f"no netCDF file that can be read ({error})", "Remove it") from error
    return set(times) if matches else None


def merge(target: Path, parts: Sequence[Path], era5: Era5) -> None:
    """Merge parts and an existing file of the year into one file, in the order of time."""
    paths = [*parts, target] if target.exists() else parts
    datasets = [xr.open_dataset(path, engine="netcdf4", chunks={"time": 1}) for path in paths]
    try:
        all_hours = xr.concat(
            datasets, "time", data_vars="all", coords="minimal", compat="override", join="exact"
        )
        with dask.config.set(scheduler="synchronous"):  # netCDF is not thread-safe
            write(all_hours.sortby("time")[list(era5.choice.variables)], target, era5.source)
    finally:
        for dataset in datasets:
            dataset.close()


def write(dataset: xr.Dataset, path: Path, source: str) -> None:
    """Write a CF netCDF file atomically: the path has the complete file or is unchanged."""
    output = dataset.assign_coords({d: dataset[d] for d in dataset.dims})
    title = "ERA5 reanalysis at the valid hours of ENS-10"
    output.attrs = {"Conventions": "CF-1.8", "title": title, "source": source}
    for coordinate, attributes in _COORDINATES.items():
        if coordinate in output.coords:
            output[coordinate].attrs = dict(attributes)
    encoding = {}
    for name, field in output.data_vars.items():
        field.attrs = dict(VARIABLES[str(name)].attributes)
        field.encoding = {}
        sizes = [1 if d in ("time", "level") else field.sizes[d] for d in field.dims]
        encoding[name] = {
            "zlib": True, "complevel": 1, "shuffle": True, "chunksizes": sizes, "dtype": "float32",
        }  # fmt: skip
    output["time"].encoding = {"units": "hours since 1900-01-01", "dtype": "int32"}
    with (
        Partial(path).lock("ens10 download", wait=True),
        whole_path(path) as scratch_path,
        writing_netcdf(path),
    ):
        output.to_netcdf(scratch_path, engine="netcdf4", encoding=encoding, unlimited_dims=["time"])


T = TypeVar("T")
_PARTS = ".parts"
_BYTES = 4  # of a value
_LARGE_RATIO = 3  # of bytes read and written, above which a message names the alternative
_REMEDY = "Run the same command again: what is there is kept"


def fetch_truth(
    folder: Path, choice: Choice, base: str | None, settings: DownloadSettings
) -> Report:
    """Download the truth to a folder; see `ens10.download.download`."""
    years = _by_year(choice.hours)
    targets = {year: path_in(folder, f"era5.{year}.nc") for year in years}
    path_in(folder, _PARTS)
    path_in(folder, NAME)
    era5 = Era5(base or os.environ.get(URL_VARIABLE) or URL, choice)
    record = Record(folder)
    pending = {}
    for year, hours in years.items():
        file_hours = _hours_in_file(targets[year], era5, record, settings.check)
        pending[year] = [hour for hour in hours if hour not in file_hours]
    pending_hours = [hour for hours in pending.values() for hour in hours]
    report = _report(folder, pending, targets, era5)
    _show_sizes(report, era5, pending_hours, settings)
    check_space(folder, report.remaining_size)
    if settings.dry_run:
        return report
    (folder / _PARTS).mkdir(parents=True, exist_ok=True)
    faults = _fetch(folder, pending_hours, era5, settings)
    for year, hours in pending.items():
        name = targets[year].name
        if hours and not any(hour in faults for hour in hours):
            record.remove(name)  # first, so that a killed run leaves no wrong record
            merge(targets[year], [_part_path(folder, hour) for hour in hours], era5)
        if targets[year].exists() and record.get(name) is None:
            size = targets[year].stat().st_size
            record.add(name, Entry(checksum(targets[year]), size, era5.source))
    if faults:
        raise MissingDataError(folder, [faults[hour] for hour in sorted(faults)], _REMEDY)
    shutil.rmtree(folder / _PARTS)
    return report


def _by_year(hours: Sequence[datetime]) -> dict[int, list[datetime]]:
    years: dict[int, list[datetime]] = defaultdict(list)
    for hour in hours:
        years[hour.year].append(hour)
    return dict(years)


def _part_path(folder: Path, hour: datetime) -> Path:
    return path_in(folder / _PARTS, f"era5.{hour:%Y-%m-%dT%H}.nc")


def _hours_in_file(path: Path, era5: Era5, record: Record, check: bool) -> set[datetime]:
    """Return the hours of a year's file; none if it does not exist.

    Raises:
        FileError: it differs from the record, or has other fields or another grid.
    """
    if not path.exists():
        return set()
    entry = record.get(path.name)
    if entry is not None:
        size = path.stat().st_size
        if size != entry.size or (check and checksum(path) != entry.sha256):
            reason = f"not the file that was fetched, by {NAME}"
            raise FileError(path, reason, "Remove it to fetch it again")
    hours = hours_of(path, era5)
    if hours is None:
        reason = "it holds other fields, or another grid"
        raise FileError(path, reason, "Give another folder, or remove it")
    return hours


def _report(
    folder: Path, pending: dict[int, list[datetime]], targets: dict[int, Path], era5: Era5
) -> Report:
    points = int(np.prod([values.size for values in era5.grid.values()]))
    hour_size = points * era5.choice.field_count * _BYTES
    local_size = sum(target.stat().st_size for target in targets.values() if target.exists())
    remaining_size = hour_size * sum(len(hours) for hours in pending.values())
    here, new = (
        tuple(targets[year].name for year, hours in pending.items() if bool(hours) == is_new)
        for is_new in (False, True)
    )
    size = local_size + remaining_size
    return Report(folder, here, new, size, remaining_size, free_space(folder))


def _show_sizes(
    report: Report, era5: Era5, hours: Sequence[datetime], settings: DownloadSettings
) -> None:
    choice = era5.choice
    levels = f" at {', '.join(map(str, choice.levels))} hPa" if choice.upper else ""
    settings.notify(f"ERA5 from {era5.source}: {', '.join(choice.variables)}{levels}")
    if not hours:
        settings.notify(f"All {len(choice.hours)} hours are in {report.folder}")
        return
    try:
        size = _with_retries(lambda: era5.size(hours), settings.retries)
    except TransientError as error:
        raise FileError(era5.source, f"cannot be read ({error})", "Check the connection") from error
    settings.notify(
        f"{len(hours)} hours, {len(report.new_files)} files: about {size_text(size)} to read, at "
        f"most {size_text(report.remaining_size)} to write, "
        f"{size_text(report.free_space)} free in {report.folder}"
    )
    if size > _LARGE_RATIO * report.remaining_size:
        settings.notify(
            "The store keeps all levels of an hour in one piece; the Climate Data Store sends "
            "those wanted alone (--cds FILE)"
        )


def _fetch(
    folder: Path, hours: Sequence[datetime], era5: Era5, settings: DownloadSettings
) -> dict[datetime, str]:
    """Download hours, each to its own file; return the reasons of failures by hour.

    Threads read the store, and only this thread writes: the netCDF library is not thread-safe.
    """
    faults = {}
    pending = [hour for hour in hours if not _is_complete(_part_path(folder, hour), hour, era5)]
    with fetching_pool(folder, settings) as pool:
        futures = {pool.submit(_read, era5, hour, settings.retries): hour for hour in pending}
        for future in track(as_completed(futures), "download", len(pending), settings.progress):
            hour = futures.pop(future)
            try:
                write(future.result(), _part_path(folder, hour), era5.source)
            except (TransientError, Ens10Error) as error:
                faults[hour] = f"{hour:%Y-%m-%dT%H} ({str(error).rstrip('.')})"
    return faults


def _is_complete(path: Path, hour: datetime, era5: Era5) -> bool:
    return path.exists() and hours_of(path, era5) == {hour}


def _read(era5: Era5, hour: datetime, retries: RetryPolicy) -> xr.Dataset:
    """Return all fields of one hour; each variable is a large object and is retried separately."""
    names = era5.choice.variables
    return xr.Dataset({n: _with_retries(partial(era5.read, n, hour), retries) for n in names})


def _with_retries(action: Callable[[], T], retries: RetryPolicy) -> T:
    """Return the result of reading the store, with retries after any error of fsspec."""

    def once() -> T:
        try:
            return action()
        except Ens10Error:
            raise
        except Exception as error:  # they have no base in common
            raise TransientError(f"{type(error).__name__}: {error}") from error

    return retries.call(once)
