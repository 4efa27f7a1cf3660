"""Convolutions of single grid points."""

import torch
from torch import Tensor, nn


class PointConv2d(nn.Conv2d):
    """A 1x1 convolution, which acts on the channels of each grid point, as a matrix product.

    Parameters and results are those of `torch.nn.Conv2d(in_channels, out_channels, 1)`. With one
    thread, torch unfolds the input of such a convolution on a CPU although there is nothing to
    unfold, which takes longer than the product.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        bias: True to add a learned number to each channel.
    """

    splittable = True

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__(in_channels, out_channels, 1, bias=bias)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name in nn.Conv2d)
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        if input.device.type != "cpu" or input.ndim != 4:
            outputs: Tensor = super().forward(input)
            return outputs
        samples, points = len(input), input.flatten(2)
        weight = self.weight.flatten(1).expand(samples, -1, -1)
        if self.bias is None:
            product = torch.bmm(weight, points)
        else:
            bias = self.bias[None, :, None].expand(samples, -1, points.shape[2])
            product = torch.baddbmm(bias, weight, points)
        return product.reshape(samples, self.out_channels, *input.shape[2:])
