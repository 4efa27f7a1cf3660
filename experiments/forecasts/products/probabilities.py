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

_THRESHOLD = re.compile(r"\s*([<>])\s*([-+.\deE]+)\s*")
_SIDES = {">": "above", "<": "below"}


@dataclass(frozen=True)
class ProbabilityFields(ForecastProduct):
    """Probabilities at `threshold_above`, `threshold_below`.

    Attributes:
        probabilities: thresholds in the target's units, such as '>303.15' or '<273.15'.

    Raises:
        ArgumentError: a threshold that cannot be read.
    """

    variables: ClassVar[tuple[str, ...]] = ("probability_above", "probability_below")
    probabilities: Sequence[str] = option((), flag="--probability", metavar="THRESHOLD")

    def __post_init__(self) -> None:
        self.thresholds()

    def thresholds(self) -> dict[str, list[float]]:
        """Return the thresholds of "above" and "below", each in ascending order."""
        thresholds: dict[str, list[float]] = {}
        for text in self.probabilities:
            match = _THRESHOLD.fullmatch(text)
            try:
                side, value = _SIDES[match[1]], float(match[2])  # type: ignore[index]
            except (TypeError, ValueError):
                reason = f"{text!r} is not a threshold"
                raise ArgumentError("probability", reason, "Write '>303.15' or '<273.15'") from None
            thresholds.setdefault(side, []).append(value)
        return {side: sorted(set(values)) for side, values in sorted(thresholds.items())}

    def coordinates(self, date: CorrectedDate) -> dict[str, Any]:  # noqa: ARG002
        """Return the thresholds of each side."""
        return {f"threshold_{side}": values for side, values in self.thresholds().items()}

    def fields(self, date: CorrectedDate) -> Fields:
        """Return the probabilities of a date."""
        import torch

        forecast, fields = date.forecast, {}
        for side, thresholds in self.thresholds().items():
            tail_probability: Any = forecast.above if side == "above" else forecast.cdf_below
            values = [tail_probability(torch.full_like(forecast.like, t)) for t in thresholds]
            name = f"{date.target}_probability_{side}"
            long_name = f"probability of {date.target} {side} the threshold"
            attributes = {"units": "1", "long_name": long_name}
            fields[name] = new_field(f"threshold_{side}", torch.stack(values, 1), attributes)
        return fields
