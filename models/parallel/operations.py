"""Operations on parts of fields whose gradients cross the borders too."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.models.parallel.exchange import Exchange
from ens10.models.parallel.halo import Frame, Halo


class Pad(torch.autograd.Function):
    """Fields (N, C, h, w) with their halo; called with fields and a `Frame`."""

    @staticmethod
    def forward(ctx: Any, fields: Tensor, frame: Frame) -> Tensor:
        """(N, C, h + top + bottom, w + left + right)."""
        ctx.frame = frame
        return frame.around(fields, frame.gather(fields))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """The adjoint of the exchange."""
        return ctx.frame.scatter(gradient), None


class Convolve(torch.autograd.Function):
    """A convolution of fields with their halo, which keeps the fields and the strips alone.

    A padded copy of the fields would be kept beside the fields themselves, which the operation
    before keeps anyhow; the backward pass makes it again, without messages.

    Called with fields (N, C, h, w), weight (O, C, rows, columns), bias (O,) or None, a `Frame`,
    stride, the padding with zeros that is left to the convolution, and dilation.
    """

    @staticmethod
    def forward(
        ctx: Any,
        fields: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        frame: Frame,
        stride: tuple[int, int],
        padding: tuple[int, int],
        dilation: tuple[int, int],
    ) -> Tensor:
        """(N, O, h', w')."""
        halo = frame.gather(fields)
        ctx.frame, ctx.options = frame, (stride, padding, dilation)
        ctx.biases = None if bias is None else list(bias.shape)
        ctx.save_for_backward(fields, weight, *halo.rows, *halo.columns)
        return functional.conv2d(frame.around(fields, halo), weight, bias, *ctx.options)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for fields, weight and bias."""
        fields, weight, top, bottom, left, right = ctx.saved_tensors
        around = ctx.frame.around(fields, Halo((top, bottom), (left, right)))
        stride, padding, dilation = ctx.options
        wanted = list(ctx.needs_input_grad[:3])
        found = torch.ops.aten.convolution_backward(
            gradient,
            around,
            weight,
            ctx.biases,
            stride,
            padding,
            dilation,
            False,
            [0, 0],
            1,
            wanted,
        )
        for_fields = ctx.frame.scatter(found[0]) if wanted[0] else None
        return for_fields, found[1], found[2], None, None, None, None


class Sum(torch.autograd.Function):
    """The sum over the processes of a sample; called with a tensor and an `Exchange`.

    Every process goes on with the sum, so that each part's gradient is the sum of all of theirs.
    """

    @staticmethod
    def forward(ctx: Any, parts: Tensor, exchange: Exchange) -> Tensor:
        """The sum, on every process."""
        ctx.exchange = exchange
        return exchange.total(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """The sum of the gradients."""
        return ctx.exchange.total(gradient), None
