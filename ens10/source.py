"""Anything that holds forecasts or truth, opened as one lazy dataset in this package's layout.

GRIB files, netCDF files, folders of either, and Zarr stores become a Dataset over (time, step,
[level,] number, latitude, longitude), rows north to south, columns eastward, with `valid_time`.
"""

import warnings
from pathlib import Path
from typing import Any

import xarray as xr

from ens10.cubes import Missing
from ens10.errors import FileError
from ens10.grib import is_grib
from ens10.gribsource import grib_dataset
from ens10.layout import FORECAST_DIMS, as_truth, tidy, with_valid_time
from ens10.names import Names

__all__ = ["FORECAST_DIMS", "as_truth", "open_source", "tidy", "with_valid_time"]

_NETCDF_MAGICS = (b"\x89HDF", b"CDF\x01", b"CDF\x02", b"CDF\x05")
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
        names: how the file's names map to ours; see `ens10.names`.
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
    dataset = _open(path, names, missing)
    return tidy(dataset, names, path, optional_dimensions=optional_dimensions)


def _open(path: Path | str, names: Names, missing: Missing) -> xr.Dataset:
    if "://" in str(path):
        return _zarr(path)
    path = Path(path)
    if not path.exists():
        raise FileError(path, "no such file or folder", "Check the path")
    if any((path / mark).exists() for mark in ("zarr.json", ".zgroup", ".zmetadata")):
        return _zarr(path)
    files = _files(path)
    if all(is_grib(file) for file in files):
        return grib_dataset(files, missing)
    return _netcdf(path, files, names, missing)


def _zarr(path: Path | str) -> xr.Dataset:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
            dataset: xr.Dataset = xr.open_zarr(str(path), decode_timedelta=True)
    except (OSError, ValueError, KeyError) as error:
        raise FileError(path, f"no Zarr store that can be read ({error})", "Check it") from error
    if "ens10_format" in dataset.attrs:
        raise FileError(
            path, "a store of ens10, which is prepared already", "Open it with ens10.open_store"
        )
    return dataset


def _files(path: Path) -> list[Path]:
    if path.is_file():
        files = [path]
    else:
        found = (f for f in sorted(path.iterdir()) if f.is_file() and not f.name.startswith("."))
        files = [f for f in found if f.suffix not in _IGNORED_SUFFIXES]
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


def _is_netcdf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) in _NETCDF_MAGICS


def _netcdf(path: Path, files: list[Path], names: Names, missing: Missing) -> xr.Dataset:
    if any(is_grib(file) for file in files):
        raise FileError(
            path, "the folder mixes GRIB and netCDF files", "Prepare the two kinds separately"
        )
    parts = [_netcdf_file(file, names) for file in files]
    if len(parts) == 1:
        return parts[0]
    try:
        whole = xr.combine_by_coords(
            parts,
            join="outer" if missing == "nan" else "exact",
            data_vars="all",
            coords="minimal",
            compat="equals",
            combine_attrs="override",
        )
    except ValueError as error:
        raise FileError(
            path,
            f"its files do not make one whole dataset ({error})",
            "Complete them, or accept the gaps with --missing nan",
        ) from error
    return whole.to_dataset() if isinstance(whole, xr.DataArray) else whole


def _netcdf_file(file: Path, names: Names) -> xr.Dataset:
    """One file by its own chunks, or by date where a variable would be read in one piece."""

    def opened(chunks: dict[Any, int], without: list[Any]) -> xr.Dataset:
        return xr.open_dataset(
            file, engine="netcdf4", chunks=chunks, drop_variables=without, decode_timedelta=True
        )

    try:
        dataset = opened({}, [])
        fields = dataset.data_vars
        whole = [name for name, field in fields.items() if field.encoding.get("contiguous")]
        if not whole:
            return dataset
        outer = [d for d in dataset.dims if names.dimensions.get(str(d), d) in _OUTER]
        by_date = opened(dict.fromkeys(outer, 1), [name for name in fields if name not in whole])
    except (OSError, ValueError, RuntimeError) as error:
        raise FileError(file, f"no netCDF file that can be read ({error})", "Check it") from error
    return dataset.assign({name: by_date[name] for name in whole})
