"""One forecast of one date, step and level, and the values of its scores at every point.

A case offers fields by name; which, is said by `offers`. Fields are NaN where the forecast or the
observation is missing.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from ens10.metrics._dispatch import Array
from ens10.metrics._kernels_numpy import check_sigma, crps_normal, standardised
from ens10.metrics.calibration import hersbach_sums, pit_counts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
BY_EFI = frozenset({"eecrps", "abs_efi"})
OF_ALL = BY_EFI | {"brier", "coverage", "quantile_score", "width", "histogram"}


class Case:
    """What all kinds have in common.

    Args:
        arrays: the variables of the kind, core dimension first: (..., H, W).
        y: observations, shape (H, W).
        key: see `sums.date_key`.
        levels: of the core dimension (quantiles), or None.
        efi: the raw ensemble's extreme forecast index, shape (H, W), or None.
        climatology: mean state that anomalies refer to, shape (H, W), or None.
    """

    offers: ClassVar[frozenset[str]] = OF_ALL
    estimator: ClassVar[str] = ""

    def __init__(
        self,
        arrays: Mapping[str, Array],
        y: Array,
        key: np.uint64,
        levels: Floats | None = None,
        efi: Array | None = None,
        climatology: Array | None = None,
    ) -> None:
        self.arrays, self.y, self.key = arrays, y, key
        self.climatology = np.full_like(y, np.nan) if climatology is None else climatology
        self.efi = np.full_like(y, np.nan) if efi is None else efi
        self.made: dict[tuple[str, float | None], Array] = {}
        self.levels = np.empty(0) if levels is None else levels

    def field(self, name: str, number: float | None = None) -> Array:
        """The field called `name`, such as "crps", or "brier" with its threshold."""
        if (name, number) not in self.made:
            method: Callable[..., Array] = getattr(self, name)
            self.made[name, number] = method() if number is None else method(number)
        return self.made[name, number]

    def histograms(self, bins: int) -> dict[str, Ints]:
        """Counts: `pit_count` and, of members, `rank_count`."""
        raise NotImplementedError

    def hersbach(self, rows: Floats) -> dict[str, Floats]:
        """Sums over points, weighted by row, from which the CRPS is decomposed."""
        raise NotImplementedError

    def error(self) -> Array:
        """Mean of the forecast less the observation."""
        raise NotImplementedError

    def above(self, threshold: float) -> Array:
        """Probability that the forecast gives to values above a threshold."""
        raise NotImplementedError

    def quantile(self, level: float) -> Array:
        """The forecast's quantile."""
        raise NotImplementedError

    def eecrps(self) -> Array:
        """CRPS times |EFI|."""
        score: Array = np.abs(self.efi) * self.field("crps")
        return score

    def abs_efi(self) -> Array:
        """|EFI| where there is a CRPS."""
        return np.where(np.isnan(self.field("crps")), np.nan, np.abs(self.efi))

    def error2(self) -> Floats:
        """Squared error of the mean."""
        error = self.error()
        squared: Floats = np.multiply(error, error, dtype=np.float64)
        return squared

    def brier(self, threshold: float) -> Floats:
        """Squared error of the probability of values above a threshold."""
        happened = np.where(np.isnan(self.y), np.nan, self.y > threshold)
        score: Floats = np.square(self.above(threshold).astype(np.float64) - happened)
        return score

    def quantile_score(self, level: float) -> Array:
        """Pinball loss (1{y < q} - level) (q - y) of the quantile q of that level."""
        gap = self.quantile(level) - self.y
        loss: Array = gap * ((gap > 0).astype(gap.dtype) - gap.dtype.type(level))
        return loss

    def coverage(self, share: float) -> Floats:
        """Whether the central interval of that probability, edges included, holds y."""
        low, high = self._interval(share)
        inside = (self.y >= low) & (self.y <= high)
        return np.where(np.isnan(low + high + self.y), np.nan, inside)

    def width(self, share: float) -> Array:
        """Width of the central interval of that probability."""
        low, high = self._interval(share)
        return np.where(np.isnan(self.y), np.nan, high - low)

    def _interval(self, share: float) -> tuple[Array, Array]:
        return self.quantile((1 - share) / 2), self.quantile((1 + share) / 2)


