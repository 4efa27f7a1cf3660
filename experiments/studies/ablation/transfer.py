"""A training applied to other data than its own: fewer members, or a grid of other points.

The forecasts are made from the trained model as it is. Only where the points are others, features
are normalised by the statistics of the new points in the training years, since those of the
training belong to its points.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr

from ens10.convert import prepare
from ens10.durable import whole_file, write_whole
from ens10.errors import ArgumentError
from ens10.experiments import provenance
from ens10.experiments.checkpoints import Shapes, checkpoint_shapes
from ens10.experiments.finished import LOG
from ens10.experiments.runner.claims import make_once
from ens10.experiments.runner.tasks import training_batches
from ens10.experiments.runner.trainings import CONFIG, ModelCell
from ens10.experiments.studies.ablation.spec import laid_over
from ens10.experiments.trust import write_config
from ens10.store import open_store, store_kinds
from ens10.untrusted import read_mapping

_BEST = "checkpoints/best.ckpt"
_STATISTICS = "EnsembleDataModule"  # key of the data module's state in a checkpoint
_WHOLE = 360.0


def apply_training(cell: ModelCell, training: ModelCell, data: dict[str, Any]) -> None:
    """Make the run folder of a cell from another cell's training.

    Args:
        cell: whose run folder is made.
        training: a trained cell whose model is used.
        data: keys of the configuration that are other than in the training, with dots.

    Raises:
        ArgumentError: parameters that belong to the points of the training, on other points.
    """
    shutil.rmtree(cell.run, ignore_errors=True)
    (cell.run / LOG).parent.mkdir(parents=True)
    trained = read_mapping(training.run / CONFIG)
    config = laid_over(trained, {**data, "data.store": str(cell.store)})
    write_config(cell.run / CONFIG, config, derived_from=training.run / CONFIG)
    shutil.copyfile(training.run / LOG, cell.run / LOG)
    (cell.run / _BEST).parent.mkdir()
    if cell.store == training.store:
        shutil.copyfile(training.run / _BEST, cell.run / _BEST)
    else:
        carry_over(training.run, trained["data"], cell.run / _BEST, cell.store)
    known = provenance.read(training.run)
    origin = {"store": cell.store.name, "checksum": provenance.checksum(cell.store)}
    changed = {**known, "name": cell.model, "data": origin, "trained_on": known["data"]}
    text = json.dumps(changed, indent=1, sort_keys=True) + "\n"
    write_whole(cell.run / provenance.FILE, text)


def carry_over(run: Path, data: dict[str, Any], checkpoint: Path, store: Path) -> None:
    """Write the checkpoint of a run for other points: with their normalisation statistics.

    Args:
        run: folder of the training.
        data: its configuration, with its store.
        checkpoint: to write.
        store: prepared data at the other points.

    Raises:
        ArgumentError: parameters that belong to the points of the training; other channels.
    """
    samples = training_batches(data, Path(data["store"])).samples
    grid = len(samples.latitude), len(samples.longitude)
    batches = training_batches(data, store)
    points = len(batches.samples.latitude), len(batches.samples.longitude)
    bound = bound_to(grid, checkpoint_shapes(run / _BEST))
    if points != grid and bound:
        told = f"{bound[0]} and {len(bound) - 1} others have" if bound[1:] else f"{bound[0]} has"
        raise ArgumentError(
            "model",
            f"{told} a value for each of the {grid[0]} x {grid[1]} points of the training, which "
            f"the {points[0]} x {points[1]} points of the data cannot use",
            "Train on these points, or take a model without parameters of points",
        )
    held = torch.load(run / _BEST, map_location="cpu", weights_only=True)
    statistics, kept = batches.normaliser, held[_STATISTICS]
    if list(statistics.channels) != list(kept["channels"]):
        raise ArgumentError("data", "its channels are others than those of the training")
    kept |= {name: torch.from_numpy(getattr(statistics, name)) for name in ("mean", "scale")}
    with whole_file(checkpoint) as file:
        torch.save(held, file)


def bound_to(grid: tuple[int, int], shapes: Shapes) -> list[str]:
    """Return the parameters and buffers that have a value for each point, row or column of a grid.

    Args:
        grid: rows and columns.
        shapes: of a checkpoint.
    """
    rows, columns = grid
    maps = {(rows, columns), (rows, 1), (1, columns)}
    return [name for name, shape in shapes.items() if shape[-2:] in maps]


def thinned_store(store: Path, thin: int, folder: Path) -> Path:
    """Return a store of each `thin`-th row and column, with the truth there; make it if needed.

    While another process makes it, this one waits.

    Points are taken as they are, not averaged, so that the truth of both stores is the same.

    Args:
        store: prepared data.
        thin: 1 gives the store itself.
        folder: to make it in; its name has the checksum of the data.

    Raises:
        ArgumentError: a grid that does not divide: the last row, or the points around the globe,
            would be as far from their neighbours as no others are.
    """
    if thin == 1:
        return store
    made = folder / f"thin{thin}-{provenance.checksum(store)}.zarr"
    make_once(made, lambda: _make(store, thin, made))
    return made


def _make(store: Path, thin: int, made: Path) -> None:
    kinds = [kind for kind in ("sfc", "pl") if kind in store_kinds(store)]
    parts = [open_store(store, kind) for kind in kinds]
    _check(parts[0], thin, store)
    points = {"latitude": slice(None, None, thin), "longitude": slice(None, None, thin)}
    few = xr.merge([part.isel(points) for part in parts], compat="no_conflicts", join="exact")
    prepare(few, made, truth=open_store(store, "truth").isel(points))


def _check(part: xr.Dataset, thin: int, store: Path) -> None:
    rows, columns = part.sizes["latitude"], part.sizes["longitude"]
    remedy = f"Give data of 1 + {thin} n rows and {thin} n columns, as 91x192 for 2"
    if (rows - 1) % thin:
        raise ArgumentError("thin", f"{thin} does not divide the {rows} rows of {store}", remedy)
    if columns % thin and _goes_round(part["longitude"].to_numpy()):
        told = f"{thin} does not divide the {columns} columns of {store}"
        raise ArgumentError("thin", told, remedy)


def _goes_round(longitude: npt.NDArray[np.float64]) -> bool:
    """Return True if the last column is a neighbour of the first."""
    step = longitude[1] - longitude[0]
    return bool(np.isclose(longitude[-1] + step - longitude[0], _WHOLE))
