"""The bias net, the spread net and the mixed model of Groenquist et al."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.layers.levels import check_levels
from ens10.models.layers.location_convolutions import LocallyConnected2d
from ens10.models.layers.norm import BatchNorm2d
from ens10.models.layers.padding import Poles, SameConv2d
from ens10.models.networks.base import Network, start_at_zero
from ens10.models.networks.unet import UNet

RESULT_VERSION = 1  # raise it when results change
Parts = Literal["mixed", "bias", "spread"]
_KERNELS = (3, 5, 7)


class SpreadNet(Network):
    """Convolutions of three sizes side by side, and the raw spread again before the last layer.

    Groenquist et al. 2020, arXiv:2005.08748. Each layer but the last is a 3x3, a 5x5 and a 7x7
    convolution with ReLU, whose outputs are concatenated with the features for the next layer; the
    input of the last, a 3x3 convolution, is the branches and the raw spread. Choices of this
    implementation: the width of a branch, and no normalisation, since features are standardised.

    Args:
        in_channels: channels of the features.
        spread: index of the raw spread among the channels.
        width: channels of each branch.
        depth: number of layers, including the last.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: start the last layer at zero.

    Raises:
        ArgumentError: fewer than two layers, or a spread index that is out of range.
    """

    splittable = True
    out_channels = 1

    def __init__(
        self,
        in_channels: int,
        spread: int,
        width: int = 8,
        depth: int = 10,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        if depth < 2:
            raise ArgumentError("depth", f"{depth} is less than 2")
        _check_channel("spread", spread, in_channels)
        self.in_channels, self.spread = in_channels, spread

        conv = partial(SameConv2d, periodic_longitude=periodic_longitude, poles=poles)
        wide = len(_KERNELS) * width
        sizes = [in_channels] + [wide + in_channels] * (depth - 2)
        self.layers = nn.ModuleList(
            _Branches(conv(size, width, kernel) for kernel in _KERNELS) for size in sizes
        )
        self.last = conv(wide + 1, 1, 3)
        if zero_init:
            start_at_zero(self.last)

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, 1, H, W)."""
        inputs, branches = features, features
        for layer in self.layers:
            branches = layer(inputs)
            inputs = torch.cat([branches, features], dim=1)
        raw = features[:, self.spread : self.spread + 1]
        outputs: Tensor = self.last(torch.cat([branches, raw], dim=1))
        return outputs


