"""A U-Net conditioned on location by learned maps at its input and output."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from ens10.errors import ArgumentError
from ens10.models.domain import Edges, Sides, current
from ens10.models.layers.embedding import PointEmbedding, require_grid
from ens10.models.layers.location_convolutions import checked_grid
from ens10.models.layers.padding import Poles, SameConv2d, upsample_twice
from ens10.models.layers.pointwise import PointConv2d
from ens10.models.networks.base import Network, start_at_zero

RESULT_VERSION = 1  # raise it when results change
Grid = tuple[int, int]
ConvolutionCallable = Callable[[int, int, Grid], nn.Module]
BlockCallable = Callable[[int, Grid], nn.Module]


class ResidualBlock(nn.Module):
    """Residual block x + B(relu(A(relu(x)))) of a convolution A and a 1x1 convolution B.

    B starts at zero, so that the sum keeps the magnitude of x and no normalisation is needed.

    Args:
        convolution: A, which keeps the number of channels.
        channels: number of channels of the fields.
    """

    splittable = True

    def __init__(self, convolution: nn.Module, channels: int) -> None:
        super().__init__()
        self.convolution = convolution
        self.mix = PointConv2d(channels, channels)
        start_at_zero(self.mix)

    def forward(self, fields: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H, W)."""
        hidden = functional.relu(self.convolution(functional.relu(fields)))
        outputs: Tensor = fields + self.mix(hidden)
        return outputs


