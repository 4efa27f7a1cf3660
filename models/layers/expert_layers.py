"""Mixture-of-experts layers in place of the convolutions of a network on a fixed grid."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.grid import Weighting, area_weights
from ens10.models.layers.levels import level_grid
from ens10.models.layers.location_convolutions import checked_grid
from ens10.models.layers.padding import Poles
from ens10.models.layers.smoe import ComparingSMoE2d, Gate, SMoE2d, TensorGate

# options of `Experts` that are those of `SMoE2d` under the same names
_RULE = ("weighted", "routing_loss", "quantile", "margin", "damping_margin", "relative_margins")


@dataclass(frozen=True)
class Experts:
    """Options that the mixture-of-experts layers of a network share; see `SMoE2d`.

    Args:
        per_selected: E / k, number of experts for each selected one.
        filters: number F of filters of an expert; k = channels / F experts are selected, so that
            gates have F times fewer values.
        weighted: True if values are multiplied by the weight of their expert.
        routing_loss: True if gates learn by routing classification; otherwise they learn only if
            `weighted`, from the loss itself.
        quantile: minimum fraction of a sample's choices that counts as correct.
        damping: factor of the experts' gradient at incorrect choices. Earlier layers get the damped
            gradient too, so that over L layers it shrinks with damping^L, below what an optimiser
            can use: use 1 (no damping) for networks, 0.1 for a single layer.
        gate_range: gates are initialised from U(+-gate_range); None for the paper's sqrt(3 E / k).
        gate_shift: constant added to these initial values, for weights near 1 in a weighted layer.
        gate_noise: initial values are drawn for each expert, the same at all points, and noise of
            this fraction of the range is added at each point. The network then starts as a plain
            one. None draws each point independently, as the paper does, which gives every channel a
            different expert at each point.
        shared_gates: True if layers of the same level and number of experts share one gate.
        area: area weights of the rows in the quantile; choose those of the loss.
        latitudes: latitudes of the first and last row, degrees; rows are evenly spaced.
        margin: margin of the routing loss, see `SMoE2d`.
        damping_margin: margin of the damping.
        curvature: second derivative of the loss with respect to a layer's output, see `SMoE2d`.
        relative_margins: True if both are relative to the root mean square of a layer's output.
        compare: True if layers with more experts than they select are `ComparingSMoE2d`: the gate
            learns which experts have the smallest errors. The options of the routing loss have no
            effect then, and values are not weighted.
        memory: share of the past in the errors that are compared, see `ComparingSMoE2d`.

    Raises:
        ArgumentError: fewer than 1 expert for each one selected, fewer than 1 filter, a range that
            is not positive, or negative noise.
    """

    per_selected: float = 2.0
    filters: int = 1
    weighted: bool = False
    routing_loss: bool = True
    quantile: float = 0.3
    damping: float = 1.0
    gate_range: float | None = None
    gate_shift: float = 0.0
    gate_noise: float | None = None
    shared_gates: bool = False
    area: Weighting = "cell"
    latitudes: tuple[float, float] = (90.0, -90.0)
    margin: float = 1e-5
    damping_margin: float = 1e-3
    curvature: float = 2.0
    relative_margins: bool = False
    compare: bool = False
    memory: float = 0.0

    def __post_init__(self) -> None:
        if not self.per_selected >= 1:
            raise ArgumentError("per_selected", f"{self.per_selected} is less than 1")
        if self.filters < 1:
            raise ArgumentError("filters", f"{self.filters} is less than 1")
        if self.gate_range is not None and not self.gate_range > 0:
            raise ArgumentError("gate_range", f"{self.gate_range} is not positive")
        if self.gate_noise is not None and not self.gate_noise >= 0:
            raise ArgumentError("gate_noise", f"{self.gate_noise} is negative")


class ExpertLayers:
    """Builder of the mixture-of-experts layers of one network.

    Args:
        experts: options that the layers share.
        grid: rows and columns of the data.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: a grid that is not two positive numbers.
    """

    def __init__(
        self,
        experts: Experts,
        grid: Sequence[int],
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        self.experts, self.grid = experts, checked_grid(grid)
        self.periodic_longitude, self.poles = periodic_longitude, poles
        self._gates: dict[tuple[int, int, int], TensorGate] = {}

    def make(
        self,
        in_channels: int,
        channels: int,
        level: int = 0,
        kernel_size: int = 3,
        gate: Gate | None = None,
    ) -> SMoE2d:
        """Build a layer with `channels` outputs on the grid after `level` halvings.

        Its number of experts is that of `gate`; None makes a learned map.

        Raises:
            ArgumentError: an option outside its range, or channels that are not a multiple of the
                experts' filters.
            UnknownNameError: another value of `area` or `poles`.
        """
        experts = self.experts
        selected, remainder = divmod(channels, experts.filters)
        if remainder:
            raise ArgumentError(
                "filters", f"{channels} channels are not a multiple of {experts.filters} filters"
            )
        count = round(experts.per_selected * selected) if gate is None else gate.num_experts
        gate = self._make_gate(count, selected, level) if gate is None else gate
        sizes = (gate, kernel_size, experts.filters)
        options: dict[str, Any] = {
            "periodic_longitude": self.periodic_longitude,
            "poles": self.poles,
            "curvature": experts.curvature,
            "damping": experts.damping,
            "area": self._area(level),
        }
        if experts.compare and count > selected:
            options |= {"selected": selected, "memory": experts.memory}
            return ComparingSMoE2d(in_channels, count, *sizes, **options)
        options |= {name: getattr(experts, name) for name in _RULE}
        return SMoE2d(in_channels, count, selected, *sizes, **options)

    def _make_gate(self, count: int, selected: int, level: int) -> TensorGate:
        """Return a gate with a learned map, or one of the same sizes if gates are shared."""
        key = (count, selected, level)
        if key in self._gates and self.experts.shared_gates:
            return self._gates[key]
        gate = TensorGate(count, selected, level_grid(self.grid, level))
        self._initialise(gate, math.sqrt(3 * count / selected))
        self._gates[key] = gate
        return gate

    def _initialise(self, gate: TensorGate, default_range: float) -> None:
        """Draw the initial values of a gate by the options `gate_range`, `_shift` and `_noise`."""
        experts = self.experts
        bound = default_range if experts.gate_range is None else experts.gate_range
        with torch.no_grad():
            gate.weight.uniform_(-bound, bound)
            if experts.gate_noise is not None:
                expert_values = torch.empty(gate.num_experts, 1, 1).uniform_(-bound, bound)
                gate.weight.mul_(experts.gate_noise).add_(expert_values)
            gate.weight.add_(experts.gate_shift)

    def _area(self, level: int) -> Tensor | None:
        """Return the area weights of a level's rows: sums of those of the rows pooled into them."""
        if self.experts.area == "none":
            return None
        rows = np.linspace(*self.experts.latitudes, self.grid[0])
        weights = area_weights(rows, self.experts.area)
        for _ in range(level):
            weights = weights[: len(weights) // 2 * 2].reshape(-1, 2).sum(axis=1)
        return torch.from_numpy(weights)


class ExpertConvolution(nn.Module):
    """`SMoE2d` with the arguments that networks pass to their convolutions.

    For `LocationUNet(convolution=...)`: in YAML `class_path: ens10.models.layers.ExpertConvolution`
    with the arguments after `grid` as `init_args`. As many experts are selected as there are output
    channels; the gate is a learned map of the grid.

    Args:
        in_channels: channels of the input.
        out_channels: number of output channels and k, the number of experts selected at each point.
        grid: rows and columns (H, W) of the layer's input.
        experts: options of the experts and gates; None for the defaults.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an option of the experts outside its range.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        grid: Sequence[int],
        experts: Experts | None = None,
        periodic_longitude: bool = True,
        poles: Poles = "replicate",
    ) -> None:
        super().__init__()
        layers = ExpertLayers(experts or Experts(), grid, periodic_longitude, poles)
        self.layer = layers.make(in_channels, out_channels)

    def forward(self, fields: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        outputs: Tensor = self.layer(fields)
        return outputs
