"""A forecast of one date, step and level, together with its observations.

`Distribution.offers` lists the statistics that a kind of forecast has. Values are NaN where the
forecast or the observation is missing.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.metrics._dispatch import Array
from ens10.metrics.calibration import pit_counts
from ens10.metrics.distributions.base import Distribution

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Pair:
    """A forecast and its observations.

    Args:
        forecast: a distribution with numpy arrays.
        y: observations, shape (H, W).
        key: key of the random numbers of the date, from `_random_loops.date_key`.
        efi: the raw ensemble's extreme forecast index, shape (H, W), or None.
        climate: of the place and date, (H, W): under "mean" the state that anomalies refer to,
            and under the level of a quantile that quantile.
    """

    def __init__(
        self,
        forecast: Distribution,
        y: Array,
        key: np.uint64 | int = 0,
        efi: Array | None = None,
        climate: Mapping[str | float, Array] | None = None,
    ) -> None:
        self.forecast, self.y, self.key = forecast, y, np.uint64(key)
        self._climate = climate or {}
        self.efi = np.full_like(y, np.nan) if efi is None else efi
        self._fields: dict[str, Array] = {}

    @property
    def arrays(self) -> dict[str, Array]:
        """Return the forecast's variables, with (H, W) as their last axes."""
        return self.forecast.variables()

    @property
    def offers(self) -> frozenset[str]:
        """Return the names of the fields that the forecast offers."""
        return self.forecast.offers

    @cached_property
    def _statistics(self) -> Mapping[str, Array]:
        return self.forecast.statistics(self.y)

    def field(self, name: str) -> Array:
        """Return the result of a method without arguments, such as "crps"; computed once."""
        if name not in self._fields:
            self._fields[name] = getattr(self, name)()
        return self._fields[name]

    def histograms(self, bins: int) -> dict[str, Ints]:
        """Return `pit_count` (drawn uniformly within ranks) and, for members, `rank_count`.

        Args:
            bins: number of bins of the PIT histogram.
        """
        from ens10.metrics._random_loops import rank_counts

        ranks = self.forecast.ranks(self.y, self._statistics)
        if ranks is None:
            values = self.forecast.pit(self.y, seed=int(self.key >> np.uint64(1)))
            return {"pit_count": pit_counts(values, bins)}
        counts, pit = rank_counts(*ranks, bins, self.key)
        rank_variable = {"rank_count": counts} if self.forecast.counts_ranks else {}
        return rank_variable | {"pit_count": pit}

    def hersbach(self, rows: Floats) -> dict[str, Floats]:
        """Return the row-weighted sums for Hersbach's decomposition of the CRPS of members."""
        weights = np.broadcast_to(rows[:, None], self.y.shape)
        sums: dict[str, Floats] = self.forecast.hersbach_sums(self.y, weights)
        return sums

    def crps(self) -> Array:
        """Return the CRPS of the forecast; for members the plain CRPS."""
        score = self._statistics.get("crps")
        return self.forecast.crps(self.y) if score is None else score

    def crps_fair(self) -> Array:
        """Return the fair CRPS, unbiased for the distribution that the members are drawn from."""
        return self._statistics["crps_fair"]

    def error(self) -> Array:
        """Return the mean of the forecast less the observation."""
        difference = self._statistics.get("error")
        return self.forecast.mean - self.y if difference is None else difference

    def variance(self) -> Array:
        """Return the predicted variance (unbiased for members); NaN where the error is NaN."""
        values = self._statistics.get("variance")
        if values is None:
            values = np.where(np.isnan(self.error()), np.nan, self.forecast.variance)
        return values

    def log_score(self) -> Array:
        """Return minus the logarithm of the density."""
        score: Array = self.forecast.log_score(self.y)
        return score

    def above(self, threshold: Any) -> Array:
        """Return the forecast probability of values above a threshold."""
        probability: Array = self.forecast.above(threshold)
        return probability

    @property
    def climatology(self) -> Array:
        """Return the mean state that anomalies refer to, NaN if there is none."""
        return self._climate.get("mean", np.full_like(self.y, np.nan))

    def threshold(self, level: float) -> Array:
        """Return the quantile of the climate of the place and date, NaN if there is none."""
        return self._climate.get(level, np.full_like(self.y, np.nan))

    def quantile(self, level: float) -> Array:
        """Return the forecast's quantile of a level."""
        value: Array = self.forecast.estimated_quantile(level)
        return value
