"""The routing classification loss and expert damping, inside the one backward pass."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.domain import current
from ens10.models.layers.smoe.error_quantiles import lower_quantile, lower_quantile_of_parts
from ens10.models.layers.smoe.gates import planes
from ens10.models.layers.smoe.tracking import RoutingState

ErrorSignal = Literal["output", "weight"]


@dataclass(frozen=True, kw_only=True)
class RoutingRule:
    """When a choice counts as incorrect, and its consequences; see `SMoE2d`.

    Args:
        quantile: fraction q of a sample's errors that counts as correct.
        margin: excess of an error over the q-quantile from which a choice is incorrect for the
            routing classification; in units of the output.
        damping_margin: margin for the damping.
        curvature: second derivative of the loss at a point with respect to the output, by which a
            gradient is an error in units of the output.
        relative: True if margins are relative to the root mean square of the sample's output.
        error_signal: "output", the error at the output; "weight", that times the expert's value.
        damping: factor of the experts' gradient at incorrect points.
        classify: True if the gate gets the routing classification gradient.
        state: module in which `track_loss` stores the scale of the loss.

    Raises:
        ArgumentError: a number outside its range, or relative margins of errors that are not in
            units of the output.
        UnknownNameError: another value of `error_signal`.
    """

    quantile: float = 0.3
    margin: float = 1e-5
    damping_margin: float = 1e-3
    curvature: float = 2.0
    relative: bool = False
    error_signal: ErrorSignal = "output"
    damping: float = 0.1
    classify: bool = True
    state: RoutingState = field(default_factory=RoutingState)

    def __post_init__(self) -> None:
        if not 0 <= self.quantile <= 1:
            raise ArgumentError("quantile", f"{self.quantile} is not between 0 and 1")
        for name in ("margin", "damping_margin"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ArgumentError(name, f"{getattr(self, name)} is negative or not finite")
        if not 0 < self.curvature < math.inf:
            raise ArgumentError("curvature", f"{self.curvature} is not positive and finite")
        if not 0 <= self.damping <= 1:
            raise ArgumentError("damping", f"{self.damping} is not between 0 and 1")
        if self.error_signal not in get_args(ErrorSignal):
            raise UnknownNameError("error_signal", self.error_signal, get_args(ErrorSignal))
        if self.relative and self.error_signal == "weight":
            raise ArgumentError(
                "relative_margins",
                "errors times the experts' values are not in units of the output",
                "Choose absolute margins, or error_signal 'output'",
            )

    def loss_scale(self, fields: Tensor) -> Tensor:
        """Return the loss scale of this backward pass, for means over the points of `fields`.

        Where the grid is split, the loss of each part is multiplied by the number of parts, and
        means over a part's points stand for means over the whole grid.

        Args:
            fields: (..., h, w), any of this layer's outputs.

        Raises:
            ArgumentError: the loss was not tracked.
        """
        if self.state.loss_scale is None:
            raise ArgumentError(
                "loss",
                "the scale of the loss is missing, which the routing classification needs",
                "Call track_loss(loss, network) before backward()",
            )
        domain = current()
        if not domain.is_split:
            return self.state.loss_scale
        points = math.prod(fields.shape[-2:]) / math.prod(domain.shape(fields))
        return self.state.loss_scale * (domain.size * points)

    def unit(self, gradient: Tensor) -> Tensor:
        """Return the loss gradient at a value whose error is 1, in units of the output.

        Args:
            gradient: gradient of the loss, a mean over values, in the shape of this layer's output.

        Raises:
            ArgumentError: the loss was not tracked.
        """
        return self.loss_scale(gradient) / (gradient.numel() / self.curvature)


class RoutedOutput(torch.autograd.Function):
    """Values of the chosen experts; the backward pass classifies every choice as correct or not.

    Called with values (N, E, F, H, W) of all experts; weights (N or 1, k, 1, H, W) of the chosen
    ones, or None; gate (N or 1, E, H, W); indices (N or 1, H, W, k); area (H, W) or None; the rule,
    or None for a plain backward pass; and True if the loss is scaled against overflow (float16).
    Returns (N, k, F, H, W).
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
        loss_scaled: bool,
    ) -> Tensor:
        """Return the output (N, k, F, H, W)."""
        chosen_values = values.gather(1, along_experts(planes(indices), values.shape))
        ctx.rule, ctx.loss_scaled, ctx.shape = rule, loss_scaled, values.shape
        needs_values = weights is not None and (ctx.needs_input_grad[1] or uses_weight_signal(rule))
        saved_gate = gate if rule is not None and rule.classify else None
        ctx.save_for_backward(
            chosen_values if needs_values else None, weights, saved_gate, indices, area
        )
        outputs = (
            chosen_values if weights is None else chosen_values * weights.to(chosen_values.dtype)
        )
        ctx.amplitude = amplitude(outputs, area) if rule is not None and rule.relative else None
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients for values, weights and gate."""
        chosen_values, weights, gate, indices, area = ctx.saved_tensors
        rule: RoutingRule | None = ctx.rule
        choices = planes(indices)
        for_values = for_weights = for_gate = None
        if ctx.needs_input_grad[1]:
            for_weights = (gradient * chosen_values).sum(2, keepdim=True)
            for_weights = for_weights.sum_to_size(weights.shape).to(weights.dtype)
        part = gradient if weights is None else gradient * weights.to(gradient.dtype)
        if rule is not None:
            signal = (
                gradient * chosen_values
                if weights is not None and uses_weight_signal(rule)
                else None
            )
            for_routing, for_damping = incorrect_choices(
                gradient, rule, area, ctx.amplitude, signal, loss_scaled=ctx.loss_scaled
            )
            if rule.classify and ctx.needs_input_grad[2]:
                scale = rule.loss_scale(gradient)
                for_gate = classification_gradient(gate, choices, for_routing, scale)
                record_loss(rule, gate, choices, for_routing)
            if rule.damping < 1:
                part = torch.where(for_damping[:, :, None], part * rule.damping, part)
        if ctx.needs_input_grad[0]:
            # every expert is chosen at most once at a point: nothing to add up
            for_values = gradient.new_zeros(ctx.shape).scatter_(
                1, along_experts(choices, ctx.shape), part
            )
        return for_values, for_weights, for_gate, None, None, None, None


def along_experts(choices: Tensor, shape: torch.Size) -> Tensor:
    """Expand choices (N or 1, k, H, W) for gathering from (N, E, F, H, W), without a copy."""
    N, _, F, H, W = shape
    return choices[:, :, None].expand(N, -1, F, H, W)


def uses_weight_signal(rule: RoutingRule | None) -> bool:
    """Return True if the rule's error signal is "weight": errors times the experts' values."""
    return rule is not None and rule.error_signal == "weight"


@dataclass(frozen=True)
class ErrorLimits:
    """Errors of each sample, in units of the gradient, above which its choices are incorrect.

    Attributes:
        routing: (N,) limits for the routing classification.
        damping: (N,) limits for the damping.
        area: (H, W) weights of the points by which errors are divided, or None.
    """

    routing: Tensor
    damping: Tensor
    area: Tensor | None

    def incorrect(self, gradient: Tensor, signal: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return masks (N, k, H, W) of the choices that are incorrect, for routing and for damping.

        Args:
            gradient: (N, k, F, H, W) gradient of the output.
            signal: used instead of the gradient for the routing classification.
        """
        sizes = error_sizes(gradient, self.area)
        signals = sizes if signal is None else error_sizes(signal, self.area)
        return signals > self.routing.view(-1, 1, 1, 1), sizes > self.damping.view(-1, 1, 1, 1)


