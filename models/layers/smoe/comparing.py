"""A spatial mixture of experts whose gate learns from the errors of the experts not chosen."""

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.domain import current
from ens10.models.layers.padding import Poles
from ens10.models.layers.smoe.gates import Gate, RegionGate, TensorGate, largest_weights, planes
from ens10.models.layers.smoe.layer import SMoE2d
from ens10.models.layers.smoe.routing import (
    all_finite,
    along_experts,
    keep_layer,
    layer_of,
    not_finite_error,
)

Rivals = Literal["all", "one"]
_MIN_LOAD = 0.03  # added to the loads, relative to an equal share: the log of a load of 0 is finite
_DECAY = 0.98  # factor of the offsets in each step
_MIN_ERROR = 1e-30  # of squared errors, whose logarithm is taken


class ComparingSMoE2d(SMoE2d):
    """`SMoE2d` whose gate learns which experts have the smallest errors at each point.

    The published routing classification counts the largest errors of a sample as incorrect, and all
    other experts as correct there (arXiv:2211.13491). Where the signal is weak, the errors are
    small for every expert, so that the map of regions is not learned there. Here the backward pass
    computes the error that each other expert would have made at the point, s' = s + y' - y, where s
    is the error of the chosen expert as in `incorrect_choices`. It is exact in the last layer under
    the mean squared error; elsewhere it takes the loss as a parabola of the given curvature. The
    expert of the smallest error is the target of the classification loss, the mean binary
    cross-entropy with logits R. Squared errors are averaged over filters, and also over the batch
    if the gate does not depend on the input.

    If k > 1 experts are selected, each rank of the output has an error of its own. Experts are
    assigned in rank order: that of the smallest error to the first rank, that of the smallest error
    among the others to the second, and so on. The targets, (k - r) / k for the expert of rank
    r = 0, 1, ... and 0 for those that are left, teach the gate the ranks as well.

    With `memory` the errors are running means over the steps of training as well: a batch holds few
    dates, whose errors differ more than the experts do. The share of the past is the memory, or
    n / (n + 1) in step n = 0, 1, ... if that is less.

    `balance` prevents experts that are never chosen: the logarithm of each expert's error gets an
    offset that grows by `balance * log(E * load)` a step, where load is its share of the targets,
    and decays by 2 % a step. It vanishes for experts of equal load, and is small compared with
    differences between experts that fit their regions.

    Args:
        in_channels: channels of the input.
        num_experts: number E of experts, at least 2.
        gate: gate that computes R, (1 or N, E, H, W).
        kernel_size: rows and columns of the experts' filters, odd.
        filters: F.
        selected: number k of experts selected at each point, less than E.
        curvature: second derivative of the loss at a point with respect to the output, 2 for the
            squared error; see `SMoE2d`.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        rivals: compare with "all" other experts, or with "one" at each point, drawn in each
            backward pass. (Two of E values would suffice then; this implementation computes and
            stores all.)
        balance: strength of the offset, from 0 (none) to 1.
        memory: share of the past in the errors that are compared, from 0 (none) to less than 1. The
            gate must be a learned map of the grid.
        damping: factor of the expert's gradient where another one is better.
        area: (H,) or (H, W) weights of the points in the loss, or "cell", "cos" or "none".

    Attributes:
        offsets: (E,) offsets of the experts' log errors; with several processes those of the first
            are used.
        past: (k, E, H, W) running means of the errors, with a memory only; and `steps`, their
            number. With several processes those of the first are used.

    Raises:
        ArgumentError: no more experts than are selected, an option outside its range, or a memory
            with a gate that has no learned map.
        UnknownNameError: another value of `rivals` or `poles`.
    """

    splittable = True
    offsets: Tensor
    past: Tensor
    steps: Tensor

    def __init__(
        self,
        in_channels: int,
        num_experts: int,
        gate: Gate,
        kernel_size: int = 3,
        filters: int = 1,
        *,
        selected: int = 1,
        curvature: float = 2.0,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        rivals: Rivals = "all",
        balance: float = 0.2,
        memory: float = 0.0,
        damping: float = 0.1,
        area: Tensor | Sequence[float] | str | None = None,
    ) -> None:
        if num_experts <= selected:
            raise ArgumentError(
                "num_experts", f"{num_experts} leave no rival of the {selected} that are selected"
            )
        if rivals not in get_args(Rivals):
            raise UnknownNameError("rivals", rivals, get_args(Rivals))
        if not 0 <= balance <= 1:
            raise ArgumentError("balance", f"{balance} is not between 0 and 1")
        if not 0 <= memory < 1:
            raise ArgumentError("memory", f"{memory} is not from 0 to less than 1")
        super().__init__(
            in_channels,
            num_experts,
            selected,
            gate,
            kernel_size,
            filters,
            periodic_longitude=periodic_longitude,
            poles=poles,
            curvature=curvature,
            damping=damping,
            area=area,
        )
        self.rivals, self.balance, self.memory = rivals, balance, memory
        self.register_buffer("offsets", torch.zeros(num_experts))
        if memory:
            learned = gate.weight if isinstance(gate, TensorGate | RegionGate) else None
            if learned is None:
                problem = "errors of the past need a gate with a learned map"
                raise ArgumentError("memory", problem, "Choose a TensorGate, or no memory")
            self.register_buffer("past", torch.zeros(selected, *learned.shape))
            self.register_buffer("steps", torch.zeros(()))

    def forward(self, features: Tensor, routing: Tensor | None = None) -> Tensor:
        """(N, in_channels, H, W) -> (N, k F, H, W); see `SMoE2d.forward`."""
        if not self.training:
            return super().forward(features, routing)
        self._check(features)
        routing = self.route(features) if routing is None else routing
        self._check_map(routing, features)
        if not routing.requires_grad:
            return super().forward(features, routing)
        values = self.experts(features).unflatten(1, (self.num_experts, self.filters))
        outputs: Tensor = ComparedOutput.apply(  # type: ignore[no-untyped-call]
            values, routing, largest_weights(routing, self.selected), self._local_area(), self.key
        )
        return outputs.flatten(1, 2)

    def remember(self, errors: Tensor) -> Tensor:
        """Add a step's errors (1, k, E, H, W) to the running means, and return these."""
        if not self.memory:
            return errors
        domain = current()
        share = (self.steps / (self.steps + 1)).clamp(max=self.memory).to(errors.dtype)
        mean = share * domain.part(self.past).to(errors.dtype) + (1 - share) * errors[0]
        full_mean = torch.zeros_like(self.past)
        domain.part(full_mean).copy_(mean)
        self.past.copy_(domain.total(full_mean))
        self.steps += 1
        return mean[None]

    def compare(self, errors: Tensor, choices: Tensor) -> tuple[Tensor, Tensor | None]:
        """Assign an expert to each rank at each point by balanced error, and update the balance.

        Args:
            errors: (N or 1, k, E, H, W) mean squared errors at each rank.
            choices: (N or 1, k, H, W) the chosen experts.

        Returns:
            (N or 1, k, H, W), the experts assigned to the ranks; and a mask (N or 1, E, H, W) of
            the experts that were compared, None if all were.
        """
        offsets = self.offsets.to(errors.dtype)[:, None, None]
        scores, compared = errors.clamp(min=_MIN_ERROR).log() + offsets, None
        if self.rivals == "one":
            experts = torch.cat([choices, _draw_rivals(choices, self.num_experts)], 1)
            compared = torch.zeros_like(scores[:, 0], dtype=torch.bool).scatter_(1, experts, True)
            scores = torch.where(compared[:, None], scores, torch.inf)
        best = _assign_experts(scores)
        if self.balance:
            load = torch.bincount(best.flatten(), minlength=self.num_experts).to(errors.dtype)
            load = current().total(load)
            load /= load.sum()
            growth = self.balance * (load * self.num_experts + _MIN_LOAD).log()
            new_offsets = self.offsets + growth.to(self.offsets.dtype)
            self.offsets.copy_(_DECAY * (new_offsets - new_offsets.mean()))
        return best, compared


