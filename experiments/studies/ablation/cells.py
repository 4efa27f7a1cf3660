"""The cells of an ablation: a variant and a seed each, trained or transferred.

A training can be applied to other data than its own: fewer members, or a grid of other points. The
forecasts are made from the trained model as it is. Only where the points are others, features are
normalised by the statistics of the new points in the training years, since those of the training
belong to its points.
"""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr
import yaml

from ens10.catalog import ACCUMULATED
from ens10.convert import prepare
from ens10.durable import whole_file, write_whole
from ens10.errors import ArgumentError, Ens10Error
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runner.tasks import load_budget, network_options
from ens10.experiments.runner.trainings import CONFIG, ModelCell
from ens10.experiments.runs import provenance
from ens10.experiments.runs.checkpoints import Shapes, checkpoint_shapes
from ens10.experiments.runs.claims import HEARTBEAT, claim, make_once
from ens10.experiments.runs.trust import write_config
from ens10.experiments.scoring.run_results import LOG
from ens10.experiments.studies.ablation.spec import Ablation, Variant, apply_overlay
from ens10.experiments.training.data_numbers import read_config, training_batches
from ens10.identity import SINCE_START
from ens10.store import open_store, store_kinds
from ens10.untrusted import read_mapping

_BEST = "checkpoints/best.ckpt"
_STATISTICS = "EnsembleDataModule"  # key of the data module's state in a checkpoint
_CIRCLE = 360.0


def apply_training(cell: ModelCell, training: ModelCell, data: dict[str, Any]) -> None:
    """Make the run folder of a cell from another cell's training.

    Args:
        cell: whose run folder is made.
        training: a trained cell whose model is used.
        data: values that differ from the training's configuration, by key with dots.

    Raises:
        ArgumentError: parameters that belong to the points of the training, on other points.
    """
    shutil.rmtree(cell.run, ignore_errors=True)
    (cell.run / LOG).parent.mkdir(parents=True)
    training_config = read_mapping(training.run / CONFIG)
    config = apply_overlay(training_config, {**data, "data.store": str(cell.store)})
    write_config(cell.run / CONFIG, config, derived_from=training.run / CONFIG)
    shutil.copyfile(training.run / LOG, cell.run / LOG)
    (cell.run / _BEST).parent.mkdir()
    if cell.store == training.store:
        shutil.copyfile(training.run / _BEST, cell.run / _BEST)
    else:
        carry_over(training.run, training_config["data"], cell.run / _BEST, cell.store)
    record = provenance.read_provenance(training.run)
    origin = {"store": cell.store.name, "checksum": provenance.checksum(cell.store)}
    new_record = {**record, "name": cell.model, "data": origin, "trained_on": record["data"]}
    text = json.dumps(new_record, indent=1, sort_keys=True) + "\n"
    write_whole(cell.run / provenance.FILE, text)


