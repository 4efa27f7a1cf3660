"""Convolutions of single grid points."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from ens10.errors import ArgumentError


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

    def forward(self, *parts: Tensor) -> Tensor:
        """Return the sum over the channels of all parts, which are not joined for it.

        Args:
            parts: (N, C, H, W) of in_channels together; (1, C, H, W) is the same for all samples.

        Returns:
            (N, out_channels, H, W).

        Raises:
            ArgumentError: another number of channels.
        """
        channels = [part.shape[-3] for part in parts]
        if sum(channels) != self.in_channels:
            reason = f"{' + '.join(map(str, channels)) or 'no'} channels for {self.in_channels}"
            raise ArgumentError("features", reason)
        weights = [self.weight] if len(parts) == 1 else torch.split(self.weight, channels, 1)
        outputs = _product(parts[0], weights[0], self.bias)
        for part, weight in zip(parts[1:], weights[1:], strict=True):
            outputs = outputs + _product(part, weight, None)
        return outputs


def _product(fields: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if fields.device.type != "cpu" or fields.ndim != 4:
        return functional.conv2d(fields, weight, bias)
    samples, points = len(fields), fields.flatten(2)
    matrix = weight.flatten(1).expand(samples, -1, -1)
    if bias is None:
        product = torch.bmm(matrix, points)
    else:
        offsets = bias[None, :, None].expand(samples, -1, points.shape[2])
        product = torch.baddbmm(offsets, matrix, points)
    return product.reshape(samples, len(weight), *fields.shape[2:])
