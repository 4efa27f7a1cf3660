"""The empirical distribution of an ensemble."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, get_args

import numpy as np

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._dispatch import fill_masked
from ens10.metrics._ops import NUMPY
from ens10.metrics.crps import Estimator, crps_ensemble
from ens10.metrics.distributions.base import CORE, QUANTILE_STATISTICS, Distribution, clip
from ens10.metrics.distributions.formula import Parameter

_MEMBER_STATISTICS = {"crps", "crps_fair", "error", "error2", "variance", "hersbach"}


@dataclass(eq=False)
class Ensemble(Distribution, kind="ensemble"):
    """The empirical distribution of M members.

    Args:
        members: (..., M, H, W), target units.
        estimator: CRPS estimator: "plain" scores the empirical distribution of the members; "fair"
            and "almost_fair" the distribution that they are drawn from (see `crps_ensemble`).

    Raises:
        ArgumentError: `members` has fewer than three dimensions.
        UnknownNameError: an unknown estimator.
    """

    members: Any
    estimator: Estimator = "plain"

    parameters: ClassVar = {
        "members": Parameter(
            core_dim="number", long_name="members of the forecast", is_quantity=True
        )
    }
    offers = QUANTILE_STATISTICS | _MEMBER_STATISTICS
    crps_estimator = "plain"
    counts_ranks = True

    def __post_init__(self) -> None:
        if self.members.ndim < 3:
            shape = tuple(self.members.shape)
            raise ArgumentError("members", f"has shape {shape}, expected (N, M, H, W)")
        if self.estimator not in get_args(Estimator):
            raise UnknownNameError("estimator", self.estimator, get_args(Estimator))

    @property
    def size(self) -> int:
        """Return the number of members."""
        return int(self.members.shape[CORE])

    def variables(self) -> dict[str, Any]:
        """Return the variable `members`."""
        return {"members": self.members}

    def core_coordinates(self) -> dict[str, Sequence[float]]:
        """Return the member numbers, from 1."""
        return {"number": range(1, self.size + 1)}

    def crps(self, y: Any) -> Any:
        """Return the ensemble CRPS by the chosen estimator."""
        return crps_ensemble(self.members, y, estimator=self.estimator, member_dim=CORE)

    def twcrps(self, y: Any, lower: float, upper: float) -> Any:
        """Return the CRPS of members and `y` clipped to the interval."""
        clipped = clip(self.ops, self.members, lower, upper)
        return replace(self, members=clipped).crps(clip(self.ops, y, lower, upper))

    @property
    def mean(self) -> Any:
        """Return the mean of the members."""
        return self.members.mean(axis=CORE)

    @property
    def std(self) -> Any:
        """Return the standard deviation of the members (n - 1); NaN for a single member."""
        if self.size == 1:
            return self.ops.full_like(self.like, float("nan"))
        if self.ops is NUMPY:
            return self.members.std(axis=CORE, ddof=1)
        return self.members.std(dim=CORE)

    def cdf(self, y: Any) -> Any:
        """Return the share of members of at most `y`; NaN where a member is NaN."""
        return self._share(self.members <= _add_member_axis(y))

    def cdf_below(self, y: Any) -> Any:
        """Return the share of members less than `y`; NaN where a member is NaN."""
        return self._share(self.members < _add_member_axis(y))

    def above(self, threshold: Any) -> Any:
        """Return the share of members above a threshold; NaN where a member is NaN."""
        return self._share(self.members > _add_member_axis(threshold))

    def _share(self, indicator: Any) -> Any:
        ops = self.ops
        share = (indicator if ops is NUMPY else indicator.to(self.members.dtype)).mean(axis=CORE)
        return ops.where(ops.isnan(self.members.sum(axis=CORE)), float("nan"), share)

    def quantile(self, q: Any) -> Any:
        """Return the member of rank ceil(q M), the inverse of `cdf`; NaN where a member is NaN."""
        ops, p = self.ops, self.probabilities(q)
        # the small number: 0.7 * 10 may come out just above 7
        rank = clip(ops, ops.ceil(p * self.size - 1e-6), 1, self.size) - 1
        ranked = ops.moveaxis(ops.sort(self.members, CORE), CORE, 0)
        missing = ops.isnan(self.members.sum(axis=CORE))
        return ops.where(missing, float("nan"), ranked[ops.to_integers(rank)])

    def estimated_quantile(self, level: float) -> Any:
        """Interpolate order statistics linearly (type 7 of Hyndman and Fan 1996)."""
        value = np.quantile(self.members, level, axis=CORE)
        return value.astype(self.members.dtype, copy=False)

    def sample(self, n: int, generator: Any = None) -> Any:
        """Draw whole members with replacement, which keeps their spatial pattern."""
        if self.ops is NUMPY:
            indices = np.random.default_rng(generator).integers(
                self.size, size=(*self.members.shape[:CORE], n)
            )
            return np.take_along_axis(self.members, indices[..., None, None], CORE)
        return self.ops.draw_members(self.members, n, generator)

    def statistics(self, y: Any) -> Mapping[str, Any]:
        """Return plain and fair CRPS, error, variance, and members below and equal to `y`."""
        from ens10.metrics.distributions._sweep import scores_of_members

        return scores_of_members(self.members, y)

    def ranks(self, y: Any, statistics: Mapping[str, Any]) -> tuple[Any, Any, Any]:  # noqa: ARG002
        """Return the counts of members below and equal to `y`, and the rank probabilities."""
        edges = np.arange(self.size + 2) / (self.size + 1)
        return statistics["below"], statistics["equal"], edges

    def hersbach_sums(self, y: Any, weights: Any) -> dict[str, Any]:
        """Return the weighted sums for Hersbach's decomposition of the CRPS."""
        from ens10.metrics.calibration import hersbach_sums

        sums = hersbach_sums(self.members, y, member_dim=CORE, weights=weights, nan="omit")
        return {f"hersbach_{name}": values.to_numpy() for name, values in sums.items()}


def _add_member_axis(y: Any) -> Any:
    """Insert a member axis into a field; return numbers unchanged."""
    y = fill_masked(y)
    return y[..., None, :, :] if getattr(y, "ndim", 0) else y