def carry_over(run: Path, data: dict[str, Any], checkpoint: Path, store: Path) -> None:
    """Write a run's checkpoint with the normalisation statistics of other grid points.

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
    names = point_parameters(grid, checkpoint_shapes(run / _BEST))
    if points != grid and names:
        phrase = f"{names[0]} and {len(names) - 1} others have" if names[1:] else f"{names[0]} has"
        raise ArgumentError(
            "model",
            f"{phrase} a value for each of the {grid[0]} x {grid[1]} points of the training, which "
            f"the {points[0]} x {points[1]} points of the data cannot use",
            "Train on these points, or take a model without parameters of points",
        )
    checkpoint_state = torch.load(run / _BEST, map_location="cpu", weights_only=True)
    statistics, data_state = batches.normaliser, checkpoint_state[_STATISTICS]
    if list(statistics.channels) != list(data_state["channels"]):
        raise ArgumentError("data", "its channels are others than those of the training")
    data_state |= {name: torch.from_numpy(getattr(statistics, name)) for name in ("mean", "scale")}
    with whole_file(checkpoint) as file:
        torch.save(checkpoint_state, file)


def point_parameters(grid: tuple[int, int], shapes: Shapes) -> list[str]:
    """Return the parameters and buffers that have a value for each point, row or column of a grid.

    Args:
        grid: rows and columns.
        shapes: of a checkpoint.
    """
    rows, columns = grid
    maps = {(rows, columns), (rows, 1), (1, columns)}
    return [name for name, shape in shapes.items() if shape[-2:] in maps]


def thinned_store(store: Path, thin: int, folder: Path) -> Path:
    """Return a store of every `thin`-th row and column, with the truth; make it if needed.

    Points are selected, not averaged, so that both stores have the same truth there. If another
    process makes the store, this one waits for it.

    Args:
        store: prepared data.
        thin: distance of the selected rows and columns; 1 returns the store itself.
        folder: in which the new store is made; its name contains the checksum of the data.

    Raises:
        ArgumentError: the grid is not divisible: the rows would miss the last one, or the columns
            would not be equidistant around the globe.
    """
    if thin == 1:
        return store
    thin_store = folder / f"thin{thin}-{provenance.checksum(store)}.zarr"
    make_once(thin_store, lambda: _write_thinned_store(store, thin, thin_store))
    return thin_store


def _write_thinned_store(store: Path, thin: int, thin_store: Path) -> None:
    kinds = [kind for kind in ("sfc", "pl") if kind in store_kinds(store)]
    parts = [open_store(store, kind) for kind in kinds]
    _check_divisible(parts[0], thin, store)
    points = {"latitude": slice(None, None, thin), "longitude": slice(None, None, thin)}
    forecasts = xr.merge([part.isel(points) for part in parts], compat="no_conflicts", join="exact")
    truth = open_store(store, "truth").isel(points)
    for name in set(ACCUMULATED).intersection(map(str, truth.data_vars)):
        # a store's truth has the periods of its forecasts, whether it was summed or not
        truth[name].attrs["accumulation"] = SINCE_START
    prepare(forecasts, thin_store, truth=truth)


def _check_divisible(part: xr.Dataset, thin: int, store: Path) -> None:
    rows, columns = part.sizes["latitude"], part.sizes["longitude"]
    remedy = f"Give data of 1 + {thin} n rows and {thin} n columns, as 91x192 for 2"
    if (rows - 1) % thin:
        raise ArgumentError("thin", f"{thin} does not divide the {rows} rows of {store}", remedy)
    if columns % thin and _is_global(part["longitude"].to_numpy()):
        message = f"{thin} does not divide the {columns} columns of {store}"
        raise ArgumentError("thin", message, remedy)


def _is_global(longitude: npt.NDArray[np.float64]) -> bool:
    """Return True if the last column is a neighbour of the first."""
    step = longitude[1] - longitude[0]
    return bool(np.isclose(longitude[-1] + step - longitude[0], _CIRCLE))


@dataclass(frozen=True)
class StudySettings:
    """Folders, data and budget of the cells of one call.

    Attributes:
        work: folder of data and runs.
        out: folder of the results of all ablations.
        budget: see `load_budget`.
        store: prepared data of all seeds; None for a synthetic world of each.
    """

    work: Path
    out: Path
    budget: str | None = None
    store: Path | None = None


@dataclass(frozen=True)
class VariantCell(ModelCell):
    """A variant with one seed.

    Args:
        group: name of the ablation.
        overlay: changed values of the configuration, by key with dots.
        training: the cell whose training is used; None to train the cell itself.
    """

    group: str = ""
    overlay: Mapping[str, Any] = field(default_factory=dict)
    training: "VariantCell | None" = None

    @property
    def scratch(self) -> Path:
        """Folder of the runs, claims and logs of its ablation."""
        return self.folder / (self.budget or "plain") / f"ablation-{self.group}"

    @property
    def place(self) -> str:
        """Its place in the archive, by ablation, seed and variant."""
        return place_of(self.group, self.seed, self.model)

    @property
    def overlay_file(self) -> Path:
        """File of the overlay, which `ens10 fit` reads after the configuration."""
        return self.scratch / "overlays" / f"{self.model}.yaml"

    def current_key(self) -> Key:
        """Return the key, which includes the training of another cell if that is used."""
        content = read_config(self.config)
        config = {"config": content, "overlay": dict(self.overlay), "seed": self.seed}
        config["overrides"] = list(self.options)
        data = provenance.checksum(self.store)
        if self.training is not None:
            other = self.training
            config["training"] = {"overlay": dict(other.overlay), "overrides": list(other.options)}
            other_data = provenance.checksum(other.store)
            data = data if other_data == data else f"{other_data}-{data}"
        return key_of(config, data)

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of `ens10 fit` that the budget sets."""
        return load_budget(self.budget).get(self.config.stem, ())

    def fit(self) -> None:
        """Train the model, with the overlay as a second configuration."""
        write_overlay(self.overlay_file, self.overlay)
        super().fit()

    def compute(self) -> dict[str, bytes]:
        """Compute the files to keep, with its own training or another's.

        Raises:
            Ens10Error: as `ens10 fit`, `predict` and `score`.
        """
        if self.training is None:
            return super().compute()
        train_once(self.training)
        data = {k: value for k, value in self.overlay.items() if k.startswith("data.")}
        apply_training(self, self.training, data)
        self.write_start_key()
        return self.finish()


