"""Convolution with separate weights at every grid point."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.domain import Sides, current
from ens10.models.layers.padding import Poles, edges_of


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