class Normal(Case):
    """Means `mu` and standard deviations `sigma`."""

    offers = OF_ALL | {"crps", "error", "error2", "variance", "log_score"}
    estimator = "normal"

    @cached_property
    def _checked(self) -> tuple[Array, Array]:
        mu, sigma = self.arrays["mu"], self.arrays["sigma"]
        check_sigma(sigma)
        gaps = np.isnan(sigma)
        return (np.where(gaps, np.nan, mu), sigma) if gaps.any() else (mu, sigma)

    def crps(self) -> Array:
        """CRPS in closed form."""
        return crps_normal(*self._checked, self.y, check=False)

    def error(self) -> Array:
        """`mu` less the observation."""
        error: Array = self._checked[0] - self.y
        return error

    def variance(self) -> Floats:
        """Predicted variance, where the error is known."""
        variance: Floats = self._checked[1].astype(np.float64) ** 2
        return np.where(np.isnan(self.error()), np.nan, variance)

    def log_score(self) -> Floats:
        """Minus the logarithm of the density; infinite where sigma is 0."""
        mu, sigma = (a.astype(np.float64) for a in self._checked)
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (self.y - mu) / sigma
            score: Floats = 0.5 * z * z + np.log(sigma) + 0.5 * np.log(2 * np.pi)
        return np.where(sigma == 0, np.where(self.y == mu, -np.inf, np.inf), score)

    def above(self, threshold: float) -> Array:
        """1 - Phi((threshold - mu) / sigma)."""
        mu, sigma = self._checked
        probability: Array = ndtr(standardised(*np.broadcast_arrays(mu - threshold, sigma)))
        return np.where((sigma == 0) & (mu == threshold), 0.0, probability)

    def quantile(self, level: float) -> Array:
        """Mu + sigma Phi^-1(level)."""
        mu, sigma = self._checked
        value: Array = mu + sigma * sigma.dtype.type(ndtri(level))
        return value

    def histograms(self, bins: int) -> dict[str, Ints]:
        """PIT counts."""
        mu, sigma = self._checked
        values = ndtr(standardised(*np.broadcast_arrays(self.y - mu, sigma)))
        return {"pit_count": pit_counts(values, bins)}


class Ensemble(Case):
    """`members` along the first axis."""

    offers = OF_ALL | {"crps", "crps_fair", "error", "error2", "variance", "hersbach"}
    estimator = "plain"

    @cached_property
    def _swept(self) -> dict[str, Array]:
        from ens10.metrics.verification.sweep import scores_of_members

        return scores_of_members(self.arrays["members"], self.y)

    def crps(self) -> Array:
        """CRPS of the members' step distribution."""
        return self._swept["crps"]

    def crps_fair(self) -> Array:
        """CRPS unbiased for the distribution that the members are drawn from."""
        return self._swept["crps_fair"]

    def error(self) -> Array:
        """Ensemble mean less the observation."""
        return self._swept["error"]

    def variance(self) -> Array:
        """Unbiased variance of the members."""
        return self._swept["variance"]

    def above(self, threshold: float) -> Floats:
        """Share of the members above the threshold."""
        members = self.arrays["members"]
        share: Floats = (members > threshold).mean(axis=0)
        return np.where(self._swept["below"] < 0, np.nan, share)

    def quantile(self, level: float) -> Array:
        """Linear interpolation of order statistics (type 7 of Hyndman and Fan 1996)."""
        value: Array = np.quantile(self.arrays["members"], level, axis=0)
        return value.astype(self.y.dtype, copy=False)

    def histograms(self, bins: int) -> dict[str, Ints]:
        """Rank counts, and PIT counts with values drawn evenly within each rank."""
        from ens10.metrics.verification.sums import rank_counts

        M = len(self.arrays["members"])
        edges = np.arange(M + 2) / (M + 1)
        swept: Any = self._swept
        ranks, values = rank_counts(swept["below"], swept["equal"], edges, bins, self.key)
        return {"rank_count": ranks, "pit_count": values}

    def hersbach(self, rows: Floats) -> dict[str, Floats]:
        """Weighted sums from which the CRPS is decomposed; see `calibration.hersbach_sums`."""
        members = self.arrays["members"]
        weights = np.broadcast_to(rows[:, None], self.y.shape)
        sums = hersbach_sums(members, self.y, member_dim=0, weights=weights, nan="omit")
        return {f"hersbach_{name}": values.to_numpy() for name, values in sums.items()}
