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

from ens10.durable import replace_folder
from ens10.loader.batches import Batches
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.order import Share
from ens10.loader.samples import Field
from ens10.metrics.distributions.base import FIELD
from ens10.models.postprocessor import Prediction
from ens10.stations import STATION, station_dims
from ens10.store import create_array, write_coordinates
from ens10.store.manifest import record_files
from ens10.store.opening import PREDICTED, PREDICTIONS_FORMAT, RECORDED

GRID = FIELD[1:]


class PredictionWriter(BasePredictionWriter):
    """Writes each batch's forecast as it comes, so that memory does not grow with the dates.

    Where samples are split between processes, each writes its own rows and columns.

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
                values = value[n].detach().cpu().float().numpy()
                self._write(name, prediction.forecast.dims, place, values)
            if batches.samples.has_truth:
                truth = _truth(batches, place, self._data.share)
                self._write("truth", FIELD, place, truth)

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Gives the store its manifest and then its name, now that it is complete."""
        trainer.strategy.barrier("predictions are written")
        if not trainer.is_global_zero:
            return
        record_files(self._partial, PREDICTED)
        replace_folder(self._partial, self._path)

    def _write(self, name: str, dims: Sequence[str], place: int, values: Field) -> None:
        """This process's part of one date."""
        share = self._data.share
        own = dict(zip(GRID, (share.rows, share.columns), strict=True))
        if share.first or set(GRID) <= set(dims):
            index = {dim: own.get(dim, slice(None)) for dim in dims[1:]}
            if self._batches.samples.stations and GRID[0] in index:
                values = values.squeeze(dims.index(GRID[0]) - 1)
                del index[GRID[0]]
            self._arrays[name][(place, *index.values())] = values

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
            root = zarr.open_group(self._partial, mode="r+", use_consolidated=False)
            self._arrays = {str(name): array for name, array in root.arrays()}

    def _create(self, prediction: Prediction, batches: Batches) -> None:
        shutil.rmtree(self._partial, ignore_errors=True)
        root = zarr.open_group(self._partial, mode="w")
        forecast, samples = prediction.forecast, batches.samples
        root.attrs.update({**forecast.attributes(), RECORDED: PREDICTIONS_FORMAT})
        own = {name: np.asarray(values) for name, values in forecast.core_coordinates().items()}
        coordinates = _coordinates(batches).assign_coords(own)
        split = dict(zip(GRID, self._data.share.chunks, strict=True))
        split[STATION] = split[GRID[1]]
        known = dict(samples.attributes)
        tables: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
            name: (
                forecast.dims,
                known | forecast.variable_attributes(name, known.get("units", "")),
            )
            for name in forecast.variables()
        }
        if samples.has_truth:
            tables["truth"] = (FIELD, known | {"long_name": "truth"})
        for name, (dims, attributes) in tables.items():
            if samples.stations:
                dims = station_dims(dims)
            shape = tuple(coordinates.sizes[dim] for dim in dims)
            # no two processes write the same chunk
            chunks = (1, *(split.get(dim, coordinates.sizes[dim]) for dim in dims[1:]))
            self._arrays[name] = create_array(
                root, name, shape, dims, chunks=chunks, attributes=attributes
            )
        write_coordinates(root, coordinates, [str(name) for name in coordinates.coords])


def _truth(batches: Batches, place: int, share: Share) -> Field:
    """The truth of one date at the rows and columns of a share."""
    held = np.empty((share.rows.stop - share.rows.start, share.grid[1]), np.float32)
    batches.samples.read_truth(int(batches.index[place]), held, share.rows)
    return held[:, share.columns]


def _coordinates(batches: Batches) -> xr.Dataset:
    samples = batches.samples
    return xr.Dataset(
        coords={
            "time": samples.time[batches.index],
            "valid_time": ("time", batches.dates),
            "step": ((), samples.step, {"units": samples.step_units}),
            **samples.horizontal,
        }
    )
