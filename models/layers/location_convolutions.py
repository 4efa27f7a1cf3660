"""Convolutions that depend on location: coordinates as inputs, mixed or local kernels."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.domain import Sides, current
from ens10.models.layers.padding import Poles, SameConv2d, edges_of


class CoordConv2d(nn.Module):
    """A convolution over the input and its coordinates (Liu et al. 2018, arXiv:1807.03247).

    The coordinates are the row from -1 to 1 and, on a regional grid, the column from -1 to 1. On a
    periodic grid sine and cosine of the longitude replace the column, which avoids a seam.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: rows and columns of the filter, odd.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        self.periodic_longitude = periodic_longitude
        self.conv = SameConv2d(
            in_channels + (3 if periodic_longitude else 2),
            out_channels,
            kernel_size,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        maps = coordinates(features, periodic_longitude=self.periodic_longitude)
        outputs: Tensor = self.conv(torch.cat([features, maps], dim=1))
        return outputs


def coordinates(features: Tensor, *, periodic_longitude: bool = False) -> Tensor:
    """Return coordinate channels: row and column, or row, sine and cosine of longitude.

    Args:
        features: (N, C, H, W), for shape, dtype and device.
        periodic_longitude: True if the columns go once around the globe.

    Returns:
        (N, 2, H, W), or (N, 3, H, W) if longitude is periodic.
    """
    domain, N = current(), len(features)
    H, W = domain.shape(features)  # rows and columns are those of the whole grid

    def ramp(last: float, count: int) -> Tensor:
        first = -1 if last == 1 else 0
        return torch.linspace(first, last, count, dtype=features.dtype, device=features.device)

    maps = [ramp(1, H)[:, None]]
    if periodic_longitude:
        angle = ramp(2 * math.pi * (1 - 1 / W), W)[None]
        maps += [angle.sin(), angle.cos()]
    else:
        maps.append(ramp(1, W)[None])
    local_maps = [domain.part(m).expand(features.shape[-2:]) for m in maps]
    return torch.stack(local_maps).expand(N, -1, -1, -1)


class CondConv2d(nn.Module):
    """A convolution whose filter is a mixture of E filters that depends on the sample.

    The weights are sigmoids of a linear map of the input's mean over the grid (Yang et al. 2019,
    arXiv:1904.04971): one mixture for the whole grid, unlike a spatial mixture of experts.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        num_experts: number E of filters in the mixture.
        kernel_size: rows and columns of the filter, odd.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel, or a number of experts that is not positive.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_experts: int = 3,
        kernel_size: int = 3,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        if num_experts < 1:
            raise ArgumentError("num_experts", f"{num_experts} is not positive")
        self.num_experts, self.out_channels = num_experts, out_channels
        self.experts = SameConv2d(
            in_channels,
            num_experts * out_channels,
            kernel_size,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )
        self.experts.register_parameter("bias", None)
        self.routing = nn.Linear(in_channels, num_experts)

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        weights = self.routing(_mean(features)).sigmoid()
        # a mixture of filters gives the mixture of their outputs; torch has no convolution with a
        # filter for each sample but one of N groups, which is slower than this for few experts
        outputs = self.experts(features).unflatten(1, (self.num_experts, self.out_channels))
        return torch.einsum("neohw,ne->nohw", outputs, weights)


def _mean(features: Tensor) -> Tensor:
    """Return the mean over the whole grid, (N, C, h, w) -> (N, C)."""
    domain = current()
    if not domain.is_split:
        return features.mean((2, 3))
    rows, columns = domain.shape(features)
    # a sum over a field overflows half precision
    dtype = torch.promote_types(features.dtype, torch.float32)
    total = domain.sum(features.sum((2, 3), dtype=dtype))
    return (total / (rows * columns)).to(features.dtype)


class LocallyConnected2d(nn.Module):
    """A convolution whose filters are not shared between grid points.

    With a 1x1 kernel and a bias it is an affine map at each point. The weights are initialised from
    U(+-1/sqrt(fan)), fan = in_channels * kernel_size^2, as in torch's convolutions; the bias is 0.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        grid: rows and columns (H, W) of the grid.
        kernel_size: rows and columns of the filters, odd.
        bias: True if every point has a bias for each channel.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel, or a grid that is not two positive numbers.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        grid: Sequence[int],
        kernel_size: int = 1,
        *,
        bias: bool = False,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ArgumentError("kernel_size", f"{kernel_size} is not odd")
        self.grid = checked_grid(grid)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.edges = kernel_size, edges_of(periodic_longitude, poles)
        taps = kernel_size**2
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, taps, *self.grid))
        bound = 1 / math.sqrt(in_channels * taps)
        nn.init.uniform_(self.weight, -bound, bound)
        self.bias = nn.Parameter(torch.zeros(out_channels, *self.grid)) if bias else None

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W).

        Raises:
            ArgumentError: another number of channels, or another grid.
        """
        domain, (H, W) = current(), features.shape[-2:]
        shape = (*features.shape[:2], *domain.shape(features))
        if shape[1:] != (self.in_channels, *self.grid):
            raise ArgumentError(
                "features",
                f"shape {shape}, but the weights are for "
                f"(N, {self.in_channels}, {self.grid[0]}, {self.grid[1]})",
                "Build the layer for the grid of the data",
            )
        half = self.kernel_size // 2
        padded = domain.pad(features, Sides(half, half, half, half), self.edges)
        weight = domain.part(self.weight)
        outputs: Tensor | None = None if self.bias is None else domain.part(self.bias)
        # one tap at a time: the map of all taps would be kernel_size^2 times the input
        for tap in range(self.kernel_size**2):
            row, column = divmod(tap, self.kernel_size)
            part = padded[..., row : row + H, column : column + W]
            term = torch.einsum("nchw,ochw->nohw", part, weight[:, :, tap])
            outputs = term if outputs is None else outputs + term
        return outputs if outputs is not None else features


def checked_grid(grid: Sequence[int]) -> tuple[int, int]:
    """Return the grid as a checked tuple (H, W).

    Raises:
        ArgumentError: not two positive numbers.
    """
    if len(grid) != 2 or min(grid) < 1:
        raise ArgumentError(
            "grid", f"{tuple(grid)} is not two positive numbers", "Pass rows and columns (H, W)"
        )
    return int(grid[0]), int(grid[1])


class LowRankLocallyConnected2d(nn.Module):
    """A convolution whose filters are, at each point, a mixture of a few filter banks.

    Output = sum over r of a_r(row, column) * (filter bank r applied to the input) + a bias for each
    channel, row and column (Elsayed et al. 2020, arXiv:2002.02959). The weights a are the softmax
    over the R banks of p_r(row) + q_r(column). p, q and the biases are initialised to 0: the layer
    starts as a convolution with the mean of the banks.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        grid: rows and columns (H, W) of the grid.
        rank: number R of filter banks.
        kernel_size: rows and columns of the filters, odd.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel, a rank that is not positive, or a grid that is not two
            positive numbers.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        grid: Sequence[int],
        rank: int = 2,
        kernel_size: int = 3,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        if rank < 1:
            raise ArgumentError("rank", f"{rank} is not positive")
        H, W = self.grid = checked_grid(grid)
        self.rank, self.out_channels = rank, out_channels
        self.banks = SameConv2d(
            in_channels,
            rank * out_channels,
            kernel_size,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )
        self.banks.register_parameter("bias", None)
        self.row_logits = nn.Parameter(torch.zeros(rank, H, 1))
        self.column_logits = nn.Parameter(torch.zeros(rank, 1, W))
        self.bias = nn.Parameter(torch.zeros(out_channels, 1, 1))
        self.row_bias = nn.Parameter(torch.zeros(H, 1))
        self.column_bias = nn.Parameter(torch.zeros(1, W))

    def shares(self) -> Tensor:
        """Return the weight of each filter bank at each point, (R, H, W), of sum 1 over banks."""
        return (self.row_logits + self.column_logits).softmax(0)

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W).

        Raises:
            ArgumentError: another grid.
        """
        part, shape = current().part, current().shape(features)
        if shape != self.grid:
            raise ArgumentError(
                "features",
                f"a grid of {shape} points, the layer is for {self.grid}",
                "Build the layer for the grid of the data",
            )
        outputs = self.banks(features).unflatten(1, (self.rank, self.out_channels))
        mixture = torch.einsum("nrohw,rhw->nohw", outputs, part(self.shares()))
        return mixture + self.bias + part(self.row_bias) + part(self.column_bias)
