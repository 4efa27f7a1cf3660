"""The convolution of experts and gates, without bias and with an optional stride."""

from ens10.errors import ArgumentError
from ens10.models.layers.padding import Poles, SameConv2d


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
