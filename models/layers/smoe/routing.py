"""The routing classification loss and expert damping, inside the one backward pass."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ens10.errors import ArgumentError
from ens10.models.domain import current
from ens10.models.layers.smoe.choosing import planes
from ens10.models.layers.smoe.parted import lower_quantile_of_parts
from ens10.models.layers.smoe.selection import lower_quantile
from ens10.models.layers.smoe.tracking import LossScale


@dataclass(frozen=True)
class RoutingRule:
    """How choices are judged and what follows; see `SMoE2d` for the meaning.

    Args:
        quantile: share of a sample's errors that is called correct.
        tolerance: errors up to this are correct, in units of the output.
        damping: factor of the experts' gradient at incorrect points.
        classify: whether the gate gets the routing classification gradient.
        scale: where `track_loss` leaves the scale of the loss.
    """

    quantile: float = 0.3
    tolerance: float = 0.0
    damping: float = 0.1
    classify: bool = True
    scale: LossScale = field(default_factory=LossScale)

    def __post_init__(self) -> None:
        if not 0 <= self.quantile <= 1:
            raise ArgumentError("quantile", f"{self.quantile} is not between 0 and 1")
        if not 0 <= self.tolerance < math.inf:
            raise ArgumentError("tolerance", f"{self.tolerance} is negative or not finite")
        if not 0 <= self.damping <= 1:
            raise ArgumentError("damping", f"{self.damping} is not between 0 and 1")

    def loss_scale(self, fields: Tensor) -> Tensor:
        """The scale of the loss in this backward pass, for means over the points of `fields`.

        Where the grid is split, the loss of each part is multiplied by the number of parts, and
        what is taken as a mean over a part's points is a mean over the whole grid's.

        Args:
            fields: (..., h, w), any of this layer's outputs.

        Raises:
            ArgumentError: the loss was not tracked.
        """
        if self.scale.value is None:
            raise ArgumentError(
                "loss",
                "the routing classification does not know the scale of the loss",
                "Call track_loss(loss, network) before backward()",
            )
        domain = current()
        if domain.whole:
            return self.scale.value
        points = math.prod(fields.shape[-2:]) / math.prod(domain.shape(fields))
        return self.scale.value * (domain.size * points)


class RoutedOutput(torch.autograd.Function):
    """The values of the chosen experts; its backward judges every choice.

    Called with values (N, E, F, H, W) of all experts; weights (N or 1, k, 1, H, W) of the chosen
    ones, or None; gate (N or 1, E, H, W); indices (N or 1, H, W, k); area (H, W) or None;
    the rule, or None for a plain backward pass; and whether the loss is scaled against overflow
    (float16). Gives (N, k, F, H, W).
    """

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        weights: Tensor | None,
        gate: Tensor,
        indices: Tensor,
        area: Tensor | None,
        rule: RoutingRule | None,
        scaled: bool,
    ) -> Tensor:
        """The output (N, k, F, H, W)."""
        chosen = values.gather(1, along_experts(planes(indices), values.shape))
        ctx.rule, ctx.scaled, ctx.shape = rule, scaled, values.shape
        needed = chosen if weights is not None and ctx.needs_input_grad[1] else None
        judged = gate if rule is not None and rule.classify else None
        ctx.save_for_backward(needed, weights, judged, indices, area)
        return chosen if weights is None else chosen * weights.to(chosen.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for values, weights and gate."""
        chosen, weights, gate, indices, area = ctx.saved_tensors
        rule: RoutingRule | None = ctx.rule
        choices = planes(indices)
        for_values = for_weights = for_gate = None
        if ctx.needs_input_grad[1]:
            for_weights = (gradient * chosen).sum(2, keepdim=True)
            for_weights = for_weights.sum_to_size(weights.shape).to(weights.dtype)
        part = gradient if weights is None else gradient * weights.to(gradient.dtype)
        if rule is not None:
            wrong = incorrect_choices(gradient, rule, area, scaled=ctx.scaled)
            if rule.classify and ctx.needs_input_grad[2]:
                scale = rule.loss_scale(gradient)
                for_gate = classification_gradient(gate, choices, wrong, scale)
            if rule.damping < 1:
                part = torch.where(wrong[:, :, None], part * rule.damping, part)
        if ctx.needs_input_grad[0]:
            # every expert is chosen at most once at a point: nothing to add up
            for_values = gradient.new_zeros(ctx.shape).scatter_(
                1, along_experts(choices, ctx.shape), part
            )
        return for_values, for_weights, for_gate, None, None, None, None


def along_experts(choices: Tensor, shape: torch.Size) -> Tensor:
    """Choices (N or 1, k, H, W) for gathering from (N, E, F, H, W) of `shape`, without a copy."""
    N, _, F, H, W = shape
    return choices[:, :, None].expand(N, -1, F, H, W)


@dataclass(frozen=True)
class Judgement:
    """What an error has to exceed to be called incorrect.

    Attributes:
        limits: (N,) the quantile of each sample's errors, in units of the gradient.
        half: factor that makes errors of gradients.
        allowed: errors up to this are correct, or None.
        area: (H, W) by which errors are divided, or None.
    """

    limits: Tensor
    half: float
    allowed: Tensor | None
    area: Tensor | None

    def wrong(self, sizes: Tensor) -> Tensor:
        """Of the sizes of gradients (N, k, H, W) divided by `area`."""
        wrong = sizes > self.limits.view(-1, 1, 1, 1)
        return wrong if self.allowed is None else wrong & (sizes * self.half > self.allowed)


