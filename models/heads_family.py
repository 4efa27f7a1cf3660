"""A head of any location-scale family, bounded or not."""

import math

from torch import Tensor

from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader.batch import Batch
from ens10.metrics.distributions.base import ClosedForm
from ens10.metrics.distributions.registry import location_scale, location_scale_kinds
from ens10.models.heads import Head, RawEnsemble, checked_floor


class FamilyHead(Head):
    """A distribution of a family as a residual on the raw ensemble.

    mu = m + s o_0 and sigma = c s exp(o_1), where m is the mean and s the standard deviation of the
    raw ensemble. c is chosen so that an output of 0 has the raw mean and deviation: 1 for the
    normal, sqrt(3) / pi for the logistic, sqrt((df - 2) / df) for Student's t. For a bounded family
    these are the moments before truncation or censoring.

    s is at least `floor`, in units of the target, and o_1 is clamped to [-7, 7]; both as in
    `ResidualNormalHead`.

    Args:
        family: "normal", "logistic", "student_t", "truncated_normal", "censored_normal",
            "truncated_logistic" or "censored_logistic".
        lower: lower bound of a bounded family, in units of the target.
        upper: upper bound.
        df: degrees of freedom of "student_t", above 2.
        floor: smallest s, e.g. 0.001 K.

    Examples:
        >>> import torch
        >>> from ens10.models import FamilyHead
        >>> raw = {"raw_mean": torch.full((1, 1, 1), 280.0), "raw_std": torch.full((1, 1, 1), 2.0)}
        >>> forecast = FamilyHead("logistic")(torch.zeros(1, 2, 1, 1), raw)
        >>> forecast.mu.item(), round(forecast.sigma.item(), 3)  # 2 sqrt(3) / pi
        (280.0, 1.103)

    Raises:
        UnknownNameError: another family.
        ArgumentError: bounds that are missing, in the wrong order, or given for an unbounded
            family; df of at most 2; a floor that is not positive.
    """

    out_channels = 2
    max_log_scale = 7.0

    def __init__(
        self,
        family: str,
        lower: float = -math.inf,
        upper: float = math.inf,
        df: float = 8.0,
        floor: float = 1e-3,
    ) -> None:
        super().__init__()
        if family not in (known := location_scale_kinds()):
            raise UnknownNameError("family", family, known)
        _check_bounds(family, lower, upper)
        if not df > 2:
            raise ArgumentError("df", f"{df} is not above 2", "The variance would be infinite")
        self.family, self.lower, self.upper, self.df = family, lower, upper, df
        self.floor = checked_floor(floor)

    @property
    def _unit(self) -> float:
        """Scale of the member of the family with standard deviation 1, without bounds."""
        if self.family.endswith("logistic"):
            return math.sqrt(3) / math.pi
        if self.family.endswith("student_t") and not math.isinf(self.df):
            return math.sqrt((self.df - 2) / self.df)
        return 1.0

    def forward(self, outputs: Tensor, batch: Batch) -> ClosedForm:
        """Return the forecast with location and scale (N, H, W) from outputs (N, 2, H, W)."""
        raw = RawEnsemble.of(batch, self.floor)
        # float32 also under mixed precision, see ResidualNormalHead
        shift, log_scale = outputs.to(raw.mean.dtype).unbind(1)
        scale = log_scale.clamp(-self.max_log_scale, self.max_log_scale).exp()
        mu, sigma = raw.mean + raw.spread * shift, self._unit * raw.spread * scale
        return location_scale(
            self.family, raw.masked(mu), raw.masked(sigma), self.lower, self.upper, self.df
        )


def _check_bounds(family: str, lower: float, upper: float) -> None:
    given = not (math.isinf(lower) and math.isinf(upper))
    if not lower < upper:
        raise ArgumentError("lower", f"{lower} is not below upper, {upper}")
    if family.startswith(("truncated", "censored")) != given:
        if given:
            raise ArgumentError("lower", f"{family} takes no bounds", "Choose a truncated family")
        raise ArgumentError("lower", f"{family} has no bound", "Pass lower, upper or both")
