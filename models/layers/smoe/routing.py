"""The routing classification loss and expert damping, inside the one backward pass."""

import math
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, get_args
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.domain import current
from ens10.models.layers.smoe import compiled
from ens10.models.layers.smoe.error_quantiles import lower_quantile
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
        # parts differ in size: a part's own share of the points, times the number of parts
        points = math.prod(fields.shape[-2:]) / math.prod(domain.shape(fields))
        return self.state.loss_scale * (domain.size * points)

    def unit(self, gradient: Tensor) -> Tensor:
        """Return the loss gradient at a value whose error is 1, in units of the output.

        Args:
            gradient: gradient of the loss, a mean over values, in the shape of this layer's output.

        Raises:
            ArgumentError: the loss was not tracked.
        """
        # a mean over n values with second derivative c has the gradient c e / n at an error e
        return self.loss_scale(gradient) / (gradient.numel() / self.curvature)


_LAYERS: WeakValueDictionary[int, Any] = WeakValueDictionary()
_KEYS = count()


def register_layer(layer: Any) -> None:
    """Give a layer a new `key`, by which the operators of its backward pass find it.

    The operators are opaque to `torch.compile`, whose graphs hold tensors and numbers only.
    """
    layer.key = next(_KEYS)
    _LAYERS[layer.key] = layer


def layer_of(key: int) -> Any:
    """Return the layer that `register_layer` gave this key."""
    return _LAYERS[key]


def keep_layer(ctx: Any, key: int) -> None:
    """Store the key in the context of a function, and keep its layer for the backward pass.

    A compiled graph keeps the layer itself.
    """
    ctx.key = key
    if not torch.compiler.is_compiling():
        ctx.layer = layer_of(key)


class ChosenValues(torch.autograd.Function):
    """Values of the chosen experts (N, k, F, H, W).

    Called with values (N, E, F, H, W) of all experts and indices (N or 1, H, W, k). The backward
    pass writes where autograd's would add: an expert is chosen at most once at a point.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, indices: Tensor) -> Tensor:
        """Return the values (N, k, F, H, W)."""
        ctx.shape = values.shape
        ctx.save_for_backward(indices)
        return values.gather(1, along_experts(planes(indices), values.shape))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient for the values of all experts."""
        (indices,) = ctx.saved_tensors
        places = along_experts(planes(indices), ctx.shape)
        return gradient.new_zeros(ctx.shape).scatter_(1, places, gradient), None


