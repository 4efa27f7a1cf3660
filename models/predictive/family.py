"""Predictive distributions of the location-scale families, bounded or not."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy import special
from torch import Tensor

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import families
from ens10.models.predictive.base import FIELD, Predictive, independent_levels, probabilities

FAMILY_NAMES = (
    "normal",
    "logistic",
    "student_t",
    "truncated_normal",
    "censored_normal",
    "truncated_logistic",
    "censored_logistic",
)

_CENSORED = {
    "normal": "censored_normal",
    "censored_normal": "censored_normal",
    "logistic": "censored_logistic",
    "censored_logistic": "censored_logistic",
}


@dataclass(eq=False)
class FamilyForecast(Predictive):
    """A distribution of one family at each grid point, independent between points.

    In a store its `forecast_kind` is the family's name, as `ens10.metrics.score_states` takes it.

    Args:
        family: one of "normal", "logistic", "student_t", "truncated_normal", "censored_normal",
            "truncated_logistic" and "censored_logistic".
        mu: location of the distribution without bounds, (N, H, W), target units.
        sigma: its scale, above 0, (N, H, W), target units.
        lower: lower bound of a bounded family, target units.
        upper: upper bound.
        df: degrees of freedom of "student_t", above 1/2 for a finite CRPS; inf is the normal.

    Raises:
        UnknownNameError: another family.
        ArgumentError: the shapes differ.
    """

    kind: ClassVar[str] = "family"
    dims: ClassVar[tuple[str, ...]] = FIELD
    unitless: ClassVar[tuple[str, ...]] = ("df",)
    long_names: ClassVar[Mapping[str, str]] = {
        "mu": "location of the forecast",
        "sigma": "its scale",
        "lower": "its lower bound",
        "upper": "its upper bound",
        "df": "its degrees of freedom",
    }

    family: str
    mu: Tensor
    sigma: Tensor
    lower: float = -math.inf
    upper: float = math.inf
    df: float = math.inf

    def __post_init__(self) -> None:
        if self.family not in FAMILY_NAMES:
            raise UnknownNameError("family", self.family, FAMILY_NAMES)
        if self.mu.shape != self.sigma.shape:
            shapes = f"{tuple(self.sigma.shape)}, mu {tuple(self.mu.shape)}"
            raise ArgumentError("sigma", f"has shape {shapes}")

    @property
    def _bounded(self) -> bool:
        return self.family.startswith(("truncated", "censored"))

    def variables(self) -> dict[str, Tensor]:
        """`mu` and `sigma`; `lower` and `upper` of bounded families, `df` of Student's t."""
        more: dict[str, float] = {}
        if self._bounded:
            more = {"lower": self.lower, "upper": self.upper}
        elif self.family == "student_t":
            more = {"df": self.df}
        wide = {name: torch.full_like(self.mu, value) for name, value in more.items()}
        return {"mu": self.mu, "sigma": self.sigma, **wide}

    def attributes(self) -> dict[str, str]:
        """The family's name as `forecast_kind`."""
        return {"forecast_kind": self.family}

    def crps(self, y: Tensor) -> Tensor:
        """Closed-form CRPS (see `ens10.metrics.families`), (N, H, W)."""
        score: Tensor = families.crps(self.family, self.variables(), y, check=False)
        return score

    def log_score(self, y: Tensor) -> Tensor:
        """Minus the logarithm of the density, or of the probability of a censored bound."""
        score: Tensor = families.log_score(self.family, self.variables(), y, check=False)
        return score

    def twcrps(self, y: Tensor, lower: float, upper: float) -> Tensor:
        """In closed form, of the distribution censored at the thresholds; else by quantiles."""
        if self.family not in _CENSORED:
            return super().twcrps(y, lower, upper)
        # bounds of its own that are narrower censor first
        low, high = (min(max(self.lower, x), self.upper) for x in (lower, upper))
        if not low < high:
            return super().twcrps(y, lower, upper)
        part = {"lower": torch.full_like(self.mu, low), "upper": torch.full_like(self.mu, high)}
        parameters = {"mu": self.mu, "sigma": self.sigma, **part}
        held, observed = _CENSORED[self.family], y.clamp(lower, upper)
        score: Tensor = families.crps(held, parameters, observed, check=False)
        return score

    @property
    def mean(self) -> Tensor:
        """Expectation, which bounds move away from `mu`."""
        found: Tensor = families.mean(self.family, self.variables())
        return found

    @property
    def std(self) -> Tensor:
        """Standard deviation."""
        found: Tensor = families.variance(self.family, self.variables())
        return found.sqrt()

    def cdf(self, y: Tensor) -> Tensor:
        """Probability of a value of at most `y`."""
        found: Tensor = families.pit_interval(self.family, self.variables(), y)[1]
        return found

    def quantile(self, q: float | Tensor) -> Tensor:
        """By the inverse of the distribution without bounds."""
        p = probabilities(q, self.mu)
        return self._at(p.reshape(*p.shape, 1, 1, 1).expand(*p.shape, *self.mu.shape))

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draws that are independent between grid points, (N, n, H, W)."""
        return self._at(independent_levels(n, self.mu, generator)).transpose(0, 1)

    def _at(self, p: Tensor) -> Tensor:
        """Quantiles of probabilities (..., N, H, W)."""
        p, mu, sigma = p.double(), self.mu.double(), self.sigma.double()
        if self.family.startswith("truncated"):
            low, high = (self._cdf_without_bounds(x, mu, sigma) for x in (self.lower, self.upper))
            p = low + p * (high - low)
        found = mu + sigma * self._standard_quantile(p)
        if self._bounded:
            found = found.clamp(self.lower, self.upper)
        return found.to(self.mu.dtype)

    def _standard_quantile(self, p: Tensor) -> Tensor:
        if self.family.endswith("logistic"):
            return torch.logit(p)
        if self.family == "student_t" and not math.isinf(self.df):
            return torch.from_numpy(special.stdtrit(self.df, p.detach().cpu().numpy())).to(p)
        found: Tensor = torch.special.ndtri(p)
        return found

    def _cdf_without_bounds(self, bound: float, mu: Tensor, sigma: Tensor) -> Tensor:
        if math.isinf(bound):  # the formula's gradient would be 0 times infinity
            return torch.full_like(mu, float(bound > 0))
        z = (bound - mu) / sigma
        if self.family.endswith("logistic"):
            return z.sigmoid()
        found: Tensor = torch.special.ndtr(z)
        return found
