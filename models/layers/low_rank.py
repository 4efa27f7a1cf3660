"""Low-rank locally connected convolution."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.domain import current
from ens10.models.layers.locally_connected import checked_grid
from ens10.models.layers.padding import Poles, SameConv2d


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
        mixed = torch.einsum("nrohw,rhw->nohw", outputs, part(self.shares()))
        return mixed + self.bias + part(self.row_bias) + part(self.column_bias)