class RoutedOutput(torch.autograd.Function):
    """Values times weights; the backward pass classifies every choice as correct or not.

    Called with values (N, k, F, H, W) of the chosen experts; their weights (N or 1, k, 1, H, W), or
    None; gate (N or 1, E, H, W); indices (N or 1, H, W, k); area (H, W) or None; the layer's rule
    and key; and whether the compiled loops compute the routing classification gradient. Returns
    (N, k, F, H, W).
    """

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        weights: Tensor | None,
        gate: Tensor,
        indices: Tensor,
        area: Tensor | None,
        rule: RoutingRule,
        key: int,
        loops: bool,
    ) -> Tensor:
        """Return the output (N, k, F, H, W)."""
        keep_layer(ctx, key)
        ctx.loops, ctx.damping = loops, rule.damping
        ctx.classify = rule.classify and ctx.needs_input_grad[2]
        ctx.uses_weight_signal = weights is not None and rule.error_signal == "weight"
        needs_values = ctx.needs_input_grad[1] or ctx.uses_weight_signal
        if weights is not None:
            outputs = values * weights.to(values.dtype)
        elif torch.compiler.is_compiling():
            outputs = values.clone()
        else:
            ctx.mark_dirty(values)  # not a view: a layer behind this one may work in place
            outputs = values
        scale = amplitude(outputs, area) if rule.relative else None
        kept = (values if needs_values else None, gate if ctx.classify else None)
        ctx.save_for_backward(*kept, weights, indices, area, scale)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients for values, weights and gate."""
        values, gate, weights, indices, area, scale = ctx.saved_tensors
        for_weights = None
        products: Any = None if values is None else gradient * values
        if ctx.needs_input_grad[1]:
            for_weights = products.sum(2, keepdim=True)
            for_weights = for_weights.sum_to_size(weights.shape).to(weights.dtype)
        signal = products if ctx.uses_weight_signal else None
        # opaque to `torch.compile`: it raises errors that depend on values, and reads the scale of
        # the loss of the backward pass it runs in
        classify = _operator if torch.compiler.is_compiling() else _classify_choices
        for_damping, for_gate = classify(
            gradient, signal, gate, indices, area, scale, ctx.key, ctx.loops
        )
        part = gradient if weights is None else gradient * weights.to(gradient.dtype)
        if ctx.damping < 1:  # of the experts only: the weights' gradient above is not damped
            part = torch.where(for_damping[:, :, None], part * ctx.damping, part)
        return part, for_weights, for_gate if ctx.classify else None, *(None,) * 5


def _classify_choices(
    gradient: Tensor,
    signal: Tensor | None,
    gate: Tensor | None,
    indices: Tensor,
    area: Tensor | None,
    scale: Tensor | None,
    key: int,
    loops: bool,
) -> tuple[Tensor, Tensor]:
    """Return where choices are damped, (N, k, H, W) bool, and the gate's gradient (0 without one).

    Arguments as in `incorrect_choices`, and `RoutedOutput`.
    """
    rule: RoutingRule = layer_of(key).rule
    for_routing, for_damping = incorrect_choices(gradient, rule, area, scale, signal)
    for_damping = for_damping.contiguous()  # as are the results that a graph expects
    if gate is None:
        return for_damping, gradient.new_empty(0)
    if rule.state.record:
        rule.state.classification_loss = classification_loss(gate, indices, for_routing)
    classify = compiled.classification_gradient if loops else classification_gradient
    for_gate = classify(gate, indices, for_routing, rule.loss_scale(gradient))
    return for_damping, for_gate.contiguous()


_operator = torch.library.custom_op("ens10::classify_choices", mutates_args=())(_classify_choices)


@_operator.register_fake
def _(gradient: Tensor, _: Any, gate: Tensor | None, *__: Any) -> tuple[Tensor, Tensor]:
    for_gate = gradient.new_empty(0) if gate is None else gate.new_empty(gate.shape)
    return gradient.new_empty(gradient[:, :, 0].shape, dtype=torch.bool), for_gate


def along_experts(choices: Tensor, shape: torch.Size) -> Tensor:
    """Expand choices (N or 1, k, H, W) for gathering from (N, E, F, H, W), without a copy."""
    N, _, F, H, W = shape
    return choices[:, :, None].expand(N, -1, F, H, W)


def incorrect_choices(
    gradient: Tensor,
    rule: RoutingRule,
    area: Tensor | None = None,
    amplitude: Tensor | None = None,
    signal: Tensor | None = None,
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

    Values that are not finite are an error on the CPU. On a device, whose values the host does not
    wait for, they are left to the check of losses and gradients, and in float16 to the loss scaler,
    which skips the step: no choice is incorrect then.

    Args:
        gradient: (N, k, F, H, W) gradient of the loss at the output.
        rule: quantile and margins.
        area: (H, W) weights of the points in the loss, of mean 1; they also weigh the quantile.
        amplitude: (N,) scale of relative margins, from `amplitude`; None for absolute ones.
        signal: used instead of the gradient for the routing classification.

    Returns:
        (N, k, H, W) bool for the routing classification, and for the damping.

    Raises:
        ArgumentError: values that are not finite, or a loss that was not tracked.
    """
    sizes = error_sizes(gradient, area)
    signals = sizes if signal is None else error_sizes(signal, area)
    finite = all_finite(sizes) if signal is None else all_finite(sizes) & all_finite(signals)
    on_host = gradient.device.type == "cpu"
    if on_host and not finite:
        if gradient.dtype != torch.float16:
            raise not_finite_error()
        none = torch.zeros_like(sizes, dtype=torch.bool)
        return none, none
    # limits are converted to units of the gradient, one number a sample: dividing a map of errors
    # instead would cost a pass and round each of them
    unit: Tensor | float = rule.unit(gradient) if rule.margin or rule.damping_margin else 0.0
    unit = unit if amplitude is None else unit * amplitude
    quantiles = _quantiles(sizes, rule.quantile, area)
    signal_quantiles = quantiles if signal is None else _quantiles(signals, rule.quantile, area)
    routing_limits = (signal_quantiles + rule.margin * unit).to(sizes.dtype)
    damping_limits = (quantiles + rule.damping_margin * unit).to(sizes.dtype)
    for_routing = signals > routing_limits.view(-1, 1, 1, 1)
    for_damping = sizes > damping_limits.view(-1, 1, 1, 1)
    return (for_routing, for_damping) if on_host else (for_routing & finite, for_damping & finite)


def amplitude(outputs: Tensor, area: Tensor | None = None) -> Tensor:
    """Return the root mean square of each sample's output, over the whole grid.

    Args:
        outputs: (N, ..., h, w).
        area: (h, w) weights of the points, of mean 1 over the whole grid.

    Returns:
        (N,) in float32 or more.
    """
    # float16 ends at 65504, which the square of 256 exceeds
    squares = _at_least_single(outputs.detach()).square()
    squares = squares if area is None else squares * area
    domain = current()
    count = outputs[0].numel() / math.prod(outputs.shape[-2:]) * math.prod(domain.shape(outputs))
    sums: Tensor = domain.total(squares.flatten(1).sum(1))
    return (sums / count).sqrt()


