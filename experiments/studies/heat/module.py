"""The Lightning module of the heat experiment: one layer that forecasts the next field.

Its scores are the points within 1 %, the mean squared error, and the agreement of two maps.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import OptimizerCallable
from scipy.optimize import linear_sum_assignment  # type: ignore[attr-defined]
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from ens10.errors import ArgumentError
from ens10.experiments.studies.heat.world import HeatData, Ints, Pair
from ens10.models.layers.smoe import FixedGate, Gate, SMoE2d, track_loss

RELATIVE, ABSOLUTE = 0.01, 1e-8


def close(forecast: Tensor, truth: Tensor) -> Tensor:
    """Return the points within 1 %: |y - t| <= 1e-8 + 0.01 |t|, as in the authors' public code.

    The first term is for a truth of 0, which no run has: all initial temperatures are positive, and
    a step makes positive mixtures of positive temperatures.
    """
    return (forecast - truth).abs() <= ABSOLUTE + RELATIVE * truth.abs()


@dataclass
class HeatSums:
    """Sums over samples, kept for each point, from which the scores are finished.

    Attributes:
        within: (H, W) number of samples within 1 %.
        squares: (H, W) sum of squared errors.
        samples: number of samples.
    """

    within: Tensor = field(default_factory=lambda: torch.zeros(()))
    squares: Tensor = field(default_factory=lambda: torch.zeros(()))
    samples: int = 0

    def add(self, forecast: Tensor, truth: Tensor) -> None:
        """Add the sums of a batch of forecasts and truth, (N, 1, H, W) each."""
        self.within = self.within + close(forecast, truth).sum((0, 1))
        self.squares = self.squares + (forecast - truth).double().square().sum((0, 1))
        self.samples += len(truth)

    def finish(self, regions: Ints) -> dict[str, float | list[float]]:
        """Return `within` and `within_by_region` (shares), and `mse`.

        Args:
            regions: (H, W) from 0.
        """
        within = (self.within.double() / self.samples).numpy()
        parts = [regions == region for region in range(int(regions.max()) + 1)]
        return {
            "within": float(within.mean()),
            "within_by_region": [float(within[part].mean()) for part in parts if part.any()],
            "mse": float(self.squares.mean() / self.samples),
        }


def match_regions(expert_map: Ints, regions: Ints) -> tuple[Ints, float]:
    """Return a map of experts as regions, and the share of points where it is the true map.

    Experts have no names: each is assigned the region for which the agreement is largest over all
    one-to-one assignments (Kuhn-Munkres).

    Args:
        expert_map: (H, W) experts from 0.
        regions: (H, W) true regions from 0.

    Returns:
        (H, W) regions, or larger numbers for experts without one; and the agreement.

    Raises:
        ArgumentError: different shapes.
    """
    if expert_map.shape != regions.shape:
        raise ArgumentError(
            "expert_map", f"shape {expert_map.shape}, the true map has {regions.shape}"
        )
    size = int(max(expert_map.max(), regions.max())) + 1
    counts = np.zeros((size, size), int)
    np.add.at(counts, (expert_map.ravel(), regions.ravel()), 1)
    experts, labels = linear_sum_assignment(counts, maximize=True)
    matched_map: Ints = labels[np.argsort(experts)][expert_map].astype(np.int64)
    return matched_map, float((matched_map == regions).mean())


def expert_map_of(layer: SMoE2d, grid: tuple[int, int]) -> Ints:
    """Return the map of experts (H, W) that a layer of one expert a point selects."""
    with torch.no_grad():
        zeros = layer.experts.weight.new_zeros(1, layer.in_channels, *grid)
        expert_map: Ints = layer.choices(zeros)[0, 0].cpu().numpy()
    return expert_map


class TrueMapGate(FixedGate):
    """Gate with the true map of regions, which the module sets before training.

    Args:
        num_experts: number of regions.
        grid: rows and columns (H, W).
    """

    def __init__(self, num_experts: int, grid: tuple[int, int]) -> None:
        super().__init__(torch.zeros(num_experts, *grid))

    def set_map(self, regions: Ints) -> None:
        """Set the map of regions (H, W).

        Raises:
            ArgumentError: another grid, or more regions than experts.
        """
        weight = FixedGate.from_choices(torch.from_numpy(regions), self.num_experts).weight
        if weight.shape != self.weight.shape:
            raise ArgumentError(
                "grid",
                f"{tuple(self.weight.shape[1:])}, but the data has {regions.shape}",
                "Set the gate's grid to that of the data",
            )
        self.weight.copy_(weight)


class HeatModule(pl.LightningModule):
    """A layer trained by the mean squared error of its forecast.

    Args:
        network: from (N, 1, H, W) to (N, 1, H, W); any layer.
        optimizer: makes the optimiser from the parameters.
        gate_lr: learning rate of the gates' parameters; by default that of the others.
        final: factor to which the learning rate of all but the gates' parameters falls,
            exponentially, over `max_steps`.

    Raises:
        ArgumentError: `final` is not from 0 (excluded) to 1.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: OptimizerCallable = torch.optim.Adam,
        gate_lr: float | None = None,
        final: float = 1.0,
    ) -> None:
        super().__init__()
        if not 0 < final <= 1:
            raise ArgumentError("final", f"{final} is not in (0, 1]")
        self.network, self.gate_lr, self.final = network, gate_lr, final
        self._optimizer = optimizer
        self.sums = HeatSums()

    def setup(self, stage: str) -> None:  # noqa: ARG002
        """Set the true map in gates that use it."""
        for layer in self.network.modules():
            if isinstance(layer, TrueMapGate):
                layer.set_map(self._data.world.regions)

    def forward(self, fields: Tensor) -> Tensor:
        """Return the forecast of the fields (N, 1, H, W) one step later."""
        forecast: Tensor = self.network(fields)
        return forecast

    def training_step(self, batch: Pair) -> Tensor:
        """Return the mean squared error of a batch; `track_loss` gives its scale to the gates.

        Raises:
            ArgumentError: it is not finite.
        """
        fields, truth = batch
        loss = functional.mse_loss(self(fields), truth)
        if not bool(loss.isfinite()):
            raise ArgumentError("loss", f"{float(loss)}", "Lower the learning rate")
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return track_loss(loss, self.network)

    def on_test_start(self) -> None:
        """Reset the sums of the scores."""
        self.sums = HeatSums()

    def test_step(self, batch: Pair) -> None:
        """Add the scores of a batch."""
        fields, truth = batch
        self.sums.add(self(fields), truth)

    def routing(self) -> Ints | None:
        """Return the map of experts (H, W), learned or set; None if the layer has none."""
        if not isinstance(self.network, SMoE2d):
            return None
        return expert_map_of(self.network, self._data.world.grid)

    def scores(self) -> dict[str, Any]:
        """Return the scores of the test runs: those of `HeatSums`, and `agreement` of the map."""
        regions, expert_map = self._data.world.regions, self.routing()
        agreement = None if expert_map is None else match_regions(expert_map, regions)[1]
        return {**self.sums.finish(regions), "agreement": agreement}

    def configure_optimizers(self) -> Any:
        """Return the optimiser, with separate learning rates for gates and other parameters."""
        gates = [p for m in self.network.modules() if isinstance(m, Gate) for p in m.parameters()]
        gate_ids = {id(p) for p in gates}
        groups: list[dict[str, Any]] = [
            {"params": [p for p in self.network.parameters() if id(p) not in gate_ids]}
        ]
        if gates:
            rate = {} if self.gate_lr is None else {"lr": self.gate_lr}
            groups.append({"params": gates, **rate})
        optimizer = self._optimizer(groups)
        last = max(1, self.trainer.max_steps)
        factors = [lambda step: self.final ** (step / last), lambda _: 1.0][: len(groups)]
        schedule = {"scheduler": LambdaLR(optimizer, factors), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    @property
    def _data(self) -> HeatData:
        data: HeatData = self.trainer.datamodule  # type: ignore[attr-defined]
        return data
