"""Gates that depend on the input."""

from collections.abc import Sequence

from torch import Tensor

from ens10.models.layers.coordconv import CoordConv2d
from ens10.models.layers.locally_connected import LocallyConnected2d
from ens10.models.layers.padding import Poles
from ens10.models.layers.smoe.conv import FreeConv2d
from ens10.models.layers.smoe.gates import Gate


class ConvGate(Gate):
    """A convolution of the input, without bias.

    Args:
        in_channels: channels of the features.
        num_experts: number E of experts.
        kernel_size: rows and columns of the filter, odd.
        stride: stride of the layer that uses the gate.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel, or a stride that is not positive.
        UnknownNameError: another value of `poles`.
    """

    def __init__(
        self,
        in_channels: int,
        num_experts: int,
        kernel_size: int = 3,
        *,
        stride: int = 1,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.conv = FreeConv2d(
            in_channels,
            num_experts,
            kernel_size,
            stride=stride,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, E, H', W')."""
        weights: Tensor = self.conv(features)
        return weights


class CoordConvGate(Gate):
    """A convolution of the input and its coordinates (`CoordConv2d`).

    Args:
        in_channels: channels of the features.
        num_experts: number E of experts.
        kernel_size: rows and columns of the filter, odd.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel.
        UnknownNameError: another value of `poles`.
    """

    def __init__(
        self,
        in_channels: int,
        num_experts: int,
        kernel_size: int = 3,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.conv = CoordConv2d(
            in_channels,
            num_experts,
            kernel_size,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, E, H, W)."""
        weights: Tensor = self.conv(features)
        return weights


class LocallyConnectedGate(Gate):
    """A locally connected layer: separate weights at every grid point.

    Args:
        in_channels: channels of the features.
        num_experts: number E of experts.
        grid: rows and columns (H, W).
        kernel_size: rows and columns of the filters, odd.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel, or a grid that is not two positive numbers.
        UnknownNameError: another value of `poles`.
    """

    def __init__(
        self,
        in_channels: int,
        num_experts: int,
        grid: Sequence[int],
        kernel_size: int = 3,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.local = LocallyConnected2d(
            in_channels,
            num_experts,
            grid,
            kernel_size,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, E, H, W)."""
        weights: Tensor = self.local(features)
        return weights
