"""Group normalisation with statistics over the whole grid, also if it is split."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.models.domain import Domain, current
from ens10.models.layers.norm import moments


class GroupNorm(nn.GroupNorm):
    """`torch.nn.GroupNorm` with moments over the whole grid, also where a sample is split.

    Parameters and their names are torch's.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name in nn.GroupNorm)
        """(N, C, H, W) -> (N, C, H, W)."""
        domain = current()
        if domain.whole:
            return super().forward(input)
        weight, bias = (
            None if parameter is None else parameter.view(-1, 1, 1)
            for parameter in (self.weight, self.bias)
        )
        return group_norm(input, self.num_groups, weight, bias, self.eps, domain)


def group_norm(
    fields: Tensor,
    groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    domain: Domain,
) -> Tensor:
    """Normalise groups of channels of each sample over the whole grid (arXiv:1803.08494).

    With one group it is layer normalisation (arXiv:1607.06450) of channels and grid together.

    Args:
        fields: (N, C, h, w), this process's part.
        groups: number of groups of channels.
        weight: broadcasts to (C, h, w), or None.
        bias: broadcasts to (C, h, w), or None.
        eps: added to the variance.
        domain: sums over the other parts of the grid.

    Returns:
        (N, C, h, w).
    """
    # as torch: on CUDA, norms are in single precision under mixed precision
    if fields.is_cuda and torch.is_autocast_enabled("cuda"):
        fields = fields.float()
    by_group = fields.reshape(1, len(fields) * groups, -1, fields.shape[-1])
    mean, variance, count = moments(by_group, domain)
    # torch wants parameters as precise as the moments, which are single at least
    weight, bias = (None if p is None else p.to(mean.dtype) for p in (weight, bias))
    normalised: Tensor = NormaliseGroups.apply(  # type: ignore[no-untyped-call]
        fields, weight, bias, mean, variance, count, eps, domain
    )
    return normalised


class NormaliseGroups(torch.autograd.Function):
    """Normalisation of each group by the moments of all parts; saves only its input.

    Called with fields (N, C, h, w), weight and bias that broadcast to (C, h, w), alike, or are
    None, mean and variance (N groups,), the count of values of a group, eps, and the domain. The
    gradient is that of group normalisation (Wu and He 2018, arXiv:1803.08494), whose two sums go
    over all parts. The loops are torch's for batch normalisation, with each channel of each sample
    as a channel of one sample.
    """

    @staticmethod
    def forward(
        ctx: Any,
        fields: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        count: Tensor,
        eps: float,
        domain: Domain,
    ) -> Tensor:
        """(N, C, h, w)."""
        ctx.domain, ctx.eps, ctx.biased = domain, eps, bias is not None
        ctx.save_for_backward(fields, weight, mean, variance, count)
        by_map = _is_map(weight)
        affine = (_repeated(None if by_map else x, fields) for x in (weight, bias))
        outputs = _standardised(fields, mean, variance, eps, *affine)
        if by_map and weight is not None:
            outputs.mul_(weight)
        return outputs.add_(bias) if by_map and bias is not None else outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients for fields, weight and bias; the latter two are sums over this part."""
        fields, weight, mean, variance, _ = ctx.saved_tensors
        plain = gradient
        if by_map := _is_map(weight):
            gradient = gradient * weight
        one, by_one = (x.reshape(1, -1, *x.shape[2:]) for x in (fields, gradient))
        # sums of each channel, as if the moments were constants
        _, *sums = torch.ops.aten.native_batch_norm_backward(
            by_one, one, None, *_for_channels(fields, mean, variance), None, None, False, ctx.eps,
            [False, True, True],
        )  # fmt: skip
        for_weight, for_bias = (x.view(fields.shape[:2]).sum(0)[:, None, None] for x in sums)
        if by_map:
            standard = _standardised(fields, mean, variance, ctx.eps)
            for_weight, for_bias = (plain * standard).sum(0), plain.sum(0)
        factor = None if by_map else _repeated(weight, fields)
        return (
            _for_fields(ctx, by_one, sums, factor) if ctx.needs_input_grad[0] else None,
            None if weight is None else for_weight,
            for_bias if ctx.biased else None,
            *(None,) * 5,
        )


def _for_fields(ctx: Any, by_one: Tensor, sums: list[Tensor], factor: Tensor | None) -> Tensor:
    """Return the gradient for the fields.

    Args:
        ctx: context of the forward pass.
        by_one: gradient for the outputs, (1, N C, h, w), before `factor`.
        sums: sums of its products with the standardised fields, and of itself, (N C,).
        factor: weight of each channel of each sample, (N C,), or None.
    """
    fields, _, mean, variance, count = ctx.saved_tensors
    center, spread = _for_channels(fields, mean, variance)
    scale = inverse = (spread + ctx.eps).rsqrt()
    both = torch.stack(sums)
    if factor is not None:
        both, scale = both * factor, scale * factor
    of_groups = ctx.domain.total(both.view(2, len(mean), -1).sum(2)) / count
    by_standard, by_shift = _for_channels(fields, *of_groups)
    slope = -inverse.square() * by_standard
    shift = -inverse * by_shift - slope * center
    scale, slope, shift = (x.view(1, -1, 1, 1) for x in (scale, slope, shift))
    result = torch.addcmul(shift, fields.reshape(by_one.shape), slope).addcmul_(by_one, scale)
    return result.view(fields.shape).to(fields.dtype)


def _standardised(
    fields: Tensor,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Return (fields - group mean) / group deviation, with weight and bias (N C,) if given."""
    one = fields.reshape(1, -1, *fields.shape[2:])
    center, spread = _for_channels(fields, mean, variance)
    outputs = functional.batch_norm(one, center, spread, weight, bias, False, 0.0, eps)
    return outputs.view(fields.shape)


def _for_channels(fields: Tensor, *of_groups: Tensor) -> tuple[Tensor, ...]:
    """Repeat values of each group, (N groups,), for each of its channels, (N C,)."""
    channels = fields.shape[0] * fields.shape[1]
    return tuple(x.repeat_interleave(channels // len(x)) for x in of_groups)


def _repeated(parameter: Tensor | None, fields: Tensor) -> Tensor | None:
    """Repeat a value of each channel, (C, 1, 1), for each sample, (N C,)."""
    return None if parameter is None else parameter.reshape(-1).repeat(len(fields))


def _is_map(parameter: Tensor | None) -> bool:
    return parameter is not None and parameter.numel() > len(parameter)
