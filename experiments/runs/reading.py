"""Read forecasts and truth from files, without torch.

Predictions of `ens10 predict` have a manifest, with which missing, damaged and additional files are
detected. Other stores, and those of earlier versions, have none.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xarray as xr

from ens10.channels import field_of
from ens10.errors import Ens10Error, FileError, MissingDataError, printable
from ens10.experiments.runs import provenance
from ens10.stations import STATION
from ens10.store.opening import has_manifest, root_attributes
from ens10.store.opening import open_predictions as open_store
from ens10.untrusted import UNREADABLE, readable

PREDICTIONS = "predictions.zarr"
_NETCDF = (".nc", ".nc4", ".netcdf")
_METADATA = "zarr.json"
_REMEDY = "Predict again with `ens10 predict --run RUN`"


def run_parts(run: Path | str) -> list[Path]:
    """Return the folders of a run's targets and lead times; the run itself if it has one of each.

    Each has the files of a run of that target and lead time: provenance, predictions and scores.
    """
    files = Path(run).glob(f"{provenance.PARTS}/*/{provenance.FILE}")
    return sorted(file.parent for file in files) or [Path(run)]


def same_part(run: Path | str, part: Path) -> Path:
    """Return the part of a run with the name of another run's part, or the run if it has none."""
    return next((other for other in run_parts(run) if other.name == part.name), Path(run))


def open_predictions(path: Path | str) -> tuple[xr.Dataset, xr.DataArray]:
    """Open forecast and truth of a run folder or of a predictions store.

    Raises:
        FileError: there are no complete predictions.
        MissingDataError: a coordinate is missing.
    """
    forecast, truth = open_forecast(path, dask=True)
    if truth is None:
        raise _no_predictions_error(store_of(Path(path)))
    return forecast, truth


DATES_OF_TRAINING = "dates_of_training"  # attribute of corrected forecasts: how many they have


def open_forecast(
    path: Path | str, *, dask: bool = False
) -> tuple[xr.Dataset, xr.DataArray | None]:
    """Open a forecast of any kind, and the truth if the same store has it.

    Args:
        path: a run folder, or a Zarr store or netCDF file whose attribute `forecast_kind` says
            what its variables are; see `ens10.metrics.score_states`.
        dask: True for dask arrays; False for xarray's lazy arrays, which have less overhead.

    Raises:
        FileError: there is no complete forecast; one of its files is damaged. When values are
            read: a file is missing or damaged.
        MissingDataError: a coordinate is missing.
    """
    store = store_of(Path(path))
    dataset = _open_dataset(store, dask)
    if "forecast_kind" not in dataset.attrs:
        raise _no_predictions_error(store)
    _check_coordinates(dataset, store)
    return dataset.drop_vars("truth", errors="ignore"), dataset.get("truth")


def open_truth(path: Path | str, variable: str | None = None) -> xr.DataArray:
    """Open the truth in a store of `ens10 prepare`, another Zarr store or a netCDF file.

    Args:
        path: of the store or file.
        variable: its name or channel there ("t_850" of "t" with levels); None for the only one, or
            the one called "truth".

    Raises:
        FileError: no such store or file, or several variables and none is named.
        UnknownNameError: no variable of that name.
    """
    dataset = _open_prepared_truth(Path(path))
    if dataset is None:
        dataset = _open_dataset(Path(path), dask=False)
    names = [str(name) for name in dataset.data_vars]
    dataset = dataset.assign_coords({name: dataset[name].load() for name in dataset.coords})
    if variable is not None and variable not in names:
        return field_of(dataset, variable, "variable")
    if variable is None and len(names) != 1 and "truth" not in names:
        reason = f"holds {len(names)} variables: {', '.join(names)}"
        raise FileError(path, reason, "Name the truth with --variable")
    truth_name = variable or (names[0] if len(names) == 1 else "truth")
    return dataset[truth_name]


def _open_prepared_truth(path: Path) -> xr.Dataset | None:
    from ens10.store import open_store, store_kinds

    try:
        kinds = store_kinds(path)
    except Ens10Error:
        return None
    return open_store(path, "truth", dask=False) if kinds else None


