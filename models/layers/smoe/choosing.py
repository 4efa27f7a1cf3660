"""Selection of the experts of largest weight at each point."""

import torch
from torch import Tensor

from ens10.models.layers.smoe.execution import bands, in_bands
from ens10.models.layers.smoe.loops import choose

_MOST = 2**16  # experts whose index fits into a key
_BAND = 2**13  # points


def preferred(routing: Tensor, k: int) -> Tensor:
    """Return the k experts of largest weight at each point.

    On the CPU in float32 experts of equal weight are taken in order (by a sorting network for many
    points at once); elsewhere `torch.topk` breaks ties arbitrarily.

    Args:
        routing: R, (N, E, H, W).
        k: number of selected experts.

    Returns:
        (N, H, W, k) indices in rank order, in the smallest type that holds E - 1.
    """
    routing = routing.detach()
    N, E, H, W = routing.shape
    if routing.dtype != torch.float32 or routing.device.type != "cpu" or E > _MOST:
        ranked = routing.movedim(1, -1).topk(k, dim=-1).indices
        return ranked.to(_smallest_dtype(E)).contiguous()
    chosen = torch.empty(N, H, W, k, dtype=_smallest_dtype(E))
    bits = routing.contiguous().view(torch.int32).flatten(2).numpy()
    pieces = [(n, band) for n in range(N) for band in bands(H * W, _BAND)]
    in_bands(lambda n, band: choose(bits[n], band, chosen[n].flatten(0, 1).numpy()), pieces)
    return chosen


def planes(chosen: Tensor) -> Tensor:
    """Convert choices (N, H, W, k) to indices (N, k, H, W), int64, as torch.gather takes them."""
    return chosen.movedim(-1, 1).long()


def _smallest_dtype(num_experts: int) -> torch.dtype:
    if num_experts <= 2**8:
        return torch.uint8
    return torch.int16 if num_experts <= 2**15 else torch.int32
