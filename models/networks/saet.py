"""The self-attentive ensemble transformer: a network shared by members, and attention."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.layers.attention import FinnAttention, MemberAttention, each_member
from ens10.models.layers.levels import Grid
from ens10.models.layers.padding import Poles, SameConv2d
from ens10.models.layers.pointwise import PointConv2d
from ens10.models.networks.base import DataShape, Network, start_at_zero

RESULT_VERSION = 1  # raise it when results change


class SAET(Network):
    """The self-attentive ensemble transformer of Finn (2021), arXiv:2106.13924.

    A convolutional network is shared by the members; after each of its blocks, attention across
    members re-weights their perturbations about the ensemble mean, with weights from dot products
    over the whole field and as many heads as channels (see `MemberAttention`). Inputs and outputs
    are members, at least 2; permuting them permutes the outputs. From the paper: the attention, its
    zero initialisation and residual connection, 64 channels and heads. Choices of this
    implementation: 5x5 convolution in, residual blocks of one 3x3 convolution, 1x1 convolution out,
    normalisation independent of location. Parameters with the defaults: 171,841 for 7 channels,
    178,241 for 11.

    Beware: attention across members makes them depend on each other. The fair CRPS then rewards too
    much spread (Roberts 2026, arXiv:2602.15830); check the spread-error ratio.

    Args:
        in_channels: channels of a member's features.
        out_channels: output channels for each member.
        width: hidden channels.
        depth: number of blocks of convolution and attention.
        heads: number of attention heads; None for one for each channel.
        periodic_longitude: True if first and last column are neighbours; the network then commutes
            with rotations in longitude.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: initialise the last layer to zero: a residual head then returns the raw members.

    Raises:
        ArgumentError: a depth below 1, or a width that is not a multiple of heads.
    """

    splittable = True
    takes_members = True
    gives_members = True
    least_members = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 1,
        width: int = 64,
        depth: int = 3,
        heads: int | None = None,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ArgumentError("depth", f"{depth} is less than 1")
        self.in_channels, self.out_channels = in_channels, out_channels

        conv = partial(SameConv2d, periodic_longitude=periodic_longitude, poles=poles)
        self.first = nn.Sequential(conv(in_channels, width, 5), nn.ReLU(inplace=True))
        self.blocks = nn.ModuleList(
            nn.Sequential(conv(width, width, 3), nn.ReLU(inplace=True)) for _ in range(depth)
        )
        self.attention = nn.ModuleList(
            MemberAttention(width, width if heads is None else heads) for _ in range(depth)
        )
        self.last = PointConv2d(width, out_channels)
        if zero_init:
            start_at_zero(self.last)

    def forward(self, features: Tensor) -> Tensor:
        """(N, M, in_channels, H, W) -> (N, M, out_channels, H, W)."""
        fields = each_member(self.first, features)
        for block, attention in zip(self.blocks, self.attention, strict=True):
            fields = attention(fields + each_member(block, fields))
        return each_member(self.last, fields)


class PaperSAET(Network):
    """The self-attentive ensemble transformer as in the author's code, arXiv:2106.13924.

    From the code (github.com/tobifinn/ensemble_transformer) and its default configuration: three
    5x5 convolutions of 64 channels with ReLU, shared by the members, zeros beyond the poles; then
    layers of attention across members with 64 heads of one channel each (`FinnAttention`) and
    normalisation with a weight and a bias for each channel and point; a 1x1 convolution out.
    The author's number of attention layers is 1 by default, and up to 5 in experiments.
    Parameters with the defaults for 3 channels, without `grid`: 226,753.

    Differences: a residual head turns the outputs into corrections of the raw members, while the
    author's outputs are the members themselves; therefore the last layer can start at zero.

    Beware: attention across members makes them depend on each other; see `SAET`.

    Args:
        in_channels: channels of a member's features.
        out_channels: output channels for each member.
        width: hidden channels.
        depth: number of layers of attention.
        heads: number of attention heads; None for one for each channel.
        grid: rows and columns of the data, for weights at each point, as in the paper; None for
            weights for each channel.
        periodic_longitude: True if first and last column are neighbours, as in the paper.
        zero_init: initialise the last layer to zero: a residual head then returns the raw members.

    Raises:
        ArgumentError: a depth below 1, or no head.
    """

    splittable = True
    takes_members = True
    gives_members = True
    least_members = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 1,
        width: int = 64,
        depth: int = 1,
        heads: int | None = None,
        grid: Grid | None = None,
        periodic_longitude: bool = False,
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ArgumentError("depth", f"{depth} is less than 1")
        self.in_channels, self.out_channels = in_channels, out_channels
        layers: list[nn.Module] = []
        for channels in (in_channels, width, width):
            conv = SameConv2d(channels, width, 5, periodic_longitude=periodic_longitude)
            layers += [conv, nn.ReLU(inplace=True)]
        self.first = nn.Sequential(*layers)
        self.attention = nn.Sequential(
            *(FinnAttention(width, width if heads is None else heads, grid) for _ in range(depth))
        )
        self.last = PointConv2d(width, out_channels)
        if zero_init:
            start_at_zero(self.last)

    @classmethod
    def numbers_of_data(cls, shape: DataShape, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return channels and grid: in a configuration there are weights at each point."""
        return super().numbers_of_data(shape, arguments) | {"grid": list(shape.grid)}

    def forward(self, features: Tensor) -> Tensor:
        """(N, M, in_channels, H, W) -> (N, M, out_channels, H, W)."""
        return each_member(self.last, self.attention(each_member(self.first, features)))