class LocationUNet(Network):
    """A U-Net of residual blocks, conditioned on location by an embedding of each grid point.

    The embedding z (see `PointEmbedding`) is an input at each point, and mixes the weights of the
    last layer: output o = W_0 h + z_1 W_1 h + z_2 W_2 h + ..., biases included. (Rasp & Lerch 2018,
    doi:10.1175/MWR-D-18-0187.1, embed stations as an input.) All W start at zero: a residual head
    then returns its reference forecast.

    Each level has `blocks` residual blocks on the way down and as many on the way up, one 3x3
    convolution each (or what `block` makes). Levels are joined by mean pooling over 2 x 2 points
    and bilinear interpolation, each with a 1x1 convolution; the way up adds. Any grid is accepted:
    for an odd number, the last row (or the first or last column) is repeated for the pooling. With
    periodic longitude and without embedding the network commutes with rotations by multiples of
    2^(levels - 1) columns, if the number of columns is such a multiple.

    Args:
        in_channels: channels of the features.
        grid: rows and columns (H, W) of the data and of the embedding.
        out_channels: output channels at each point.
        widths: channels of the levels, from the full grid down.
        blocks: residual blocks of a level, each way.
        embedding: channels of z; 0 for no embedding, so that any grid is accepted.
        ridge: weight of the mean square of z, in units of the loss.
        smoothness: weight of the mean squared gradient of z, in units of the loss.
        embedding_levels: number of resolutions of z; see `PointEmbedding`.
        embedding_gain: speed of learning of z relative to other parameters.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        convolution: makes the blocks' convolutions from input channels, output channels and the
            level's grid; None for 3x3 convolutions. The penalty of a layer with a method `penalty`
            is added to the loss.
        block: makes the blocks from their channels and the level's grid, such as
            `ens10.models.layers.NeighbourhoodBlock`; None for residual blocks of `convolution`.
        negative_slope: of the rectifier before the last layer. With 0, a large first step can make
            all of its inputs negative; outputs then depend on the embedding alone, and nothing
            before the last layer learns any more. 0.1 prevents this.

    Raises:
        ArgumentError: no level, or a grid that is too small for them; both block and convolution; a
            negative slope below 0 or above 1.
    """

    splittable = True
    odd = "repeated"

    def __init__(
        self,
        in_channels: int,
        grid: Sequence[int],
        out_channels: int = 2,
        widths: Sequence[int] = (32, 64, 96),
        blocks: int = 1,
        embedding: int = 8,
        ridge: float = 1e-4,
        smoothness: float = 1e-4,
        embedding_levels: int = 1,
        embedding_gain: float = 1.0,
        periodic_longitude: bool = True,
        poles: Poles = "replicate",
        convolution: ConvolutionCallable | None = None,
        block: BlockCallable | None = None,
        negative_slope: float = 0.0,
    ) -> None:
        super().__init__()
        if not 0 <= negative_slope <= 1:
            raise ArgumentError("negative_slope", f"{negative_slope} is not between 0 and 1")
        self.negative_slope = negative_slope
        if block and convolution:
            reason = "given with a convolution, which is of residual blocks"
            raise ArgumentError("block", reason, "Leave one of them out")
        self.grid = checked_grid(grid)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.periodic_longitude = periodic_longitude
        grids = _level_grids(self.grid, widths)
        self.halvings = len(widths) - 1

        def plain(before: int, after: int, _: Grid) -> nn.Module:
            return SameConv2d(before, after, periodic_longitude=periodic_longitude, poles=poles)

        def residual(width: int, level_grid: Grid) -> nn.Module:
            return ResidualBlock((convolution or plain)(width, width, level_grid), width)

        def level(n: int) -> nn.Sequential:
            make = block or residual
            return nn.Sequential(*(make(widths[n], grids[n]) for _ in range(blocks)))

        self.embedding = None
        if embedding:
            self.embedding = PointEmbedding(
                self.grid,
                embedding,
                ridge,
                smoothness,
                levels=embedding_levels,
                gain=embedding_gain,
                periodic_longitude=periodic_longitude,
            )
        self.stem = PointConv2d(in_channels + embedding, widths[0])
        self.down = nn.ModuleList(level(n) for n in range(len(widths)))
        self.up = nn.ModuleList(level(n) for n in range(len(widths) - 1))
        self.deeper = nn.ModuleList(PointConv2d(a, b) for a, b in pairwise(widths))
        self.back = nn.ModuleList(PointConv2d(b, a) for a, b in pairwise(widths))
        self.last = PointConv2d(widths[0], (1 + embedding) * out_channels)
        start_at_zero(self.last)

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W).

        Raises:
            ArgumentError: another grid than that of the embedding.
        """
        place = self._embedding_maps(features)
        fields = self.stem(features) if place is None else self.stem(features, place)
        skips: list[Tensor] = []
        for n, blocks in enumerate(self.down):
            if n:
                skips.append(fields)
                fields = self.deeper[n - 1](self._pool(fields))
            fields = blocks(fields)
        for n in reversed(range(len(skips))):
            fields = skips[n] + self._upsample(self.back[n](fields), skips[n])
            fields = self.up[n](fields)
        rectified = functional.leaky_relu(fields, self.negative_slope)
        return self._mix_heads(self.last(rectified), place)

    def penalty(self) -> Tensor | None:
        """Return ridge and smoothness of the embedding plus the penalties of other layers."""
        layers = [m for m in self.modules() if m is not self]
        methods = [getattr(layer, "penalty", None) for layer in layers]
        penalties = [penalty() for penalty in methods if callable(penalty)]
        terms = [term for term in penalties if term is not None]
        return torch.stack(terms).sum() if terms else None

    def _embedding_maps(self, features: Tensor) -> Tensor | None:
        """Return the embedding, (N, E, H, W); N = 1 if all samples have the same."""
        if self.embedding is None:
            return None
        require_grid(features, self.grid, type(self).__name__)
        place: Tensor = self.embedding()
        return current().of_samples(place).movedim(-3, 0).to(features.dtype)

    def _pool(self, fields: Tensor) -> Tensor:
        domain = current()
        odd_row, odd_column = (length % 2 for length in domain.shape(fields))
        if odd_row or odd_column:
            edges = Edges("replicate", "circular" if self.periodic_longitude else "replicate")
            fields = domain.pad(fields, Sides(bottom=odd_row, right=odd_column), edges)
        return functional.avg_pool2d(fields, 2)  # drops the row that belongs to the next part

    def _upsample(self, fields: Tensor, like: Tensor) -> Tensor:
        twice = upsample_twice(fields, periodic_longitude=self.periodic_longitude)
        return twice[..., : like.shape[-2], : like.shape[-1]]

    def _mix_heads(self, heads: Tensor, place: Tensor | None) -> Tensor:
        """Mix outputs of all heads, (N, (1 + E) out_channels, H, W), by the embedding."""
        if place is None:
            return heads
        head_outputs = heads.view(len(heads), -1, self.out_channels, *heads.shape[-2:])
        mixture: Tensor = head_outputs[:, 0] + (head_outputs[:, 1:] * place[:, :, None]).sum(1)
        return mixture


def _level_grids(grid: Grid, widths: Sequence[int]) -> list[Grid]:
    """Return the grid of each level, each half as large as the one before, rounded up."""
    if not widths:
        raise ArgumentError("widths", "no level is given", "Choose at least one width")
    if 2 ** (len(widths) - 1) > min(grid):
        raise ArgumentError(
            "widths",
            f"{len(widths)} levels do not fit a grid of {grid[0]} x {grid[1]} points",
            "Choose fewer widths",
        )
    grids = [grid]
    for _ in widths[1:]:
        rows, columns = grids[-1]
        grids.append((-(-rows // 2), -(-columns // 2)))
    return grids
