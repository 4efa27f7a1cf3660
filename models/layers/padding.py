"""Convolution on a regular latitude-longitude grid that keeps the grid's shape."""

from typing import Literal, get_args

from torch import Tensor, nn
from torch.nn import functional

from ens10.errors import ArgumentError, UnknownNameError

Poles = Literal["zeros", "replicate"]


class SameConv2d(nn.Conv2d):
    """A convolution with an odd kernel, stride 1 and output of the input's height and width.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: rows and columns of the filter, odd.
        periodic_longitude: whether the first and last column are neighbours, as on a global grid;
            otherwise zeros lie beyond them.
        poles: what lies beyond the first and last row: "zeros", or "replicate", that row again.

    Raises:
        ArgumentError: an even kernel.
        UnknownNameError: another value of `poles`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ArgumentError("kernel_size", f"{kernel_size} is not odd")
        if poles not in get_args(Poles):
            raise UnknownNameError("poles", poles, get_args(Poles))
        half = kernel_size // 2
        self._rows = half if poles == "replicate" else 0
        self._columns = half if periodic_longitude else 0
        padding = (half - self._rows, half - self._columns)  # what the convolution itself pads
        super().__init__(in_channels, out_channels, kernel_size, padding=padding)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name in nn.Conv2d)
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        padded = input
        if self._columns:
            padded = functional.pad(padded, (self._columns, self._columns, 0, 0), mode="circular")
        if self._rows:
            padded = functional.pad(padded, (0, 0, self._rows, self._rows), mode="replicate")
        return super().forward(padded)


def upsample_twice(fields: Tensor, *, periodic_longitude: bool = False) -> Tensor:
    """Bilinear interpolation to twice the rows and columns, half-pixel centres.

    Args:
        fields: (N, C, H, W).
        periodic_longitude: whether the outermost columns are interpolated with each other;
            otherwise they are replicated outwards, as the outermost rows always are.

    Returns:
        (N, C, 2 H, 2 W).
    """
    if not periodic_longitude:
        return functional.interpolate(fields, scale_factor=2, mode="bilinear", align_corners=False)
    wrapped = functional.pad(fields, (1, 1, 0, 0), mode="circular")
    twice = functional.interpolate(wrapped, scale_factor=2, mode="bilinear", align_corners=False)
    return twice[..., 2:-2]
