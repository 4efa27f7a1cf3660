"""Which experts a map of weights prefers, in small integers, ranks last."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.metrics.ensemble._network import exchanges
from ens10.models.layers.smoe._bands import bands, in_bands
from ens10.models.layers.smoe._choice_loops import choose, choose_few

_MOST = 2**16  # experts whose index fits into a key
_BAND = 2**13  # points
_FEW = 4  # keys that the processor's registers hold for _LINE points
_LINE = 16  # points


def preferred(routing: Tensor, k: int) -> Tensor:
    """The k experts of largest weight at each point.

    On the CPU in float32 experts of equal weight are taken in order (by a sorting network for
    many points at once); elsewhere `torch.topk` takes any of them.

    Args:
        routing: R, (N, E, H, W).
        k: how many.

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
    group = 1 << (k - 1).bit_length()
    if (
        group <= _FEW
        and E % group == 0
        and all(stop - start >= _LINE for _, (start, stop) in pieces)
    ):
        few = (0,) * group, (0,) * _LINE
        in_bands(
            lambda n, band: choose_few(bits[n], *few, band, chosen[n].flatten(0, 1).numpy()), pieces
        )
        return chosen
    network = _network(E, k)
    in_bands(
        lambda n, band: choose(bits[n], network, band, chosen[n].flatten(0, 1).numpy()), pieces
    )
    return chosen


def planes(chosen: Tensor) -> Tensor:
    """(N, H, W, k) choices as torch gathers by them: (N, k, H, W) int64."""
    return chosen.movedim(-1, 1).long()


def _smallest_dtype(num_experts: int) -> torch.dtype:
    if num_experts <= 2**8:
        return torch.uint8
    return torch.int16 if num_experts <= 2**15 else torch.int32


@lru_cache(maxsize=64)
def _network(n: int, k: int) -> npt.NDArray[np.int64]:
    """Exchanges that bring the k largest of n in order to the last places, the fewest we know."""
    group = 1 << (k - 1).bit_length()
    ways = [exchanges(n).tolist()]
    if n % group == 0:
        ways.append(_by_groups(n, group))
    return min((_needed(way, n, k) for way in ways), key=len)


def _by_groups(n: int, group: int) -> list[tuple[int, int]]:
    """Groups are sorted; the larger half of the last and another is sorted in the last's place."""
    found = [(first + i, first + j) for first in range(0, n, group) for i, j in exchanges(group)]
    last = n - group
    for first in range(0, last, group):
        found += [(first + group - 1 - i, last + i) for i in range(group)]
        distance = group // 2
        while distance:
            ones = [i for i in range(group) if not i & distance]
            found += [(last + i, last + i + distance) for i in ones]
            distance //= 2
    return found


def _needed(way: list[tuple[int, int]], n: int, k: int) -> npt.NDArray[np.int64]:
    """The exchanges that the last k of n places depend on."""
    needed, kept = set(range(n - k, n)), []
    for i, j in way[::-1]:
        if i in needed or j in needed:
            needed |= {i, j}
            kept.append((i, j))
    return np.array(kept[::-1], dtype=np.int64).reshape(-1, 2)
