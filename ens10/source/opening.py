"""Open files or stores of forecasts or truth as one lazy dataset in this package's layout.

GRIB files, netCDF files, folders of both, and Zarr stores become a Dataset over (time, step,
[level,] number, latitude, longitude), rows north to south, columns eastward, with `valid_time`.
Files of a folder may differ in the names and directions of their dimensions.

The netCDF library reads the missing end of a truncated file of the classic formats as zeros, so the
file size is compared with the header first (NetCDF Classic Format Specification, CDF-1, 2 and 5;
HDF5 File Format Specification, superblock).
"""

import io
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xarray as xr

from ens10.errors import DamagedFileError, FileError, MissingDataError
from ens10.grib import is_grib
from ens10.places import is_url
from ens10.source import times
from ens10.source.gribs import Missing, grib_dataset
from ens10.source.layout import FORECAST_DIMS, as_truth, number_members, tidy
from ens10.source.layouts.level_names import expand_levels, union_of_levels
from ens10.source.names import Names, recognise_dimensions
from ens10.source.stores import (
    check_group,
    is_reference,
    is_zarr,
    store_of,
    unreadable_store,
)
from ens10.source.tables import is_table, table_dataset
from ens10.source.times import with_valid_time
from ens10.stations import coordinates, has_stations, station_columns
from ens10.untrusted import check_regular

_HDF5 = b"\x89HDF\r\n\x1a\n"
_CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}  # bytes
_UNKNOWN_RECORDS = (2**32 - 1, 2**64 - 1)  # record count of a file that was not closed


