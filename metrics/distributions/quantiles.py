"""A forecast given by its quantiles at some levels."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from ens10.errors import ArgumentError, listing
from ens10.metrics.distributions.base import (
    CORE,
    QUANTILE_STATISTICS,
    Distribution,
    clip,
    samples_to_core_axis,
)
from ens10.metrics.distributions.formula import Parameter

# 1 % to 99 %: what is written of distributions whose form has no name in a store
LEVELS = tuple(percent / 100 for percent in range(1, 100))
_VALUES = {
    "values": Parameter(
        core_dim="quantile", long_name="quantiles of the forecast", is_quantity=True
    )
}


class StoredAsQuantiles(Distribution):
    """A distribution that a Dataset stores as its quantiles at `LEVELS`, 1 % to 99 %.

    The CRPS of the stored quantiles (`ens10.metrics.score_states`) is 0.05 to 0.08 % larger than
    that of the distribution: each level represents its nearest probabilities, and the first and
    last quantile the tails.
    """

    kind = "quantiles"

    def variables(self) -> dict[str, Any]:
        """Return `values`, the quantiles at `LEVELS`, (..., 99, H, W)."""
        return {"values": self.ops.moveaxis(self.quantile(np.array(LEVELS)), 0, CORE)}

    def core_coordinates(self) -> dict[str, Sequence[float]]:
        """Return the probabilities of the quantiles."""
        return {"quantile": LEVELS}

    @classmethod
    def core_dims(cls) -> tuple[str, ...]:
        """Return the dimension of the quantiles."""
        return ("quantile",)

    @property
    def _stored_parameters(self) -> Mapping[str, Parameter]:
        return _VALUES


@dataclass(eq=False)
class Quantiles(StoredAsQuantiles, kind="quantiles"):
    """The distribution whose quantile function is linear between the given levels.

    Beyond the outermost levels the quantile function is constant: the first and last value are
    point masses with the probabilities of the tails.

    Args:
        values: quantiles, non-decreasing along their axis, (..., Q, H, W), target units.
        levels: their probabilities, ascending, inside (0, 1).
        rule: rule of `crps`: "linear", exact for this distribution, or "nearest", in which each
            level represents the probabilities nearest to it. Stores are scored by "nearest".

    Raises:
        ArgumentError: wrong dimensions, or levels that do not fit or do not ascend.
    """

    values: Any
    levels: Sequence[float]
    rule: Literal["linear", "nearest"] = "linear"

    parameters: ClassVar = _VALUES
    offers = QUANTILE_STATISTICS

    def __post_init__(self) -> None:
        if self.values.ndim < 3 or self.values.shape[CORE] != len(self.levels):
            raise ArgumentError(
                "values",
                f"has shape {tuple(self.values.shape)}, expected (N, {len(self.levels)}, H, W)",
            )
        edges = [0.0, *self.levels, 1.0]
        if any(low >= high for low, high in pairwise(edges)):
            text = listing([f"{level:g}" for level in self.levels])
            raise ArgumentError("levels", f"{text} do not rise between 0 and 1")

    @classmethod
    def from_variables(
        cls, variables: Mapping[str, Any], coordinates: Mapping[Any, Any]
    ) -> "Quantiles":
        """Build the distribution from a Dataset's quantiles (..., Q, H, W) and their levels."""
        return cls(variables["values"], np.asarray(coordinates["quantile"]).tolist(), "nearest")

    def variables(self) -> dict[str, Any]:
        """Return the variable `values`."""
        return {"values": self.values}

    def core_coordinates(self) -> dict[str, Sequence[float]]:
        """Return the probabilities of the quantiles."""
        return {"quantile": self.levels}

    def crps(self, y: Any) -> Any:
        """Return the CRPS by the chosen rule; "linear" is exact, as in `crps_quantiles`."""
        if self.rule == "linear":
            from ens10.metrics.calibration import crps_quantiles

            return crps_quantiles(
                self.values, y, levels=list(self.levels), quantile_dim=CORE, rule="linear"
            )
        inner = [(low + high) / 2 for low, high in pairwise(self.levels)]
        total: Any = 0.0 * y
        for n, (low, high) in enumerate(pairwise([0.0, *inner, 1.0])):
            gap = self.values[..., n, :, :] - y
            above = self.ops.cast(gap > 0, gap)
            total = total + (2 * (high - low)) * (gap * (above - self.levels[n]))
        return total

    @property
    def _shares(self) -> tuple[Any, float, float]:
        """Return the probabilities between the levels, (Q - 1, 1, 1), and those of both tails."""
        p = np.array(self.levels)
        between = self.ops.cast(np.diff(p)[:, None, None], self.values)
        return between, float(p[0]), float(1 - p[-1])

    @property
    def mean(self) -> Any:
        """Return the mean, the integral of the quantile function."""
        between, first, last = self._shares
        x = self.values
        inner = 0.5 * between * (x[..., 1:, :, :] + x[..., :-1, :, :])
        return inner.sum(axis=CORE) + first * x[..., 0, :, :] + last * x[..., -1, :, :]

    @property
    def std(self) -> Any:
        """Return the standard deviation."""
        between, first, last = self._shares
        x = self.values - self.mean[..., None, :, :]
        low, high = x[..., :-1, :, :], x[..., 1:, :, :]
        inner = between * (low * low + low * high + high * high) / 3
        tails = first * x[..., 0, :, :] ** 2 + last * x[..., -1, :, :] ** 2
        return self.ops.sqrt(inner.sum(axis=CORE) + tails)

    def cdf(self, y: Any) -> Any:
        """Return the cdf: linear between the quantiles, 0 below the first, 1 from the last on."""
        return self._cdf(y, operator.ge)

    def cdf_below(self, y: Any) -> Any:
        """Return the probability of a value less than `y`; equal quantiles are a point mass."""
        return self._cdf(y, operator.gt)

    def _cdf(self, y: Any, passes: Callable[[Any, Any], Any]) -> Any:
        ops, x, at = self.ops, self.values, self._as_field(y)
        low, high = x[..., :-1, :, :], x[..., 1:, :, :]
        between, first, _ = self._shares
        gap, up = high - low, at[..., None, :, :] - low
        ratio = clip(ops, up / ops.where(gap > 0, gap, 1.0), 0.0, 1.0)
        ratio = ops.where(gap > 0, ratio, ops.cast(passes(up, 0.0), x))
        share = first * ops.cast(passes(at, x[..., 0, :, :]), x) + (between * ratio).sum(axis=CORE)
        share = ops.where(passes(at, x[..., -1, :, :]), 1.0, share)
        return ops.where(ops.isnan(x.sum(axis=CORE)), float("nan"), share)

    def quantile(self, q: Any) -> Any:
        """Return quantiles: linear between the levels, and the outermost values beyond them."""
        ops, p = self.ops, self.probabilities(q)
        ranked = ops.moveaxis(self.values, CORE, 0)
        levels = ops.double_like(np.array(self.levels), self.values)
        above = clip(ops, ops.searchsorted(levels, p - 1e-9), 1, max(len(self.levels) - 1, 1))
        if len(self.levels) == 1:
            return ranked[above * 0]
        low, high = levels[above - 1], levels[above]
        share = ops.cast(clip(ops, (p - low) / (high - low), 0.0, 1.0), self.values)
        share = share.reshape(*p.shape, *[1] * (ranked.ndim - 1))
        return ranked[above - 1] + share * (ranked[above] - ranked[above - 1])

    def sample(self, n: int, generator: Any = None) -> Any:
        """Return samples that are independent between grid points, (..., n, H, W)."""
        ops = self.ops
        p = samples_to_core_axis(ops, self._random_levels(n, generator))
        levels = ops.double_like(np.array(self.levels), self.values)
        above = clip(ops, ops.searchsorted(levels, p), 0, len(self.levels) - 1)
        below = clip(ops, above - 1, 0, len(self.levels))
        gap = levels[above] - levels[below]
        share = clip(ops, (p - levels[below]) / ops.where(gap > 0, gap, 1.0), 0.0, 1.0)
        low, high = (ops.take_along(self.values, index, CORE) for index in (below, above))
        return low + ops.cast(share, low) * (high - low)

    def ranks(self, y: Any, statistics: Mapping[str, Any]) -> tuple[Any, Any, Any]:  # noqa: ARG002
        """Return the counts of quantiles below and equal to `y`, and the rank probabilities."""
        at = y[..., None, :, :]
        below = (self.values < at).sum(axis=CORE, dtype=np.int32)
        equal = (self.values == at).sum(axis=CORE, dtype=np.int32)
        below[np.isnan(self.values.sum(axis=CORE) + y)] = -1
        return below, equal, np.array([0.0, *self.levels, 1.0])
