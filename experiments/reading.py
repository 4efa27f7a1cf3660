"""Read predictions back, which needs no torch."""

from pathlib import Path

import xarray as xr

from ens10.errors import FileError

PREDICTIONS = "predictions.zarr"


def open_predictions(path: Path | str) -> tuple[xr.Dataset, xr.DataArray]:
    """Forecast and truth of a run folder or of a predictions store.

    Raises:
        FileError: there are no complete predictions.
    """
    path = Path(path)
    store = path / PREDICTIONS if (path / PREDICTIONS).exists() else path
    if not (store / "zarr.json").exists():
        raise FileError(path, "holds no predictions", "Make them with `ens10 predict --run RUN`")
    dataset = xr.open_zarr(store, consolidated=False, chunks={})
    if "forecast_kind" not in dataset.attrs or "truth" not in dataset:
        raise FileError(
            store, "a Zarr store, but not predictions", "Give what `ens10 predict` wrote"
        )
    dataset = dataset.assign_coords({name: dataset[name].load() for name in dataset.coords})
    return dataset.drop_vars("truth"), dataset["truth"]
