"""Anything that holds forecasts or truth, opened as one lazy dataset in this package's layout.

GRIB files, netCDF files, folders of either, and Zarr stores become a Dataset over (time, step,
[level,] number, latitude, longitude), rows north to south, columns eastward, with `valid_time`.
"""

from pathlib import Path

import xarray as xr

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.grib import is_grib
from ens10.gribsource import Missing, grib_dataset
from ens10.names import Names

FORECAST_DIMS = ("time", "step", "level", "number", "latitude", "longitude")
_NETCDF_MAGICS = (b"\x89HDF", b"CDF\x01", b"CDF\x02", b"CDF\x05")
_IGNORED_SUFFIXES = {".idx", ".txt", ".md", ".json", ".yaml", ".yml"}


def open_source(
    path: Path | str, names: Names | None = None, missing: Missing = "error"
) -> xr.Dataset:
    """A file, folder or Zarr store as one lazy dataset.

    Args:
        path: a GRIB or netCDF file, a folder of such files (not searched in depth), or a Zarr
            store, which may also be a URL that fsspec reads.
        names: how the file's names map to ours; see `ens10.names`.
        missing: "error" to refuse GRIB files that lack fields, "nan" to fill with NaN.

    Returns:
        Dataset over the dimensions of `FORECAST_DIMS` that the data have, with the coordinate
        `valid_time` over (time, step).

    Raises:
        FileError: nothing there, or neither GRIB, netCDF nor Zarr.
        MissingDataError: fields or dimensions are missing.
    """
    names = names or Names()
    if "://" in str(path):
        return tidy(xr.open_zarr(str(path)), names, str(path))
    path = Path(path)
    if not path.exists():
        raise FileError(path, "no such file or folder", "Check the path")
    if (path / "zarr.json").exists() or (path / ".zgroup").exists():
        return tidy(xr.open_zarr(path), names, path)
    files = _files(path)
    if all(is_grib(file) for file in files):
        return tidy(grib_dataset(files, missing), names, path)
    return tidy(_netcdf(path, files), names, path)


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


def _netcdf(path: Path, files: list[Path]) -> xr.Dataset:
    if any(is_grib(file) for file in files):
        raise FileError(
            path, "the folder mixes GRIB and netCDF files", "Prepare the two kinds separately"
        )
    if len(files) == 1:
        return xr.open_dataset(files[0], engine="netcdf4", chunks={})
    return xr.open_mfdataset(
        files, engine="netcdf4", combine="by_coords", join="outer", data_vars="all"
    )


def tidy(dataset: xr.Dataset, names: Names, source: Path | str) -> xr.Dataset:
    """The dataset in this package's names, order of dimensions and orientation.

    Raises:
        MissingDataError: names of the mapping, or a horizontal dimension, are missing.
        ArgumentError: dimensions that this package does not know.
    """
    renamed = _rename(dataset, names, source)
    lacking = [d for d in ("latitude", "longitude") if d not in renamed.dims]
    if lacking:
        raise MissingDataError(source, lacking, "Map the file's dimensions with --names FILE")
    unknown = [str(d) for d in renamed.dims if d not in FORECAST_DIMS]
    if unknown:
        raise ArgumentError(
            "names",
            f"{source} has dimensions that mean nothing here: {', '.join(unknown)}",
            f"Map them to {', '.join(FORECAST_DIMS)} with --names FILE",
        )
    if "time" not in renamed.dims:
        renamed = renamed.expand_dims("time")
    ordered = renamed.transpose(*FORECAST_DIMS, missing_dims="ignore")
    ordered = ordered.sortby("latitude", ascending=False).sortby("longitude")
    return with_valid_time(ordered, names)


def _rename(dataset: xr.Dataset, names: Names, source: Path | str) -> xr.Dataset:
    table = {**names.variables, **names.truth, **names.dimensions}
    lacking = [name for name in table if name not in dataset.variables and name not in dataset.dims]
    if lacking:
        held = ", ".join(map(str, dataset.variables))
        raise MissingDataError(source, lacking, f"The file holds {held}")
    if names.variables:
        dataset = dataset[list(names.variables)]
    wanted = {old: new for old, new in table.items() if old in dataset.variables}
    return dataset.rename({old: new for old, new in wanted.items() if old != new})


def with_valid_time(dataset: xr.Dataset, names: Names) -> xr.Dataset:
    """The dataset with the coordinate `valid_time`, over (time, step) or (time,)."""
    if "valid_time" in dataset.coords:
        return dataset
    if "step" not in dataset.dims:
        return dataset.assign_coords(valid_time=dataset["time"])
    start, step = dataset["time"].to_numpy(), dataset["step"].to_numpy()
    ahead = (step - names.first_step)[None, :]
    if names.step_units == "months":
        months = start.astype("datetime64[M]")
        valid = months[:, None] + ahead.astype("timedelta64[M]")
        within = start - months.astype(start.dtype)  # day and hour within the month
        valid_time = valid.astype(start.dtype) + within[:, None]
    else:
        valid_time = start[:, None] + ahead.astype("timedelta64[h]").astype("timedelta64[ns]")
    dated = dataset.assign_coords(
        valid_time=(("time", "step"), valid_time.astype("datetime64[ns]"))
    )
    dated["step"].attrs["units"] = names.step_units
    return dated


def as_truth(dataset: xr.Dataset) -> xr.Dataset:
    """A dataset without dimensions of size 1 that truth has no use for (step, number)."""
    drop = [d for d in ("step", "number") if d in dataset.dims and dataset.sizes[d] == 1]
    return dataset.squeeze(drop, drop=True) if drop else dataset