def judge(gradient: Tensor, rule: RoutingRule, area: Tensor | None = None) -> Judgement:
    """How choices are judged; arguments and errors as those of `incorrect_choices`."""
    sizes = _sizes(gradient)
    if not all_finite(sizes):
        raise not_finite()
    of_points = None
    if area is not None:
        sizes = _over(sizes, area)
        of_points = area.expand(sizes.shape[2:]).flatten()  # once: the same for each of k ranks
    domain, errors = current(), sizes.flatten(1)
    if domain.whole:
        limits = lower_quantile(errors, rule.quantile, of_points, overwrite=True)
    else:
        limits = lower_quantile_of_parts(errors, rule.quantile, of_points, domain)
    allowed = None
    if rule.tolerance > 0:
        allowed = rule.tolerance * rule.loss_scale(gradient).to(limits.dtype)
    return Judgement(limits, gradient.numel() / 2, allowed, area)


def incorrect_choices(
    gradient: Tensor, rule: RoutingRule, area: Tensor | None = None, *, scaled: bool = False
) -> Tensor:
    """Which choices were incorrect, from the gradient of the loss at the layer's output.

    The error of a choice is the mean of |s| over its F filters. It is incorrect if it exceeds
    the q-quantile of its sample's errors and the tolerance. s is the gradient divided by the scale
    of the loss, times half the number of values in the output, divided by `area`: for the mean
    squared error with weights `area` at the points, s = y - t whatever the number of samples.
    Only the tolerance depends on any of these factors but `area`.

    Args:
        gradient: (N, k, F, H, W).
        rule: quantile and tolerance.
        area: (H, W) weights of the points in the loss, of mean 1; they also weigh the quantile.
        scaled: leave values that are not finite to the loss scaler, which passes over the step.

    Returns:
        (N, k, H, W) bool.

    Raises:
        ArgumentError: values that are not finite.
    """
    sizes = _sizes(gradient)
    if scaled and not all_finite(sizes):
        return torch.zeros_like(sizes, dtype=torch.bool)
    judgement = judge(gradient, rule, area)
    return judgement.wrong(sizes if area is None else _over(sizes, area))


def all_finite(values: Tensor) -> bool:
    """Whether all values are finite, in all parts of the grid: the same on each process."""
    # a sum is the fastest look at them, but may overflow
    finite = bool(values.sum().isfinite()) or bool(values.isfinite().all())
    domain = current()
    if domain.whole:
        return finite
    return not bool(domain.total(torch.tensor(float(not finite), device=values.device)))


def not_finite() -> ArgumentError:
    """The error of a backward pass in which no choice can be judged."""
    return ArgumentError(
        "gradient",
        "the loss gradient at a mixture-of-experts layer has values that are not finite",
        "Look for NaN in features and target, or lower the learning rate",
    )


def _sizes(gradient: Tensor) -> Tensor:
    """The mean of absolute values over filters, in float32 or more."""
    sizes = gradient.detach().abs()
    sizes = sizes.squeeze(2) if sizes.shape[2] == 1 else sizes.mean(2)
    return sizes.float() if sizes.dtype in (torch.float16, torch.bfloat16) else sizes


def _over(sizes: Tensor, area: Tensor) -> Tensor:
    return torch.where(area > 0, sizes / area, 0)


def classification_gradient(
    gate: Tensor, choices: Tensor, wrong: Tensor, scale: Tensor | float = 1.0
) -> Tensor:
    """Gradient of the routing classification loss in closed form, (sigmoid(R) - target) / n.

    The loss is the mean over all N E H W entries of the binary cross-entropy with logits R, the
    gate's weights (Dryden & Hoefler 2022, arXiv:2211.13491). Targets: 1 for a chosen expert that
    was correct, 0 for one that was not, and for each of the E - k others the number of incorrect
    ones among the k, divided by E - k. A gate that is the same for all samples gets the mean.

    Args:
        gate: R, (N or 1, E, H, W).
        choices: (N or 1, k, H, W) the chosen experts.
        wrong: (N, k, H, W) bool, whether they were incorrect.
        scale: factor of the loss.

    Returns:
        The gradient, in shape and dtype of `gate`.
    """
    dtype = torch.float64 if gate.dtype == torch.float64 else torch.float32
    share = wrong.to(dtype)
    if gate.shape[0] == 1:
        share = share.mean(0, keepdim=True)
    for_others = share.sum(1, keepdim=True) / max(gate.shape[1] - choices.shape[1], 1)
    # in place on one map of E: the target of the others everywhere, then what the chosen differ
    gradient = gate.to(dtype).sigmoid().sub_(for_others)
    gradient.scatter_add_(1, choices, for_others - (1 - share))
    factor = torch.as_tensor(scale, dtype=dtype, device=gate.device) / gate.numel()
    return gradient.mul_(factor).to(gate.dtype)
