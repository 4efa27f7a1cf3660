"""Batch normalisation with statistics over the whole grid, also if it is split."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.models.domain import Domain, current


class BatchNorm2d(nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` with moments over the whole grid, also where a sample is split.

    Parameters, buffers and their names are torch's.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name in nn.BatchNorm2d)
        """(N, C, H, W) -> (N, C, H, W)."""
        domain = current()
        batch_moments = self.training or self.running_mean is None
        if domain.whole or not batch_moments:
            outputs: Tensor = super().forward(input)
            return outputs
        mean, variance, count = moments(input, domain)
        if self.training and self.track_running_stats:
            self._remember(mean, variance * count / (count - 1).clamp(min=1))
        # torch wants parameters as precise as the moments, which are single at least
        weight, bias = (None if p is None else p.to(mean.dtype) for p in (self.weight, self.bias))
        normalised: Tensor = Normalise.apply(  # type: ignore[no-untyped-call]
            input, weight, bias, mean, variance, count, self.eps, domain
        )
        return normalised

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running moments as torch does."""
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:
            share = 1 / float(self.num_batches_tracked)
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            assert running is not None
            running.lerp_(new.to(running.dtype), share)


def moments(fields: Tensor, domain: Domain) -> tuple[Tensor, Tensor, Tensor]:
    """Return each channel's mean and variance (n) over samples and the whole grid, and the count.

    Moments of the parts are merged by their counts (Chan et al. 1983, doi:10.2307/2683386), which
    avoids the cancellation of a difference of large sums. Without gradient.

    Args:
        fields: (N, C, h, w), this process's part.
        domain: sums over the other parts of the grid.

    Returns:
        (C,), (C,) and a scalar, at least float32.
    """
    values = fields.detach()
    mean, variance = _moments(values)
    mine = float(values.numel() // values.shape[1])
    first = domain.total(torch.cat([mean * mine, mean.new_full((1,), mine)]))
    count = first[-1]
    overall = first[:-1] / count
    spread = domain.total((variance + (mean - overall).square()) * mine)
    return overall, spread / count, count


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    if values.device.type == "cpu":
        # a quarter of the time of var_mean, and no copy of the values
        mean, variance = torch.ops.aten.batch_norm_update_stats(values, None, None, 0.0)
    else:
        variance, mean = torch.var_mean(values, dim=(0, 2, 3), correction=0)
    return mean, variance


class Normalise(torch.autograd.Function):
    """Normalisation by the moments of all parts; saves only its input.

    Called with fields (N, C, h, w), weight and bias (C,) or None, their mean and variance (C,),
    the count of values of a channel, eps, and the domain. The gradient is that of batch
    normalisation (Ioffe and Szegedy 2015, arXiv:1502.03167), whose two sums go over all parts.
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
        ctx.eps, ctx.domain = eps, domain
        ctx.save_for_backward(fields, weight, mean, variance, count)
        return functional.batch_norm(fields, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients for fields, weight and bias; the latter two are sums over this part."""
        fields, weight, mean, variance, count = ctx.saved_tensors
        inverse = (variance + ctx.eps).rsqrt()
        # this part's two sums: as if the moments were constants
        _, for_weight, for_bias = torch.ops.aten.native_batch_norm_backward(
            gradient.contiguous(), fields, weight, mean, variance, None, None, False, ctx.eps,
            [False, True, True],
        )  # fmt: skip
        for_fields = None
        if ctx.needs_input_grad[0]:
            sums = ctx.domain.total(torch.stack([for_bias, for_weight])) / count
            scale = inverse if weight is None else inverse * weight
            slope = -scale * inverse * sums[1]
            shift = -scale * sums[0] - slope * mean
            scale, slope, shift = (x.view(1, -1, 1, 1) for x in (scale, slope, shift))
            for_fields = torch.addcmul(shift, fields, slope).addcmul_(gradient, scale)
            for_fields = for_fields.to(fields.dtype)
        affine = (for_weight, for_bias) if weight is not None else (None, None)
        return for_fields, *affine, None, None, None, None, None
