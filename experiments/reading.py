"""Read forecasts and truth back, which needs no torch."""

from pathlib import Path

import xarray as xr

from ens10.errors import Ens10Error, FileError, UnknownNameError
from ens10.places import for_xarray

PREDICTIONS = "predictions.zarr"
_NETCDF = (".nc", ".nc4", ".netcdf")


def open_predictions(path: Path | str) -> tuple[xr.Dataset, xr.DataArray]:
    """Forecast and truth of a run folder or of a predictions store.

    Raises:
        FileError: there are no complete predictions.
    """
    forecast, truth = open_forecast(path, dask=True)
    if truth is None:
        raise _no_predictions(store_of(Path(path)))
    return forecast, truth


def open_forecast(
    path: Path | str, *, dask: bool = False
) -> tuple[xr.Dataset, xr.DataArray | None]:
    """A forecast of any kind, and the truth if that lies beside it.

    Args:
        path: a run folder, or a Zarr store or netCDF file whose attribute `forecast_kind` says
            what its variables are; see `ens10.metrics.score_states`.
        dask: as dask arrays; False for xarray's own lazy ones, which are read with less ado.

    Raises:
        FileError: there is no complete forecast.
    """
    store = store_of(Path(path))
    dataset = _opened(store, dask)
    if "forecast_kind" not in dataset.attrs:
        raise _no_predictions(store)
    dataset = dataset.assign_coords({name: dataset[name].load() for name in dataset.coords})
    return dataset.drop_vars("truth", errors="ignore"), dataset.get("truth")


def open_truth(path: Path | str, variable: str | None = None) -> xr.DataArray:
    """The truth in a store of `ens10 prepare`, another Zarr store or a netCDF file.

    Args:
        path: of the store or file.
        variable: its name there; None for the only one, or the one called "truth".

    Raises:
        FileError: nothing there, or several variables and none is named.
        UnknownNameError: no variable of that name.
    """
    dataset = _of_prepared(Path(path))
    if dataset is None:
        dataset = _opened(Path(path), dask=False)
    names = [str(name) for name in dataset.data_vars]
    if variable is not None and variable not in names:
        raise UnknownNameError("variable", variable, names)
    if variable is None and len(names) != 1 and "truth" not in names:
        reason = f"holds {len(names)} variables: {', '.join(names)}"
        raise FileError(path, reason, "Name the truth with --variable")
    chosen = variable or (names[0] if len(names) == 1 else "truth")
    dataset = dataset.assign_coords({name: dataset[name].load() for name in dataset.coords})
    return dataset[chosen]


def _of_prepared(path: Path) -> xr.Dataset | None:
    from ens10.store import open_store, store_kinds

    try:
        kinds = store_kinds(path)
    except Ens10Error:
        return None
    return open_store(path, "truth", dask=False) if kinds else None


def store_of(path: Path) -> Path:
    """The forecast store or file of a run folder, or the path itself."""
    return path / PREDICTIONS if (path / PREDICTIONS).exists() else path


def _opened(path: Path, dask: bool) -> xr.Dataset:
    chunks: dict[str, int] | None = {} if dask else None
    if path.suffix in _NETCDF and path.is_file():
        try:
            return xr.open_dataset(path, engine="netcdf4", chunks=chunks)
        except (OSError, ValueError) as error:
            raise FileError(path, f"cannot be read as netCDF ({error})") from error
    if not (path / "zarr.json").exists():
        raise FileError(
            path.parent if path.name == PREDICTIONS else path,
            "holds no predictions",
            "Make them with `ens10 predict --run RUN`",
        )
    opened: xr.Dataset = xr.open_zarr(for_xarray(path), consolidated=False, chunks=chunks)
    return opened


def _no_predictions(store: Path) -> FileError:
    return FileError(store, "a store, but not predictions", "Give what `ens10 predict` wrote")