class _Branches(nn.Module):
    """Convolutions side by side, and ReLU."""

    splittable = True

    def __init__(self, branches: Iterable[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, fields: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 3 width, H, W)."""
        return torch.cat([branch(fields) for branch in self.branches], dim=1).relu()


class PaperSpreadNet(Network):
    """The spread net with the layers and widths of the authors' code.

    Groenquist et al. 2020, arXiv:2005.08748 (github.com/spcl/deep-weather). Two 3x3 convolutions
    with batch normalisation and ReLU, to 32 and 48 channels; the raw spread is concatenated; six
    blocks of 64, 80, 112, 112, 80 and 64 channels; the raw spread again; two 3x3 convolutions, to
    48 channels and to the output, without activation. In a block, 3x3, 5x5 and 7x7 convolutions
    of a quarter of its channels each are concatenated, normalised over the batch and rectified; a
    1x1 convolution of the last quarter stays linear.

    Args:
        in_channels: channels of the features.
        spread: index of the raw spread among the channels.
        blocks: channels of the blocks, multiples of 4.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: start the last layer at zero.

    Raises:
        ArgumentError: a spread index that is out of range, no block, or channels of a block that
            are not a multiple of 4.
    """

    splittable = True
    out_channels = 1

    def __init__(
        self,
        in_channels: int,
        spread: int,
        blocks: Sequence[int] = (64, 80, 112, 112, 80, 64),
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        if not blocks or any(width < 4 or width % 4 for width in blocks):
            remedy = "Choose one or more positive multiples of 4"
            raise ArgumentError("blocks", f"the channels {list(blocks)} are not possible", remedy)
        _check_channel("spread", spread, in_channels)
        self.in_channels, self.spread = in_channels, spread

        conv = partial(SameConv2d, periodic_longitude=periodic_longitude, poles=poles)
        self.first = nn.Sequential(
            *(conv(in_channels, 32), BatchNorm2d(32), nn.ReLU()),
            *(conv(32, 48), BatchNorm2d(48), nn.ReLU()),
        )
        self.blocks = nn.Sequential(
            *(
                _Inception([conv(before, after // 4, kernel) for kernel in (1, *_KERNELS)])
                for before, after in pairwise((49, *blocks))
            )
        )
        self.last = nn.Sequential(conv(blocks[-1] + 1, 48), conv(48, 1))
        if zero_init:
            start_at_zero(self.last[-1])

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, 1, H, W)."""
        raw = features[:, self.spread : self.spread + 1]
        fields = self.blocks(torch.cat([raw, self.first(features)], dim=1))
        outputs: Tensor = self.last(torch.cat([raw, fields], dim=1))
        return outputs


class _Inception(nn.Module):
    """A linear 1x1 convolution beside larger ones with batch normalisation and ReLU."""

    splittable = True

    def __init__(self, branches: Sequence[SameConv2d]) -> None:
        super().__init__()
        self.linear, self.branches = branches[0], nn.ModuleList(branches[1:])
        self.norm = BatchNorm2d(sum(branch.out_channels for branch in branches[1:]))

    def forward(self, fields: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, width, H, W)."""
        wide = torch.cat([branch(fields) for branch in self.branches], dim=1)
        return torch.cat([self.norm(wide).relu(), self.linear(fields)], dim=1)


class PaperBiasUNet(Network):
    """The U-Net of the bias net with the layers and widths of the authors' code.

    Groenquist et al. 2020, arXiv:2005.08748. Four levels of two 3x3 convolutions with batch
    normalisation and ReLU, 4-8, 8-16, 16-32 and 32-64 channels, with maximum pooling in between. At
    each level of the way up, a transposed 2x2 convolution without bias doubles rows and columns;
    the result is concatenated with the map of that level and passes two 3x3 convolutions of the
    level's width. A 1x1 convolution gives the output. Pooling drops the last row or column of an
    odd number; on the way up it is filled with zeros. It works on whole grids only, of at least
    8 x 16 points.

    Args:
        in_channels: channels of the features.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: start the last layer at zero.
    """

    splittable = "its transposed convolutions would not see the neighbouring parts"
    out_channels = 1
    halvings = 3

    def __init__(
        self,
        in_channels: int,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = True,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels

        def block(*widths: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for before, after in pairwise(widths):
                conv = SameConv2d(
                    before, after, 3, periodic_longitude=periodic_longitude, poles=poles
                )
                layers += [conv, BatchNorm2d(after).after(conv), nn.ReLU()]
            return nn.Sequential(*layers)

        widths = [8 * 2**level for level in range(self.halvings + 1)]
        inputs = [in_channels, *widths[:-1]]
        self.down = nn.ModuleList(
            block(before, width // 2, width) for before, width in zip(inputs, widths, strict=True)
        )
        self.twice = nn.ModuleList(
            nn.ConvTranspose2d(below, below, 2, 2, bias=False) for below in widths[1:]
        )
        self.up = nn.ModuleList(block(width + 2 * width, width, width) for width in widths[:-1])
        self.last = nn.Conv2d(widths[0], 1, 1)
        if zero_init:
            start_at_zero(self.last)

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, 1, H, W).

        Raises:
            ArgumentError: fewer than 8 rows or columns, or fewer than two points at the deepest
                level, of which there are no statistics of a batch.
        """
        least = 2**self.halvings
        check_levels(features, len(self.down), least, "PaperBiasUNet", "")
        rows, columns = features.shape[-2:]
        if (rows // least) * (columns // least) < 2:
            reason = f"a grid of {rows} x {columns} points leaves one point at the deepest level"
            raise ArgumentError("features", reason, f"Use at least {least} x {2 * least}")
        maps = [self.down[0](features)]
        for block in list(self.down)[1:]:
            maps.append(block(functional.max_pool2d(maps[-1], 2)))
        fields = maps[-1]
        for level in reversed(range(self.halvings)):
            upper = self.twice[level](fields, output_size=maps[level].shape[-2:])
            fields = self.up[level](torch.cat([maps[level], upper], dim=1))
        outputs: Tensor = self.last(fields)
        return outputs


class BiasNet(Network):
    """A U-Net followed by a separate affine map at each grid point.

    Groenquist et al. 2020, arXiv:2005.08748: a residual U-Net on the ensemble mean, then a locally
    connected 1x1 layer. Here the inputs of the affine map are the U-Net's output and the mean
    itself; initially it returns the former. The U-Net is that of the ENS-10 paper (a choice of this
    implementation).

    `penalty` is `smoothness` times the mean of the squared difference between neighbours of each
    of the three maps, summed over both directions and the maps.

    Args:
        in_channels: channels of the features.
        mean: index of the target's mean among the channels.
        grid: rows and columns of the data.
        smoothness: weight of the penalty, in units of the loss.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: start the U-Net's last layer at zero.
        unet: another U-Net with one output; the arguments on longitude, poles and its start are
            then its own.

    Raises:
        ArgumentError: a mean index out of range, a grid that is not two positive numbers, or a
            negative smoothness.
    """

    splittable = True
    out_channels = 1

    def __init__(
        self,
        in_channels: int,
        mean: int,
        grid: tuple[int, int],
        smoothness: float = 0.1,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = True,
        unet: Network | None = None,
    ) -> None:
        super().__init__()
        _check_channel("mean", mean, in_channels)
        if not smoothness >= 0:
            raise ArgumentError("smoothness", f"{smoothness} is negative", "0 is no penalty")
        self.in_channels, self.mean, self.smoothness = in_channels, mean, smoothness
        self.periodic_longitude = periodic_longitude
        self.unet = unet or UNet(in_channels, 1, periodic_longitude, poles, zero_init)
        self.halvings = self.unet.halvings
        self.affine = LocallyConnected2d(2, 1, grid, bias=True)
        with torch.no_grad():
            self.affine.weight.zero_()
            self.affine.weight[:, 0] = 1

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, 1, H, W).

        Raises:
            ArgumentError: another grid than the network's.
        """
        raw = features[:, self.mean : self.mean + 1]
        outputs: Tensor = self.affine(torch.cat([self.unet(features), raw], dim=1))
        return outputs

    def penalty(self) -> Tensor | None:
        """Return the roughness of the affine maps times its weight; None without a weight."""
        if self.smoothness == 0:
            return None
        maps = [self.affine.weight.flatten(0, 2)]
        if self.affine.bias is not None:
            maps.append(self.affine.bias)
        fields = torch.cat(maps)
        total = fields.new_zeros(())
        if fields.shape[1] > 1:
            total = total + fields.diff(dim=1).square().mean(dim=(1, 2)).sum()
        # the first column once more behind the last one, if they are neighbours
        east = fields[:, :, :1] if self.periodic_longitude else None
        if fields.shape[2] > 1:
            total = total + fields.diff(dim=2, append=east).square().mean(dim=(1, 2)).sum()
        return self.smoothness * total


class Groenquist(Network):
    """The mixed model: mean from the bias net, spread from the spread net.

    Groenquist et al. 2020, arXiv:2005.08748. Their models predict from 5 members what 10 give
    (`data.ensemble: 5`), from leads 0, 24 and 48 h, 7 variables and 2 levels (`data.inputs`).
    Choices of this implementation: both nets take all features and are trained together by the
    CRPS; their outputs are a shift in units of the raw spread and the logarithm of a spread factor,
    for `ResidualNormalHead`, so that an untrained network returns the raw ensemble.

    Parameters with the defaults, of 26 channels on 46 x 96 points: 636,865 (U-Net) + 13,248 (affine
    maps) + 283,306 (spread net).

    With `published` the layers and widths are those of the authors' code (`PaperBiasUNet`,
    `PaperSpreadNet`), on the whole grid only. The paper trains the bias net first:
    `ens10.models.TrainingStages`.

    Args:
        in_channels: channels of the features: means of the inputs, their deviations, and others.
        inputs: number of inputs, and so the index of the first deviation.
        target: index of the target among the inputs.
        grid: rows and columns of the data, which fix the network's parameters.
        parts: "mixed", or only "bias" or "spread"; the other output is then 0.
        smoothness: weight of the smoothness penalty of the affine maps, in units of the loss.
        width: channels of each branch of the spread net.
        depth: layers of the spread net.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        published: True for the layers of the authors' code; width and depth then have no effect.

    Raises:
        UnknownNameError: other parts.
        ArgumentError: an index, grid, depth or smoothness out of range.
    """

    splittable = True
    out_channels = 2

    def __init__(
        self,
        in_channels: int,
        inputs: int,
        target: int,
        grid: tuple[int, int],
        parts: Parts = "mixed",
        smoothness: float = 0.1,
        width: int = 8,
        depth: int = 10,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        published: bool = False,
    ) -> None:
        super().__init__()
        if parts not in get_args(Parts):
            raise UnknownNameError("parts", parts, get_args(Parts))
        _check_channel("target", target, inputs)
        self.in_channels = in_channels
        self.bias: BiasNet | None = None
        self.spread: SpreadNet | PaperSpreadNet | None = None
        edges = (periodic_longitude, poles)
        if parts != "spread":
            unet = PaperBiasUNet(in_channels, *edges) if published else None
            self.bias = BiasNet(in_channels, target, grid, smoothness, *edges, unet=unet)
            self.halvings = self.bias.halvings
        if parts != "bias":
            index = inputs + target
            if published:
                self.spread = PaperSpreadNet(
                    in_channels, index, periodic_longitude=periodic_longitude, poles=poles
                )
            else:
                self.spread = SpreadNet(in_channels, index, width, depth, *edges)

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, 2, H, W)."""
        nothing = torch.zeros_like(features[:, :1])
        nets = (self.bias, self.spread)
        return torch.cat([nothing if net is None else net(features) for net in nets], dim=1)

    def penalty(self) -> Tensor | None:
        """Return the roughness penalty of the affine maps, or None without a bias net."""
        return None if self.bias is None else self.bias.penalty()


def _check_channel(argument: str, channel: int, count: int) -> None:
    if not 0 <= channel < count:
        raise ArgumentError(argument, f"{channel} is not an index of {count} channels")
