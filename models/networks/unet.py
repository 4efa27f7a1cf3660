"""The U-Net of the ENS-10 paper, with periodic longitude as an option."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from ens10.models.layers.levels import check_levels, through_levels
from ens10.models.layers.norm import BatchNorm2d
from ens10.models.layers.padding import Poles, SameConv2d
from ens10.models.networks.base import Network, start_at_zero

RESULT_VERSION = 1  # raise it when results change
_SMALLEST = 8  # two halvings leave 2 x 2 points: batch statistics need more than one
MakeLayer = Callable[[str, int, int], nn.Module]
PLACES = {"down_0": 0, "down_1": 1, "bottom": 2, "up_1": 1, "up_0": 0, "last": 0}


class UNetBody(Network):
    """The levels of the paper's U-Net, with a choice of layers.

    Args:
        in_channels: channels of the features.
        out_channels: channels delivered at each point.
        layer: makes a layer, from the name of its block (one of `PLACES`) and its numbers of
            channels before and after.
        width: channels of the blocks on the full grid; below they have 2 and 4 times as many.
        periodic_longitude: True if first and last column are neighbours.
    """

    halvings = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        layer: MakeLayer,
        width: int = 32,
        periodic_longitude: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.periodic_longitude = periodic_longitude

        def blocks(place: str, *widths: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for before, after in pairwise(widths):
                made = layer(place, before, after)
                layers += [made, BatchNorm2d(after).after(made), nn.ReLU(inplace=True)]
            return nn.Sequential(*layers)

        one, two, four = width, 2 * width, 4 * width
        self.down_0 = blocks("down_0", in_channels, one, one)
        self.down_1 = blocks("down_1", one, two, two)
        self.bottom = blocks("bottom", two, four, four, four, two)
        self.up_1 = blocks("up_1", two + two, two, one)
        self.up_0 = blocks("up_0", one + one, one, one)
        self.last = layer("last", one, out_channels)

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W).

        Raises:
            ArgumentError: fewer than 8 rows or columns.
        """
        check_levels(features, 3, _SMALLEST, "The U-Net", "; MLP takes any grid")
        # a tenth to a third less time on a CPU than channels first, and less for several dates on
        # a GPU; a compiler chooses by itself
        if features.device.type in ("cpu", "cuda") and not torch.compiler.is_compiling():
            features = features.contiguous(memory_format=torch.channels_last)
        fields = through_levels(
            features,
            (self.down_0, self.down_1, self.bottom),
            (self.up_0, self.up_1),
            partial(functional.max_pool2d, kernel_size=2),
            periodic_longitude=self.periodic_longitude,
        )
        outputs: Tensor = self.last(fields)
        return outputs


class UNet(UNetBody):
    """The U-Net of Ashkboos et al. 2022: 633,698 parameters for 14 channels, 636,002 for 22.

    Blocks of 3x3 convolution, batch normalisation and ReLU with widths 32-32, pool, 64-64, pool,
    128-128-128-64; then twice: bilinear upsampling, concatenation behind the map of the same level
    (64-32 and 32-32); at last a 3x3 convolution. The defaults are the paper's variant.

    Any grid of at least 8 x 8 points is accepted. Pooling drops the last row of an odd number: the
    upsampled map then gets a copy of its first row on top (the paper's rule; its grid has 361
    rows). Pooling drops the last of an odd number of columns too: the upsampled map gets one column
    in the east, a copy of its last one, or of the first one if longitude is periodic.

    Args:
        in_channels: channels of the features.
        out_channels: channels delivered at each point.
        periodic_longitude: True if first and last column are neighbours in every convolution and
            interpolation. The network then commutes with rotations by multiples of 4 columns if the
            number of columns is a multiple of 4; where a level has an odd number of columns,
            pooling breaks this near the seam, and it holds only approximately.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: initialise the last convolution to zero: a residual head then returns the raw
            ensemble.

    Examples:
        >>> import torch
        >>> from ens10.models.networks import UNet
        >>> network = UNet(in_channels=14)
        >>> network(torch.zeros(1, 14, 8, 16)).shape
        torch.Size([1, 2, 8, 16])
        >>> sum(p.numel() for p in network.parameters())
        633698
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 2,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = False,
    ) -> None:
        def conv(_: str, before: int, after: int) -> SameConv2d:
            return SameConv2d(before, after, periodic_longitude=periodic_longitude, poles=poles)

        super().__init__(in_channels, out_channels, conv, periodic_longitude=periodic_longitude)
        if zero_init:
            start_at_zero(self.last)