def check_length(path: Path) -> None:
    """Refuse a truncated netCDF file; files of other formats pass.

    Raises:
        DamagedFileError: bytes are missing at the end, or the header is truncated or invalid.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            expected = _expected_size(file)
        except (EOFError, KeyError, IndexError) as error:
            reason = f"the netCDF header makes no sense ({error})"
            raise DamagedFileError(path, min(file.tell(), size), reason) from error
    if expected is not None and size < expected:
        raise DamagedFileError(path, size, f"the netCDF file lacks {expected - size} bytes")


def _expected_size(file: BinaryIO) -> int | None:
    """Return the size in bytes that the header implies; None for formats that do not store it."""
    magic = file.read(8)
    if magic == _HDF5:
        return _end_of_hdf5(file)
    if magic[:4] not in _CLASSIC:
        return None
    file.seek(4)
    return _end_of_classic(_Header(file, magic[3]))


def _end_of_hdf5(file: BinaryIO) -> int | None:
    head = _read_exactly(file, 8)  # from byte 8 on: the version of the superblock first
    version = head[0]
    if version > 3:
        return None
    width = head[5] if version < 2 else head[1]
    addresses = {0: 24, 1: 28}.get(version, 12)
    file.seek(addresses + 2 * width)  # after base address, and free space or extension
    return int.from_bytes(_read_exactly(file, width), "little")


@dataclass(frozen=True)
class _Variable:
    begin: int
    size: int
    by_record: bool


class _Header:
    """Reader of the header of a classic netCDF file.

    Args:
        file: positioned after the magic number.
        version: 1, 2 or 5.
    """

    def __init__(self, file: BinaryIO, version: int) -> None:
        self._file = file
        self._count_width = 8 if version == 5 else 4
        self._address_width = 4 if version == 1 else 8

    def read_number(self, width: int = 0) -> int:
        """Read a big-endian number, by default as wide as counts."""
        return int.from_bytes(_read_exactly(self._file, width or self._count_width), "big")

    def read_address(self) -> int:
        """Read the offset of a variable."""
        return self.read_number(self._address_width)

    def skip_padded(self, size: int) -> None:
        """Skip `size` bytes and their padding to a multiple of four."""
        self._file.seek(-(-size // 4) * 4, io.SEEK_CUR)

    def skip_name(self) -> None:
        """Skip a name."""
        self.skip_padded(self.read_number())

    def read_count(self) -> int:
        """Read the tag and the length of a list; return the length."""
        self.read_number(4)  # its tag
        return self.read_number()

    def skip_attributes(self) -> None:
        """Skip a list of attributes."""
        for _ in range(self.read_count()):
            self.skip_name()
            size = _TYPE_SIZES[self.read_number(4)]
            self.skip_padded(size * self.read_number())


def _end_of_classic(header: _Header) -> int | None:
    records = header.read_number()
    if records in _UNKNOWN_RECORDS:
        return None
    dimensions = []
    for _ in range(header.read_count()):
        header.skip_name()
        dimensions.append(header.read_number())
    header.skip_attributes()
    variables = [_read_variable(header, dimensions) for _ in range(header.read_count())]
    steps = [v.size for v in variables if v.by_record]
    record = steps[0] if len(steps) == 1 else sum(-(-size // 4) * 4 for size in steps)
    ends = [v.begin + v.size for v in variables if not v.by_record]
    if records:
        ends += [v.begin + (records - 1) * record + v.size for v in variables if v.by_record]
    return max(ends, default=0)


def _read_variable(header: _Header, dimensions: list[int]) -> _Variable:
    header.skip_name()
    sizes = [dimensions[header.read_number()] for _ in range(header.read_number())]
    header.skip_attributes()
    item = _TYPE_SIZES[header.read_number(4)]
    header.read_number()  # its size, which large variables cannot tell
    by_record = bool(sizes) and sizes[0] == 0
    return _Variable(header.read_address(), item * prod(sizes[by_record:]), by_record)


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise EOFError(f"it ends at byte {file.tell()}")
    return content


_GRID = ("latitude", "longitude")
_CONCATENATED_DIMS = ("time", "step", "level", "number")
_TOLERANCE_DEGREES = 1e-3


def combine(
    parts: Sequence[xr.Dataset], sources: Sequence[Path], missing: Missing, path: Path
) -> xr.Dataset:
    """Combine datasets of several files to one dataset.

    Args:
        parts: in the layout of `ens10.source.layout.tidy`.
        sources: path of each part.
        missing: "error" if all variables must have the same dates, steps and members, "nan" to
            fill gaps with NaN, "skip" to leave out dates that some variables lack. Levels may
            differ: the attribute `levels_hpa` of a variable lists those that it has.
        path: folder of all parts, for errors.

    Returns:
        The dataset, with `valid_time` where the parts have it.

    Raises:
        FileError: the parts lie on different grids, hold the same field twice, or leave holes.
    """
    parts = _align_grids(parts, sources)
    holders: dict[str, list[tuple[Path, xr.DataArray]]] = defaultdict(list)
    for part, source in zip(parts, sources, strict=True):
        for name, field in part.data_vars.items():
            holders[str(name)].append((source, _select_present_levels(field)))
    fields = []
    for name, parts_with_field in holders.items():
        _refuse_duplicates(name, parts_with_field)
        fields.append(_concatenate(name, [field for _, field in parts_with_field], missing, path))
    return _merge_variables(fields, missing, path)


def _align_grids(parts: Sequence[xr.Dataset], sources: Sequence[Path]) -> list[xr.Dataset]:
    """Assign the grid of the first part to all parts, whose coordinates may be rounded.

    Raises:
        FileError: a part lies on another grid.
        ArgumentError: stations beside a grid.
        MissingDataError: a part lacks stations of the first.
    """
    first = parts[0]
    aligned = []
    for part, source in zip(parts, sources, strict=True):
        if has_stations(first) or has_stations(part):
            part = part.isel(longitude=station_columns(first, part, str(source)))
            names = [*_GRID, *coordinates(first)]
            aligned.append(part.assign_coords({name: first[name] for name in names}))
            continue
        for dim in _GRID:
            expected, points = first[dim].to_numpy(), part[dim].to_numpy()
            if expected.size != points.size or np.abs(expected - points).max() > _TOLERANCE_DEGREES:
                raise FileError(
                    source,
                    f"its {dim}s ({points[0]:g} to {points[-1]:g}, {points.size}) are not those of "
                    f"{sources[0]} ({expected[0]:g} to {expected[-1]:g}, {expected.size})",
                    "Prepare files on different grids into different stores",
                )
        aligned.append(part.assign_coords({dim: first[dim] for dim in _GRID}))
    return aligned


def _select_present_levels(field: xr.DataArray) -> xr.DataArray:
    """Drop the levels that a field lacks, by its attribute `levels_hpa`."""
    levels = field.attrs.get("levels_hpa")
    if levels is None or "level" not in field.dims:
        return field
    part = field.sel(level=np.atleast_1d(levels))
    return part.drop_attrs(deep=False).assign_attrs(
        {key: value for key, value in field.attrs.items() if key != "levels_hpa"}
    )


def _refuse_duplicates(name: str, parts: Sequence[tuple[Path, xr.DataArray]]) -> None:
    """Refuse a variable that two parts contain for the same time, step, level and member."""
    by_time: dict[Any, list[int]] = defaultdict(list)
    for n, (_, field) in enumerate(parts):
        for time in field["time"].to_numpy() if "time" in field.dims else (None,):
            by_time[time].append(n)
    pairs = {(a, b) for places in by_time.values() for a in places for b in places if a < b}
    for a, b in sorted(pairs):
        first, second = parts[a][1], parts[b][1]
        shared = {
            dim: np.intersect1d(first[dim].to_numpy(), second[dim].to_numpy())
            for dim in _CONCATENATED_DIMS
            if dim in first.dims and dim in second.dims
        }
        if all(values.size for values in shared.values()):
            cell = {dim: values[0] for dim, values in shared.items()}
            raise FileError(
                parts[b][0],
                f"holds {name}{_describe(cell)} a second time, after {parts[a][0]}, "
                f"{_compare_values(first.sel(cell), second.sel(cell))}",
                "Remove one of the two",
            )


def _describe(cell: dict[str, Any]) -> str:
    parts = [
        f"{dim} {value:g}" if isinstance(value, np.number) else f"{dim} {str(value)[:13]}"
        for dim, value in cell.items()
    ]
    return f" of {', '.join(parts)}" if parts else ""


def _compare_values(first: xr.DataArray, second: xr.DataArray) -> str:
    difference = float(np.abs(first.astype(np.float64) - second.astype(np.float64)).max())
    return f"with values up to {difference:g} apart" if difference > 0 else "with the same values"


def _concatenate(
    name: str, fields: list[xr.DataArray], missing: Missing, path: Path
) -> xr.DataArray:
    """Concatenate the fields of one variable along one dimension after the other."""
    for dim in reversed(_CONCATENATED_DIMS):
        groups: dict[Any, list[xr.DataArray]] = defaultdict(list)
        for field in fields:
            others = [other for other in field.dims if other not in (dim, *_GRID)]
            key = tuple((other, tuple(field[other].to_numpy().tolist())) for other in others)
            groups[(dim in field.dims, key)].append(field)
        fields = [_concatenate_along(dim, group) for group in groups.values()]
    if len(fields) == 1:
        return fields[0]
    if missing != "nan" or len({field.dims for field in fields}) > 1:
        raise FileError(
            path,
            f"its files do not make one whole dataset of {name}: they leave holes",
            "Complete them, or accept the gaps with --missing nan",
        )
    return reduce(lambda left, right: left.combine_first(right), fields)


def _concatenate_along(dim: str, fields: list[xr.DataArray]) -> xr.DataArray:
    if len(fields) == 1:
        return fields[0]
    result: xr.DataArray = xr.concat(
        fields, dim, coords="minimal", compat="equals", join="exact", combine_attrs="override"
    )
    return result if result.indexes[dim].is_monotonic_increasing else result.sortby(dim)


def _merge_variables(fields: Sequence[xr.DataArray], missing: Missing, path: Path) -> xr.Dataset:
    """Merge variables, each with NaN at levels that only others have."""
    levels = union_of_levels(fields)
    arrays = [expand_levels(field, levels) for field in fields]
    for dim in ("time", "step", "number"):
        coordinates = [set(f[dim].to_numpy().tolist()) for f in arrays if dim in f.dims]
        if missing == "error" and any(values != coordinates[0] for values in coordinates):
            sizes = "; ".join(f"{f.name}: {f.sizes[dim]}" for f in arrays if dim in f.dims)
            raise FileError(
                path,
                f"its files do not make one whole dataset: its variables differ in {dim} ({sizes})",
                "Complete them, or accept the gaps with --missing nan or --missing skip",
            )
    if missing == "skip":
        arrays = list(xr.align(*arrays, join="inner", exclude={"step", "level", "number", *_GRID}))
    try:
        return xr.merge(
            arrays,
            join="outer" if missing == "nan" else "exact",
            compat="no_conflicts",
            combine_attrs="override",
        )
    except ValueError as error:
        raise FileError(
            path, f"its files do not make one whole dataset ({error})", "Complete them"
        ) from error


__all__ = ["FORECAST_DIMS", "as_truth", "is_zarr", "open_source", "tidy", "with_valid_time"]

_NETCDF_MAGICS = (b"\x89HDF", b"CDF\x01", b"CDF\x02", b"CDF\x05")
UNFINISHED = ".unfinished"  # in the folder of a synthetic world while it is written
_OUTER = ("time", "step", "level")
IGNORED_SUFFIXES = {".idx", ".index", ".txt", ".md", ".json", ".yaml", ".yml"}


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
    if is_url(path) or is_zarr(Path(path)) or is_reference(Path(path)):
        dataset = _open_zarr(path, names.group, by_chunk=not optional_dimensions)
        return tidy(
            dataset, names, path, optional_dimensions=optional_dimensions, variables=variables
        )
    path = Path(path)
    if not path.exists():
        raise FileError(path, "no such file or folder", "Check the path")
    parts = _open_parts(_data_files(path), names, missing, truth=optional_dimensions)
    if len(parts) == 1:
        return tidy(
            parts[0][1], names, path, optional_dimensions=optional_dimensions, variables=variables
        )
    return _combine_parts(parts, names, missing, path, optional_dimensions, variables)


def _open_parts(
    files: list[Path], names: Names, missing: Missing, *, truth: bool
) -> list[tuple[Path, xr.Dataset]]:
    """Open all GRIB files as one dataset, and each netCDF file or table as one."""
    gribs = [file for file in files if is_grib(file)]
    parts = [
        (
            file,
            table_dataset(file, names, missing, truth=truth)
            if is_table(file)
            else _open_netcdf(file, names),
        )
        for file in files
        if file not in set(gribs)
    ]
    if gribs:
        place = gribs[0] if len(gribs) == 1 else gribs[0].parent
        parts.insert(0, (place, grib_dataset(gribs, missing, join=not truth)))
    return parts


def _combine_parts(
    parts: list[tuple[Path, xr.Dataset]],
    names: Names,
    missing: Missing,
    path: Path,
    optional_dimensions: bool,
    variables: Sequence[str] | None,
) -> xr.Dataset:
    """Convert the parts to this package's layout and combine them.

    Raises:
        MissingDataError: a mapped name is in none of the parts.
        FileError: the parts do not make one dataset, see `combine`.
    """
    present = {str(name) for _, part in parts for name in (*part.variables, *part.dims)}
    required_names = {
        **names.variables,
        **names.truth,
        **({} if optional_dimensions else names.dimensions),
    }
    missing_names = [name for name in required_names if name not in present]
    if missing_names:
        raise MissingDataError(path, missing_names, f"The files hold {', '.join(sorted(present))}")
    datasets, sources = [], []
    for source, part in parts:
        part_names = _names_of(part, names)
        if names.variables and not part_names.variables:
            continue
        part = tidy(
            part,
            part_names,
            source,
            optional_dimensions=optional_dimensions,
            variables=variables,
            keep_labels=True,
        )
        bare = part.drop_vars("valid_time")
        is_implied = with_valid_time(bare, names)["valid_time"].equals(part["valid_time"])
        datasets.append(bare if is_implied else part)
        sources.append(source)
    result = with_valid_time(number_members(combine(datasets, sources, missing, path)), names)
    result.encoding["source"] = str(path)
    return result


def _names_of(part: xr.Dataset, names: Names) -> Names:
    """Return the mapping, reduced to the names in one part."""
    present = {str(name) for name in (*part.variables, *part.dims)}
    return replace(
        names,
        variables={old: new for old, new in names.variables.items() if old in present},
        truth={old: new for old, new in names.truth.items() if old in present},
        dimensions={old: new for old, new in names.dimensions.items() if old in present},
    )


def _open_zarr(path: Path | str, group: str, by_chunk: bool) -> xr.Dataset:
    """Open a group of a Zarr store, as dask arrays (`by_chunk`) or as xarray's lazy arrays.

    The latter open fast if few of very many chunks are read, such as hourly truth of many years:
    dask would list each chunk first.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            chunks: dict[str, int] | None = {} if by_chunk else None
            store = store_of(path)
            dataset = times.open_with_times(
                lambda times: xr.open_zarr(
                    store,
                    group=group or None,
                    decode_times=times,
                    decode_timedelta=True,
                    chunks=chunks,
                ),
                path,
            )
    except FileError:
        raise
    except (OSError, ValueError, KeyError) as error:
        check_group(path, group, None)
        raise unreadable_store(path, error) from error
    check_group(path, group, dataset)
    if "ens10_format" in dataset.attrs:
        raise FileError(
            path, "a store of ens10, which is prepared already", "Open it with ens10.open_store"
        )
    return _cut_unwritten_times(dataset)


