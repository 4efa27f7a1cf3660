"""Compiled CPU loops that compute only the k chosen of E experts, forward and backward.

A dense layer computes E values at each point and discards E - k. These loops compute k, and the
backward pass classifies, damps and differentiates the choices row by row, so that little memory is
needed beyond the fields. Results equal those of the eager form up to the order of sums. The number
of threads changes only the order in which filter sums of bands are added.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ens10.models.domain import current
from ens10.models.layers.padding import FreeConv2d
from ens10.models.layers.smoe import loops
from ens10.models.layers.smoe.gates import planes
from ens10.models.layers.smoe.loops import Band, bands
from ens10.models.layers.smoe.routing import (
    ErrorLimits,
    RoutingRule,
    amplitude,
    compute_error_limits,
    record_loss,
    uses_weight_signal,
)
from ens10.models.layers.threads import in_threads

_BAND = 32  # rows
_BAND_POINTS = 2**13
_MIN_PRODUCTS = 2**24  # products of the dense form; with fewer it is as fast as compiled loops


@dataclass(frozen=True)
class Grid:
    """Padding beyond the fields, and the memory layout of fields and filters.

    Attributes:
        size: number of rows, and of columns, of a filter, odd.
        wrap: True if longitude is periodic.
        replicate: True if the outer rows are replicated.
    """

    size: int
    wrap: bool
    replicate: bool

    @classmethod
    def of(cls, experts: FreeConv2d) -> "Grid":
        """Return the padding and filter size of a convolution."""
        size = experts.kernel_size[0]
        return cls(size, experts.edges.columns == "circular", experts.edges.rows == "replicate")

    def ring(self, field: Tensor) -> Any:
        """Return a ring buffer of zeros for rows of a field (C, H, W): (columns, rows, C)."""
        columns = field.shape[2] + 2 * (self.size // 2)
        return field.new_zeros(columns, self.size, field.shape[0]).numpy()

    def rotate_filters(self, weight: Tensor) -> Any:
        """Return filters (E, C, rows, columns) for each rotation of the ring buffer.

        Returns:
            (rotations, E, columns x rows x C), an array.
        """
        flat = weight.detach().permute(0, 3, 2, 1)
        turns = [flat.roll(n, dims=2).flatten(1) for n in range(self.size)]
        return torch.stack(turns).numpy()

    def sum_rotations(self, rotations: Tensor, like: Tensor) -> Tensor:
        """Adjoint of `rotate_filters`: rotate filters back and sum them, (E, C, rows, columns)."""
        E, C = like.shape[:2]
        flat = rotations.view(self.size, E, self.size, self.size, C)
        total = sum(part.roll(-n, dims=2) for n, part in enumerate(flat))
        assert isinstance(total, Tensor)
        return total.permute(0, 3, 2, 1).contiguous()


def reason_against(features: Tensor, experts: FreeConv2d, filters: int) -> str | None:
    """Return why the compiled form cannot be used, or None if it can."""
    if features.device.type != "cpu":
        return f"it runs on the CPU, not on {features.device.type}"
    if features.dtype not in (torch.float32, torch.float64):
        return f"it takes float32 and float64, not {features.dtype}"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if filters > 1 or experts.stride != (1, 1):
        return "it has no stride, and one filter for each expert"
    if current().is_split:
        return "the grid is split between processes"
    half = experts.kernel_size[0] // 2
    if features.shape[-1] < half or features.numel() == 0:
        return "the fields are empty or narrower than the filters"
    return None


def is_faster(features: Tensor, experts: FreeConv2d) -> bool:
    """Return True if the dense form needs so many products that the compiled form is faster."""
    N, _, H, W = features.shape
    return N * H * W * experts.weight.numel() >= _MIN_PRODUCTS


def forward(features: Tensor, weight: Tensor, choices: Tensor, grid: Grid) -> Tensor:
    """Return the values of the chosen experts.

    Args:
        features: (N, C, H, W).
        weight: (E, C, rows, columns).
        choices: (N or 1, H, W, k) indices of the chosen experts.
        grid: padding and memory layout.

    Returns:
        (N, k, H, W).
    """
    features, filters = features.detach().contiguous(), grid.rotate_filters(weight)
    N, _, H, W = features.shape
    out = features.new_empty(N, choices.shape[-1], H, W)

    def compute(n: int, band: Band) -> None:
        field, index = features[n].numpy(), choices[n % len(choices)].numpy()
        edges = grid.wrap, grid.replicate
        ring = grid.ring(features[n])
        loops.forward_band(field, band, filters, index, out[n].numpy(), ring, *edges)

    in_threads(compute, [(n, band) for n in range(N) for band in bands(H, _BAND)])
    return out


def backward(
    features: Tensor,
    weight: Tensor,
    choices: Tensor,
    value_gradient: Tensor,
    damping_terms: tuple[Tensor, ErrorLimits, float] | None,
    grid: Grid,
    needs: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Return gradients for the features and the filters.

    Args:
        features: (N, C, H, W).
        weight: (E, C, rows, columns).
        choices: (N or 1, H, W, k) indices of the chosen experts.
        value_gradient: (N, k, H, W) gradient of the values before damping.
        damping_terms: gradient of the output (N, k, H, W), error limits and damping factor; None
            for no damping.
        grid: padding and memory layout.
        needs: True for each of the two gradients to compute.

    Returns:
        (N, C, H, W) and (E, C, rows, columns), or None for a gradient that is not needed.
    """
    features, filters = features.detach().contiguous(), grid.rotate_filters(weight)
    N, _, H, _ = features.shape
    real = features.numpy().dtype.type
    for_features = torch.zeros_like(features) if needs[0] else features
    errors, error_limits, damping = damping_terms or (value_gradient, None, 1.0)
    area, limits = _area(error_limits, features), np.full(N, np.inf, real)
    if error_limits is not None:
        limits = error_limits.damping.numpy()
    pieces = [(n, i, band) for n in range(N) for i, band in enumerate(bands(H, _BAND))]
    threads = max(min(torch.get_num_threads(), len(pieces)), 1)
    sums = features.new_zeros(threads, *filters.shape)

    def compute_share(thread: int, parity: int) -> None:
        ring, ring_sums = grid.ring(features[0]), grid.ring(features[0])
        for n, _, band in [piece for piece in pieces if piece[1] % 2 == parity][thread::threads]:
            loops.backward_band(
                features[n].numpy(), band, filters, choices[n % len(choices)].numpy(),
                value_gradient[n].numpy(), errors[n].numpy(), area, limits[n], real(damping),
                for_features[n].numpy(), sums[thread].numpy(), needs, ring, ring_sums,
                grid.wrap, grid.replicate,
            )  # fmt: skip

    for parity in (0, 1):  # neighbouring bands add to the same rows: not at the same time
        in_threads(compute_share, [(thread, parity) for thread in range(threads)])
    for_weight = grid.sum_rotations(sums.sum(0), weight) if needs[1] else None
    return for_features if needs[0] else None, for_weight


