"""Cells of the study of experts: one arm, trained with one seed, and its CRPS of each test date."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ens10.errors import UnknownNameError
from ens10.experiments.runner.key import Key, digest_of, key_of
from ens10.experiments.runner.tasks import WorldSize, store_of
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.runs.provenance import checksum
from ens10.experiments.studies.experts.forms import form_of
from ens10.experiments.studies.json_cells import JsonCell, Result
from ens10.experiments.studies.short_training import BestWeights, train_briefly
from ens10.loader.content import Extra
from ens10.loader.datamodule import EnsembleDataModule
from ens10.metrics import crps_ensemble
from ens10.metrics.distributions import Distribution
from ens10.models import FamilyHead, MethodHead, PostProcessor, ResidualNormalHead
from ens10.models.layers import ExpertConvolution
from ens10.models.layers.expert_layers import Experts
from ens10.models.layers.padding import SameConv2d
from ens10.models.layers.smoe import FixedGate, SMoE2d
from ens10.models.networks import LocationUNet
from ens10.models.statistical import SeasonalEMOS
from ens10.synthetic import World
from ens10.untrusted import read_mapping

CONTENT = read_mapping(Path(__file__).with_name("variants.yaml"))
RAW, OPTIMUM = "raw", "optimum"
EPOCHS, BATCH, RATE = 40, 4, 0.002
INPUTS = (
    *("t2m", "skt", "msl", "u10", "v10", "si10", "tp", "tcw", "z500", "t500", "u500", "v500"),
    *("q500", "z850", "t850", "u850", "v850", "q850"),
)
_WIDTHS = (16, 32, 48)
_STATIONS = ("ens10.loader", "ens10.models", "ens10.experiments.studies.experts")


def arms_of(target: str) -> list[str]:
    """Return the names of the arms of a target, in the order of `variants.yaml`.

    Raises:
        UnknownNameError: a target without arms.
    """
    if target not in CONTENT["arms"]:
        raise UnknownNameError("target", target, list(CONTENT["arms"]))
    chosen = CONTENT["arms"][target]
    return ["-".join(names) for names in product(*(chosen[key] for key in CONTENT["factors"]))]


def options_of(arm: str) -> dict[str, Any]:
    """Return the options of an arm, and the labels of its factors by their names."""
    levels = zip(CONTENT["factors"].items(), arm.split("-"), strict=True)
    chosen = {factor: _level(values, name) for (factor, values), name in levels}
    labels = {factor: options.pop("label") for factor, options in chosen.items()}
    merged = {key: value for options in chosen.values() for key, value in options.items()}
    return merged | {"labels": labels, "frozen": arm.startswith("permuted")}


def _level(values: dict[str, Any], name: str) -> dict[str, Any]:
    form = form_of(name)
    if form is None:
        return dict(values[name])
    experts = {"per_selected": form.per_selected, "filters": form.filters}
    return {"label": form.label, "experts": experts, "levels": form.levels}


@dataclass(frozen=True)
class ExpertCell(JsonCell):
    """One arm of a target with one seed; or its raw ensemble or optimum.

    Args:
        target: channel.
        size: of the synthetic world, whose seed is that of the cell.
        store: prepared data of all seeds, in place of synthetic worlds.
        inputs: channels.
        factor: of the learning rate.
        epochs: of the training.
        accelerator: of Lightning.
    """

    target: str
    size: WorldSize
    store: Path | None = None
    inputs: tuple[str, ...] = INPUTS
    factor: float = 1.0
    epochs: int = EPOCHS
    accelerator: str = field(default="cpu", compare=False)

    @property
    def name(self) -> str:
        """Arm, target, seed and rate in words, for progress and error messages."""
        return f"{self.target}, {super().name}, rate x {self.factor:g}"

    @property
    def place(self) -> str:
        """Its place in the archive, by target, rate, seed and arm."""
        tried = "" if self.factor == 1 else f"rate{self.factor:g}/"
        return f"{self.target}/{tried}{super().place}"

    @property
    def scratch(self) -> Path:
        """Folder of claims and logs."""
        return self.work / self.target / f"rate{self.factor:g}" / f"seed{self.seed}"

    def current_key(self) -> Key:
        """Return the key; of a synthetic world its settings stand for the data."""
        arm = {} if self.variant in (RAW, OPTIMUM) else options_of(self.variant)
        about = {
            "arm": self.variant,
            **{k: v for k, v in arm.items() if k != "labels"},
            "gates": CONTENT["gates"],
            "target": self.target,
            "inputs": self.inputs,
            "factor": self.factor,
            "epochs": self.epochs,
            "seed": self.seed,
            "training": [BATCH, RATE, _WIDTHS],
        }
        data = repr(self.size) if self.store is None else checksum(self.store)
        return key_of(about, data, _STATIONS)

    def _data(self) -> tuple[EnsembleDataModule, Path]:
        folder = self.work / f"seed{self.seed}"
        store = self.store or store_of(folder, self.seed, self.size, wait=True)
        emos = self.variant not in (RAW, OPTIMUM) and options_of(self.variant)["emos"]
        extras: list[Extra] = ["location", "day_of_year"] if emos else ["location"]
        data = EnsembleDataModule(
            str(store), self.target, list(self.inputs), batch_size=BATCH, seed=self.seed, step=48,
            extras=extras, members=self.variant == RAW,
        )  # fmt: skip
        return data, folder

    def result(self) -> Result:
        """Score the raw ensemble or the optimum, or train the arm and score its best epoch."""
        data, folder = self._data()
        result: Result = {"variant": self.variant, "target": self.target, "seed": self.seed}
        if self.variant == RAW:
            return result | {"crps": _crps_of_raw(data)}
        if self.variant == OPTIMUM:
            return result | {"crps": _crps_of_optimum(data, World.load(folder / "world"))}
        best = BestWeights()
        model = self._trained(data, best)
        device = "CPU" if self.accelerator == "cpu" else torch.cuda.get_device_name()
        return result | {
            "crps": _crps_of_model(data, model),
            "epoch": best.epoch(),
            "epochs": len(best.losses["val"]),
            "val": min(best.losses["val"]),
            "factor": self.factor,
            "parameters": sum(p.numel() for p in model.parameters()),
            "device": device,
        }

    def _trained(self, data: EnsembleDataModule, best: BestWeights) -> PostProcessor:
        """Return the model with the weights of its best epoch."""
        model = self.model(data)
        if options_of(self.variant)["frozen"]:
            source = replace(self, variant=self.variant.replace("permuted", "experts"))
            set_permuted_gates(model, source._gates(), self.seed)
        train_briefly(model, data, self.epochs, best, accelerator=self.accelerator)
        model.load_state_dict(best.weights["val"])
        if not options_of(self.variant)["frozen"] and gates_of(model):
            self._keep_gates(model)
        return model.cpu()

    @property
    def _gates_file(self) -> Path:
        return self.scratch / f"gates-{self.variant}-{digest_of(self.key)[:16]}.npz"

    def _keep_gates(self, model: PostProcessor) -> None:
        gates: list[Any] = [layer.gate for layer in gates_of(model)]
        arrays = [gate.weight.detach().cpu().numpy() for gate in gates]
        partial_file = self._gates_file.with_suffix(f".{os.getpid()}.npz")
        np.savez(partial_file, *arrays)
        partial_file.replace(self._gates_file)

    def _gates(self) -> list[Any]:
        """Return the trained gates of this arm's layers; train it if no process did."""
        if not self._gates_file.exists():
            self._trained(self._data()[0], BestWeights())
        with np.load(self._gates_file) as arrays:
            return [arrays[f"arr_{n}"] for n in range(len(arrays.files))]

    def model(self, data: EnsembleDataModule) -> PostProcessor:
        """Return the arm's model before its training."""
        options = options_of(self.variant)
        convolution = None
        if "experts" in options:
            experts = Experts(**(CONTENT["gates"] | options["experts"]))
            convolution = partial(_convolution, experts, options.get("levels"))
        head: Any = ResidualNormalHead()
        if options["emos"]:
            head = MethodHead(SeasonalEMOS(harmonics=1, strength=300.0))
        elif self.target == "tp":
            head = FamilyHead("csgd", floor=1e-4)
        torch.manual_seed(self.seed)
        network = LocationUNet(
            len(data.channels), data.grid, head.out_channels, _WIDTHS,
            embedding=options["embedding"], embedding_levels=4, embedding_gain=2.0,
            convolution=convolution,
        )  # fmt: skip
        rate = RATE * self.factor
        return PostProcessor(
            network,
            head,
            optimizer=partial(torch.optim.AdamW, lr=rate, weight_decay=0.001),
            scheduler=partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=self.epochs),
        )


