"""PoET: a U-Net shared over members, with attention across them at its levels."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.layers.attention import ChannelNorm, FinnAttention, MemberAttention, each_member
from ens10.models.layers.levels import Grid, check_levels, level_grid, through_levels
from ens10.models.layers.padding import Poles, SameConv2d
from ens10.models.layers.pointwise import PointConv2d
from ens10.models.networks.base import DataShape, Network, start_at_zero

RESULT_VERSION = 1  # raise it when results change


class PoET(Network):
    """Post-processing of ensembles with transformers, Ben Bouallegue et al. 2024, arXiv:2303.17195.

    A U-Net of widths 16, 32 and 64, shared by the members, with attention across members (see
    `MemberAttention`, 8 heads) at the three deepest levels. Inputs and outputs are members, at
    least 2; permuting them permutes the outputs. Choices of this implementation: two blocks of 3x3
    convolution, normalisation and ReLU on the way down and one on the way up, mean pooling,
    attention after the blocks of the way down. Parameters with the defaults: 129,665 for 7
    channels, 130,241 for 11.

    The grid is any whose coarsest level has 2 x 2 points; odd numbers of rows and columns are
    treated as in `UNet`.

    In the paper most parameters are weights of normalisations for each channel and point, which act
    as an embedding of location. `grid` gives the attention's normalisations such weights (14.5
    million on 361 x 720 points); the network then works on that grid only. Without it, nothing
    depends on location.

    Beware: attention across members makes them depend on each other. The fair CRPS then rewards too
    much spread (Roberts 2026, arXiv:2602.15830); check the spread-error ratio.

    Args:
        in_channels: channels of a member's features.
        out_channels: output channels for each member.
        widths: channels of the levels, from the full grid down; multiples of `heads`.
        heads: number of attention heads.
        attention_levels: number of deepest levels that have attention.
        grid: rows and columns of the data, for weights at each point; None for none.
        periodic_longitude: True if first and last column are neighbours; without `grid`, the
            network then commutes with rotations by multiples of 4 columns (for three levels), if
            the number of columns is one.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: initialise the last layer to zero: a residual head then returns the raw members.

    Raises:
        ArgumentError: no level, or a width that is not a multiple of heads.
    """

    splittable = True
    takes_members = True
    gives_members = True
    least_members = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 1,
        widths: Sequence[int] = (16, 32, 64),
        heads: int = 8,
        attention_levels: int = 3,
        grid: Grid | None = None,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        if not widths:
            raise ArgumentError("widths", "no level is given", "Choose at least one width")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.periodic_longitude, self.halvings = periodic_longitude, len(widths) - 1

        def block(before: int, after: int) -> nn.Sequential:
            conv = SameConv2d(before, after, periodic_longitude=periodic_longitude, poles=poles)
            return nn.Sequential(conv, ChannelNorm(after), nn.ReLU(inplace=True))

        levels = list(zip((in_channels, *widths), widths, strict=False))
        self.down = nn.ModuleList(nn.Sequential(block(a, b), block(b, b)) for a, b in levels)
        self.attention = nn.ModuleList(
            MemberAttention(width, heads, grid and level_grid(grid, n))
            if len(widths) - n <= attention_levels
            else nn.Identity()
            for n, width in enumerate(widths)
        )
        self.up = nn.ModuleList(block(a + b, a) for a, b in pairwise(widths))
        self.last = PointConv2d(widths[0], out_channels)
        if zero_init:
            start_at_zero(self.last)

    def forward(self, features: Tensor) -> Tensor:
        """(N, M, in_channels, H, W) -> (N, M, out_channels, H, W).

        Raises:
            ArgumentError: a grid too small for the levels, or another than the network's.
        """
        least = 2 ** len(self.down)
        check_levels(features, len(self.down), least, "PoET", ", or fewer widths")
        fields = through_levels(
            features,
            [
                partial(_block_and_attention, *layers)
                for layers in zip(self.down, self.attention, strict=True)
            ],
            [partial(each_member, layer) for layer in self.up],
            partial(each_member, nn.AvgPool2d(2)),
            periodic_longitude=self.periodic_longitude,
        )
        return each_member(self.last, fields)


def _block_and_attention(block: nn.Module, attention: nn.Module, fields: Tensor) -> Tensor:
    """Apply a block to each member, then attention across members."""
    outputs: Tensor = attention(each_member(block, fields))
    return outputs


class PaperPoET(Network):
    """PoET as in the authors' code, arXiv:2303.17195.

    From the code (github.com/ecmwf-lab/poet): a U-Net shared by the members. Down: two 5x5
    convolutions with ReLU at each level, zeros beyond the poles, maximum pooling of 2 x 2 points.
    Up: a 3x3 convolution with ReLU, and a transposed convolution of 2 x 2 points with ReLU to the
    width of the next level, whose map is concatenated; at the end a 3x3 convolution with ReLU and a
    1x1 convolution. At the deepest levels, attention across members (`FinnAttention`, 8 heads of
    one channel, query and key with stride 3) acts on the map that goes up, after all levels of the
    way down. Its normalisation has a weight and a bias for each channel and point. The authors'
    widths are 16, 32, 64, for ENS-10 8, 16, 32, 64, with attention at three levels.

    Differences: a residual head turns the outputs into corrections of the raw members, while the
    authors' outputs are the members themselves; therefore the last layer can start at zero. An odd
    number of rows or columns is accepted at each level: the transposed convolution has only its
    bias in the row that pooling dropped, as the authors have it for 361 rows.

    It works on the whole grid only; `PoET` works on parts of it too. Beware: attention across
    members makes them depend on each other; see `PoET`.

    Args:
        in_channels: channels of a member's features.
        out_channels: output channels for each member.
        widths: channels of the levels, from the full grid down.
        heads: number of attention heads.
        attention_levels: number of deepest levels that have attention.
        stride: of query and key.
        grid: rows and columns of the data, for weights at each point, as in the paper; None for
            weights for each channel.
        periodic_longitude: True if first and last column are neighbours, as in the paper.
        zero_init: initialise the last layer to zero: a residual head then returns the raw members.

    Raises:
        ArgumentError: no level, no head, or a stride that is not positive.
    """

    splittable = "filters of its attention would cross the border; use ens10.models.networks.PoET"
    takes_members = True
    gives_members = True
    least_members = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 1,
        widths: Sequence[int] = (8, 16, 32, 64),
        heads: int = 8,
        attention_levels: int = 3,
        stride: int = 3,
        grid: Grid | None = None,
        periodic_longitude: bool = False,
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        if not widths:
            raise ArgumentError("widths", "no level is given", "Choose at least one width")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.halvings = len(widths) - 1

        def block(before: int, after: int, kernel: int) -> nn.Sequential:
            conv = SameConv2d(before, after, kernel, periodic_longitude=periodic_longitude)
            return nn.Sequential(conv, nn.ReLU(inplace=True))

        levels = zip((in_channels, *widths), widths, strict=False)
        self.down = nn.ModuleList(nn.Sequential(block(a, b, 5), block(b, b, 5)) for a, b in levels)
        self.pool = nn.MaxPool2d(2)
        self.attention = nn.ModuleList(
            FinnAttention(width, heads, grid and level_grid(grid, n), stride)
            if len(widths) - n <= attention_levels
            else nn.Identity()
            for n, width in enumerate(widths)
        )
        # the deepest level has no map from below
        inputs = (*(2 * width for width in widths[:-1]), widths[-1])
        self.up = nn.ModuleList(block(a, b, 3) for a, b in zip(inputs, widths, strict=True))
        self.twice = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairwise(widths))
        self.last = PointConv2d(widths[0], out_channels)
        if zero_init:
            start_at_zero(self.last)

    @classmethod
    def numbers_of_data(cls, shape: DataShape, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return channels and grid: in a configuration there are weights at each point."""
        return super().numbers_of_data(shape, arguments) | {"grid": list(shape.grid)}

    def forward(self, features: Tensor) -> Tensor:
        """(N, M, in_channels, H, W) -> (N, M, out_channels, H, W).

        Raises:
            ArgumentError: a grid too small for the levels, or another than the network's.
        """
        least = 2**self.halvings
        check_levels(features, len(self.down), least, "PaperPoET", ", or fewer widths")
        fields, maps = features, []
        for level, block in enumerate(self.down):
            fields = each_member(block, each_member(self.pool, fields) if level else fields)
            maps.append(fields)
        fields = self.attention[-1](maps[-1])
        for level in reversed(range(self.halvings)):
            fields = each_member(self.up[level + 1], fields)
            upper = self.twice[level](fields.flatten(0, 1), maps[level].shape[-2:]).relu()
            skip = self.attention[level](maps[level])
            fields = torch.cat([upper.unflatten(0, skip.shape[:2]), skip], dim=2)
        return each_member(self.last, each_member(self.up[0], fields))
