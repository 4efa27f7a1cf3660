"""Anything that holds forecasts or truth, opened as one lazy dataset in this package's layout.

GRIB files, netCDF files, folders of both, and Zarr stores become a Dataset over (time, step,
[level,] number, latitude, longitude), rows north to south, columns eastward, with `valid_time`.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import xarray as xr

from ens10.errors import FileError, MissingDataError
from ens10.grib import is_grib
from ens10.places import for_xarray, is_url
from ens10.source import monthtimes, recognise
from ens10.source.combine import combined
from ens10.source.cubes import Missing
from ens10.source.gribs import grib_dataset
from ens10.source.layout import FORECAST_DIMS, as_truth, tidy
from ens10.source.names import Names
from ens10.source.netcdflength import check_length
from ens10.source.validtime import with_valid_time
from ens10.untrusted import check_regular

__all__ = ["FORECAST_DIMS", "as_truth", "open_source", "tidy", "with_valid_time"]

_NETCDF_MAGICS = (b"\x89HDF", b"CDF\x01", b"CDF\x02", b"CDF\x05")
UNFINISHED = ".unfinished"  # in the folder of a synthetic world while it is written
_OUTER = ("time", "step", "level")
_IGNORED_SUFFIXES = {".idx", ".txt", ".md", ".json", ".yaml", ".yml"}


def open_source(
    path: Path | str,
    names: Names | None = None,
    missing: Missing = "error",
    *,
    optional_dimensions: bool = False,
) -> xr.Dataset:
    """A file, folder or Zarr store as one lazy dataset.

    Args:
        path: a GRIB or netCDF file, a folder of such files (not searched in depth), or a Zarr
            store, which may also be a URL that fsspec reads.
        names: how the file's names map to ours; see `ens10.source.names`.
        missing: "error" to refuse files that lack fields, "nan" to fill with NaN, "skip" to leave
            out the dates of GRIB files that lack any.
        optional_dimensions: accept a mapping of dimensions that the file lacks, as truth may.

    Returns:
        Dataset over the dimensions of `FORECAST_DIMS` that the data have, with the coordinate
        `valid_time` over (time, step), or (time,) where there are no steps.

    Raises:
        FileError: nothing there, or neither GRIB, netCDF nor Zarr.
        MissingDataError: fields or dimensions are missing.
        ArgumentError: the data have dimensions that mean nothing here.
    """
    names = names or Names()
    if is_url(path) or is_zarr(Path(path)):
        dataset = _zarr(path, by_chunk=not optional_dimensions)
        return tidy(dataset, names, path, optional_dimensions=optional_dimensions)
    path = Path(path)
    if not path.exists():
        raise FileError(path, "no such file or folder", "Check the path")
    parts = _parts(_files(path), names, missing)
    if len(parts) == 1:
        return tidy(parts[0][1], names, path, optional_dimensions=optional_dimensions)
    return _one(parts, names, missing, path, optional_dimensions)


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((path / mark).exists() for mark in ("zarr.json", ".zgroup", ".zmetadata"))


def _parts(files: list[Path], names: Names, missing: Missing) -> list[tuple[Path, xr.Dataset]]:
    """All GRIB files as one dataset, and each netCDF file as one."""
    gribs = [file for file in files if is_grib(file)]
    parts = [(file, _netcdf_file(file, names)) for file in files if file not in set(gribs)]
    if gribs:
        place = gribs[0] if len(gribs) == 1 else gribs[0].parent
        parts.insert(0, (place, grib_dataset(gribs, missing)))
    return parts


def _one(
    parts: list[tuple[Path, xr.Dataset]],
    names: Names,
    missing: Missing,
    path: Path,
    optional_dimensions: bool,
) -> xr.Dataset:
    """The parts as one dataset; not each of them need hold all that is named."""
    held = {str(name) for _, part in parts for name in (*part.variables, *part.dims)}
    needed = {**names.variables, **names.truth, **({} if optional_dimensions else names.dimensions)}
    lacking = [name for name in needed if name not in held]
    if lacking:
        raise MissingDataError(path, lacking, f"The files hold {', '.join(sorted(held))}")
    tidied, sources = [], []
    for source, part in parts:
        own = _names_of(part, names)
        if names.variables and not own.variables:
            continue
        part = tidy(part, own, source, optional_dimensions=optional_dimensions)
        bare = part.drop_vars("valid_time")
        implied = with_valid_time(bare, names)["valid_time"].equals(part["valid_time"])
        tidied.append(bare if implied else part)
        sources.append(source)
    whole = with_valid_time(combined(tidied, sources, missing, path), names)
    whole.encoding["source"] = str(path)
    return whole


def _names_of(part: xr.Dataset, names: Names) -> Names:
    """The names without those of things that the part does not hold."""
    held = {str(name) for name in (*part.variables, *part.dims)}
    return replace(
        names,
        variables={old: new for old, new in names.variables.items() if old in held},
        truth={old: new for old, new in names.truth.items() if old in held},
        dimensions={old: new for old, new in names.dimensions.items() if old in held},
    )


def _zarr(path: Path | str, by_chunk: bool) -> xr.Dataset:
    """A store, by dask chunks, or by xarray's own lazy arrays.

    The latter cost nothing where a few of very many chunks are wanted: hourly truth of all years,
    where dask would list each chunk first.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            chunks: dict[str, int] | None = {} if by_chunk else None
            dataset = monthtimes.opened(
                lambda times: xr.open_zarr(
                    for_xarray(path), decode_times=times, decode_timedelta=True, chunks=chunks
                ),
                path,
            )
    except FileError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise FileError(path, f"no Zarr store that can be read ({error})", "Check it") from error
    if "ens10_format" in dataset.attrs:
        raise FileError(
            path, "a store of ens10, which is prepared already", "Open it with ens10.open_store"
        )
    return _filled(dataset)


