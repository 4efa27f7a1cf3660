"""Quantiles of a sample's errors by selection, without sorting, on whole and on split grids."""

import math

import numpy as np
import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.models.domain import Domain
from ens10.models.layers.smoe.loops import select

_DIGIT = 11  # bits of a digit, counted in one pass: 2048 counters
_ROUNDING = 1 + 1e-10  # so that 0.7 of 10 is 7 however it is computed


def lower_quantile(
    values: Tensor, q: float, weights: Tensor | None = None, *, overwrite: bool = False
) -> Tensor:
    """Return the lower q-quantile of each row: its entry at that quantile or just below.

    Without weights this is the entry of rank floor(q (P - 1)) of P (ranks from 0). The entries
    above it are exactly those above the usual, linearly interpolated quantile: no entry lies
    between the two. With weights it is the smallest entry v for which the weight of the entries <=
    v is more than q (1 - 1/P) of the total weight, where P counts the entries of positive weight;
    equal weights give the same entry as no weights. A row of total weight 0 gives 0.

    Both take time proportional to P, for any P (`torch.quantile` sorts, and is limited to 2^24
    entries).

    Args:
        values: (N, P) float32 or float64, not negative, no NaN.
        q: between 0 and 1.
        weights: (P,) not negative; or fewer, if they are repeated.
        overwrite: True if the values may be put in another order, which saves a copy.

    Returns:
        (N,) in the dtype of `values`.

    Examples:
        >>> import torch
        >>> from ens10.models.layers.smoe.error_quantiles import lower_quantile
        >>> lower_quantile(torch.tensor([[4.0, 1.0, 3.0, 2.0]]), 0.5)
        tensor([2.])

    Raises:
        ArgumentError: q outside [0, 1], or no entries.
    """
    if not 0 <= q <= 1:
        raise ArgumentError("quantile", f"{q} is not between 0 and 1")
    count = values.shape[1]
    if count == 0:
        raise ArgumentError("values", "there are no entries to take a quantile of")
    if weights is None:
        return _smallest(values, math.floor(q * (count - 1) * _ROUNDING), overwrite)
    repeats, positive_count = count // weights.numel(), int((weights > 0).sum())
    if positive_count == 0:
        return values.new_zeros(values.shape[0])
    level = q * (1 - 1 / (repeats * positive_count)) * repeats * weights.double().sum() * _ROUNDING
    if values.device.type == "cpu":
        rows = values.reshape(len(values), repeats, -1)
        return torch.stack([_select_compiled(row, weights, float(level)) for row in rows])
    weights = weights.double().repeat(repeats)
    if repeats * positive_count < weights.numel():
        present = (weights > 0).nonzero()[:, 0]
        values, weights = values[:, present], weights[present]
    return torch.stack([_select(row, weights, level) for row in values])


def _smallest(values: Tensor, rank: int, overwrite: bool) -> Tensor:
    """Return the entry of each row of `values` (N, P) at a rank from 0."""
    if values.device.type != "cpu":
        return values.kthvalue(1 + rank, dim=1).values
    # torch's selection on the CPU takes quadratic time for descending values
    parted = values.detach().numpy()
    parted = parted if overwrite else parted.copy()
    parted.partition(rank, axis=1)
    return torch.from_numpy(np.ascontiguousarray(parted[:, rank]))


def _select_compiled(values: Tensor, weights: Tensor, level: float) -> Tensor:
    """As `_select`, by compiled loops on the CPU: values (n, P), weights (P,) of each row."""
    keys, bits = _keys(values.detach())
    key = select(keys.numpy(), weights.detach().contiguous().numpy(), level, bits, _DIGIT)
    return torch.from_numpy(np.array(key, keys.numpy().dtype)[None]).view(values.dtype)[0]


def _select(values: Tensor, weights: Tensor, level: Tensor) -> Tensor:
    """Return the smallest of `values` (P,) at which cumulative `weights` (P,) exceed `level`.

    Radix selection: bit patterns of non-negative numbers have the order of the numbers, so the
    leading bits are counted first, and then only entries that share them.
    """
    keys, bits = _keys(values)
    below = torch.zeros_like(level)
    for shift in range(bits - bits % _DIGIT, -1, -_DIGIT):
        digits = keys >> shift
        digits -= digits.min() >> _DIGIT << _DIGIT  # the digits before this one are the same
        sums = torch.bincount(digits, weights, minlength=2**_DIGIT).cumsum(0) + below
        # the last digit that occurs, should rounding leave the level out of reach
        digit = torch.minimum((sums <= level).sum(), digits.max())
        below = torch.where(digit > 0, sums[(digit - 1).clamp(min=0)], below)
        matches = (digits == digit).nonzero()[:, 0]
        values, keys, weights = values[matches], keys[matches], weights[matches]
    return values[0]


def _keys(values: Tensor) -> tuple[Tensor, int]:
    """Return integers in the order of `values`, and their number of bits."""
    if values.dtype == torch.float64:
        return values.contiguous().view(torch.int64), 63
    return values.float().contiguous().view(torch.int32), 31


def lower_quantile_of_parts(
    values: Tensor, q: float, weights: Tensor | None, domain: Domain
) -> Tensor:
    """Return the lower q-quantile of each sample of a split grid, over all of its parts.

    Radix selection with counters summed over the processes: 3 sums for float32 and 6 for float64,
    of 2048 numbers a sample, for any number of entries.

    Args:
        values: (N, P) float32 or float64 of this part, not negative, no NaN.
        q: between 0 and 1.
        weights: (P,) not negative, or fewer, if they are repeated; None for weights of 1.
        domain: sums over the other parts of the grid.

    Returns:
        (N,) in the dtype of `values`, the same on all processes; 0 if nothing has weight.
    """
    if weights is None:
        weights = torch.ones(1, dtype=torch.float64, device=values.device)
    weights = weights.repeat(values.shape[1] // len(weights))
    present = (weights > 0).nonzero()[:, 0]
    values, weights = values[:, present], weights[present].double()
    count, total_weight = domain.total(torch.stack([(weights > 0).sum().double(), weights.sum()]))
    if not count > 0:
        return values.new_zeros(len(values))
    level = q * (1 - 1 / count) * total_weight * _ROUNDING
    return _Selection(values, weights, level, domain).quantiles()


class _Selection:
    """Radix selection in the samples of a split grid, from the leading digit of the entries on.

    Args:
        values: (N, P) of this part, not negative.
        weights: (P,) float64, positive.
        level: cumulative weight that the quantile exceeds first.
        domain: sums over the other parts of the grid.
    """

    def __init__(self, values: Tensor, weights: Tensor, level: Tensor, domain: Domain) -> None:
        self._key_dtype = torch.int64 if values.dtype == torch.float64 else torch.int32
        self._bits = 63 if values.dtype == torch.float64 else 31
        self._dtype, self._level, self._domain = values.dtype, level, domain
        # numbers that are not negative have the order of their bit patterns
        self._keys = list(values.contiguous().view(self._key_dtype).long())
        self._weights = [weights] * len(values)
        self._weight_below = weights.new_zeros(len(values))
        self._quantile_bits = torch.zeros(len(values), dtype=torch.int64, device=values.device)

    def quantiles(self) -> Tensor:
        """Return each sample's smallest entry at which the cumulative weight exceeds the level.

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