def _cut_unwritten_times(dataset: xr.Dataset) -> xr.Dataset:
    """Cut the time axis to the dates with data: that of ARCO-ERA5 extends to the year 2050."""
    first, last = (dataset.attrs.get(f"valid_time_{end}") for end in ("start", "stop"))
    if first is None or last is None or "time" not in dataset.indexes:
        return dataset
    return dataset.sel(time=slice(str(first), str(last)))


def files_in(path: Path) -> list[Path]:
    """Return the path of a file, or the sorted data files of a folder; [] if it does not exist.

    Raises:
        FileError: an incomplete download, a pipe or a device, or an incomplete synthetic world.
    """
    if not path.is_dir():
        if path.exists():
            check_regular(path)
            return [path]
        return []
    if (path / UNFINISHED).exists():
        remedy = "Run the same `ens10 synth` again"
        raise FileError(path, "a synthetic world that is not complete", remedy)
    files = [f for f in sorted(path.iterdir()) if f.is_file() and not f.name.startswith(".")]
    for file in files:
        check_complete(file)
    return [f for f in files if f.suffix not in IGNORED_SUFFIXES]


def _data_files(path: Path) -> list[Path]:
    files = files_in(path)
    if not files:
        raise FileError(
            path, "the folder holds no files", "Choose a folder of GRIB or netCDF files"
        )
    for file in files:
        if not (is_grib(file) or _is_netcdf(file) or (is_table(file) and file.stat().st_size)):
            raise FileError(
                file,
                "neither a GRIB nor a netCDF file" if file.stat().st_size else "the file is empty",
                "Take it out of the folder, or give the right path",
            )
    return files


