"""Cells of the study of gates: a variant of the U-Net, trained with one seed, and its scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runner.tasks import WorldSize, store_of
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.studies.heat.module import expert_map_of, match_regions
from ens10.experiments.studies.json_cells import JsonCell, Result
from ens10.experiments.studies.short_training import BestWeights, train_briefly
from ens10.grid import area_weights
from ens10.loader.datamodule import EnsembleDataModule
from ens10.models import MethodHead, PostProcessor, ResidualNormalHead, StatisticalPostProcessor
from ens10.models.layers.expert_layers import Experts
from ens10.models.layers.smoe import FixedGate, Gate, RegionGate, SMoE2d
from ens10.models.networks import SMoEUNet
from ens10.models.statistical import RegionalRegression
from ens10.synthetic import World
from ens10.untrusted import read_mapping

EXPERTS, WIDTH, EPOCHS, BATCH = 4, 16, 8, 4
_STATIONS = ("ens10.loader", "ens10.models", "ens10.experiments.studies.gates")


@dataclass(frozen=True)
class Variant:
    """Experts, gate and head of a variant of the U-Net.

    Attributes:
        label: in tables.
        places: blocks with experts.
        gate: of the last layer: "learned", "true", "wrong", "regions", "advection" (regions of a
            regression with advection) or "corrected" (regions with a learned correction).
        experts: options of the experts.
        rate: factor of the gates' learning rate.
        on_regression: True if the head is a residual on the clusterwise regression.
    """

    label: str
    places: tuple[str, ...] = ("last",)
    gate: str = "learned"
    experts: Experts = field(default_factory=Experts)
    rate: float = 1.0
    on_regression: bool = False


def _variant(
    places: Sequence[str] = ("last",), experts: Mapping[str, Any] | None = None, **options: Any
) -> Variant:
    return Variant(places=tuple(places), experts=Experts(**(experts or {})), **options)


_CONTENT = read_mapping(Path(__file__).with_name("variants.yaml"))
VARIANTS = {name: _variant(**options) for name, options in _CONTENT.items()}


@dataclass(frozen=True)
class GateCell(JsonCell):
    """One variant of `VARIANTS` with one seed.

    Args:
        size: of the world.
        width: of the U-Net on the full grid.
    """

    size: WorldSize
    width: int = WIDTH

    @property
    def name(self) -> str:
        """Variant, world and seed in words, for progress and error messages."""
        return f"{self.variant}, {self.size.world} world, seed {self.seed}"

    @property
    def place(self) -> str:
        """Its place in the archive, by world, seed and variant."""
        return f"{self.size.world}-{self.size.grid}/{super().place}"

    @property
    def scratch(self) -> Path:
        """Folder of the seed's world, claims and logs."""
        return self.work / f"{self.size.world}-{self.size.grid}" / f"seed{self.seed}"

    def current_key(self) -> Key:
        """Return the key, which includes the settings of the world instead of a checksum."""
        training = [EXPERTS, self.width, EPOCHS, BATCH]
        options = {k: value for k, value in _CONTENT[self.variant].items() if k != "label"}
        about = {"world": repr(self.size), "variant": options}
        return key_of({**about, "training": training, "seed": self.seed}, "", _STATIONS)

    def result(self) -> Result:
        """Train and score."""
        store = store_of(self.scratch, self.seed, self.size, wait=True)
        region = World.load(self.scratch / "world").region
        result = train_and_score(store, region, self.variant, self.seed, self.width)
        return result | {"variant": self.variant, "seed": self.seed, "world": self.size.world}


def train_and_score(store: Path, region: Any, name: str, seed: int, width: int = WIDTH) -> Result:
    """Train a variant and score the epoch of the smallest validation loss on the test dates.

    Returns:
        `crps` of each test date (area mean), `epoch`, `epochs`, `map` of experts and the true
        `region` (lists of rows), `agreement` in share of area.
    """
    data = EnsembleDataModule(str(store), "t2m", extras=["location"], batch_size=BATCH, seed=seed)
    best = BestWeights()
    model = _model(name, len(data.batches("train").channels), region, seed, width)
    if name == "regression":
        train_briefly(model, data, 1)
    else:
        train_briefly(model, data, EPOCHS, best)
        model.load_state_dict(best.weights["val"])
    with suppress_lightning_warnings():
        model.eval()
        data.setup("test")
        scores = []
        with torch.no_grad():
            for batch in data.test_dataloader():
                losses, weights = model(batch).crps(batch["target"]), batch["weights"]
                scores += ((losses * weights).sum((1, 2)) / weights.sum((1, 2))).tolist()
    expert_map, agreement = _map_and_agreement(model, region)
    return {
        "crps": [round(score, 6) for score in scores],
        "epoch": best.epoch(),
        "epochs": len(best.losses["val"]),
        "map": expert_map,
        "region": region.tolist(),
        "agreement": agreement,
    }


def _model(name: str, channels: int, region: Any, seed: int, width: int = WIDTH) -> Any:
    if name == "regression":
        return StatisticalPostProcessor(RegionalRegression(EXPERTS))
    variant = VARIANTS[name]
    torch.manual_seed(seed)
    network = SMoEUNet(
        channels,
        region.shape,
        places=variant.places,
        experts=variant.experts,
        width=width,
        last_experts=EXPERTS,
        last_gate=_gate(variant.gate, region),
        periodic_longitude=True,
    )
    head = MethodHead(RegionalRegression(EXPERTS)) if variant.on_regression else None
    has_gate = any("gate" in part for part, _ in network.named_parameters())
    return PostProcessor(
        network,
        head or ResidualNormalHead(),
        optimizer=partial(torch.optim.AdamW, lr=0.003, weight_decay=0.001),
        scheduler=partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=EPOCHS),
        learning_rates={"gate": variant.rate} if has_gate and variant.rate != 1 else None,
    )


def _gate(kind: str, region: Any) -> Gate | None:
    """Return a gate; the wrong map is the true one, mirrored and moved by a third of the globe."""
    true_map = torch.from_numpy(region)
    if kind == "true":
        return FixedGate.from_choices(true_map, EXPERTS)
    if kind == "wrong":
        return FixedGate.from_choices(true_map.flip(0).roll(true_map.shape[1] // 3, 1), EXPERTS)
    if kind == "regions":
        return RegionGate(EXPERTS)
    if kind == "advection":
        return RegionGate(EXPERTS, advection=True)
    return RegionGate(EXPERTS, grid=region.shape) if kind == "corrected" else None


def _map_and_agreement(model: Any, region: Any) -> tuple[Any, float | None]:
    """Return the map of experts after training, and the share of area where it is the true one."""
    if isinstance(model, StatisticalPostProcessor):
        regions: Any = model.method
        expert_map = regions.region.numpy()
    elif isinstance(layer := model.network.last, SMoE2d):
        expert_map = expert_map_of(layer, region.shape)
    else:
        return None, None
    area = area_weights(np.linspace(90, -90, len(region)), "cell")
    row_agreement = (match_regions(expert_map, region)[0] == region).mean(1)
    return expert_map.tolist(), round(float(row_agreement @ area / area.sum()), 4)
