"""Quantiles of a sample's errors by selection, without sorting, on whole and on split grids.

The bit patterns of numbers that are not negative have the order of the numbers. Radix selection
counts the leading bits (digits) of all entries, and then only looks at entries that share them.
"""

import math

import numpy as np
import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.models.domain import Domain, Whole
from ens10.models.layers.smoe.loops import select

# 2048 counters fit into the L1 cache; float32 needs 3 passes over entries, float64 6
_DIGIT = 11
# q (P - 1) in floating point may lie below a whole number that it is in exact arithmetic, such as
# 0.7 of 10; the rounding of a product of doubles is 1e-16, and no rank is as large as 1e10
_ROUNDING = 1 + 1e-10


def lower_quantile(
    values: Tensor, q: float, weights: Tensor | None = None, domain: Domain | None = None
) -> Tensor:
    """Return the lower q-quantile of each row: its entry at that quantile or just below.

    Without weights this is the entry of rank floor(q (P - 1)) of P (ranks from 0). The entries
    above it are exactly those above the usual, linearly interpolated quantile: no entry lies
    between the two. With weights it is the smallest entry v for which the weight of the entries <=
    v is more than q (1 - 1/P) of the total weight, where P counts the entries of positive weight;
    equal weights give the same entry as no weights. A row of total weight 0 gives 0.

    The time is proportional to P, for any P (`torch.quantile` sorts, and is limited to 2^24
    entries). On a split grid the counters are summed over the processes: 3 sums for float32 and 6
    for float64, of 2048 numbers a row, for any number of entries.

    Args:
        values: (N, P) float32 or float64, not negative, no NaN.
        q: between 0 and 1.
        weights: (P,) not negative; or fewer, if they are repeated.
        domain: sums over the other parts of the grid, of which `values` is one; None for the whole.

    Returns:
        (N,) in the dtype of `values`, the same on all processes.

    Examples:
        >>> import torch
        >>> from ens10.models.layers.smoe.error_quantiles import lower_quantile
        >>> lower_quantile(torch.tensor([[4.0, 1.0, 3.0, 2.0]]), 0.5)
        tensor([2.])

    Raises:
        ArgumentError: q outside [0, 1], or no entries.
    """
    domain = domain or Whole()
    if not 0 <= q <= 1:
        raise ArgumentError("quantile", f"{q} is not between 0 and 1")
    N, count = values.shape
    is_local = not domain.is_split
    if count == 0 and is_local:
        raise ArgumentError("values", "there are no entries to take a quantile of")
    if weights is None and is_local and values.device.type != "cpu":
        return values.kthvalue(1 + math.floor(q * (count - 1) * _ROUNDING), dim=1).values
    if weights is None:
        weights = torch.ones(1, dtype=torch.float64, device=values.device).expand(count)
    repeats = count // max(len(weights), 1)
    if is_local and values.device.type != "cpu":
        return _by_sorting(values.detach(), weights.detach().double().repeat(repeats), q)
    local = torch.stack([(weights > 0).sum().double(), weights.sum(dtype=torch.float64)])
    positive_count, total_weight = domain.total(repeats * local).cpu().tolist()
    if positive_count == 0:
        return values.new_zeros(N)
    level = q * (1 - 1 / positive_count) * total_weight * _ROUNDING
    if not is_local:
        return _Selection(values, weights.repeat(repeats), level, domain).quantiles()
    bits = torch.int64 if values.dtype == torch.float64 else torch.int32
    keys = values.detach().contiguous().view(bits).view(N, repeats, -1).numpy()
    key_bits = 8 * keys.itemsize - 1  # the sign bit is 0
    found = [
        select(row, weights.detach().double().numpy(), level, key_bits, _DIGIT) for row in keys
    ]
    return torch.from_numpy(np.array(found, keys.dtype)).view(values.dtype)


def _by_sorting(values: Tensor, weights: Tensor, q: float) -> Tensor:
    """Return the weighted quantiles of rows on a GPU, without values that the host reads.

    Args:
        values: (N, P).
        weights: (P,) float64.
        q: between 0 and 1.
    """
    entries, order = values.sort(1)
    ordered = weights[order]
    cumulative, positive = ordered.cumsum(1), weights > 0
    level = q * (1 - 1 / positive.sum()) * weights.sum() * _ROUNDING
    # the last entry that counts, should rounding leave the level out of reach
    last = (ordered > 0).long().mul(torch.arange(len(weights), device=values.device)).amax(1)
    place = torch.minimum((cumulative <= level).sum(1), last)
    found = entries.gather(1, place[:, None])[:, 0]
    return torch.where(positive.any(), found, 0)


class _Selection:
    """Radix selection with torch's operations, in the rows of a whole or of a split grid.

    Args:
        values: (N, P) of this part, not negative.
        weights: (P,) not negative.
        level: cumulative weight that the quantile exceeds first.
        domain: sums over the other parts of the grid.
    """

    def __init__(self, values: Tensor, weights: Tensor, level: float, domain: Domain) -> None:
        self._key_dtype = torch.int64 if values.dtype == torch.float64 else torch.int32
        self._bits = 63 if values.dtype == torch.float64 else 31
        self._dtype, self._level, self._domain = values.dtype, level, domain
        present = (weights > 0).nonzero()[:, 0]
        values, weights = values.detach()[:, present], weights.detach()[present].double()
        self._keys = list(values.contiguous().view(self._key_dtype).long())
        self._weights = [weights] * len(values)
        self._weight_below = weights.new_zeros(len(values))
        self._quantile_bits = torch.zeros(len(values), dtype=torch.int64, device=values.device)

    def quantiles(self) -> Tensor:
        """Return each row's smallest entry at which the cumulative weight exceeds the level.

        Returns:
            (N,) in the dtype of the values.
        """
        for shift in range(self._bits - self._bits % _DIGIT, -1, -_DIGIT):
            self._narrow(shift)
        return self._quantile_bits.to(self._key_dtype).view(self._dtype)

    def _narrow(self, shift: int) -> None:
        """Determine each quantile's digit at bit `shift`, and keep the entries that share it."""
        digits = [(keys >> shift) & (2**_DIGIT - 1) for keys in self._keys]
        counters = [
            # torch counts in integers if there are no entries
            torch.bincount(digit, weights, minlength=2**_DIGIT).double()
            for digit, weights in zip(digits, self._weights, strict=True)
        ]
        sums = self._domain.total(torch.stack(counters))
        last = (sums > 0).long().mul(torch.arange(2**_DIGIT, device=sums.device)).amax(1)
        cumulative = sums.cumsum(1) + self._weight_below[:, None]
        # the last digit that occurs, should rounding leave the level out of reach
        next_digits = torch.minimum((cumulative <= self._level).sum(1), last)
        before = cumulative.gather(1, (next_digits - 1).clamp(min=0)[:, None])[:, 0]
        self._weight_below = torch.where(next_digits > 0, before, self._weight_below)
        self._quantile_bits += next_digits << shift
        for n, digit in enumerate(digits):
            matches = (digit == next_digits[n]).nonzero()[:, 0]
            self._keys[n], self._weights[n] = self._keys[n][matches], self._weights[n][matches]
