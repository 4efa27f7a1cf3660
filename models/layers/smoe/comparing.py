"""A spatial mixture of experts whose gate learns from the errors of the experts not chosen."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.domain import current
from ens10.models.layers.padding import Poles
from ens10.models.layers.smoe.gates import Gate, largest_weights, planes
from ens10.models.layers.smoe.layer import SMoE2d
from ens10.models.layers.smoe.loops import exclude_from_compile
from ens10.models.layers.smoe.routing import all_finite, along_experts, not_finite, record_loss

Rivals = Literal["all", "one"]
_EMPTY = 0.03  # the load, relative to an equal share, that an expert counts with at least
_LASTING = 0.98  # share of the offsets that lasts from step to step
_TINY = 1e-30


class ComparingSMoE2d(SMoE2d):
    """`SMoE2d` with k = 1 whose gate learns which expert has the smallest error at each point.

    The published routing classification counts the largest errors of a sample as incorrect, and all
    other experts as correct there (arXiv:2211.13491). Where the signal is weak, the errors are
    small for every expert, so that the map of regions is not learned there. Here the backward pass
    computes the error that each other expert would have made at the point, s' = s + y' - y, where s
    is the error of the chosen expert as in `incorrect_choices`. It is exact in the last layer under
    the mean squared error; elsewhere it takes the curvature of the loss as 1. The expert of the
    smallest error is the target of the classification loss, the mean binary cross-entropy with
    logits R. Squared errors are averaged over filters, and also over the batch if the gate does not
    depend on the input.

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
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        rivals: compare with "all" other experts, or with "one" at each point, drawn in each
            backward pass. (Two of E values would suffice then; this implementation computes and
            stores all.)
        balance: strength of the offset, from 0 (none) to 1.
        damping: factor of the expert's gradient where another one is better.
        area: (H,) or (H, W) weights of the points in the loss, or "cell", "cos" or "none".

    Attributes:
        offsets: (E,) offsets of the experts' log errors; with several processes those of the first
            are used.

    Raises:
        ArgumentError: fewer than two experts, or an option outside its range.
        UnknownNameError: another value of `rivals` or `poles`.
    """

    offsets: Tensor

    def __init__(
        self,
        in_channels: int,
        num_experts: int,
        gate: Gate,
        kernel_size: int = 3,
        filters: int = 1,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        rivals: Rivals = "all",
        balance: float = 0.2,
        damping: float = 0.1,
        area: Tensor | Sequence[float] | str | None = None,
    ) -> None:
        if num_experts < 2:
            raise ArgumentError("num_experts", f"{num_experts} is less than 2")
        if rivals not in get_args(Rivals):
            raise UnknownNameError("rivals", rivals, get_args(Rivals))
        if not 0 <= balance <= 1:
            raise ArgumentError("balance", f"{balance} is not between 0 and 1")
        super().__init__(
            in_channels,
            num_experts,
            1,
            gate,
            kernel_size,
            filters,
            periodic_longitude=periodic_longitude,
            poles=poles,
            damping=damping,
            area=area,
        )
        self.rivals, self.balance = rivals, balance
        self.register_buffer("offsets", torch.zeros(num_experts))

    @exclude_from_compile
    def forward(self, features: Tensor, routing: Tensor | None = None) -> Tensor:
        """(N, in_channels, H, W) -> (N, F, H, W); see `SMoE2d.forward`."""
        if not self.training:
            return super().forward(features, routing)
        self._check(features)
        routing = self.route(features) if routing is None else routing
        self._check_map(routing, features)
        if not routing.requires_grad:
            return super().forward(features, routing)
        values = self.experts(features).unflatten(1, (self.num_experts, self.filters))
        outputs: Tensor = ComparedOutput.apply(  # type: ignore[no-untyped-call]
            values, routing, largest_weights(routing, 1), self._own_area(), self
        )
        return outputs.flatten(1, 2)

    def compare(self, errors: Tensor, choices: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the best expert at each point by balanced error; update the balance.

        Args:
            errors: (N or 1, E, H, W) mean squared errors.
            choices: (N or 1, 1, H, W) the chosen experts.

        Returns:
            (N or 1, 1, H, W), the expert of the smallest balanced error; and (N or 1, E, H, W)
            bool, which experts were compared, or None for all.
        """
        offsets = self.offsets.to(errors.dtype)[:, None, None]
        scores, compared = errors.clamp(min=_TINY).log() + offsets, None
        if self.rivals == "one":
            pair = torch.cat([choices, _other_than(choices, self.num_experts)], 1)
            compared = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, pair, True)
            scores = torch.where(compared, scores, torch.inf)
        best = scores.argmin(1, keepdim=True)
        if self.balance:
            load = torch.bincount(best.flatten(), minlength=self.num_experts).to(errors.dtype)
            load = current().total(load)
            load /= load.sum()
            growth = self.balance * (load * self.num_experts + _EMPTY).log()
            moved = self.offsets + growth.to(self.offsets.dtype)
            self.offsets.copy_(_LASTING * (moved - moved.mean()))
        return best, compared


