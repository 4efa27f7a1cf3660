"""Group normalisation whose statistics are those of the whole grid."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ens10.models.domain import Domain, current
from ens10.models.layers.norm import moments


class GroupNorm(nn.GroupNorm):
    """As `torch.nn.GroupNorm`, with the moments of whole fields where a sample is split.

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
    """Groups of channels of each sample, normalised over the whole grid (arXiv:1803.08494).

    With one group it is layer normalisation (arXiv:1607.06450) of channels and grid together.

    Args:
        fields: (N, C, h, w), this process's part.
        groups: of channels.
        weight: broadcasts to (C, h, w), or None.
        bias: likewise.
        eps: added to the variance.
        domain: where the other parts are.

    Returns:
        (N, C, h, w).
    """
    by_group = fields.reshape(1, len(fields) * groups, -1, fields.shape[-1])
    mean, variance, count = moments(by_group, domain)
    normalised: Tensor = NormaliseGroups.apply(  # type: ignore[no-untyped-call]
        fields, weight, bias, mean, variance, count, eps, domain
    )
    # as torch: on CUDA, norms are in single precision under mixed precision
    device = fields.device.type
    single = device == "cuda" and torch.is_autocast_enabled(device)
    return normalised if single else normalised.to(fields.dtype)


class NormaliseGroups(torch.autograd.Function):
    """Normalisation of each group by the moments of all parts, which keeps its input alone.

    Called with fields (N, C, h, w), weight and bias that broadcast to (C, h, w) or are None, mean
    and variance (N groups,), the count of values of a group, eps, and the domain. The gradient is
    that of group normalisation (Wu and He 2018, arXiv:1803.08494), whose two sums go over all
    parts.
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
        """(N, C, h, w), at least float32."""
        ctx.domain, ctx.biased = domain, None if bias is None else bias.shape
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(fields, weight, mean, inverse, count)
        outputs = _standardised(fields, mean, inverse)
        if weight is not None:
            outputs.mul_(weight)
        if bias is not None:
            outputs.add_(bias)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for fields, weight and bias; those of the latter are of this part."""
        fields, weight, mean, inverse, count = ctx.saved_tensors
        standard = _standardised(fields, mean, inverse)
        for_weight = None if weight is None else (gradient * standard).sum(0)
        for_bias = None if ctx.biased is None else gradient.sum_to_size(1, *ctx.biased)[0]
        if for_weight is not None:
            for_weight = for_weight.sum_to_size(weight.shape)
        if not ctx.needs_input_grad[0]:
            return None, for_weight, for_bias, None, None, None, None, None
        by_standard = gradient.clone() if weight is None else gradient * weight
        shape = (len(mean), -1)
        flat, standard = by_standard.reshape(shape), standard.view(shape)
        sums = torch.stack([flat.sum(1), (flat * standard).sum(1)])
        shift, slope = (ctx.domain.total(sums) / count).unsqueeze(-1)
        found = flat.sub_(standard.mul_(slope)).sub_(shift).mul_(inverse[:, None])
        for_fields = found.view(fields.shape).to(fields.dtype)
        return for_fields, for_weight, for_bias, None, None, None, None, None


def _standardised(fields: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    """Fields less their group's mean, by its deviation: a new tensor, contiguous."""
    flat = fields.reshape(len(mean), -1)
    standard = (flat - mean[:, None]).mul_(inverse[:, None])
    return standard.view(fields.shape)
