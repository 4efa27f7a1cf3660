"""Predictions as a Zarr store in CF form, written batch by batch, with the truth beside them."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytorch_lightning as pl
import xarray as xr
import zarr
from pytorch_lightning.callbacks import BasePredictionWriter

from ens10.experiments.runs.provenance import PARTS, part_name
from ens10.loader.batches import Batches
from ens10.loader.content import Input, Mask, gaps_without_mask, inputs_at
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.order import Share
from ens10.loader.samples import Field, Samples
from ens10.metrics.distributions import Distribution
from ens10.metrics.distributions.base import FIELD
from ens10.models.postprocessor import Prediction
from ens10.partial import RESULT, Partial, check_target
from ens10.stations import STATION, station_dims
from ens10.store import create_array, write_coordinates
from ens10.store.manifest import record_files
from ens10.store.opening import (
    FORMAT_ATTRIBUTE,
    PREDICTIONS_FORMAT,
    PREDICTIONS_PLAN,
    is_predictions,
)

GRID = FIELD[1:]


class PredictionWriter(BasePredictionWriter):
    """Write the forecast of each batch at once, so that memory does not grow with the dates.

    Where samples are split between processes, each writes its own rows and columns. Each of several
    targets and lead times has a store of its own.

    Args:
        path: the Zarr store to write, in place of older predictions. Several targets or lead times
            are written to `parts/NAME/` in its folder, under its name; see `part_name`.
        data: data module of the predictions, for coordinates, units and truth.
    """

    def __init__(self, path: Path, data: EnsembleDataModule) -> None:
        super().__init__(write_interval="batch")
        self._path, self._data = path, data
        self._stores: dict[tuple[float, int], _Store] = {}

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
        """Write forecast and truth of one batch."""
        if not self._stores:
            self._open(trainer, prediction)
        steps = prediction.steps
        for n, second in enumerate(prediction.dates.tolist()):
            step = self._data.parts[0].step if steps is None else float(steps[n])
            for target, forecast in enumerate(prediction.forecasts):
                self._stores[step, target].write(second, forecast, n)

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Give each store, now complete, its manifest and then its name."""
        trainer.strategy.barrier("predictions are written")
        if trainer.is_global_zero:
            for store in self._stores.values():
                store.finish()

    def _open(self, trainer: pl.Trainer, prediction: Prediction) -> None:
        """Create the stores in the first process, and open them in the others."""
        batches = self._data.batches(self._data.predict_split)
        leads = list(enumerate(batches.by_lead()))
        parts = [(k, *lead, n) for k, lead in leads for n in range(len(lead[0].targets))]
        for k, lead, index, n in parts:
            samples = lead.targets[n]
            find_gaps = partial(_gaps, batches, k, samples)
            path = self._path
            if len(parts) > 1:
                name = part_name(samples.target, samples.step, samples.step_units)
                path = path.parent / PARTS / name / path.name
            self._stores[samples.step, n] = _Store(
                path, samples, index, self._data.share, find_gaps
            )
        if trainer.is_global_zero:
            for (_, n), store in self._stores.items():
                store.create(prediction.forecasts[n])
        trainer.strategy.barrier("predictions can be written")
        if not trainer.is_global_zero:
            for store in self._stores.values():
                store.open()


