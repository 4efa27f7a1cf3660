"""The k chosen experts of E alone, by compiled loops on the CPU, forward and backward.

A dense layer computes E values at each point to keep k. These loops compute k, and in the
backward pass judge, damp and differentiate the choices row by row, so that next to no memory is
needed beyond the fields themselves. Results equal those of the eager form but for the order of
sums. What depends on the number of threads is only the order in which sums for the filters of
whole bands are added.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ens10.models.domain import current
from ens10.models.layers.smoe import loops
from ens10.models.layers.smoe.choosing import planes
from ens10.models.layers.smoe.conv import FreeConv2d
from ens10.models.layers.smoe.execution import Band, bands, in_bands
from ens10.models.layers.smoe.routing import (
    Judgement,
    RoutingRule,
    amplitude,
    judge,
    judges_weights,
    record_loss,
)

_BAND = 32  # rows
_BAND_POINTS = 2**13
_WORTH_IT = 2**24  # products of the dense form: below this it is as fast


@dataclass(frozen=True)
class Grid:
    """What lies beyond the fields, and how fields and filters lie in memory.

    Attributes:
        size: rows and columns of a filter, odd.
        wrap: whether longitude is periodic.
        replicate: whether the outer rows are replicated.
    """

    size: int
    wrap: bool
    replicate: bool

    @classmethod
    def of(cls, experts: FreeConv2d) -> "Grid":
        """That of a convolution."""
        size = experts.kernel_size[0]
        return cls(size, experts.edges.columns == "circular", experts.edges.rows == "replicate")

    def ring(self, field: Tensor) -> Any:
        """Scratch for rows of a field (C, H, W) as the loops take them, zeros."""
        columns = field.shape[2] + 2 * (self.size // 2)
        return field.new_zeros(columns, self.size, field.shape[0]).numpy()

    def turned(self, weight: Tensor) -> Any:
        """Filters (E, C, rows, columns) as the loops take them: with their rows turned, flat."""
        flat = weight.detach().permute(0, 3, 2, 1)
        turns = [flat.roll(n, dims=2).flatten(1) for n in range(self.size)]
        return torch.stack(turns).numpy()

    def filters(self, turned: Tensor, like: Tensor) -> Tensor:
        """The adjoint of `turned`: (E, C, rows, columns) summed over the turns."""
        E, C = like.shape[:2]
        flat = turned.view(self.size, E, self.size, self.size, C)
        total = sum(part.roll(-n, dims=2) for n, part in enumerate(flat))
        assert isinstance(total, Tensor)
        return total.permute(0, 3, 2, 1).contiguous()


def can(features: Tensor, experts: FreeConv2d, filters: int) -> str | None:
    """Why the compiled form cannot be used, or None if it can."""
    if features.device.type != "cpu":
        return f"it runs on the CPU, not on {features.device.type}"
    if features.dtype not in (torch.float32, torch.float64):
        return f"it takes float32 and float64, not {features.dtype}"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if filters > 1 or experts.stride != (1, 1):
        return "it has no stride, and one filter for each expert"
    if not current().whole:
        return "the grid is split between processes"
    half = experts.kernel_size[0] // 2
    if features.shape[-1] < half or features.numel() == 0:
        return "the fields are empty or narrower than the filters"
    return None


def worth_it(features: Tensor, experts: FreeConv2d) -> bool:
    """Whether the dense form has so much to do that compiling pays."""
    N, _, H, W = features.shape
    return N * H * W * experts.weight.numel() >= _WORTH_IT


def forward(features: Tensor, weight: Tensor, chosen: Tensor, grid: Grid) -> Tensor:
    """Values of the chosen experts.

    Args:
        features: (N, C, H, W).
        weight: (E, C, rows, columns).
        chosen: (N or 1, H, W, k) indices.
        grid: what lies beyond the fields.

    Returns:
        (N, k, H, W).
    """
    features, filters = features.detach().contiguous(), grid.turned(weight)
    N, _, H, W = features.shape
    out = features.new_empty(N, chosen.shape[-1], H, W)

    def one(n: int, band: Band) -> None:
        field, index = features[n].numpy(), chosen[n % len(chosen)].numpy()
        edges = grid.wrap, grid.replicate
        ring = grid.ring(features[n])
        loops.forward_band(field, band, filters, index, out[n].numpy(), ring, *edges)

    in_bands(one, [(n, band) for n in range(N) for band in bands(H, _BAND)])
    return out


def backward(
    features: Tensor,
    weight: Tensor,
    chosen: Tensor,
    part: Tensor,
    judged: tuple[Tensor, Judgement, float] | None,
    grid: Grid,
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients for the features and the filters.

    Args:
        features: (N, C, H, W).
        weight: (E, C, rows, columns).
        chosen: (N or 1, H, W, k) indices.
        part: (N, k, H, W) gradient of the values before damping.
        judged: the gradient of the output, how it is judged, and the factor of incorrect choices.
        grid: what lies beyond the fields.
        wanted: which of the two.
    """
    features, filters = features.detach().contiguous(), grid.turned(weight)
    N, _, H, _ = features.shape
    real = features.numpy().dtype.type
    for_features = torch.zeros_like(features) if wanted[0] else features
    errors, judgement, damping = judged or (part, None, 1.0)
    area, limits = _area(judgement, features), np.full(N, np.inf, real)
    if judgement is not None:
        limits = judgement.damping.numpy()
    pieces = [(n, i, band) for n in range(N) for i, band in enumerate(bands(H, _BAND))]
    threads = max(min(torch.get_num_threads(), len(pieces)), 1)
    sums = features.new_zeros(threads, *filters.shape)

    def some(thread: int, parity: int) -> None:
        ring, ring_sums = grid.ring(features[0]), grid.ring(features[0])
        for n, _, band in [piece for piece in pieces if piece[1] % 2 == parity][thread::threads]:
            loops.backward_band(
                features[n].numpy(), band, filters, chosen[n % len(chosen)].numpy(),
                part[n].numpy(), errors[n].numpy(), area, limits[n], real(damping),
                for_features[n].numpy(), sums[thread].numpy(), wanted, ring, ring_sums,
                grid.wrap, grid.replicate,
            )  # fmt: skip

    for parity in (0, 1):  # neighbouring bands add to the same rows: not at the same time
        in_bands(some, [(thread, parity) for thread in range(threads)])
    for_weight = grid.filters(sums.sum(0), weight) if wanted[1] else None
    return for_features if wanted[0] else None, for_weight