def _area(limits: ErrorLimits | None, like: Tensor) -> Any:
    """Return the loss weights of the points, (H, W) as in `like`, or negative values for none."""
    H, W = like.shape[-2:]
    if limits is None or limits.area is None:
        return like.new_full((H, W), -1.0).numpy()
    return limits.area.to(like.dtype).expand(H, W).contiguous().numpy()


def classification(
    gate: Tensor, choices: Tensor, errors: Tensor, error_limits: ErrorLimits, scale: Tensor
) -> Tensor:
    """Return the routing classification gradient; see `classification_gradient` in `routing`.

    Args:
        gate: R, (N or 1, E, H, W).
        choices: (N or 1, H, W, k) indices of the chosen experts.
        errors: (N, k, H, W) error signals of the choices.
        error_limits: limits above which a choice is incorrect.
        scale: scale of the loss.

    Returns:
        The gradient, in the shape of `gate`.
    """
    weights, signs = gate.detach().contiguous().flatten(2), errors.flatten(2)
    result, indices = torch.empty_like(weights), choices.flatten(1, 2)
    area, limits = _area(error_limits, errors).reshape(-1), error_limits.routing.numpy()
    factor = weights.numpy().dtype.type(float(scale) / gate.numel())

    def compute(m: int, band: Band) -> None:
        samples = slice(None) if len(gate) == 1 else slice(m, m + 1)
        loops.classify(
            weights[m].numpy(), indices[m % len(indices)].numpy(), signs[samples].numpy(),
            area, limits[samples], factor, band, result[m].numpy(),
        )  # fmt: skip

    points = weights.shape[2]
    in_threads(
        compute, [(m, band) for m in range(len(gate)) for band in bands(points, _BAND_POINTS)]
    )
    return result.view_as(gate)


class ChosenExperts(torch.autograd.Function):
    """Values of the chosen experts; the backward pass classifies every choice as correct or not.

    Like `RoutedOutput`, but called with features and filters instead of all experts' values:
    features (N, C, H, W), weight (E, C, rows, columns), weights (N or 1, k, H, W) or None, gate (N
    or 1, E, H, W), choices (N or 1, H, W, k), area, rule or None, and the grid. Returns
    (N, k, H, W).
    """

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        weights: Tensor | None,
        gate: Tensor,
        choices: Tensor,
        area: Tensor | None,
        rule: RoutingRule | None,
        grid: Grid,
    ) -> Tensor:
        """Return the output (N, k, H, W)."""
        ctx.rule, ctx.grid = rule, grid
        saved_gate = gate if rule is not None and rule.classify else None
        ctx.save_for_backward(features, weight, weights, saved_gate, choices, area)
        values = forward(features, weight, choices, grid)
        outputs = values if weights is None else values.mul_(weights)
        ctx.amplitude = amplitude(outputs, area) if rule is not None and rule.relative else None
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients for features, filters, weights and gate."""
        features, weight, weights, gate, choices, area = ctx.saved_tensors
        rule, grid, gradient = ctx.rule, ctx.grid, gradient.contiguous()
        for_weights = for_gate = damping_terms = signal = None
        uses_values = weights is not None and uses_weight_signal(rule)
        if ctx.needs_input_grad[2] or uses_values:
            products = gradient * forward(features, weight, choices, grid)
            signal = products if uses_values else None
            if ctx.needs_input_grad[2]:
                for_weights = products.sum_to_size(weights.shape)
        value_gradient = gradient if weights is None else gradient * weights
        if rule is not None:
            planar = gradient[:, :, None], None if signal is None else signal[:, :, None]
            limits = compute_error_limits(planar[0], rule, area, ctx.amplitude, planar[1])
            damping_terms = (gradient, limits, rule.damping)
        gradients = backward(
            features,
            weight,
            choices,
            value_gradient,
            damping_terms,
            grid,
            ctx.needs_input_grad[:2],
        )
        if rule is not None and rule.classify and ctx.needs_input_grad[3]:
            errors, scale = gradient if signal is None else signal, rule.loss_scale(gradient)
            for_gate = classification(gate, choices, errors, limits, scale)
            if rule.state.record:
                record_loss(rule, gate, planes(choices), limits.incorrect(*planar)[0])
        return *gradients, for_weights, for_gate, None, None, None, None
