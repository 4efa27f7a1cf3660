"""Convolution around the globe without a padded copy of the fields.

Convolution is linear: the fields are convolved with zero padding, and what the columns beyond the
first and the last contribute to the outermost columns is added, by two small convolutions.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def convolve_around(
    fields: Tensor, weight: Tensor, bias: Tensor | None, half: int, dilation: int, groups: int
) -> Tensor:
    """Convolve with periodic columns and rows of zeros beyond the poles.

    Args:
        fields: (N, C, H, W), W at least `half`.
        weight: (O, C / groups, 2 half / dilation + 1, the same).
        bias: (O,), or None.
        half: columns that a filter reaches beyond its centre.
        dilation: columns between neighbouring taps.
        groups: of channels.

    Returns:
        (N, O, H, W).
    """
    device = fields.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        fields, weight = fields.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    outputs: Tensor = _Around.apply(fields, weight, bias, half, dilation, groups)  # type: ignore[no-untyped-call]
    return outputs


class _Seam(NamedTuple):
    """Columns of one end of the grid, and what they contribute to the columns of the other end.

    Attributes:
        source: columns of the fields, which are continued by zeros away from the seam.
        zeros: number of these columns of zeros before and after.
        taps: columns of the filter that reach across the seam.
        reached: columns of the output.
    """

    source: slice
    zeros: tuple[int, int]
    taps: slice
    reached: slice

    def strip(self, fields: Tensor) -> Tensor:
        """Return the source with its zeros."""
        return functional.pad(fields[..., self.source], self.zeros)


def _seams(width: int, half: int, dilation: int) -> tuple[_Seam, _Seam]:
    m, zeros, last = half // dilation, half - dilation, slice(width - half, width)
    return (
        _Seam(last, (0, zeros), slice(0, m), slice(0, half)),
        _Seam(slice(0, half), (zeros, 0), slice(m + 1, 2 * m + 1), last),
    )


class _Around(torch.autograd.Function):
    """Called with the arguments of `convolve_around`, in one type; saves fields and weight."""

    @staticmethod
    def forward(
        ctx: Any,
        fields: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        half: int,
        dilation: int,
        groups: int,
    ) -> Tensor:
        ctx.save_for_backward(fields, weight)
        ctx.bias_shape = None if bias is None else list(bias.shape)
        ctx.half, ctx.dilation, ctx.groups = half, dilation, groups
        outputs = functional.conv2d(fields, weight, bias, 1, half, dilation, groups)
        for seam in _seams(fields.shape[-1], half, dilation):
            part = weight[..., seam.taps]
            strip = seam.strip(fields)
            outputs[..., seam.reached] += functional.conv2d(
                strip, part, None, 1, (half, 0), dilation, groups
            )
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        fields, weight = ctx.saved_tensors
        needs, half = list(ctx.needs_input_grad[:3]), ctx.half

        def gradients(grad: Tensor, x: Tensor, w: Tensor, columns: int, needs: list[bool]) -> Any:
            step, padding = [ctx.dilation] * 2, [half, columns]
            shape = ctx.bias_shape if needs[2] else None
            return torch.ops.aten.convolution_backward(
                grad, x, w, shape, [1, 1], padding, step, False, [0, 0], ctx.groups, needs
            )

        for_fields, for_weight, for_bias = gradients(grad, fields, weight, half, needs)
        for seam in _seams(fields.shape[-1], half, ctx.dilation):
            part, strip = weight[..., seam.taps].contiguous(), seam.strip(fields)
            near = grad[..., seam.reached].contiguous()
            for_strip, for_part, _ = gradients(near, strip, part, 0, [*needs[:2], False])
            if needs[0]:
                for_fields[..., seam.source] += functional.pad(
                    for_strip, [-zeros for zeros in seam.zeros]
                )
            if needs[1]:
                for_weight[..., seam.taps] += for_part
        return for_fields, for_weight, for_bias, None, None, None
