"""A mixture-of-experts layer that a configuration can choose instead of a convolution."""

from collections.abc import Sequence

from torch import Tensor, nn

from ens10.models.layers.expert_layers import ExpertLayers, Experts
from ens10.models.layers.padding import Poles


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
