"""Differentiable operations on parts of fields, with exchange of values and gradients."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.models.parallel.exchange import Exchange, Strips
from ens10.models.parallel.halo import Frame, Halo

Pair: TypeAlias = tuple[int, int]
Options: TypeAlias = tuple[Pair, Pair, Pair, int]  # stride, padding, dilation, groups
Gradients: TypeAlias = tuple[Tensor | None, Tensor | None, Tensor | None]
NONE: Strips = (None, None)


class Pad(torch.autograd.Function):
    """Fields (N, C, h, w) with their halo; called with fields and a `Frame`."""

    @staticmethod
    def forward(ctx: Any, fields: Tensor, frame: Frame) -> Tensor:
        """Return the padded fields, (N, C, h + top + bottom, w + left + right)."""
        ctx.frame = frame
        return frame.add_halo(fields, frame.gather(fields))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the adjoint of the halo exchange."""
        # autograd's gradient must not be changed
        return ctx.frame.scatter(gradient.clone()), None


class Convolve(torch.autograd.Function):
    """A convolution of fields with their halo; saves only the fields and the strips.

    Autograd would save a padded copy besides the fields, which the preceding operation saves
    anyway. If the halo has rows only, no padded copy is made: as convolution is linear, the fields
    are convolved with zero padding, and the contribution of the strips to the outermost rows is
    added (`Band`). Otherwise the backward pass makes the copy again, without messages.

    Called with fields (N, C, h, w), weight (O, C / groups, rows, columns), bias (O,) or None, a
    `Frame`, and `Options`, of which the zero padding is that left to the convolution.
    """

    @staticmethod
    def forward(
        ctx: Any,
        fields: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        frame: Frame,
        options: Options,
    ) -> Tensor:
        """Return the outputs, (N, O, h', w')."""
        stride, padding, dilation, groups = options
        ctx.uses_bands = frame.has_rows_only(fields) and stride == (1, 1)
        halo = Halo(frame.gather_rows(fields), NONE) if ctx.uses_bands else frame.gather(fields)
        rows = padding[0] + (frame.sides.top if ctx.uses_bands else 0)
        ctx.frame, ctx.options = frame, (stride, (rows, padding[1]), dilation, groups)
        ctx.bias_shape = None if bias is None else list(bias.shape)
        ctx.save_for_backward(fields, weight, *halo.rows, *halo.columns)
        if not ctx.uses_bands:
            return functional.conv2d(frame.add_halo(fields, halo), weight, bias, *ctx.options)
        outputs = functional.conv2d(fields, weight, bias, *ctx.options)
        for band in bands(halo.rows, weight, ctx.options):
            band.reached_rows(outputs).add_(
                functional.conv2d(band.rows, band.weight, None, *band.options)
            )
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients for fields, weight and bias."""
        fields, weight, top, bottom, left, right = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        if ctx.uses_bands:
            gradients = Convolve._gradients_with_bands(
                ctx, gradient, fields, weight, (top, bottom), needs
            )
        else:
            padded = ctx.frame.add_halo(fields, Halo((top, bottom), (left, right)))
            gradients = _gradients(gradient, padded, weight, ctx.bias_shape, ctx.options, needs)
            if gradients[0] is not None:
                gradients = ctx.frame.scatter(gradients[0]), *gradients[1:]
        return *gradients, None, None

    @staticmethod
    def _gradients_with_bands(
        ctx: Any,
        gradient: Tensor,
        fields: Tensor,
        weight: Tensor,
        strips: Strips,
        needs: Sequence[bool],
    ) -> Gradients:
        """Return the gradients of a convolution that adds the contribution of strips by bands."""
        gradients = _gradients(gradient, fields, weight, ctx.bias_shape, ctx.options, needs)
        for_fields, for_weight, _ = gradients
        half = ctx.frame.sides.top
        shape = (*fields.shape[:-2], half, fields.shape[-1])
        for_strips = [fields.new_empty(shape) for _ in strips] if needs[0] else []
        for band in bands(strips, weight, ctx.options):
            for_rows, for_part, _ = _gradients(
                band.reached_rows(gradient),
                band.rows,
                band.weight,
                None,
                band.options,
                (*needs[:2], False),
            )
            if for_weight is not None and for_part is not None:
                band.reaching_weight(for_weight).add_(for_part)
            if for_rows is not None:
                start = for_rows.shape[-2] - half if band.below else 0
                for_strips[band.below] = for_rows.narrow(-2, start, half).contiguous()
        if for_fields is not None:
            ctx.frame.scatter_rows(for_fields, (for_strips[0], for_strips[1]))
        return gradients


class Band(NamedTuple):
    """The small convolution that computes a strip's contribution to the adjacent rows.

    Attributes:
        rows: the strip, zero-padded towards the fields if the filter has more than three rows.
        weight: the filter's rows that reach the strip.
        options: stride, padding, dilation, groups.
        below: True if the strip lies below the fields.
        half: rows of the strip, and of the outputs that it reaches.
    """

    rows: Tensor
    weight: Tensor
    options: Options
    below: bool
    half: int

    def reached_rows(self, outputs: Tensor) -> Tensor:
        """Return the rows of the outputs that the strip reaches."""
        return outputs.narrow(-2, outputs.shape[-2] - self.half if self.below else 0, self.half)

    def reaching_weight(self, weight: Tensor) -> Tensor:
        """Return the rows of the filter that reach the strip."""
        count = self.weight.shape[-2]
        return weight.narrow(-2, weight.shape[-2] - count if self.below else 0, count)


def bands(strips: Strips, weight: Tensor, options: Options) -> Iterator[Band]:
    """Yield a band for each strip; `options` are those of the convolution of the fields."""
    stride, (half, columns), dilation, groups = options
    count, more = half // dilation[0], half - dilation[0]
    for strip, below in zip(strips, (False, True), strict=True):
        if strip is not None:
            rows = functional.pad(strip, (0, 0, more, 0) if below else (0, 0, 0, more))
            part = weight[:, :, -count:] if below else weight[:, :, :count]
            yield Band(rows, part, (stride, (0, columns), dilation, groups), below, half)


def _gradients(
    gradient: Tensor,
    fields: Tensor,
    weight: Tensor,
    bias_shape: list[int] | None,
    options: Options,
    needs: Sequence[bool],
) -> Gradients:
    """Return the gradients of a convolution for fields, weight and bias, as new tensors."""
    gradients: Gradients = torch.ops.aten.convolution_backward(
        gradient, fields, weight, bias_shape, *options[:3], False, [0, 0], options[3], list(needs)
    )
    return gradients


class Sum(torch.autograd.Function):
    """The sum over the processes of a sample; called with a tensor and an `Exchange`.

    Every process uses the sum; therefore the gradient of each part is the sum of the gradients over
    the processes.
    """

    @staticmethod
    def forward(ctx: Any, parts: Tensor, exchange: Exchange) -> Tensor:
        """Return the sum, on every process."""
        ctx.exchange = exchange
        return exchange.total(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the sum of the gradients."""
        return ctx.exchange.total(gradient), None
