"""ConvNeXt on the full grid: depthwise convolutions between layers of each point."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.layers.padding import Poles, SameConv2d
from ens10.models.layers.pointwise import PointConv2d
from ens10.models.networks.base import Network, start_at_zero

RESULT_VERSION = 1  # raise it when results change


class ConvNeXtBlock(nn.Module):
    """x + scale * f(x): depthwise convolution, layer normalisation, two layers at each point.

    Args:
        width: channels.
        conv: makes a convolution, from its channels before and after.
        kernel_size: rows and columns of the depthwise filters, odd.
        expansion: hidden channels between the two layers, as a multiple of `width`.
        layer_scale: initial value of the learned factor of each channel of f(x).
    """

    splittable = True

    def __init__(
        self,
        width: int,
        conv: Callable[..., SameConv2d],
        kernel_size: int,
        expansion: int,
        layer_scale: float,
    ) -> None:
        super().__init__()
        self.depthwise = conv(width, width, kernel_size, groups=width)
        self.points = nn.Sequential(
            nn.LayerNorm(width, eps=1e-6),
            nn.Linear(width, expansion * width),
            nn.GELU(),
            nn.Linear(expansion * width, width),
        )
        self.scale = nn.Parameter(torch.full((width,), layer_scale))

    def forward(self, fields: Tensor) -> Tensor:
        """(N, width, H, W) -> (N, width, H, W)."""
        change: Tensor = self.scale * self.points(self.depthwise(fields).movedim(1, -1))
        return fields + change.movedim(-1, 1)


class ConvNeXt(Network):
    """The blocks of ConvNeXt (Liu et al. 2022, arXiv:2201.03545) on the full grid.

    From the paper: the block (depthwise 7x7 convolution, layer normalisation of each point's
    channels, four times as many channels with GELU, and a factor of each channel that starts at
    1e-6), and the isotropic form of its section 3.3, all of whose blocks have one resolution.
    Choices of this implementation: a 3x3 convolution to `width` channels instead of patches, few
    and narrow blocks, layer normalisation and a 1x1 convolution at the end. Other than in
    the paper, initial weights are those of torch (there: a truncated normal of deviation 0.02), and
    no block is left out at random in training (there: stochastic depth). A point sees 6 rows and
    columns more with each block. Parameters with the defaults: 69,938 for 14 channels.

    Args:
        in_channels: channels of the features.
        out_channels: output channels at each point.
        width: channels of the blocks.
        depth: number of blocks.
        kernel_size: rows and columns of the depthwise filters, odd.
        expansion: hidden channels of a block, as a multiple of `width`.
        layer_scale: initial value of the factors of a block's change.
        periodic_longitude: True if first and last column are neighbours; the network then commutes
            with rotations in longitude.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: initialise the last layer to zero: a residual head then returns the raw ensemble.

    Examples:
        >>> import torch
        >>> from ens10.models.networks import ConvNeXt
        >>> ConvNeXt(in_channels=14)(torch.zeros(1, 14, 8, 16)).shape
        torch.Size([1, 2, 8, 16])

    Raises:
        ArgumentError: no block, an expansion below 1, or an even kernel.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 2,
        width: int = 48,
        depth: int = 3,
        kernel_size: int = 7,
        expansion: int = 4,
        layer_scale: float = 1e-6,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("depth", depth), ("expansion", expansion)):
            if value < 1:
                raise ArgumentError(name, f"{value} is less than 1")
        self.in_channels, self.out_channels = in_channels, out_channels
        conv = partial(SameConv2d, periodic_longitude=periodic_longitude, poles=poles)
        self.first = conv(in_channels, width)
        sizes = (kernel_size, expansion, layer_scale)
        self.blocks = nn.Sequential(*(ConvNeXtBlock(width, conv, *sizes) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.last = PointConv2d(width, out_channels)
        if zero_init:
            start_at_zero(self.last)

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        fields = self.blocks(self.first(features))
        outputs: Tensor = self.last(self.norm(fields.movedim(1, -1)).movedim(-1, 1))
        return outputs