def check_complete(file: Path) -> None:
    """Refuse an incomplete download.

    Raises:
        FileError: the suffix is .part, and the JSON file of the download lies beside it.
    """
    if file.suffix == ".part" and file.with_name(f"{file.name}.json").exists():
        raise FileError(
            file,
            "a download that is not complete",
            "Run the same `ens10 download` again, or delete it and its .json",
        )


def _is_netcdf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in _NETCDF_MAGICS


def _open_netcdf(file: Path, names: Names) -> xr.Dataset:
    """Open a netCDF file by its own chunks; variables without chunks by date, step and level.

    Raises:
        DamagedFileError: the file is truncated.
        FileError: it cannot be read.
    """

    def open_file(chunks: dict[Any, int], drop: list[Any]) -> xr.Dataset:
        return times.open_with_times(
            lambda times: xr.open_dataset(
                file,
                engine="netcdf4",
                group=names.group or None,
                chunks=chunks,
                drop_variables=drop,
                decode_times=times,
                decode_timedelta=True,
            ),
            file,
        )

    check_length(file)  # the library reads a missing end as zeros
    try:
        dataset = open_file({}, [])
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
    except FileError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        check_group(file, names.group, None)
        raise FileError(file, f"no netCDF file that can be read ({error})", "Check it") from error
    return dataset.assign({name: by_date[name] for name in contiguous})
