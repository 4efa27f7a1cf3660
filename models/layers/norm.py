"""Batch and group normalisation with statistics over the whole grid, also if it is split."""

from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.models.domain import Domain, current
from ens10.models.layers.padding import SameConv2d


class BatchNorm2d(nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` with moments over the whole grid, also where a sample is split.

    Parameters, buffers and their names are torch's.
    """

    splittable = True
    _conv: tuple[SameConv2d, ...] = ()  # in a tuple, which makes it no submodule

    def after(self, layer: nn.Module) -> Self:
        """Normalise the output of a layer, and return this module.

        The mean of a batch takes away the bias of a convolution, so that in training the
        convolution leaves it out: it is added to the running mean alone, and its gradient is 0.
        """
        has_moments = self.track_running_stats and self.affine
        if isinstance(layer, SameConv2d) and layer.bias is not None and has_moments:
            self._conv, layer.normalised_by = (layer,), (self,)
        return self

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name in nn.BatchNorm2d)
        """(N, C, H, W) -> (N, C, H, W)."""
        domain = current()
        batch_moments = self.training or self.running_mean is None
        left_out = self._conv[0].bias if self._conv and self.training else None
        if not batch_moments or (left_out is None and not domain.is_split):
            outputs: Tensor = super().forward(input)
            return outputs
        bias = self.bias if left_out is None else with_gradient_of_zeros(self.bias, left_out)
        if domain.is_split:
            outputs = self._normalise_part(input, bias, domain)
        else:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            moments_of_runs = self.running_mean, self.running_var
            outputs = functional.batch_norm(
                input, *moments_of_runs, self.weight, bias, True, self._share(), self.eps
            )
        if left_out is not None:
            assert self.running_mean is not None
            # `data` does not count the change: torch keeps the running mean for a backward pass
            # that reads it in evaluation alone
            self.running_mean.data.add_(left_out.detach(), alpha=self._share())
        return outputs

    def _normalise_part(self, fields: Tensor, bias: Tensor | None, domain: Domain) -> Tensor:
        """Normalise this process's part by the moments of all parts."""
        mean, variance, count = moments(fields, domain)
        if self.training and self.track_running_stats:
            self._update_running_moments(mean, variance * count / (count - 1).clamp(min=1))
        # torch wants parameters as precise as the moments, which are single at least
        weight, bias = (None if p is None else p.to(mean.dtype) for p in (self.weight, bias))
        normalised: Tensor = Normalise.apply(  # type: ignore[no-untyped-call]
            fields, weight, bias, mean, variance, count, self.eps, domain
        )
        return normalised

    def _update_running_moments(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running moments as torch does."""
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self._share()
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            assert running is not None
            running.lerp_(new.to(running.dtype), share)

    def _share(self) -> float:
        """Return the share of a batch in the running moments."""
        if self.momentum is not None:
            return self.momentum
        assert self.num_batches_tracked is not None
        return 1 / float(self.num_batches_tracked)


def with_gradient_of_zeros(values: Tensor, parameter: Tensor) -> Tensor:
    """Return values that do not depend on a parameter, but give it a gradient: zeros."""
    copy: Tensor = _Unused.apply(values, parameter)  # type: ignore[no-untyped-call]
    return copy


class _Unused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, parameter: Tensor) -> Tensor:
        ctx.save_for_backward(parameter)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (parameter,) = ctx.saved_tensors
        return grad, torch.zeros_like(parameter)


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
    local_count = float(values.numel() // values.shape[1])
    first = domain.total(torch.cat([mean * local_count, mean.new_full((1,), local_count)]))
    count = first[-1]
    overall = first[:-1] / count
    spread = domain.total((variance + (mean - overall).square()) * local_count)
    return overall, spread / count, count


def _moments(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and variance (n) of each channel, (C,), at least float32."""
    values = values.to(torch.promote_types(values.dtype, torch.float32))
    if values.device.type == "cpu":
        # a quarter of the time of var_mean, and no copy of the values
        mean, variance = torch.ops.aten.batch_norm_update_stats(values, None, None, 0.0)
    else:
        variance, mean = torch.var_mean(values, dim=(0, 2, 3), correction=0)
    return mean, variance


class Normalise(torch.autograd.Function):
    """Normalisation by the moments of all parts; saves only its input.

    Called with fields (N, C, h, w), weight and bias (C,) or None, mean and variance (C,) of the
    fields, the count of values of a channel, eps, and the domain. The gradient is that of batch
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
        """Return the normalised fields, (N, C, h, w)."""
        ctx.eps, ctx.domain = eps, domain
        ctx.save_for_backward(fields, weight, mean, variance, count)
        return functional.batch_norm(fields, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients for fields, weight and bias; the latter two are sums over this part."""
        fields, weight, mean, variance, count = ctx.saved_tensors
        inverse = (variance + ctx.eps).rsqrt()
        for_weight, for_bias = _channel_sums(gradient.contiguous(), fields, mean, variance, ctx.eps)
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


def _channel_sums(
    gradient: Tensor, fields: Tensor, mean: Tensor, variance: Tensor, eps: float
) -> list[Tensor]:
    """Return two sums over samples and points for each channel, (C,) each.

    The first sums the gradient times the standardised fields, the second the gradient. They are
    the gradients of a weight and a bias behind a normalisation by constant moments. CUDA's kernel
    also needs the inverse deviations, and a weight: ones, which change no sum.
    """
    inverse = (variance + eps).rsqrt()
    _, by_standard, by_gradient = torch.ops.aten.native_batch_norm_backward(
        gradient, fields, torch.ones_like(mean), mean, variance, mean, inverse, False, eps,
        [False, True, True],
    )  # fmt: skip
    return [by_standard, by_gradient]


class GroupNorm(nn.GroupNorm):
    """`torch.nn.GroupNorm` with moments over the whole grid, also where a sample is split.

    Parameters and their names are torch's.
    """

    splittable = True

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (the name in nn.GroupNorm)
        """(N, C, H, W) -> (N, C, H, W)."""
        domain = current()
        if not domain.is_split:
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

    Called with fields (N, C, h, w), weight and bias of one shape that broadcasts to (C, h, w), or
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
        """Return the normalised fields, (N, C, h, w)."""
        ctx.domain, ctx.eps, ctx.has_bias = domain, eps, bias is not None
        ctx.save_for_backward(fields, weight, mean, variance, count)
        by_map = _is_map(weight)
        affine = (_repeat_for_samples(None if by_map else x, fields) for x in (weight, bias))
        outputs = _standardise(fields, mean, variance, eps, *affine)
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
        flat_fields, flat_gradient = (x.reshape(1, -1, *x.shape[2:]) for x in (fields, gradient))
        center, spread = _repeat_for_channels(fields, mean, variance)
        sums = _channel_sums(flat_gradient, flat_fields, center, spread, ctx.eps)
        for_weight, for_bias = (x.view(fields.shape[:2]).sum(0)[:, None, None] for x in sums)
        if by_map:
            standard = _standardise(fields, mean, variance, ctx.eps)
            for_weight, for_bias = (plain * standard).sum(0), plain.sum(0)
        factor = None if by_map else _repeat_for_samples(weight, fields)
        return (
            _fields_gradient(ctx, flat_gradient, sums, factor) if ctx.needs_input_grad[0] else None,
            None if weight is None else for_weight,
            for_bias if ctx.has_bias else None,
            *(None,) * 5,
        )


def _fields_gradient(
    ctx: Any, gradient: Tensor, sums: list[Tensor], factor: Tensor | None
) -> Tensor:
    """Return the gradient for the fields of a group normalisation, (N, C, h, w).

    Args:
        ctx: context of the forward pass.
        gradient: gradient for the outputs, (1, N C, h, w), before `factor`.
        sums: sums of its products with the standardised fields, and of itself, (N C,).
        factor: weight of each channel of each sample, (N C,), or None.
    """
    fields, _, mean, variance, count = ctx.saved_tensors
    center, spread = _repeat_for_channels(fields, mean, variance)
    scale = inverse = (spread + ctx.eps).rsqrt()
    both = torch.stack(sums)
    if factor is not None:
        both, scale = both * factor, scale * factor
    group_means = ctx.domain.total(both.view(2, len(mean), -1).sum(2)) / count
    by_standard, by_shift = _repeat_for_channels(fields, *group_means)
    slope = -inverse.square() * by_standard
    shift = -inverse * by_shift - slope * center
    scale, slope, shift = (x.view(1, -1, 1, 1) for x in (scale, slope, shift))
    result = torch.addcmul(shift, fields.reshape(gradient.shape), slope).addcmul_(gradient, scale)
    return result.view(fields.shape).to(fields.dtype)


def _standardise(
    fields: Tensor,
    mean: Tensor,
    variance: Tensor,
    eps: float,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Return (fields - group mean) / group deviation, times weight plus bias, (N C,) or None."""
    flat_fields = fields.reshape(1, -1, *fields.shape[2:])
    center, spread = _repeat_for_channels(fields, mean, variance)
    outputs = functional.batch_norm(flat_fields, center, spread, weight, bias, False, 0.0, eps)
    return outputs.view(fields.shape)


def _repeat_for_channels(fields: Tensor, *group_values: Tensor) -> tuple[Tensor, ...]:
    """Repeat values of each group, (N groups,), for each of its channels, (N C,)."""
    channels = fields.shape[0] * fields.shape[1]
    return tuple(x.repeat_interleave(channels // len(x)) for x in group_values)


def _repeat_for_samples(parameter: Tensor | None, fields: Tensor) -> Tensor | None:
    """Repeat a value of each channel, (C, 1, 1), for each sample, (N C,)."""
    return None if parameter is None else parameter.reshape(-1).repeat(len(fields))


def _is_map(parameter: Tensor | None) -> bool:
    """Return True if a parameter has a value at each point, not only for each channel."""
    return parameter is not None and parameter.numel() > len(parameter)
