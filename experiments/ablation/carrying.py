"""A training used on other data than its own: fewer members, or a grid of other points.

The forecasts are made from the trained model as it is. Only where the points are others, features
are normalised by the statistics of the new points in the training years, since those of the
training belong to its points.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from ens10.durable import whole_file, write_whole
from ens10.errors import ArgumentError
from ens10.experiments import provenance
from ens10.experiments.ablation.cells import VariantCell, write_overlay
from ens10.experiments.ablation.spec import laid_over
from ens10.experiments.checkpoints import Shapes, checkpoint_shapes
from ens10.experiments.finished import LOG
from ens10.experiments.matrix.cells import CONFIG
from ens10.experiments.matrix.claims import BEAT, claim
from ens10.experiments.matrix.running import fit_cell
from ens10.experiments.matrix.tasks import training_batches
from ens10.experiments.trust import write_config
from ens10.untrusted import read_mapping

_BEST = "checkpoints/best.ckpt"
_STATISTICS = "EnsembleDataModule"  # where Lightning keeps what the data module wants to keep


def use_training(cell: VariantCell, training: VariantCell) -> None:
    """Makes the run folder of a variant from another cell's training, which is done if need be.

    Args:
        cell: the variant.
        training: whose model it uses.

    Raises:
        ArgumentError: parameters that belong to the points of the training, on other points.
        Ens10Error: as `ens10 fit`.
    """
    _train(training)
    shutil.rmtree(cell.run, ignore_errors=True)
    (cell.run / LOG).parent.mkdir(parents=True)
    trained = read_mapping(training.run / CONFIG)
    data = {key: value for key, value in cell.overlay.items() if key.startswith("data.")}
    config = laid_over(trained, {**data, "data.store": str(cell.store)})
    write_config(cell.run / CONFIG, config, derived_from=training.run / CONFIG)
    shutil.copyfile(training.run / LOG, cell.run / LOG)
    (cell.run / _BEST).parent.mkdir()
    if cell.store == training.store:
        shutil.copyfile(training.run / _BEST, cell.run / _BEST)
    else:
        carry_over(training.run, trained["data"], cell.run / _BEST, cell.store)
    _note(cell, training)


def carry_over(run: Path, data: dict[str, Any], checkpoint: Path, store: Path) -> None:
    """Writes the checkpoint of a run for other points: with their normalisation statistics.

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
    """Parameters and buffers that have a value for each point, row or column of a grid.

    Args:
        grid: rows and columns.
        shapes: of a checkpoint.
    """
    rows, columns = grid
    maps = {(rows, columns), (rows, 1), (1, columns)}
    return [name for name, shape in shapes.items() if shape[-2:] in maps]


def _train(training: VariantCell) -> None:
    """Trains a cell, unless it is; waits where somebody else is at it."""
    while True:
        with claim(training.claim) as ours:
            if ours:
                write_overlay(training.overlay_file, training.overlay)
                fit_cell(training)
                return
        time.sleep(BEAT)


def _note(cell: VariantCell, training: VariantCell) -> None:
    known = provenance.read(training.run)
    data = {"store": cell.store.name, "checksum": provenance.checksum(cell.store)}
    changed = {**known, "name": cell.model, "data": data, "trained_on": known["data"]}
    text = json.dumps(changed, indent=1, sort_keys=True) + "\n"
    write_whole(cell.run / provenance.FILE, text)