def _area(judgement: Judgement | None, like: Tensor) -> Any:
    """Weights of the points (H, W) as the loops take them, negative if there are none."""
    H, W = like.shape[-2:]
    if judgement is None or judgement.area is None:
        return like.new_full((H, W), -1.0).numpy()
    return judgement.area.to(like.dtype).expand(H, W).contiguous().numpy()


def classification(
    gate: Tensor, chosen: Tensor, errors: Tensor, judgement: Judgement, scale: Tensor
) -> Tensor:
    """As `classification_gradient`, from the errors (N, k, H, W) that are judged."""
    weights, signs = gate.detach().contiguous().flatten(2), errors.flatten(2)
    found, indices = torch.empty_like(weights), chosen.flatten(1, 2)
    area, limits = _area(judgement, errors).reshape(-1), judgement.routing.numpy()
    factor = weights.numpy().dtype.type(float(scale) / gate.numel())

    def one(m: int, band: Band) -> None:
        samples = slice(None) if len(gate) == 1 else slice(m, m + 1)
        loops.classify(
            weights[m].numpy(), indices[m % len(indices)].numpy(), signs[samples].numpy(),
            area, limits[samples], factor, band, found[m].numpy(),
        )  # fmt: skip

    points = weights.shape[2]
    in_bands(one, [(m, band) for m in range(len(gate)) for band in bands(points, _BAND_POINTS)])
    return found.view_as(gate)


class ChosenExperts(torch.autograd.Function):
    """The values of the chosen experts; its backward judges every choice.

    As `RoutedOutput`, but called with features and the experts' filters in place of all values:
    features (N, C, H, W), weight (E, C, rows, columns), weights (N or 1, k, H, W) or None, gate
    (N or 1, E, H, W), chosen (N or 1, H, W, k), area, rule or None, and the grid. Gives
    (N, k, H, W).
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        weights: Tensor | None,
        gate: Tensor,
        chosen: Tensor,
        area: Tensor | None,
        rule: RoutingRule | None,
        grid: Grid,
    ) -> Tensor:
        """The output (N, k, H, W)."""
        ctx.rule, ctx.grid = rule, grid
        judged = gate if rule is not None and rule.classify else None
        ctx.save_for_backward(features, weight, weights, judged, chosen, area)
        values = forward(features, weight, chosen, grid)
        outputs = values if weights is None else values.mul_(weights)
        ctx.amplitude = amplitude(outputs, area) if rule is not None and rule.relative else None
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients for features, filters, weights and gate."""
        features, weight, weights, gate, chosen, area = ctx.saved_tensors
        rule, grid, gradient = ctx.rule, ctx.grid, gradient.contiguous()
        for_weights = for_gate = judged = signal = None
        judges_values = weights is not None and judges_weights(rule)
        if ctx.needs_input_grad[2] or judges_values:
            products = gradient * forward(features, weight, chosen, grid)
            signal = products if judges_values else None
            if ctx.needs_input_grad[2]:
                for_weights = products.sum_to_size(weights.shape)
        part = gradient if weights is None else gradient * weights
        if rule is not None:
            planar = gradient[:, :, None], None if signal is None else signal[:, :, None]
            judgement = judge(planar[0], rule, area, ctx.amplitude, planar[1])
            judged = (gradient, judgement, rule.damping)
        found = backward(features, weight, chosen, part, judged, grid, ctx.needs_input_grad[:2])
        if rule is not None and rule.classify and ctx.needs_input_grad[3]:
            errors, scale = gradient if signal is None else signal, rule.loss_scale(gradient)
            for_gate = classification(gate, chosen, errors, judgement, scale)
            if rule.state.record:
                record_loss(rule, gate, planes(chosen), judgement.wrong(*planar)[0])
        return *found, for_weights, for_gate, None, None, None, None
