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
from ens10.models.layers.smoe import _rows
from ens10.models.layers.smoe._bands import Band, bands, in_bands
from ens10.models.layers.smoe._classing import classify
from ens10.models.layers.smoe.choosing import planes
from ens10.models.layers.smoe.conv import FreeConv2d
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
_REGISTERS = 20  # vectors of a patch that are kept
_LINE = 64  # bytes in a vector
_WORTH_IT = 2**24  # products of the dense form: below this it is as fast


@dataclass(frozen=True)
class Grid:
    """What lies beyond the fields, and how patches lie in memory.

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

    def lanes(self, channels: int, dtype: torch.dtype) -> int:
        """Numbers in a vector: few channels fill a part of the widest one."""
        lanes = _LINE // dtype.itemsize
        while lanes > 4 and channels <= lanes // 2:
            lanes //= 2
        return lanes

    def channels(self, channels: int, dtype: torch.dtype) -> int:
        """Channels with those added to fill vectors."""
        lanes = self.lanes(channels, dtype)
        return -(-channels // lanes) * lanes

    def layout(self, channels: int, dtype: torch.dtype) -> tuple[tuple[int, ...], ...]:
        """Runs, vectors in a run and lanes as the lengths of tuples, for as much as fits."""
        lanes = self.lanes(channels, dtype)
        run = self.size * self.channels(channels, dtype) // lanes
        runs = self.size if self.size * run <= _REGISTERS else 1
        most = _REGISTERS if runs > 1 else 12
        vectors = max(n for n in range(1, most + 1) if run % n == 0)
        return (0,) * runs, (0,) * vectors, (0,) * lanes


class _Work:
    """Memory for the loops, of one thread at a time."""

    def __init__(self, field: Tensor, k: int, grid: Grid, rings: int) -> None:
        C, _, W = field.shape
        half, channels = grid.size // 2, grid.channels(C, field.dtype)
        length = grid.size * (W + 2 * half) * channels
        self.rings = field.new_zeros(rings, length).numpy()
        self.line = field.new_zeros(2, W * k).numpy()
        self.places = np.zeros(grid.size, np.int64)
        size = grid.size**2 * channels
        self.padding = (half, channels, size, grid.wrap, grid.replicate)
        self.layout = grid.layout(C, field.dtype)


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


def _flat(weight: Tensor, grid: Grid) -> Tensor:
    """(E, C, rows, columns) -> (E rows columns channels,), zeros for the channels added."""
    E, C = weight.shape[:2]
    flat = weight.new_zeros(E, grid.size, grid.size, grid.channels(C, weight.dtype))
    flat[..., :C] = weight.detach().permute(0, 2, 3, 1)
    return flat.flatten()


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
    features, filters = features.detach().contiguous(), _flat(weight, grid).numpy()
    N, _, H, W = features.shape
    out = features.new_empty(N, chosen.shape[-1], H, W)

    def one(n: int, band: Band) -> None:
        work = _Work(features[n], chosen.shape[-1], grid, 1)
        field, index = features[n].numpy(), chosen[n % len(chosen)].numpy()
        _rows.forward_band(
            field, band, filters, index, out[n].numpy(), work.rings[0], work.line, work.places,
            work.padding, work.layout,
        )  # fmt: skip

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
    features, filters = features.detach().contiguous(), _flat(weight, grid).numpy()
    N, C, H, _ = features.shape
    k, real = part.shape[1], features.numpy().dtype.type
    for_features = torch.zeros_like(features) if wanted[0] else features
    errors, judgement, damping = judged or (part, None, 1.0)
    area, limits = _area(judgement, features), np.full(N, np.inf, real)
    if judgement is not None:
        limits = judgement.damping.numpy()
    pieces = [(n, i, band) for n in range(N) for i, band in enumerate(bands(H, _BAND))]
    threads = max(min(torch.get_num_threads(), len(pieces)), 1)
    sums = features.new_zeros(threads, len(filters)).numpy()

    def some(thread: int, parity: int) -> None:
        work = _Work(features[0], k, grid, 2)
        for n, _, band in [piece for piece in pieces if piece[1] % 2 == parity][thread::threads]:
            _rows.backward_band(
                features[n].numpy(), band, filters, chosen[n % len(chosen)].numpy(),
                part[n].numpy(), errors[n].numpy(), area, limits[n], real(damping),
                for_features[n].numpy(), sums[thread], wanted, work.rings, work.line,
                work.places, work.padding, work.layout,
            )  # fmt: skip

    for parity in (0, 1):  # neighbouring bands add to the same rows: not at the same time
        in_bands(some, [(thread, parity) for thread in range(threads)])
    total = torch.from_numpy(sums).sum(0) if threads > 1 else torch.from_numpy(sums[0])
    shaped = total.view(len(weight), grid.size, grid.size, -1)[..., :C].permute(0, 3, 1, 2)
    return for_features if wanted[0] else None, shaped.contiguous() if wanted[1] else None


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
        classify(
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