def _convolution(
    experts: Experts, levels: tuple[int, ...] | None, before: int, after: int, grid: Sequence[int]
) -> nn.Module:
    """Return a layer of experts; a plain convolution at a level that is not among those given."""
    if levels is None or _WIDTHS.index(after) in levels:
        return ExpertConvolution(before, after, grid, experts)
    return SameConv2d(before, after, periodic_longitude=True, poles="replicate")


def gates_of(model: PostProcessor) -> list[SMoE2d]:
    """Return the layers of experts of a model, in order."""
    return [layer for layer in model.modules() if isinstance(layer, SMoE2d)]


def set_permuted_gates(model: PostProcessor, gates: list[Any], seed: int) -> None:
    """Freeze maps of trained gates, whose points are permuted, the same for all experts."""
    generator = torch.Generator().manual_seed(seed)
    for layer, gate in zip(gates_of(model), gates, strict=True):
        weights = torch.from_numpy(gate)
        points = torch.randperm(weights[0].numel(), generator=generator)
        layer.gate = FixedGate(weights.flatten(1)[:, points].reshape(weights.shape))


def _crps_of_raw(data: EnsembleDataModule) -> list[float]:
    batch = data.batches("test").batch(data.batches("test").index)
    losses = crps_ensemble(batch["members"], batch["target"], estimator="plain", member_dim=1)
    return _means(losses, batch["weights"])


def _crps_of_optimum(data: EnsembleDataModule, world: World) -> list[float]:
    batches = data.batches("test")
    batch, samples = batches.batch(batches.index), batches.samples
    best = world.optimum(samples.target, step=48).sel(time=samples.time[batches.index])
    return _means(Distribution.from_dataset(best).crps(batch["target"]), batch["weights"])


def _crps_of_model(data: EnsembleDataModule, model: PostProcessor) -> list[float]:
    scores: list[float] = []
    with suppress_lightning_warnings(), torch.no_grad():
        model.eval()
        data.setup("test")
        for batch in data.test_dataloader():
            losses = model(batch).crps(batch["target"])
            scores += _means(losses.numpy(), batch["weights"].numpy())
    return scores


def _means(losses: Any, weights: Any) -> list[float]:
    """Return the area mean of each date, of six digits."""
    weights = np.asarray(weights, np.float64)
    sums = np.where(weights > 0, np.asarray(losses) * weights, 0).sum((1, 2))
    return [float(f"{value:.6g}") for value in sums / weights.sum((1, 2))]
