"""Probabilities that the target is above or below thresholds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ens10.errors import ArgumentError
from ens10.experiments.forecasts.products.base import (
    CorrectedDate,
    Fields,
    ForecastProduct,
    new_field,
)
from ens10.options import option

_THRESHOLD = re.compile(r"\s*([<>])\s*(q?)([-+.\deE]+)\s*")
_SIDES = {">": "above", "<": "below"}


@dataclass(frozen=True)
class ProbabilityFields(ForecastProduct):
    """Probabilities at `threshold_above`, `threshold_below`, or beyond quantiles of past truth.

    Those of '>q0.95' are over `quantile_above`, with the thresholds beside them: quantiles of the
    truth on the training dates within 30 days of the middle of the valid date's month, at each
    point. The raw model's climate has the bias that a correction removes.

    Attributes:
        probabilities: thresholds in the target's units, such as '>303.15' or '<273.15', or
            quantiles of past truth in the season, such as '>q0.95'.

    Raises:
        ArgumentError: a threshold that cannot be read.
    """

    variables: ClassVar[tuple[str, ...]] = (
        *("probability_above", "probability_below"),
        *("probability_above_quantile", "probability_below_quantile"),
        *("threshold_above", "threshold_below"),
    )
    may_be_nan: ClassVar[bool] = True  # where there is no past truth
    probabilities: Sequence[str] = option((), flag="--probability", metavar="THRESHOLD")

    def __post_init__(self) -> None:
        self.thresholds()

    @property
    def needs_history(self) -> bool:  # type: ignore[override]
        """Return True if a threshold is a quantile of past truth."""
        return any(dim.startswith("quantile") for dim in self.thresholds())

    @property
    def in_grib(self) -> bool:  # type: ignore[override]
        """Return False if a threshold is a quantile: in GRIB a threshold is one number."""
        return not self.needs_history

    def thresholds(self) -> dict[str, list[float]]:
        """Return thresholds, and levels of quantiles, by dimension, each in ascending order."""
        thresholds: dict[str, list[float]] = {}
        for text in self.probabilities:
            match = _THRESHOLD.fullmatch(text)
            try:
                kind = "quantile" if match[2] else "threshold"  # type: ignore[index]
                side, value = _SIDES[match[1]], float(match[3])  # type: ignore[index]
            except (TypeError, ValueError):
                reason = f"{text!r} is not a threshold"
                remedy = "Write '>303.15', '<273.15' or '>q0.95'"
                raise ArgumentError("probability", reason, remedy) from None
            if kind == "quantile" and not 0 < value < 1:
                reason = f"{text!r} is not a quantile between 0 and 1"
                raise ArgumentError("probability", reason, "Write '>q0.95', say")
            thresholds.setdefault(f"{kind}_{side}", []).append(value)
        return {dim: sorted(set(values)) for dim, values in sorted(thresholds.items())}

    def coordinates(self, date: CorrectedDate) -> dict[str, Any]:  # noqa: ARG002
        """Return the thresholds, and the levels of quantiles, of each side."""
        return dict(self.thresholds())

    def fields(self, date: CorrectedDate) -> Fields:
        """Return the probabilities of a date, and the thresholds that are quantiles."""
        import torch

        forecast, fields = date.forecast, {}
        for dim, values in self.thresholds().items():
            kind, side = dim.split("_")
            name, what = f"{date.target}_probability_{side}", f"the {kind}"
            if kind == "quantile":
                name, what = f"{name}_quantile", "the quantile of past truth"
                quantiles = date.truth_quantiles(values)
                long_name = f"quantile of past truth of {date.target} in the season of the date"
                attributes = {"units": date.units, "long_name": long_name}
                fields[f"{date.target}_threshold_{side}"] = new_field(dim, quantiles, attributes)
                thresholds = list(quantiles.to(forecast.like).unbind(1))
            else:
                thresholds = [torch.full_like(forecast.like, value) for value in values]
            tail_probability: Any = forecast.above if side == "above" else forecast.cdf_below
            probabilities = torch.stack([tail_probability(one) for one in thresholds], 1)
            attributes = {
                "units": "1",
                "long_name": f"probability of {date.target} {side} {what}",
            }
            fields[name] = new_field(dim, probabilities, attributes)
        return fields
