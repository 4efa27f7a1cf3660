"""Forecasts of quantiles and of families of distributions, and the case of every kind."""

from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ens10.metrics._dispatch import Array
from ens10.metrics.calibration import pit_counts
from ens10.metrics.families import registry
from ens10.metrics.families._family import Family
from ens10.metrics.families.registry import FAMILIES
from ens10.metrics.verification.cases import BY_EFI, OF_ALL, Case, Ensemble, Floats, Ints, Normal


class Quantiles(Case):
    """`values` at probabilities `levels` along the first axis."""

    offers = OF_ALL | {"crps"}
    estimator = "quantiles"

    def crps(self) -> Array:
        """Twice the integral of the quantile score over levels, each standing for its nearest."""
        edges = np.concatenate([[0.0], (self.levels[1:] + self.levels[:-1]) / 2, [1.0]])
        total: Array = np.zeros_like(self.y)
        for level, share in zip(self.levels, np.diff(edges), strict=True):
            total = total + self.y.dtype.type(2 * share) * self.quantile_score(float(level))
        return total

    def quantile(self, level: float) -> Array:
        """Linear between the levels; the outermost ones beyond them."""
        values = self.arrays["values"]
        above = int(np.searchsorted(self.levels, level - 1e-9))
        if above == len(self.levels) or above == 0:
            outermost: Array = values[min(above, len(self.levels) - 1)]
            return outermost
        low, high = self.levels[above - 1 : above + 1]
        share = values.dtype.type((level - low) / (high - low))
        between: Array = values[above - 1] + share * (values[above] - values[above - 1])
        return between

    def above(self, threshold: float) -> Floats:
        """1 - F, F linear between the levels, 0 and 1 beyond the outermost."""
        values = self.arrays["values"]
        below: Floats = np.where(threshold >= values[0], self.levels[0], 0.0)
        for n, (low, high) in enumerate(pairwise(values)):
            first, last = self.levels[n : n + 2]
            with np.errstate(divide="ignore", invalid="ignore"):
                within = first + (last - first) * (threshold - low) / (high - low)
            inside = (threshold >= low) & (threshold < high)
            below = np.where(inside, within, np.where(threshold >= high, last, below))
        below = np.where(threshold > values[-1], 1.0, below)
        return np.where(np.isnan(values.sum(axis=0)), np.nan, 1.0 - below)

    def histograms(self, bins: int) -> dict[str, Ints]:
        """PIT counts with values drawn evenly between the levels around the observation."""
        from ens10.metrics.verification.sums import rank_counts

        values = self.arrays["values"]
        below = (values < self.y).sum(axis=0, dtype=np.int32)
        equal = (values == self.y).sum(axis=0, dtype=np.int32)
        below[np.isnan(values.sum(axis=0) + self.y)] = -1
        edges = np.concatenate([[0.0], self.levels, [1.0]])
        return {"pit_count": rank_counts(below, equal, edges, bins, self.key)[1]}


class OfFamily(Case):
    """Parameters of a family of `families.registry`."""

    family: ClassVar[Family]

    def crps(self) -> Array:
        """CRPS of the family."""
        score: Array = registry.crps(self.family.name, self.arrays, self.y)
        return score

    def log_score(self) -> Array:
        """Minus the logarithm of the density."""
        score: Array = registry.log_score(self.family.name, self.arrays, self.y)
        return score

    def error(self) -> Array:
        """Expectation less the observation."""
        error: Array = registry.mean(self.family.name, self.arrays) - self.y
        return error

    def variance(self) -> Array:
        """Predicted variance, where the observation is known."""
        variance: Array = registry.variance(self.family.name, self.arrays)
        return np.where(np.isnan(self.y), np.nan, variance)

    def above(self, threshold: float) -> Floats:
        """1 - F(threshold)."""
        at = np.full_like(self.y, threshold)
        probability: Floats = 1.0 - registry.pit_interval(self.family.name, self.arrays, at)[1]
        return probability

    def histograms(self, bins: int) -> dict[str, Ints]:
        """PIT counts; at a point mass the value is drawn."""
        seed = int(self.key >> np.uint64(1))
        values = registry.pit(self.family.name, self.arrays, self.y, seed=seed)
        return {"pit_count": pit_counts(values, bins)}


CASES: dict[str, type[Case]] = {"normal": Normal, "ensemble": Ensemble, "quantiles": Quantiles}


@lru_cache(maxsize=64)
def case_of(kind: str) -> type[Case]:
    """The class of the cases of a kind."""
    if kind in CASES:
        return CASES[kind]
    family = FAMILIES[kind]
    offers = BY_EFI | {"crps", "brier", "histogram"}
    offers |= {"log_score"} if family.log_score is not None else set()
    offers |= {"error", "error2"} if family.mean is not None else set()
    offers |= {"variance"} if family.variance is not None else set()
    told = {"family": family, "offers": frozenset(offers), "estimator": kind}
    return type(f"Of_{kind}", (OfFamily,), told)
