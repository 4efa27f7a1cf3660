"""Predictions as a Zarr store in CF form, written batch by batch, with the truth beside them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import xarray as xr
import zarr
from pytorch_lightning.callbacks import BasePredictionWriter

from ens10.loader.batches import Batches
from ens10.loader.datamodule import EnsembleDataModule
from ens10.models.postprocessor import Prediction
from ens10.store import consolidate, create_array, write_coordinates


class PredictionWriter(BasePredictionWriter):
    """Writes each batch's forecast as it comes, so that memory does not grow with the dates.

    Args:
        path: the Zarr store to write; replaced if it exists.
        data: what is predicted: coordinates, units and truth come from there.
    """

    def __init__(self, path: Path, data: EnsembleDataModule) -> None:
        super().__init__(write_interval="batch")
        self._path, self._data = path, data
        self._arrays: dict[str, Any] = {}
        self._place: dict[int, int] = {}

    @property
    def _batches(self) -> Batches:
        return self._data.batches(self._data.predict_split)

    def write_on_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,  # noqa: ARG002
        prediction: Prediction,
        batch_indices: Sequence[int] | None,  # noqa: ARG002
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
        dataloader_idx: int,  # noqa: ARG002
    ) -> None:
        """Writes one batch: forecast and truth."""
        batches = self._batches
        if not self._arrays:
            self._open(trainer, prediction, batches)
        for n, second in enumerate(prediction.dates.tolist()):
            place = self._place[second]
            for name, value in prediction.forecast.variables().items():
                self._arrays[name][place] = value[n].detach().cpu().float().numpy()
            truth = batches.samples.truth(int(batches.index[place]))
            self._arrays["truth"][place] = truth

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Gives the store its name, now that it is complete."""
        trainer.strategy.barrier("predictions are written")
        if not trainer.is_global_zero:
            return
        consolidate(self._partial)
        shutil.rmtree(self._path, ignore_errors=True)
        self._partial.rename(self._path)

    @property
    def _partial(self) -> Path:
        return self._path.with_name(self._path.name + ".partial")

    def _open(self, trainer: pl.Trainer, prediction: Prediction, batches: Batches) -> None:
        """The store, which the first process makes; each then writes dates of its own."""
        seconds = batches.dates.astype("datetime64[s]").astype(np.int64).tolist()
        self._place = {second: n for n, second in enumerate(seconds)}
        if trainer.is_global_zero:
            self._create(prediction, batches)
        trainer.strategy.barrier("predictions can be written")
        if not trainer.is_global_zero:
            root = zarr.open_group(str(self._partial), mode="r+", use_consolidated=False)
            names = [*prediction.forecast.variables(), "truth"]
            self._arrays = {name: root[name] for name in names}

    def _create(self, prediction: Prediction, batches: Batches) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)
        root = zarr.open_group(str(self._partial), mode="w")
        forecast = prediction.forecast
        root.attrs["forecast_kind"] = forecast.kind
        samples, coordinates = batches.samples, _coordinates(batches)
        names = ["time", "valid_time", "step", "latitude", "longitude"]
        grid = (len(samples.latitude), len(samples.longitude))
        sizes = {"time": len(self._place), "latitude": grid[0], "longitude": grid[1]}
        for name, value in {**forecast.variables(), "truth": None}.items():
            dims = ("time", "latitude", "longitude") if value is None else forecast.dims
            if "number" in dims and value is not None:
                sizes["number"] = value.shape[1]
                coordinates = coordinates.assign_coords(number=np.arange(1, value.shape[1] + 1))
            shape = tuple(sizes[dim] for dim in dims)
            long_name = {"mu": "mean of the forecast", "sigma": "its standard deviation"}.get(
                name, name
            )
            self._arrays[name] = create_array(
                root,
                name,
                shape,
                dims,
                chunks=(1, *shape[1:]),
                attributes={**samples.attributes, "long_name": long_name},
            )
        write_coordinates(root, coordinates, [*names, *(["number"] if "number" in sizes else [])])


def _coordinates(batches: Batches) -> xr.Dataset:
    samples = batches.samples
    return xr.Dataset(
        coords={
            "time": samples.time[batches.index],
            "valid_time": ("time", batches.dates),
            "step": ((), samples.step, {"units": samples.step_units}),
            "latitude": ("latitude", samples.latitude, {"units": "degrees_north"}),
            "longitude": ("longitude", samples.longitude, {"units": "degrees_east"}),
        }
    )
