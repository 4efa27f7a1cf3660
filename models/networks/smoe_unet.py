"""The U-Net with spatial mixtures of experts in place of convolutions."""

from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.layers.expert_layers import ExpertLayers, Experts
from ens10.models.layers.padding import Poles, SameConv2d
from ens10.models.layers.smoe import Gate, SMoE2d
from ens10.models.networks.base import start_at_zero
from ens10.models.networks.unet import PLACES, UNetBody

RESULT_VERSION = 1  # raise it when results change
BLOCKS = ("down_0", "down_1", "bottom", "up_1", "up_0")


class SMoEUNet(UNetBody):
    """The U-Net with `SMoE2d` layers, Dryden & Hoefler 2022, arXiv:2211.13491.

    In the blocks that are named, every 3x3 convolution of the paper's U-Net (see `UNet`) becomes a
    mixture of experts that selects as many as the convolution had channels, with a gate of the
    level's grid; normalisation and ReLU are unchanged. At the end ("last") one of `last_experts` is
    selected, whose filters are all output channels. The gates are learned maps, so the grid is
    fixed.

    In trials on the synthetic world (46 x 96, width 16, 6 epochs, validation CRPS in K) the plain
    U-Net had 0.820. Weighted experts in "up_0" that learn from the loss itself and are initialised
    equally at all points had 0.814, also in "down_0" 0.824; with the routing loss, without margins,
    0.827.

    Args:
        in_channels: channels of the features.
        grid: rows and columns of the data.
        out_channels: output channels at each point.
        places: blocks with mixtures of experts: "down_0", "down_1", "bottom", "up_1", "up_0",
            "last".
        experts: options that the layers share.
        width: channels on the full grid (the paper's 32); k of the layers there.
        last_experts: number of experts at the end.
        last_gate: gate of the experts at the end, e.g. `RegionGate` for regions found in the
            training data or `FixedGate` for a known map; its experts count instead of
            `last_experts`. None for a learned map.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: initialise the last layer to zero: a residual head then returns the raw ensemble.

    Raises:
        ArgumentError: an option outside its range.
        UnknownNameError: another place, or another value of an option with names.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        grid: Sequence[int],
        out_channels: int = 2,
        places: Sequence[str] = BLOCKS,
        experts: Experts | None = None,
        width: int = 32,
        last_experts: int = 4,
        last_gate: Gate | None = None,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = True,
    ) -> None:
        for place in places:
            if place not in PLACES:
                raise UnknownNameError("places", place, list(PLACES))
        if last_experts < 1:
            raise ArgumentError("last_experts", f"{last_experts} is not positive")
        if last_gate is not None and "last" not in places:
            raise ArgumentError(
                "last_gate", "there are no experts at the end", "Add last to places"
            )
        experts = experts or Experts()
        layers = ExpertLayers(experts, grid, periodic_longitude, poles)
        last = replace(experts, per_selected=last_experts, filters=out_channels)

        def layer(place: str, before: int, after: int) -> nn.Module:
            if place not in places:
                return SameConv2d(before, after, periodic_longitude=periodic_longitude, poles=poles)
            if place == "last":
                final = ExpertLayers(last, grid, periodic_longitude, poles)
                return final.make(before, after, gate=last_gate)
            return layers.make(before, after, PLACES[place])

        super().__init__(in_channels, out_channels, layer, width, periodic_longitude)
        if zero_init:
            start_at_zero(self.last.experts if isinstance(self.last, SMoE2d) else self.last)