def compute_error_limits(
    gradient: Tensor,
    rule: RoutingRule,
    area: Tensor | None = None,
    amplitude: Tensor | None = None,
    signal: Tensor | None = None,
) -> ErrorLimits:
    """Return the limits of each sample's errors above which its choices are incorrect.

    Arguments and exceptions are those of `incorrect_choices`.
    """
    limits = _quantiles(gradient, rule, area)
    for_routing = limits if signal is None else _quantiles(signal, rule, area)

    def add_margin(limits: Tensor, margin: float) -> Tensor:
        if margin == 0:
            return limits
        unit = rule.unit(gradient).to(limits.dtype)
        return limits + margin * (unit if amplitude is None else unit * amplitude.to(limits.dtype))

    routing_limits = add_margin(for_routing, rule.margin)
    return ErrorLimits(routing_limits, add_margin(limits, rule.damping_margin), area)


def incorrect_choices(
    gradient: Tensor,
    rule: RoutingRule,
    area: Tensor | None = None,
    amplitude: Tensor | None = None,
    signal: Tensor | None = None,
    *,
    loss_scaled: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return masks of the incorrect choices, from the loss gradient at the layer's output.

    The error of a choice is the mean of |s| over its F filters. A choice is incorrect if its error
    exceeds the q-quantile of its sample's errors by more than a margin; routing classification and
    damping have separate margins. s is the gradient divided by the scale of the loss, times the
    number of values in the output, divided by `area` and by the rule's curvature: for the mean
    squared error (curvature 2) with weights `area` at the points, s = y - t whatever the number of
    samples; for another loss it is the Newton step, by which the output would have to change. Only
    the margins depend on any of these factors but `area`. The quantile is the error at its rank or
    just below it, where the published code interpolates between the two.

    Args:
        gradient: (N, k, F, H, W) gradient of the loss at the output.
        rule: quantile and margins.
        area: (H, W) weights of the points in the loss, of mean 1; they also weigh the quantile.
        amplitude: (N,) scale of relative margins, from `amplitude`; None for absolute ones.
        signal: used instead of the gradient for the routing classification.
        loss_scaled: True if the loss is scaled (float16): values that are not finite are left to
            the loss scaler, which skips the step.

    Returns:
        (N, k, H, W) bool for the routing classification, and for the damping.

    Raises:
        ArgumentError: values that are not finite, or a loss that was not tracked.
    """
    if loss_scaled and not all_finite(error_sizes(gradient)):
        none = torch.zeros_like(gradient[:, :, 0], dtype=torch.bool)
        return none, none
    limits = compute_error_limits(gradient, rule, area, amplitude, signal)
    return limits.incorrect(gradient, signal)


def amplitude(outputs: Tensor, area: Tensor | None = None) -> Tensor:
    """Return the root mean square of each sample's output, over the whole grid.

    Args:
        outputs: (N, ..., h, w).
        area: (h, w) weights of the points, of mean 1 over the whole grid.

    Returns:
        (N,) in float32 or more.
    """
    squares = _at_least_single(outputs.detach()).square()
    squares = squares if area is None else squares * area
    domain = current()
    count = outputs[0].numel() / math.prod(outputs.shape[-2:]) * math.prod(domain.shape(outputs))
    sums: Tensor = domain.total(squares.flatten(1).sum(1))
    return (sums / count).sqrt()


def error_sizes(gradient: Tensor, area: Tensor | None = None) -> Tensor:
    """Return the mean of |gradient| / area over filters, (N, k, H, W), at least float32."""
    sizes = gradient.detach().abs()
    sizes = _at_least_single(sizes.squeeze(2) if sizes.shape[2] == 1 else sizes.mean(2))
    return sizes if area is None else torch.where(area > 0, sizes / area, 0)


def _quantiles(gradient: Tensor, rule: RoutingRule, area: Tensor | None) -> Tensor:
    """Return the q-quantile of each sample's errors, (N,), in units of the gradient."""
    sizes = error_sizes(gradient, area)
    if not all_finite(sizes):
        raise not_finite_error()
    weights = None
    if area is not None:  # once: the same for each of k ranks
        weights = area.expand(sizes.shape[2:]).flatten()
    domain, errors = current(), sizes.flatten(1)
    if not domain.is_split:
        return lower_quantile(errors, rule.quantile, weights, overwrite=True)
    return lower_quantile_of_parts(errors, rule.quantile, weights, domain)


def _at_least_single(values: Tensor) -> Tensor:
    """Return the values in float32 if they are in half precision."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def all_finite(values: Tensor) -> bool:
    """Return True if all values in all parts of the grid are finite; equal on all processes."""
    # the sum is the fastest check, but may overflow
    finite = bool(values.sum().isfinite()) or bool(values.isfinite().all())
    domain = current()
    if not domain.is_split:
        return finite
    return not bool(domain.total(torch.tensor(float(not finite), device=values.device)))


def not_finite_error() -> ArgumentError:
    """Return the error of a backward pass with a gradient that is not finite."""
    return ArgumentError(
        "gradient",
        "the loss gradient at a mixture-of-experts layer has values that are not finite",
        "Look for NaN in features and target, or lower the learning rate",
    )


def classification_gradient(
    gate: Tensor, choices: Tensor, wrong: Tensor, scale: Tensor | float = 1.0
) -> Tensor:
    """Return the routing classification loss's gradient in closed form, (sigmoid(R) - target) / n.

    The loss is the mean over all N E H W entries of the binary cross-entropy with logits R, the
    gate's weights (Dryden & Hoefler 2022, arXiv:2211.13491). Targets: 1 for a chosen expert that
    was correct, 0 for one that was not, and for each of the E - k others the number of incorrect
    ones among the k, divided by E - k. A gate that is the same for all samples gets the mean.

    Args:
        gate: R, (N or 1, E, H, W).
        choices: (N or 1, k, H, W) the chosen experts.
        wrong: (N, k, H, W) bool, True where they were incorrect.
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


def classification_loss(gate: Tensor, choices: Tensor, wrong: Tensor) -> Tensor:
    """Return the routing classification loss over the whole grid (see `classification_gradient`).

    Args:
        gate: R, (N or 1, E, H, W).
        choices: (N or 1, k, H, W) the chosen experts.
        wrong: (N, k, H, W) bool, True where they were incorrect.

    Returns:
        A scalar.
    """
    logits = gate.detach().to(torch.float64 if gate.dtype == torch.float64 else torch.float32)
    share = wrong.to(logits.dtype)
    share = share.mean(0, keepdim=True) if len(gate) == 1 else share
    for_others = share.sum(1, keepdim=True) / max(gate.shape[1] - choices.shape[1], 1)
    # log(1 + exp R) - target R, added up over the experts
    sums = functional.softplus(logits).sum() - (logits.sum(1, keepdim=True) * for_others).sum()
    sums = sums - (logits.gather(1, choices) * (1 - share - for_others)).sum()
    domain = current()
    total: Tensor = domain.total(sums)
    return total / (gate[..., 0, 0].numel() * math.prod(domain.shape(gate)))


def record_loss(rule: RoutingRule, gate: Tensor, choices: Tensor, wrong: Tensor) -> None:
    """Record the classification loss if `record_routing_loss` enabled it."""
    if rule.state.record:
        rule.state.classification_loss = classification_loss(gate, choices, wrong)
