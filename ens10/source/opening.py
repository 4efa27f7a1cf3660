"""Open files or stores of forecasts or truth as one lazy dataset in this package's layout.

GRIB files, netCDF files, folders of both, and Zarr stores become a Dataset over (time, step,
[level,] number, latitude, longitude), rows north to south, columns eastward, with `valid_time`.
Files of a folder may differ in the names and directions of their dimensions.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr

from ens10.errors import Ens10Error, FileError
from ens10.grib import is_grib, scan
from ens10.machine_errors import machine_error
from ens10.places import is_url
from ens10.selection import Selection
from ens10.source import times
from ens10.source.absent_chunks import without_absent_chunks
from ens10.source.combining import combine
from ens10.source.folders import files_in
from ens10.source.gribs import GribFields, Missing
from ens10.source.layout import check_mapping, finish, tidy
from ens10.source.names import Names, recognise_dimensions
from ens10.source.netcdf_length import SIGNATURES, check_length
from ens10.source.stores import (
    check_group,
    is_icechunk,
    is_reference,
    is_zarr,
    store_of,
    unreadable_store,
)
from ens10.source.tables import is_table, table_dataset
from ens10.source.times import with_valid_time
from ens10.source.zarr_chunks import open_zarr
from ens10.untrusted import error_text, why_unreadable

_OUTER = ("time", "step", "level")


def open_source(
    path: Path | str,
    names: Names | None = None,
    missing: Missing = "error",
    *,
    optional_dimensions: bool = False,
    variables: Sequence[str] | None = None,
) -> xr.Dataset:
    """Open a file, folder or Zarr store as one lazy dataset.

    Args:
        path: a GRIB or netCDF file, a table of stations (CSV, Parquet), a folder of such files
            (not searched in depth), or a Zarr store, which may also be a URL that fsspec reads, an
            icechunk repository or kerchunk references.
        names: how the file's names map to ours; see `ens10.source.names`.
        missing: "error" to refuse files that lack fields, "nan" to fill gaps with NaN, "skip" to
            leave out dates that lack fields.
        optional_dimensions: True for truth: accept a mapping of dimensions that the file lacks, and
            leave sums of intervals as they are.
        variables: the variables that are needed, so that no other is converted; None for all.

    Returns:
        Dataset over the dimensions of `FORECAST_DIMS` that the data have, with the coordinate
        `valid_time` over (time, step), or (time,) where there are no steps.

    Raises:
        FileError: the path does not exist, or is none of these formats.
        MissingDataError: fields or dimensions are missing.
        ArgumentError: the data have unknown dimensions.
    """
    names = names or Names()
    to_layout = partial(tidy, optional_dimensions=optional_dimensions, variables=variables)
    if is_url(path) or is_zarr(Path(path)) or is_reference(Path(path)):
        dataset = _open_zarr(path, names, missing, by_chunk=not optional_dimensions)
        return to_layout(dataset, names, path)
    path = Path(path)
    if not path.exists():
        raise FileError(path, "no such file or folder", "Check the path")
    needed = None if names.variables else variables
    parts = _open_parts(_data_files(path), names, missing, needed, truth=optional_dimensions)
    if len(parts) == 1:
        return to_layout(parts[0][1], names, path)
    present = {str(name) for _, part in parts for name in (*part.variables, *part.dims)}
    check_mapping(names, present, path, optional_dimensions=optional_dimensions)
    tidied = [
        (source, _without_implied_times(to_layout(part, own_names, source, is_part=True), names))
        for source, part in parts
        for own_names in [_names_of(part, names)]
        if own_names.variables or not names.variables
    ]
    result = combine([part for _, part in tidied], [source for source, _ in tidied], missing, path)
    result = with_valid_time(finish(result, path, is_truth=optional_dimensions), names)
    result.encoding["source"] = str(path)
    return result


def _without_implied_times(part: xr.Dataset, names: Names) -> xr.Dataset:
    """Drop the valid times of a part if they follow from its starts and steps."""
    bare = part.drop_vars("valid_time")
    is_implied = with_valid_time(bare, names)["valid_time"].equals(part["valid_time"])
    return bare if is_implied else part


def _open_parts(
    files: list[Path], names: Names, missing: Missing, variables: Sequence[str] | None, *,
    truth: bool,
) -> list[tuple[Path, xr.Dataset]]:  # fmt: skip
    """Open all GRIB files as one dataset, and each netCDF file or table as one."""
    gribs = [file for file in files if is_grib(file)]
    parts = [
        (file, table_dataset(file, names, missing, truth=truth))
        if is_table(file)
        else (file, _open_netcdf(file, names))
        for file in files
        if file not in set(gribs)
    ]
    if gribs:
        messages = [scan(file) for file in gribs]
        known = {meaning.name for part in messages for meaning in part.meanings}
        selection = Selection.of(variables if set(variables or ()) <= known else None)
        # valid dates of truth are checked when it is paired, whichever starts and steps have them
        fields = GribFields(messages, "nan" if truth else missing, selection, join=not truth)
        parts.insert(0, (gribs[0] if len(gribs) == 1 else gribs[0].parent, fields.dataset()))
    return parts


def _names_of(part: xr.Dataset, names: Names) -> Names:
    """Return the mapping, reduced to the names in one part."""
    present = {str(name) for name in (*part.variables, *part.dims)}
    tables: dict[str, Any] = {
        key: {old: new for old, new in getattr(names, key).items() if old in present}
        for key in ("variables", "truth", "dimensions")
    }
    return replace(names, **tables)


def _open_zarr(path: Path | str, names: Names, missing: Missing, *, by_chunk: bool) -> xr.Dataset:
    """Open a group of a Zarr store, as dask arrays (`by_chunk`) or as xarray's lazy arrays.

    The latter open fast if few of very many chunks are read, such as hourly truth of many years:
    dask would list each chunk first.
    """
    group = names.group
    try:
        store = store_of(path)
        options: dict[str, Any] = {"chunks": {} if by_chunk else None, "decode_timedelta": True}
        dataset = times.open_with_times(
            lambda times: open_zarr(store, group, decode_times=times, **options), path
        )
        _check_packing(dataset)
    except (Ens10Error, ImportError):  # the latter of a package to install
        raise
    except Exception as error:  # of damaged metadata, of a dozen kinds
        check_group(path, group, None)
        raise unreadable_store(path, error) from error
    if "ens10_format" in dataset.attrs:
        raise FileError(
            path, "a store of ens10, which is prepared already", "Open it with ens10.open_store"
        )
    check_group(path, group, dataset)
    dataset = dataset[sorted(dataset.data_vars, key=str)]  # not as the file system lists them
    is_local = not is_url(path) and Path(path).is_dir() and not is_reference(Path(path))
    if is_local and names.absent_chunks != "fill" and not is_icechunk(Path(path)):
        opened = zarr.open_group(store, mode="r", path=group, use_consolidated=False)
        dataset = without_absent_chunks(dataset, Path(path), opened, missing)
    return _cut_unwritten_times(dataset)


def _check_packing(dataset: xr.Dataset) -> None:
    """Raise a ValueError for a scale or an offset that is no number.

    A whole number times a list of one text is that text, so many times.
    """
    for name, field in dataset.variables.items():
        for value in (field.encoding.get(key, 1.0) for key in ("scale_factor", "add_offset")):
            if np.size(value) != 1 or np.asarray(value).dtype.kind not in "iuf":
                raise ValueError(f"scale_factor or add_offset of {name} is no number")


def _cut_unwritten_times(dataset: xr.Dataset) -> xr.Dataset:
    """Cut the time axis to the dates with data: that of ARCO-ERA5 extends to the year 2050."""
    first, last = (dataset.attrs.get(f"valid_time_{end}") for end in ("start", "stop"))
    if first is None or last is None or "time" not in dataset.indexes:
        return dataset
    return dataset.sel(time=slice(str(first), str(last)))


def _data_files(path: Path) -> list[Path]:
    files = files_in(path)
    if not files:
        raise FileError(
            path, "the folder holds no files", "Choose a folder of GRIB or netCDF files"
        )
    for file in files:
        if not (is_grib(file) or _is_netcdf(file) or (is_table(file) and file.stat().st_size)):
            raise FileError(file, *why_unreadable(file))
    return files


def _is_netcdf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in SIGNATURES


def _open_netcdf(file: Path, names: Names) -> xr.Dataset:
    """Open a netCDF file by its own chunks; variables without chunks by date, step and level.

    Raises:
        DamagedFileError: the file is truncated.
        FileError: it cannot be read.
    """

    def open_file(chunks: dict[Any, int], drop: list[Any]) -> xr.Dataset:
        group = names.group or None
        options: dict[str, Any] = {"chunks": chunks, "drop_variables": drop, "group": group}
        options |= {"engine": "netcdf4", "decode_timedelta": True}
        return times.open_with_times(
            lambda times: xr.open_dataset(file, decode_times=times, **options), file
        )

    check_length(file)  # the library reads a missing end as zeros
    try:
        dataset = open_file({}, [])
        _check_packing(dataset)
        fields = dataset.data_vars
        check_group(file, names.group, dataset)
        contiguous = [name for name, field in fields.items() if field.encoding.get("contiguous")]
        if not contiguous:
            return dataset
        dim_names = names.dimensions | recognise_dimensions(dataset)
        outer = [d for d in dataset.dims if dim_names.get(str(d), d) in _OUTER]
        by_date = open_file(
            dict.fromkeys(outer, 1), [name for name in fields if name not in contiguous]
        )
    except Ens10Error:
        raise
    except Exception as error:  # of damaged metadata, of a dozen kinds
        check_group(file, names.group, None)
        reason = f"no netCDF file that can be read ({error_text(error)})"
        raise machine_error(error) or FileError(file, reason, "Check it") from error
    return dataset.assign({name: by_date[name] for name in contiguous})