class ComparedOutput(torch.autograd.Function):
    """Values of the chosen experts; the backward pass compares them with those of other experts.

    Called with values (N, E, F, H, W) of all experts; gate (N or 1, E, H, W); indices
    (N or 1, H, W, k) of the chosen experts; area (H, W) or None; and the layer's key. Returns
    (N, k, F, H, W).
    """

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, gate: Tensor, indices: Tensor, area: Tensor | None, key: int
    ) -> Tensor:
        """Return the output (N, k, F, H, W)."""
        keep_layer(ctx, key)
        ctx.save_for_backward(values, gate, indices, area)
        return values.gather(1, along_experts(planes(indices), values.shape))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients for values and gate."""
        # opaque to `torch.compile`: it raises errors that depend on values, and updates the layer
        compare = _operator if torch.compiler.is_compiling() else _compare_experts
        values, gate, indices, area = ctx.saved_tensors
        return *compare(gradient, values, gate, indices, area, ctx.key), None, None, None


def _compare_experts(
    gradient: Tensor, values: Tensor, gate: Tensor, indices: Tensor, area: Tensor | None, key: int
) -> tuple[Tensor, Tensor]:
    """Return gradients for values and gate."""
    layer: ComparingSMoE2d = layer_of(key)
    choices, scale = planes(indices), layer.rule.loss_scale(gradient)
    errors = rival_errors(gradient, values, choices, layer.rule.unit(gradient), area)
    if not all_finite(errors):
        if values.dtype == torch.float16:  # the loss scaler skips this step
            return values.new_full(values.shape, torch.nan), gate.new_zeros(gate.shape)
        raise not_finite_error()
    if gate.shape[0] == 1:
        errors = layer.remember(errors.mean(0, keepdim=True))
    best, compared = layer.compare(errors, choices)
    target = comparison_target(best, gate)
    for_gate = comparison_gradient(gate, target, compared) * scale
    if layer.rule.state.record:
        layer.rule.state.classification_loss = comparison_loss(gate, target, compared)
    part = gradient
    if layer.rule.damping < 1:
        part = torch.where((best != choices)[:, :, None], part * layer.rule.damping, part)
    for_values = values.new_zeros(values.shape)
    for_values.scatter_(1, along_experts(choices, values.shape), part)
    return for_values, for_gate.to(gate.dtype).contiguous()


_operator = torch.library.custom_op("ens10::compare_experts", mutates_args=())(_compare_experts)


@_operator.register_fake
def _(_: Tensor, values: Tensor, gate: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
    return values.new_empty(values.shape), gate.new_empty(gate.shape)


def rival_errors(
    gradient: Tensor, values: Tensor, choices: Tensor, unit: Tensor, area: Tensor | None = None
) -> Tensor:
    """Return the squared error that each expert would have made at each rank, mean over filters.

    Args:
        gradient: (N, k, F, H, W) of the loss, for the chosen experts' values.
        values: (N, E, F, H, W) of all experts.
        choices: (N or 1, k, H, W) indices of the chosen experts.
        unit: gradient of an error of 1, from `RoutingRule.unit`.
        area: (H, W) weights of the points in the loss, of mean 1; where it is 0 the chosen experts
            make no error.

    Returns:
        (N, k, E, H, W), exact for the mean squared error over N k F H W values.
    """
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    errors = gradient.to(dtype) / unit.to(dtype)
    if area is not None:
        errors = torch.where(area > 0, errors / area, 0)
    chosen_values = values.gather(1, along_experts(choices, values.shape))
    ranks = [
        (errors[:, [rank]] + (values - chosen_values[:, [rank]]).to(dtype)).square().mean(2)
        for rank in range(choices.shape[1])
    ]
    return torch.stack(ranks, 1)


def comparison_target(best: Tensor, gate: Tensor) -> Tensor:
    """Return the gate's target at each point, which decreases with the rank of an expert.

    It is (k - r) / k for the expert of rank r = 0, 1, ... and 0 for experts without a rank.

    Args:
        best: (N or 1, k, H, W) the experts that should have been chosen, in rank order.
        gate: R, (N or 1, E, H, W).

    Returns:
        In shape and dtype of `gate`.
    """
    k = best.shape[1]
    ranks = torch.arange(k, 0, -1, dtype=gate.dtype, device=gate.device) / k
    return torch.zeros_like(gate).scatter_(1, best, ranks[:, None, None].expand(best.shape))


def comparison_gradient(gate: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the gradient of the mean binary cross-entropy with logits `gate`.

    Args:
        gate: R, (N or 1, E, H, W).
        target: (N or 1, E, H, W), from 0 to 1.
        mask: (N or 1, E, H, W), True for the entries that enter the loss; None for all.

    Returns:
        The gradient, in the shape of `gate`.
    """
    gradient = (gate.sigmoid() - target) / gate.numel()
    return gradient if mask is None else torch.where(mask, gradient, 0)


