"""Compiled CPU loops that compute only the k chosen of E experts, forward and backward.

A dense layer computes E values at each point and discards E - k. These loops compute k, and their
gradients row by row, so that little memory is needed beyond the fields. Results equal those of the
eager form up to the order of sums. The number of threads changes only the order in which filter
sums of bands are added.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ens10.models.domain import current
from ens10.models.layers.padding import FreeConv2d
from ens10.models.layers.smoe import loops
from ens10.models.layers.smoe.loops import Band, bands
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


@torch.library.custom_op("ens10::chosen_experts", mutates_args=())
def chosen_experts(
    features: Tensor, weight: Tensor, choices: Tensor, wrap: bool, replicate: bool
) -> Tensor:
    """Return the values of the chosen experts (N, k, 1, H, W), as `ChosenValues` of all values.

    Args:
        features: (N, C, H, W).
        weight: (E, C, rows, columns).
        choices: (N or 1, H, W, k).
        wrap: True if longitude is periodic.
        replicate: True if the outer rows are replicated.
    """
    grid = Grid(weight.shape[-1], wrap, replicate)
    features, filters = features.detach().contiguous(), grid.rotate_filters(weight)
    N, _, H, W = features.shape
    out = features.new_empty(N, choices.shape[-1], 1, H, W)

    def compute(n: int, band: Band) -> None:
        field, index = features[n].numpy(), choices[n % len(choices)].numpy()
        values, ring = out[n, :, 0].numpy(), grid.ring(features[n])
        loops.forward_band(field, band, filters, index, values, ring, wrap, replicate)

    in_threads(compute, [(n, band) for n in range(N) for band in bands(H, _BAND)])
    return out


@chosen_experts.register_fake
def _(features: Tensor, _: Tensor, choices: Tensor, *__: Any) -> Tensor:
    return features.new_empty(len(features), choices.shape[-1], 1, *features.shape[2:])


@torch.library.custom_op("ens10::chosen_experts_backward", mutates_args=())
def _expert_gradients(
    gradient: Tensor,
    features: Tensor,
    weight: Tensor,
    choices: Tensor,
    wrap: bool,
    replicate: bool,
    needs: list[bool],
) -> tuple[Tensor, Tensor]:
    """Return gradients for the features and the filters; empty where not needed."""
    grid = Grid(weight.shape[-1], wrap, replicate)
    features, filters = features.detach().contiguous(), grid.rotate_filters(weight)
    gradient = gradient[:, :, 0].contiguous()
    N, H = len(features), features.shape[2]
    for_features = torch.zeros_like(features) if needs[0] else features
    pieces = [(n, i, band) for n in range(N) for i, band in enumerate(bands(H, _BAND))]
    threads = max(min(torch.get_num_threads(), len(pieces)), 1)
    sums = features.new_zeros(threads, *filters.shape)

    def compute_share(thread: int, parity: int) -> None:
        ring, ring_sums = grid.ring(features[0]), grid.ring(features[0])
        mine = [piece for piece in pieces if piece[1] % 2 == parity][thread::threads]
        for n, _, band in mine:
            loops.backward_band(
                features[n].numpy(), band, filters, choices[n % len(choices)].numpy(),
                gradient[n].numpy(), for_features[n].numpy(), sums[thread].numpy(), tuple(needs),
                ring, ring_sums, wrap, replicate,
            )  # fmt: skip

    for parity in (0, 1):  # neighbouring bands add to the same rows: not at the same time
        in_threads(compute_share, [(thread, parity) for thread in range(threads)])
    none = features.new_empty(0)
    for_weight = grid.sum_rotations(sums.sum(0), weight) if needs[1] else none
    return for_features if needs[0] else none, for_weight


@_expert_gradients.register_fake
def _(_: Tensor, features: Tensor, weight: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    sizes = (
        t.shape if needed else (0,) for t, needed in zip((features, weight), args[-1], strict=True)
    )
    for_features, for_weight = (features.new_empty(size) for size in sizes)
    return for_features, for_weight


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs[:3])
    ctx.edges = inputs[3:]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    needs = list(ctx.needs_input_grad[:2])
    found = _expert_gradients(gradient, *ctx.saved_tensors, *ctx.edges, needs)
    return (
        *(g if needed else None for g, needed in zip(found, needs, strict=True)),
        None,
        None,
        None,
    )


chosen_experts.register_autograd(_backward, setup_context=_save)


def classification_gradient(
    gate: Tensor, indices: Tensor, wrong: Tensor, scale: Tensor | float = 1.0
) -> Tensor:
    """Return the routing classification gradient, as the function of this name in `routing`."""
    weights, chosen = gate.detach().contiguous().flatten(2), indices.flatten(1, 2)
    result, masks = torch.empty_like(weights), wrong.flatten(2)
    factor = weights.numpy().dtype.type(float(scale) / gate.numel())

    def compute(m: int, band: Band) -> None:
        samples = slice(None) if len(gate) == 1 else slice(m, m + 1)
        loops.classify(
            weights[m].numpy(), chosen[m % len(chosen)].numpy(), masks[samples].numpy(), factor,
            band, result[m].numpy(),
        )  # fmt: skip

    points = weights.shape[2]
    in_threads(
        compute, [(m, band) for m in range(len(gate)) for band in bands(points, _BAND_POINTS)]
    )
    return result.view_as(gate)
