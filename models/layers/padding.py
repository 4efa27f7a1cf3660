"""Convolutions and padding on the globe: longitudes are periodic, rows end at the poles."""

from typing import Literal, get_args

from torch import Tensor, nn
from torch.nn import functional

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.domain import Edges, Sides, current

Poles = Literal["zeros", "replicate"]


class SameConv2d(nn.Conv2d):
    """A convolution with an odd kernel, stride 1 and output of the input's height and width.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: rows and columns of the filter, odd.
        dilation: rows and columns between neighbouring taps of the filter.
        groups: number of groups of channels, each with filters of its own; as many as channels for
            a depthwise convolution.
        periodic_longitude: True if the first and last column are neighbours, as on a global grid;
            otherwise zeros lie beyond them.
        poles: padding beyond the first and last row: "zeros", or "replicate", that row repeated.

    Examples:
        >>> import torch
        >>> from ens10.models.layers import SameConv2d
        >>> SameConv2d(2, 5, periodic_longitude=True)(torch.zeros(1, 2, 4, 8)).shape
        torch.Size([1, 5, 4, 8])

    Raises:
        ArgumentError: an even kernel, a dilation that is not positive, or groups that do not divide
            the channels.
        UnknownNameError: another value of `poles`.
    """

    splittable = True
    normalised_by: tuple[nn.Module, ...] = ()  # see `BatchNorm2d.after`; in a tuple, no submodule

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        *,
        dilation: int = 1,
        groups: int = 1,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ArgumentError("kernel_size", f"{kernel_size} is not odd")
        if dilation < 1:
            raise ArgumentError("dilation", f"{dilation} is not positive")
        if groups < 1 or in_channels % groups or out_channels % groups:
            problem = f"{groups} do not divide {in_channels} and {out_channels} channels"
            raise ArgumentError("groups", problem)
        half = dilation * (kernel_size // 2)
        self.edges = edges_of(periodic_longitude, poles)
        super().__init__(
            in_channels, out_channels, kernel_size, padding=half, dilation=dilation, groups=groups
        )

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name in nn.Conv2d)
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        half = self.dilation[0] * (self.kernel_size[0] // 2)
        stride, dilation = self.stride[0], self.dilation[0]
        options = half, self.edges, stride, dilation, self.groups
        is_normalised = any(norm.training for norm in self.normalised_by)
        bias = None if is_normalised else self.bias
        return current().convolve(input, self.weight, bias, *options)


def edges_of(periodic_longitude: bool, poles: Poles) -> Edges:
    """Return the padding modes beyond the grid's edges, from a layer's arguments.

    Raises:
        UnknownNameError: another value of `poles`.
    """
    if poles not in get_args(Poles):
        raise UnknownNameError("poles", poles, get_args(Poles))
    return Edges(poles, "circular" if periodic_longitude else "zeros")


def upsample_twice(fields: Tensor, *, periodic_longitude: bool = False) -> Tensor:
    """Interpolate bilinearly to twice the rows and columns, half-pixel centres.

    Args:
        fields: (N, C, H, W).
        periodic_longitude: True if the outermost columns are interpolated with each other;
            otherwise they are replicated outwards, as the outermost rows always are.

    Returns:
        (N, C, 2 H, 2 W).
    """
    domain = current()
    if not domain.is_split and not periodic_longitude:
        return functional.interpolate(fields, scale_factor=2, mode="bilinear", align_corners=False)
    edges = Edges("replicate", "circular" if periodic_longitude else "replicate")
    rows = 1 if domain.is_split else 0
    padded = domain.pad(fields, Sides(rows, rows, 1, 1), edges)
    twice = functional.interpolate(padded, scale_factor=2, mode="bilinear", align_corners=False)
    return twice[..., 2 * rows : twice.shape[-2] - 2 * rows, 2:-2]


class FreeConv2d(SameConv2d):
    """A convolution without bias that may have a stride: ceil(H / stride) rows of output.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: rows and columns of the filter, odd.
        stride: rows and columns from one output to the next.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel, or a stride that is not positive.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        *,
        stride: int = 1,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        if stride < 1:
            raise ArgumentError("stride", f"{stride} is not positive")
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )
        self.stride = (stride, stride)
        self.register_parameter("bias", None)