class _Store:
    """The predictions of one target at one lead time.

    Args:
        path: of the Zarr store.
        samples: coordinates, units and truth.
        index: positions of the dates in `samples`.
        share: the rows and columns of this process.
        find_gaps: returns the points (H, W) of a date, given its position in `samples`, that an
            input without a mask lacks: forecasts are NaN there, as those of `ens10 apply`.
    """

    def __init__(
        self,
        path: Path,
        samples: Samples,
        index: npt.NDArray[np.int64],
        share: Share,
        find_gaps: Callable[[int], Mask | None],
    ) -> None:
        self._find_gaps = find_gaps
        self._samples, self._index, self._share = samples, index, share
        self._partial = Partial(path, RESULT, is_older=_is_predictions)
        self._store = self._partial.path / RESULT
        self._arrays: dict[str, Any] = {}
        seconds = samples.valid_time[index].astype("datetime64[s]").astype(np.int64).tolist()
        self._positions = {second: n for n, second in enumerate(seconds)}

    def write(self, second: int, forecast: Distribution, n: int) -> None:
        """Write forecast and truth of one valid date, element `n` of a batch."""
        place = self._positions[second]
        gaps = self._find_gaps(int(self._index[place]))
        for name, value in forecast.variables().items():
            values = value[n].detach().cpu().float().numpy()
            if gaps is not None and gaps.any():
                values = values.copy()
                values[..., gaps[self._share.rows, self._share.columns]] = np.nan
            self._write(name, forecast.dims, place, values)
        if self._samples.has_truth:
            self._write("truth", FIELD, place, self._truth(place))

    def open(self) -> None:
        """Open the arrays that another process created."""
        root = zarr.open_group(self._store, mode="r+", use_consolidated=False)
        self._arrays = {str(name): array for name, array in root.arrays()}

    def create(self, forecast: Distribution) -> None:
        """Create the arrays of forecasts such as this one.

        Raises:
            FileError: something else than predictions would be replaced or removed.
        """
        check_target(self._partial.target, True, _is_predictions, "a store of predictions")
        self._partial.clear()
        self._store.parent.mkdir(parents=True, exist_ok=True)
        root = zarr.open_group(self._store, mode="w")
        samples = self._samples
        root.attrs.update({**forecast.attributes(), FORMAT_ATTRIBUTE: PREDICTIONS_FORMAT})
        coords = {name: np.asarray(values) for name, values in forecast.core_coordinates().items()}
        coordinates = _coordinates(samples, self._index).assign_coords(coords)
        split = dict(zip(GRID, self._share.chunks, strict=True))
        split[STATION] = split[GRID[1]]
        attrs = dict(samples.attributes)
        tables: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
            name: (
                forecast.dims,
                forecast.variable_attributes(name, attrs),
            )
            for name in forecast.variables()
        }
        if samples.has_truth:
            tables["truth"] = (FIELD, attrs | {"long_name": "truth"})
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

    def finish(self) -> None:
        """Give the complete store its manifest and its name."""
        record_files(self._store, PREDICTIONS_PLAN)
        self._partial.publish()

    def _write(self, name: str, dims: Sequence[str], place: int, values: Field) -> None:
        """Write this process's rows and columns of one date."""
        share = self._share
        slices = dict(zip(GRID, (share.rows, share.columns), strict=True))
        if share.first or set(GRID) <= set(dims):
            index = {dim: slices.get(dim, slice(None)) for dim in dims[1:]}
            if self._samples.stations and GRID[0] in index:
                values = values.squeeze(dims.index(GRID[0]) - 1)
                del index[GRID[0]]
            self._arrays[name][(place, *index.values())] = values

    def _truth(self, place: int) -> Field:
        """Return the truth of one date at the rows and columns of this process."""
        share = self._share
        buffer = np.empty((share.rows.stop - share.rows.start, share.grid[1]), np.float32)
        self._samples.read_truth(int(self._index[place]), buffer, share.rows)
        return buffer[:, share.columns]


def _gaps(batches: Batches, lead: int, samples: Samples, i: int) -> Mask | None:
    """Return the points of a date where a network reads 0 for an input without a mask."""
    statistics, inputs = batches.normaliser, batches.inputs
    if len(batches.samples.leads) > 1:
        statistics, inputs = statistics.at(lead), inputs_at(inputs, samples)

    def missing(one: Input) -> Mask:
        channel, step = one
        return samples.missing_points(i, step, channel)

    return gaps_without_mask(statistics, inputs, batches.protocol, samples.step, missing)


def _is_predictions(path: Path) -> bool:
    return is_predictions(path, older=True)


def _coordinates(samples: Samples, index: npt.NDArray[np.int64]) -> xr.Dataset:
    return xr.Dataset(
        coords={
            "time": samples.time[index],
            "valid_time": ("time", samples.valid_time[index]),
            "step": ((), samples.step, {"units": samples.step_units}),
            **samples.horizontal,
        }
    )
