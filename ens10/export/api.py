"""`export`: select a part of a store and write it as one complete file."""

import shutil
from pathlib import Path
from typing import Any

import xarray as xr
import zarr

from ens10.command_options import ExportOptions
from ens10.durable import whole_path
from ens10.errors import ArgumentError, FileError
from ens10.export.grib import write_grib
from ens10.export.netcdf import write_netcdf
from ens10.machine_errors import writing_netcdf
from ens10.options import chosen, takes
from ens10.partial import Partial
from ens10.places import for_xarray, for_zarr
from ens10.selection import Selection
from ens10.store import StoreKind, forecasts, open_store
from ens10.store.opening import open_predictions, root_attributes

_NETCDF = (".nc", ".nc4", ".netcdf")
_GRIB = (".grib", ".grb", ".grib1", ".grb1")
_HEADER_BYTES = 1 << 16  # more than a file's own metadata takes


@takes(ExportOptions)
def export(
    store: Path | str,
    to: Path | str,
    options: ExportOptions | None = None,
    *,
    progress: bool = False,
    **named: Any,
) -> Path:
    """Write a part of a store as one file, field by field, for any size.

    A netCDF file follows CF-1.11 and holds the store's float32 values. A GRIB file has edition 1;
    fields that were packed in GRIB keep their integers (a packing that only edition 2 can express
    is written as values); others are packed with up to 24 bits if that is exact, and otherwise
    written as 32-bit IEEE numbers. Every message is decoded by ecCodes and compared as it is
    written. A field without any value is a message whose values are all missing. Truth becomes
    analyses, one for each valid date; fields without members become analyses or forecasts.

    Args:
        store: a store, or a Zarr hierarchy of predictions (netCDF only).
        to: the file; its suffix decides the format: .nc, or .grib.
        options: of the command; None for its defaults.
        progress: show a progress bar.
        **named: single options.

    Returns:
        The file's path.

    Raises:
        FileError: the file exists, another process writes it, the disk is too full, or a chunk of
            the store is missing.
        DamagedFileError: a chunk of the store is damaged.
        UnknownNameError: a selected variable, level, step, member or date is not in the store.
        ArgumentError: a suffix that is not known, or data that the format cannot hold.
    """
    to, options = Path(to), chosen(ExportOptions, options, named)
    kind: Any = options.kind
    grib = _is_grib(to)
    if to.exists() and not options.force:
        raise FileError(to, "exists already", "Choose another file, or give --force")
    if to.is_dir():
        raise FileError(to, "is a folder", "Name a file")
    selection = Selection.of(
        options.variables, options.levels, options.steps, options.members, options.dates
    )
    dataset = _select(_open_kind(store, kind), selection)
    _check_space(to, dataset, grib)
    with Partial(to).lock("ens10 export"), whole_path(to) as partial:
        if grib:
            write_grib(partial, store, dataset, kind or "sfc", progress)
        else:
            with writing_netcdf(to):
                write_netcdf(partial, dataset, options.compression, progress)
    return to


def _is_grib(to: Path) -> bool:
    if to.suffix.lower() in _GRIB:
        return True
    if to.suffix.lower() not in _NETCDF:
        raise ArgumentError("to", f"{to.name} does not say the format", "Name it .nc or .grib")
    return False


def _open_kind(store: Path | str, kind: StoreKind | None) -> xr.Dataset:
    if _holds_predictions(store):
        if kind is not None:
            raise ArgumentError("kind", f"{store} holds predictions only", "Leave it out")
        if (Path(store) / "zarr.json").is_file():
            return open_predictions(Path(store), decode_timedelta=False)
        dataset: xr.Dataset = xr.open_zarr(for_xarray(store), chunks=None, decode_timedelta=False)
        return dataset
    # Without dask, which takes longer to cut a part out of many chunks than reading it takes.
    return forecasts(store, dask=False) if kind is None else open_store(store, kind, dask=False)


def _holds_predictions(store: Path | str) -> bool:
    if (Path(store) / "zarr.json").is_file():
        return "forecast_kind" in root_attributes(Path(store))
    try:  # a URL, or a hierarchy of Zarr's older format
        attributes = zarr.open_group(for_zarr(store), mode="r").attrs
    except (OSError, ValueError):
        return False  # `open_store` says what is wrong
    return "forecast_kind" in attributes


def _select(dataset: xr.Dataset, selection: Selection) -> xr.Dataset:
    """Return the selected part, with the positions in the store of what remains."""
    for argument, dim, name in (
        ("steps", "step", "step"), ("members", "number", "number"), ("dates", "time", "time"),
        ("levels", "level", "levels"),
    ):  # fmt: skip
        if getattr(selection, argument) is not None and dim not in dataset.dims:
            raise ArgumentError(argument, f"this part has no {name} to choose from", "Leave it out")
    places: dict[str, Any] = {
        f"place_of_{dim}": (dim, range(size)) for dim, size in dataset.sizes.items()
    }
    part = selection.of_dataset(dataset.assign_coords(places))
    if not part.data_vars:
        raise ArgumentError("variables", "nothing is left to export", "Ask for more")
    timeless = [str(name) for name, field in part.data_vars.items() if "time" not in field.dims]
    if selection.dates is not None and timeless:
        reason = f"{', '.join(timeless)} are of all dates"
        raise ArgumentError("dates", reason, "Choose variables that have dates")
    return part


def _check_space(to: Path, dataset: xr.Dataset, grib: bool) -> None:
    """Refuse a file too large for the disk; GRIB needs half of float32 for most fields."""
    if not to.parent.is_dir():
        raise FileError(to.parent, "no such folder", "Make it first")
    size = sum(field.nbytes for field in dataset.data_vars.values())
    required_bytes = _HEADER_BYTES + (size // 2 if grib else size)
    free_bytes = shutil.disk_usage(to.parent).free
    if free_bytes < required_bytes:
        required, free = (f"{size / 1e9:.1f} GB" for size in (required_bytes, free_bytes))
        reason = f"it takes {required} and the disk has {free}"
        raise FileError(to, reason, "Export less, or elsewhere")
