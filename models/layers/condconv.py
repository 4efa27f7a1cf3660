"""Convolution with a separate filter for every sample."""

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.models.domain import current
from ens10.models.layers.padding import Poles, SameConv2d


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
    if domain.whole:
        return features.mean((2, 3))
    rows, columns = domain.shape(features)
    # a sum over a field overflows half precision
    dtype = torch.promote_types(features.dtype, torch.float32)
    total = domain.sum(features.sum((2, 3), dtype=dtype))
    return (total / (rows * columns)).to(features.dtype)