class ComparedOutput(torch.autograd.Function):
    """Values of the chosen experts; the backward pass compares them with those of other experts.

    Called with values (N, E, F, H, W) of all experts; gate (N or 1, E, H, W); indices
    (N or 1, H, W, 1) chosen; area (H, W) or None; and the layer. Gives (N, 1, F, H, W).
    """

    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        gate: Tensor,
        indices: Tensor,
        area: Tensor | None,
        layer: ComparingSMoE2d,
    ) -> Tensor:
        """Return the output (N, 1, F, H, W)."""
        ctx.layer = layer
        ctx.save_for_backward(values, gate, indices, area)
        return values.gather(1, along_experts(planes(indices), values.shape))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients for values and gate."""
        values, gate, indices, area = ctx.saved_tensors
        layer: ComparingSMoE2d = ctx.layer
        choices, scale = planes(indices), layer.rule.loss_scale(gradient)
        errors = rival_errors(gradient, values, choices, scale, area)
        if not all_finite(errors):
            if values.dtype == torch.float16:  # the loss scaler passes over this step
                return torch.full_like(values, torch.nan), torch.zeros_like(gate), None, None, None
            raise not_finite()
        errors = errors.mean(0, keepdim=True) if gate.shape[0] == 1 else errors
        best, compared = layer.compare(errors, choices)
        for_gate = comparison_gradient(gate, best, compared) * scale
        if compared is None:
            record_loss(layer.rule, gate, best, torch.zeros_like(best, dtype=torch.bool))
        part = gradient
        if layer.rule.damping < 1:
            part = torch.where((best != choices)[:, :, None], part * layer.rule.damping, part)
        for_values = torch.zeros_like(values).scatter_(
            1, along_experts(choices, values.shape), part
        )
        return for_values, for_gate.to(gate.dtype), None, None, None


def rival_errors(
    gradient: Tensor, values: Tensor, choices: Tensor, scale: Tensor, area: Tensor | None = None
) -> Tensor:
    """Return the squared error that each expert would have made, mean over its filters.

    Args:
        gradient: (N, 1, F, H, W) of the loss, for the chosen expert's values.
        values: (N, E, F, H, W) of all experts.
        choices: (N or 1, 1, H, W) the chosen ones.
        scale: scale of the loss, from `track_loss`.
        area: (H, W) weights of the points in the loss, of mean 1; where it is 0 the chosen expert
            makes no error.

    Returns:
        (N, E, H, W), exact for the mean squared error over N F H W values.
    """
    dtype = torch.float64 if values.dtype == torch.float64 else torch.float32
    errors = gradient.to(dtype) * (gradient.numel() / 2) / scale.to(dtype)
    if area is not None:
        errors = torch.where(area > 0, errors / area, 0)
    chosen = values.gather(1, along_experts(choices, values.shape))
    return (errors + (values - chosen).to(dtype)).square().mean(2)


def comparison_gradient(gate: Tensor, best: Tensor, compared: Tensor | None = None) -> Tensor:
    """Return the gradient of the mean binary cross-entropy with logits `gate`, target 1 for `best`.

    Args:
        gate: R, (N or 1, E, H, W).
        best: (N or 1, 1, H, W) the experts that should have been chosen.
        compared: (N or 1, E, H, W) bool, the entries that enter the loss; None for all.

    Returns:
        The gradient, in the shape of `gate`.
    """
    target = torch.zeros_like(gate).scatter_(1, best, 1)
    gradient = (gate.sigmoid() - target) / gate.numel()
    return gradient if compared is None else torch.where(compared, gradient, 0)


def _other_than(choices: Tensor, num_experts: int) -> Tensor:
    """Draw at each point an expert other than the chosen one."""
    domain = current()
    # drawn for the whole grid, so that parts do not change what is drawn
    shape = (*choices.shape[:2], *domain.shape(choices))
    step = domain.part(torch.randint(1, num_experts, shape, device=choices.device))
    return (choices + step) % num_experts