def store_of(path: Path) -> Path:
    """Return the forecast store of a run folder, or the path itself."""
    return path / PREDICTIONS if (path / PREDICTIONS).exists() else path


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of Zarr or netCDF while they read or decode values into `FileError`.

    Args:
        path: of the forecast, for the error.

    Raises:
        FileError: values cannot be read or decoded.
    """
    try:
        yield
    except Ens10Error:
        raise
    except Exception as error:
        library = _raised_by(error)
        if library is None:
            raise
        reason = UNREADABLE if library == "netCDF4" else "a chunk cannot be read"
        with readable(path, reason, _REMEDY):
            raise


def _raised_by(error: BaseException) -> str | None:
    """Return the library that raised an error while it read or decoded values; None for others."""
    trace = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        if module == "xarray.backends.netCDF4_":
            return "netCDF4"
        if module.partition(".")[0] in ("zarr", "numcodecs"):
            return "zarr"
        trace = trace.tb_next
    return None


def _open_dataset(path: Path, dask: bool) -> xr.Dataset:
    if path.suffix in _NETCDF and path.is_file():
        with readable(path, "cannot be read as netCDF"):
            file = xr.open_dataset(path, engine="netcdf4", chunks={} if dask else None)
            return file.assign_coords({name: file[name].load() for name in file.coords})
    if not (path / _METADATA).exists() and run_parts(path) != [path]:
        names = ", ".join(part.name for part in run_parts(path))
        raise FileError(path, f"holds several targets or lead times: {names}", "Name one of them")
    if not (path / _METADATA).exists():
        raise FileError(
            path.parent if path.name == PREDICTIONS else path,
            "holds no predictions",
            "Make them with `ens10 predict --run RUN`",
        )
    if "ens10_format" in root_attributes(path):  # a prepared store, of half a million files perhaps
        raise _no_predictions_error(path)
    dataset = open_store(path, dask=dask)
    if _is_of_run(path) and not has_manifest(path):
        message = "written by an earlier version, without checksums: its files are not checked"
        print(f"ens10: {printable(path)}: {message}. {_REMEDY}.", file=sys.stderr)
    return dataset


def _is_of_run(store: Path) -> bool:
    return store.name == PREDICTIONS and (store.parent / provenance.FILE).exists()


def _check_coordinates(dataset: xr.Dataset, store: Path) -> None:
    """Refuse a forecast that lost a coordinate, and would be weighted or paired incorrectly.

    Raises:
        MissingDataError: a coordinate that every forecast needs, or that the store names, is
            not there.
        FileError: units that are no text.
    """
    coordinate_names = ["valid_time"] if _is_of_run(store) else []
    variables = dataset.variables.values()
    attributes = [attrs for variable in variables for attrs in (variable.attrs, variable.encoding)]
    if store.is_dir():
        attributes.append(root_attributes(store))
    invalid = [n for n, v in dataset.variables.items() if not _is_unit(v.attrs.get("units", ""))]
    if invalid:
        raise FileError(store, f"the units of {invalid[0]} are not text", "Write it again")
    for attrs in attributes:
        coordinate_names += str(attrs.get("coordinates", "")).split()
    points = (STATION,) if STATION in dataset.dims else ("latitude", "longitude")
    missing = [n for n in ("time", *points) if n not in dataset.indexes]
    missing += [n for n in dict.fromkeys(coordinate_names) if n not in dataset.variables]
    if missing:
        missing = [f"coordinate {name}" for name in dict.fromkeys(missing)]
        raise MissingDataError(store, missing, _REMEDY if _is_of_run(store) else "Write it again")


def _is_unit(units: object) -> bool:
    array = np.asarray(units)
    return array.ndim == 0 and array.dtype.kind in "Uifu"


def _no_predictions_error(store: Path) -> FileError:
    return FileError(store, "a store, but not predictions", "Give what `ens10 predict` wrote")
