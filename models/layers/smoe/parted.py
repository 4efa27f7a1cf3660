"""Quantiles of errors on a grid that is split between processes."""

import torch
from torch import Tensor

from ens10.models.domain import Domain

_DIGIT = 11  # bits looked at in one round: 2048 counters a sample
_ROUNDING = 1 + 1e-10  # as for the whole: 0.7 of 10 is 7 however it is computed


def lower_quantile_of_parts(
    values: Tensor, q: float, weights: Tensor | None, domain: Domain
) -> Tensor:
    """Return the q-quantile of each sample of a split grid, as `lower_quantile` of the whole.

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
    counted = (weights > 0).nonzero()[:, 0]
    values, weights = values[:, counted], weights[counted].double()
    count, whole = domain.total(torch.stack([(weights > 0).sum().double(), weights.sum()]))
    if not count > 0:
        return values.new_zeros(len(values))
    level = q * (1 - 1 / count) * whole * _ROUNDING
    return _Selection(values, weights, level, domain).found()


class _Selection:
    """Radix selection: the remaining entries of each sample, from the leading digit on."""

    def __init__(self, values: Tensor, weights: Tensor, level: Tensor, domain: Domain) -> None:
        self._type = torch.int64 if values.dtype == torch.float64 else torch.int32
        self._bits = 63 if values.dtype == torch.float64 else 31
        self._dtype, self._level, self._domain = values.dtype, level, domain
        # numbers that are not negative have the order of their bit patterns
        self._keys = list(values.contiguous().view(self._type).long())
        self._weights = [weights] * len(values)
        self._below = weights.new_zeros(len(values))
        self._found = torch.zeros(len(values), dtype=torch.int64, device=values.device)

    def found(self) -> Tensor:
        """Return the entry of each sample at which cumulative weight exceeds the level."""
        for shift in range(self._bits - self._bits % _DIGIT, -1, -_DIGIT):
            self._narrow(shift)
        return self._found.to(self._type).view(self._dtype)

    def _narrow(self, shift: int) -> None:
        """Determine one more digit, and keep only the entries that share it."""
        digits = [(keys >> shift) & (2**_DIGIT - 1) for keys in self._keys]
        counters = [
            # of no entries torch counts in integers
            torch.bincount(digit, weights, minlength=2**_DIGIT).double()
            for digit, weights in zip(digits, self._weights, strict=True)
        ]
        sums = self._domain.total(torch.stack(counters))
        last = (sums > 0).long().mul(torch.arange(2**_DIGIT, device=sums.device)).amax(1)
        upto = sums.cumsum(1) + self._below[:, None]
        # the last digit that occurs, should rounding leave the level out of reach
        chosen = torch.minimum((upto <= self._level).sum(1), last)
        before = upto.gather(1, (chosen - 1).clamp(min=0)[:, None])[:, 0]
        self._below = torch.where(chosen > 0, before, self._below)
        self._found += chosen << shift
        for n, digit in enumerate(digits):
            matching = (digit == chosen[n]).nonzero()[:, 0]
            self._keys[n], self._weights[n] = self._keys[n][matching], self._weights[n][matching]
