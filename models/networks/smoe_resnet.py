"""A residual network of spatial mixtures of experts at full resolution."""

from collections.abc import Sequence

from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.layers.expert_layers import ExpertLayers, Experts
from ens10.models.layers.norm import BatchNorm2d
from ens10.models.layers.padding import Poles, SameConv2d
from ens10.models.networks.base import Network, start_at_zero

RESULT_VERSION = 1  # raise it when results change


class SMoEResNet(Network):
    """Residual blocks of `SMoE2d` layers, Dryden & Hoefler 2022, arXiv:2211.13491.

    A 3x3 convolution to `width` channels; blocks x + f(x) with f twice (normalise over the batch,
    ReLU, mixture of experts), so that the output of a block passes unchanged to the end; normalise,
    ReLU and a 1x1 convolution. All layers work on the full grid, whose size is fixed. The order
    within a block and the plain first and last layer are choices of this implementation.

    Args:
        in_channels: channels of the features.
        grid: rows and columns of the data.
        out_channels: output channels at each point.
        width: channels between the blocks, k of their layers.
        blocks: number of blocks, of two mixture-of-experts layers each.
        experts: options of these layers.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: initialise the last layer to zero: a residual head then returns the raw ensemble.

    Raises:
        ArgumentError: no block, or an option of the experts outside its range.
        UnknownNameError: another value of an option with names.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        grid: Sequence[int],
        out_channels: int = 2,
        width: int = 16,
        blocks: int = 2,
        experts: Experts | None = None,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        if blocks < 1:
            raise ArgumentError("blocks", f"{blocks} is not positive")
        self.in_channels, self.out_channels = in_channels, out_channels
        layers = ExpertLayers(experts or Experts(), grid, periodic_longitude, poles)

        def normalised(layer: nn.Module) -> list[nn.Module]:
            return [BatchNorm2d(width), nn.ReLU(inplace=True), layer]

        self.first = SameConv2d(
            in_channels, width, periodic_longitude=periodic_longitude, poles=poles
        )
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *normalised(layers.make(width, width)), *normalised(layers.make(width, width))
            )
            for _ in range(blocks)
        )
        self.last = nn.Sequential(*normalised(nn.Conv2d(width, out_channels, 1)))
        if zero_init:
            start_at_zero(self.last[-1])

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W).

        Raises:
            ArgumentError: another grid than the network's.
        """
        fields: Tensor = self.first(features)
        for block in self.blocks:
            fields = fields + block(fields)
        outputs: Tensor = self.last(fields)
        return outputs
