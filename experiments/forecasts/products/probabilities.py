"""Probabilities that the target is above or below thresholds."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ens10.errors import ArgumentError
from ens10.experiments.forecasts.products.base import (
    CorrectedDate,
    Fields,
    ForecastProduct,
    new_field,
)
from ens10.options import option

if TYPE_CHECKING:
    from torch import Tensor

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
    probabilities: Sequence[str] = option((), flag="--probability", metavar="THRESHOLD")

    def __post_init__(self) -> None:
        self._parsed()

    @property
    def needs_history(self) -> bool:  # type: ignore[override]
        """Return True if a threshold is a quantile of past truth."""
        return any(self._parsed()[True].values())

    @property
    def may_be_nan(self) -> bool:  # type: ignore[override]
        """Return True if a threshold is a quantile, which points without truth lack."""
        return self.needs_history

    @property
    def in_grib(self) -> bool:  # type: ignore[override]
        """Return False if a threshold is a quantile: in GRIB a threshold is one number."""
        return not self.needs_history

    def _parsed(self) -> dict[bool, dict[str, list[float]]]:
        """Return thresholds (False) and levels of quantiles (True), by side, in ascending order."""
        found: dict[bool, dict[str, set[float]]] = {False: {}, True: {}}
        for text in self.probabilities:
            match = _THRESHOLD.fullmatch(text)
            try:
                side, is_level, value = _SIDES[match[1]], bool(match[2]), float(match[3])  # type: ignore[index]
            except (TypeError, ValueError):
                reason = f"{text!r} is not a threshold"
                remedy = "Write '>303.15', '<273.15' or '>q0.95'"
                raise ArgumentError("probability", reason, remedy) from None
            if is_level and not 0 < value < 1:
                reason = f"{text!r} is not a quantile between 0 and 1"
                raise ArgumentError("probability", reason, "Write '>q0.95', say")
            found[is_level].setdefault(side, set()).add(value)
        return {
            kind: {side: sorted(values) for side, values in sorted(sides.items())}
            for kind, sides in found.items()
        }

    def coordinates(self, date: CorrectedDate) -> dict[str, Any]:  # noqa: ARG002
        """Return the thresholds, and the levels of quantiles, of each side."""
        names = {False: "threshold", True: "quantile"}
        return {
            f"{names[kind]}_{side}": values
            for kind, sides in self._parsed().items()
            for side, values in sides.items()
        }

    def fields(self, date: CorrectedDate) -> Fields:
        """Return the probabilities of a date, and the thresholds that are quantiles."""
        return dict(self._fields(date))

    def _fields(self, date: CorrectedDate) -> Iterator[tuple[str, Any]]:
        import torch

        parsed, target = self._parsed(), date.target
        for side, values in parsed[False].items():
            thresholds = [torch.full_like(date.forecast.like, value) for value in values]
            name = f"{target}_probability_{side}"
            long_name = f"probability of {target} {side} the threshold"
            yield name, _probabilities(date, side, thresholds, f"threshold_{side}", long_name)
        for side, levels in parsed[True].items():
            quantiles = date.truth_quantiles(levels)
            name = f"{target}_probability_{side}_quantile"
            long_name = f"probability of {target} {side} the quantile of past truth"
            thresholds = list(quantiles.to(date.forecast.like).unbind(1))
            yield name, _probabilities(date, side, thresholds, f"quantile_{side}", long_name)
            attributes = {
                "units": date.units,
                "long_name": f"quantile of past truth of {target} in the season of the date",
            }
            yield f"{target}_threshold_{side}", new_field(f"quantile_{side}", quantiles, attributes)


def _probabilities(
    date: CorrectedDate, side: str, thresholds: "list[Tensor]", dim: str, long_name: str
) -> Any:
    """Return the field of the probabilities beyond thresholds (1, H, W) along a dimension."""
    import torch

    tail_probability: Any = date.forecast.above if side == "above" else date.forecast.cdf_below
    values = torch.stack([tail_probability(threshold) for threshold in thresholds], 1)
    return new_field(dim, values, {"units": "1", "long_name": long_name})
