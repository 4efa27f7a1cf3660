"""The cells of an ablation: a variant and a seed each."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from ens10.durable import write_whole
from ens10.errors import ArgumentError, Ens10Error
from ens10.experiments import provenance
from ens10.experiments.runner.claims import BEAT, claim
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runner.tasks import load_budget, network_options
from ens10.experiments.runner.trainings import ModelCell
from ens10.experiments.studies.ablation.spec import Ablation, Variant
from ens10.experiments.studies.ablation.transfer import apply_training, thinned_store
from ens10.untrusted import read_mapping


@dataclass(frozen=True)
class Place:
    """Where the cells of a call are, and how long they train.

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
        overlay: what is laid over the configuration, by keys with dots.
        training: the cell whose training is used; None for its own.
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
        """The overlay as a file that `ens10 fit` takes behind the configuration."""
        return self.scratch / "overlays" / f"{self.model}.yaml"

    def current_key(self) -> Key:
        """Return the key, to which the other's training belongs."""
        content = read_mapping(self.config)
        whole = {"config": content, "overlay": dict(self.overlay), "seed": self.seed}
        whole["overrides"] = list(self.options)
        data = provenance.checksum(self.store)
        if self.training is not None:
            other = self.training
            whole["training"] = {"overlay": dict(other.overlay), "overrides": list(other.options)}
            own = provenance.checksum(other.store)
            data = data if own == data else f"{own}-{data}"
        return key_of(whole, data)

    @property
    def options(self) -> tuple[str, ...]:
        """Of its budget."""
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
        self.note_begun()
        return self.finish()


def train_once(training: VariantCell) -> None:
    """Train a cell unless it is trained; wait while another process trains it."""
    while True:
        with claim(training.claim) as ours:
            if ours:
                training.fit()
                return
        time.sleep(BEAT)


def place_of(ablation: str, seed: int, variant: str) -> str:
    """Return the place of a cell in the archive."""
    return f"{ablation}/seed{seed}/{variant}"


def write_overlay(path: Path, overlay: Mapping[str, Any]) -> None:
    """Write an overlay for `ens10 fit --config BASE --config OVERLAY`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, yaml.safe_dump(dict(overlay), sort_keys=False))


def fitted_overlay(variant: Variant, store: Path) -> dict[str, Any]:
    """Return the variant's overlay, and the channels and grid that its network then has on a store.

    Raises:
        ArgumentError: a network that cannot follow.
        UnknownNameError: channels that the store has not.
    """
    model, data = variant.content["model"], variant.content["data"]
    overlay = dict(variant.overlay)
    if isinstance(model.get("init_args", {}).get("network"), dict):
        try:
            follows = network_options(model, data, store)
        except Ens10Error as error:
            raise ArgumentError(f"variant {variant.name}", str(error)) from error
        overlay = {**follows, **overlay}
    return overlay


def find_cell(ablation: Ablation, name: str, seed: int, place: Place) -> VariantCell:
    """Return the cell of a variant and seed; data of fewer points are made where they are needed.

    Args:
        ablation: that asks for it.
        name: of the variant.
        seed: of the training, and of the synthetic world.
        place: where everything is.

    Raises:
        UnknownNameError: no such variant, or channels that the data have not.
        ArgumentError: a variant that does not fit the data.
    """
    variant = ablation.variant(name)
    cell = VariantCell(
        variant.name, seed, variant.config, place.work, place.out, (), place.budget,
        data=place.store, group=ablation.name,
    )  # fmt: skip
    if variant.trained is not None:
        training = find_cell(ablation, variant.trained, seed, place)
        return _settled(replace(cell, training=training), fitted_overlay(variant, cell.store))
    if variant.thin == 1:
        return _settled(cell, fitted_overlay(variant, cell.store))
    folder = place.work if place.store else cell.folder
    few = thinned_store(cell.store, variant.thin, folder)
    overlay = fitted_overlay(variant, few)
    training = _settled(replace(cell, model=f"{name}.training", data=few), overlay)
    return _settled(replace(cell, training=training), overlay)


def _settled(cell: VariantCell, overlay: Mapping[str, Any]) -> VariantCell:
    options = (*cell.options, "--config", str(cell.overlay_file))
    return replace(cell, overlay=overlay, overrides=options)


def find_cells_of(
    ablation: Ablation, seeds: Sequence[int], place: Place
) -> tuple[list[VariantCell], dict[str, str]]:
    """Return all cells, those of the first seed first, and why others cannot be.

    Trainings come before the variants that use them.
    """
    cells: list[VariantCell] = []
    refused: dict[str, str] = {}
    ordered = sorted(ablation.variants, key=lambda v: v.trained is not None)
    for seed in seeds:
        for variant in ordered:
            try:
                cells.append(find_cell(ablation, variant.name, seed, place))
            except ArgumentError as error:
                refused[f"{variant.name}, seed {seed}"] = str(error)
    return cells, refused