def train_once(training: VariantCell) -> None:
    """Train a cell unless it is trained; wait while another process trains it."""
    while True:
        with claim(training.claim) as has_claim:
            if has_claim:
                training.fit()
                return
        time.sleep(HEARTBEAT)


def place_of(ablation: str, seed: int, variant: str) -> str:
    """Return the place of a cell in the archive."""
    return f"{ablation}/seed{seed}/{variant}"


def write_overlay(path: Path, overlay: Mapping[str, Any]) -> None:
    """Write an overlay for `ens10 fit --config BASE --config OVERLAY`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, yaml.safe_dump(dict(overlay), sort_keys=False))


def overlay_for_store(variant: Variant, store: Path) -> dict[str, Any]:
    """Return a variant's overlay with the options that adapt its network to a store.

    Raises:
        ArgumentError: a network that cannot be adapted.
        UnknownNameError: channels that the store has not.
    """
    model, data = variant.content["model"], variant.content["data"]
    overlay = dict(variant.overlay)
    if isinstance(model.get("init_args", {}).get("network"), dict):
        try:
            network_overlay = network_options(model, data, store)
        except Ens10Error as error:
            raise ArgumentError(f"variant {variant.name}", str(error)) from error
        overlay = {**network_overlay, **overlay}
    return overlay


def find_cell(ablation: Ablation, name: str, seed: int, settings: StudySettings) -> VariantCell:
    """Return the cell of a variant and seed; make its thinned data if needed.

    Args:
        ablation: of the variant.
        name: of the variant.
        seed: of the training, and of the synthetic world.
        settings: folders, data and budget.

    Raises:
        UnknownNameError: no such variant, or channels that the data have not.
        ArgumentError: a variant that does not fit the data.
    """
    variant = ablation.variant(name)
    cell = VariantCell(
        variant.name, seed, variant.config, settings.work, settings.out, (), settings.budget,
        data=settings.store, group=ablation.name,
    )  # fmt: skip
    if variant.training_variant is not None:
        training = find_cell(ablation, variant.training_variant, seed, settings)
        return _with_overlay(
            replace(cell, training=training), overlay_for_store(variant, cell.store)
        )
    if variant.thin == 1:
        return _with_overlay(cell, overlay_for_store(variant, cell.store))
    folder = settings.work if settings.store else cell.folder
    thin_store = thinned_store(cell.store, variant.thin, folder)
    overlay = overlay_for_store(variant, thin_store)
    training = _with_overlay(replace(cell, model=f"{name}.training", data=thin_store), overlay)
    return _with_overlay(replace(cell, training=training), overlay)


def _with_overlay(cell: VariantCell, overlay: Mapping[str, Any]) -> VariantCell:
    options = (*cell.options, "--config", str(cell.overlay_file))
    return replace(cell, overlay=overlay, overrides=options)


def find_cells_of(
    ablation: Ablation, seeds: Sequence[int], settings: StudySettings
) -> tuple[list[VariantCell], dict[str, str]]:
    """Return the cells of all variants by seed, and the reasons why others cannot be computed.

    Trainings come before the variants that use them.
    """
    cells: list[VariantCell] = []
    refusals: dict[str, str] = {}
    variants = sorted(ablation.variants, key=lambda v: v.training_variant is not None)
    for seed in seeds:
        for variant in variants:
            try:
                cells.append(find_cell(ablation, variant.name, seed, settings))
            except ArgumentError as error:
                refusals[f"{variant.name}, seed {seed}"] = str(error)
    return cells, refusals
