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
from ens10.models.predictive import Predictive
from ens10.models.predictive.base import FIELD
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
        variables = prediction.forecast.variables()
        for n, second in enumerate(prediction.dates.tolist()):
            place = self._place[second]
            for name, value in variables.items():
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
        forecast, samples = prediction.forecast, batches.samples
        root.attrs.update(forecast.attributes())
        own = {name: np.asarray(values) for name, values in forecast.core_coordinates().items()}
        coordinates = _coordinates(batches).assign_coords(own)
        known = dict(samples.attributes)
        tables: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
            name: (forecast.dims, known | described(forecast, name, known.get("units", "")))
            for name in forecast.variables()
        }
        tables["truth"] = (FIELD, known | {"long_name": "truth"})
        for name, (dims, attributes) in tables.items():
            shape = tuple(coordinates.sizes[dim] for dim in dims)
            self._arrays[name] = create_array(
                root, name, shape, dims, chunks=(1, *shape[1:]), attributes=attributes
            )
        write_coordinates(root, coordinates, [str(name) for name in coordinates.coords])


def described(forecast: Predictive, name: str, units: str) -> dict[str, str]:
    """Attributes of one of a forecast's variables, if the target has `units`."""
    long_name = forecast.long_names.get(name, name)
    return {"units": forecast.units_of(name, units), "long_name": long_name}


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