def comparison_loss(gate: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return the mean binary cross-entropy with logits `gate` over the whole grid, a scalar.

    Arguments as in `comparison_gradient`.
    """
    logits = gate.detach().to(torch.float64 if gate.dtype == torch.float64 else torch.float32)
    losses = functional.binary_cross_entropy_with_logits(
        logits, target.to(logits.dtype), reduction="none"
    )
    losses = losses if mask is None else torch.where(mask, losses, 0)
    domain = current()
    total: Tensor = domain.total(losses.sum())
    return total / (gate[..., 0, 0].numel() * math.prod(domain.shape(gate)))


def _assign_experts(scores: Tensor) -> Tensor:
    """Assign to each rank in turn the expert of the smallest score among those not assigned yet.

    Args:
        scores: (M, k, E, H, W).

    Returns:
        (M, k, H, W) indices of experts.
    """
    k, best = scores.shape[1], []
    for rank in range(k):
        best.append(scores[:, rank].argmin(1, keepdim=True))
        if rank + 1 < k:
            best_experts = best[-1][:, None].expand(-1, k, -1, -1, -1)
            scores = scores.scatter(2, best_experts, torch.inf)
    return torch.cat(best, 1)


def _draw_rivals(choices: Tensor, num_experts: int) -> Tensor:
    """Draw at each point an expert that is not chosen; (M, k, H, W) -> (M, 1, H, W)."""
    domain, k = current(), choices.shape[1]
    # for the whole grid, so that the numbers do not depend on the parts
    shape = (len(choices), 1, *domain.shape(choices))
    draw = domain.part(torch.randint(1, num_experts - k + 1, shape, device=choices.device))
    # the `draw`-th of the free experts, counted cyclically from the first chosen one
    steps = torch.arange(num_experts, device=choices.device)[:, None, None]
    experts = (choices[:, :1] + steps) % num_experts
    free = torch.ones_like(experts).scatter_(1, choices, 0).gather(1, experts)
    place = (free.cumsum(1) < draw).sum(1, keepdim=True)
    return experts.gather(1, place)