def error_sizes(gradient: Tensor, area: Tensor | None = None) -> Tensor:
    """Return the mean of |gradient| / area over filters, (N, k, H, W), at least float32."""
    sizes = gradient.detach().abs()
    # half precision has 11 bits: too few different errors for a quantile
    sizes = _at_least_single(sizes.squeeze(2) if sizes.shape[2] == 1 else sizes.mean(2))
    # where the area is 0 so is the gradient, and 0 / 0 would end the training: an error of 0
    return sizes if area is None else torch.where(area > 0, sizes / area, 0)


def _quantiles(sizes: Tensor, quantile: float, area: Tensor | None) -> Tensor:
    """Return the quantile of each sample's errors (N, k, H, W) over the whole grid, (N,)."""
    # once: the same for each of k ranks
    weights = None if area is None else area.expand(sizes.shape[2:]).flatten()
    return lower_quantile(sizes.flatten(1), quantile, weights, current())


def _at_least_single(values: Tensor) -> Tensor:
    """Return the values in float32 if they are in half precision."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def all_finite(values: Tensor) -> Tensor:
    """Return whether all values in all parts of the grid are finite, () bool on their device."""
    # one pass without a mask: a sum with NaN or inf is not finite; but it may overflow by itself
    finite = values.sum().isfinite()
    if values.device.type != "cpu" or not finite:
        finite = values.isfinite().all()
    domain = current()
    return domain.total((~finite).float()) == 0 if domain.is_split else finite


def not_finite_error() -> ArgumentError:
    """Return the error of a backward pass with a gradient that is not finite."""
    return ArgumentError(
        "gradient",
        "the loss gradient at a mixture-of-experts layer has values that are not finite",
        "Look for NaN in features and target, or lower the learning rate",
    )


def classification_gradient(
    gate: Tensor, indices: Tensor, wrong: Tensor, scale: Tensor | float = 1.0
) -> Tensor:
    """Return the routing classification loss's gradient in closed form, (sigmoid(R) - target) / n.

    The loss is the mean over all N E H W entries of the binary cross-entropy with logits R, the
    gate's weights (Dryden & Hoefler 2022, arXiv:2211.13491). Targets: 1 for a chosen expert that
    was correct, 0 for one that was not, and for each of the E - k others the number of incorrect
    ones among the k, divided by E - k. A gate that is the same for all samples gets the mean.

    Args:
        gate: R, (N or 1, E, H, W).
        indices: (N or 1, H, W, k) the chosen experts.
        wrong: (N, k, H, W) bool, True where they were incorrect.
        scale: factor of the loss.

    Returns:
        The gradient, in shape and dtype of `gate`.
    """
    share, for_others = _targets(gate, wrong)
    # d/dR [log(1 + exp R) - target R] = sigmoid(R) - target, whose targets of the E - k others are
    # one number a point: in place on one map of E, and then what the k chosen differ from it
    gradient = gate.to(share.dtype).sigmoid().sub_(for_others)
    gradient.scatter_add_(1, planes(indices), for_others - (1 - share))
    factor = torch.as_tensor(scale, dtype=share.dtype, device=gate.device) / gate.numel()
    return gradient.mul_(factor).to(gate.dtype)


def _targets(gate: Tensor, wrong: Tensor) -> tuple[Tensor, Tensor]:
    """Return the share of samples in which each choice was incorrect, and the others' target."""
    share = wrong.to(torch.float64 if gate.dtype == torch.float64 else torch.float32)
    share = share.mean(0, keepdim=True) if len(gate) == 1 else share
    return share, share.sum(1, keepdim=True) / max(gate.shape[1] - share.shape[1], 1)


def classification_loss(gate: Tensor, indices: Tensor, wrong: Tensor) -> Tensor:
    """Return the routing classification loss over the whole grid (see `classification_gradient`).

    Args:
        gate: R, (N or 1, E, H, W).
        indices: (N or 1, H, W, k) the chosen experts.
        wrong: (N, k, H, W) bool, True where they were incorrect.

    Returns:
        A scalar.
    """
    share, for_others = _targets(gate, wrong)
    logits = gate.detach().to(share.dtype)
    # log(1 + exp R) - target R, added up over the experts; softplus is R itself for large R, where
    # exp(R) overflows, so that neither term needs the logarithm of a sigmoid that rounds to 0
    sums = functional.softplus(logits).sum() - (logits.sum(1, keepdim=True) * for_others).sum()
    sums = sums - (logits.gather(1, planes(indices)) * (1 - share - for_others)).sum()
    domain = current()
    total: Tensor = domain.total(sums)
    return total / (gate[..., 0, 0].numel() * math.prod(domain.shape(gate)))