def _filled(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset up to where it is filled: the time axis of ARCO-ERA5 runs to the year 2050."""
    first, last = (dataset.attrs.get(f"valid_time_{end}") for end in ("start", "stop"))
    if first is None or last is None or "time" not in dataset.indexes:
        return dataset
    return dataset.sel(time=slice(str(first), str(last)))


def files_in(path: Path) -> list[Path]:
    """A file, or those of a folder that may hold data, sorted; none if there is nothing.

    Raises:
        FileError: one of them is a download that is not complete, it is a pipe or a device, or a
            synthetic world that is still being written.
    """
    if not path.is_dir():
        if path.exists():
            check_regular(path)
            return [path]
        return []
    if (path / UNFINISHED).exists():
        remedy = "Run the same `ens10 synth` again"
        raise FileError(path, "a synthetic world that is not complete", remedy)
    found = [f for f in sorted(path.iterdir()) if f.is_file() and not f.name.startswith(".")]
    for file in found:
        check_whole(file)
    return [f for f in found if f.suffix not in _IGNORED_SUFFIXES]


def _files(path: Path) -> list[Path]:
    files = files_in(path)
    if not files:
        raise FileError(path, "the folder holds no files", "Give a folder of GRIB or netCDF files")
    for file in files:
        if not (is_grib(file) or _is_netcdf(file)):
            raise FileError(
                file,
                "neither a GRIB nor a netCDF file" if file.stat().st_size else "the file is empty",
                "Take it out of the folder, or give the right path",
            )
    return files


def check_whole(file: Path) -> None:
    """Refuse a download that is not complete.

    Raises:
        FileError: the file grows, or was left behind, beside a note of what it is part of.
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


def _netcdf_file(file: Path, names: Names) -> xr.Dataset:
    """One file by its own chunks, or by date where a variable would be read in one piece."""

    def opened(chunks: dict[Any, int], without: list[Any]) -> xr.Dataset:
        return monthtimes.opened(
            lambda times: xr.open_dataset(
                file,
                engine="netcdf4",
                chunks=chunks,
                drop_variables=without,
                decode_times=times,
                decode_timedelta=True,
            ),
            file,
        )

    check_length(file)  # the library reads what lacks at the end as zeros
    try:
        dataset = opened({}, [])
        fields = dataset.data_vars
        whole = [name for name, field in fields.items() if field.encoding.get("contiguous")]
        if not whole:
            return dataset
        known = names.dimensions | recognise.dimensions(dataset)
        outer = [d for d in dataset.dims if known.get(str(d), d) in _OUTER]
        by_date = opened(dict.fromkeys(outer, 1), [name for name in fields if name not in whole])
    except FileError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise FileError(file, f"no netCDF file that can be read ({error})", "Check it") from error
    return dataset.assign({name: by_date[name] for name in whole})
