"""Quantiles of the forecast."""

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


@dataclass(frozen=True)
class QuantileFields(ForecastProduct):
    """Quantiles at `quantile_level`.

    Attributes:
        quantiles: levels between 0 and 1, such as 0.1 0.9.

    Raises:
        ArgumentError: a level outside (0, 1).
    """

    variables: ClassVar[tuple[str, ...]] = ("quantile",)
    quantiles: Sequence[float] = option((), metavar="LEVEL")

    def __post_init__(self) -> None:
        for level in self.quantiles:
            if not 0 < level < 1:
                raise ArgumentError("quantiles", f"{level} is not between 0 and 1", "Use 0.9, say")

    def coordinates(self, date: CorrectedDate) -> dict[str, Any]:  # noqa: ARG002
        """Return the levels in ascending order."""
        return {"quantile_level": sorted(self.quantiles)}

    def fields(self, date: CorrectedDate) -> Fields:
        """Return the quantiles of a date."""
        import numpy as np

        values = date.forecast.quantile(np.array(sorted(self.quantiles))).transpose(0, 1)
        attributes = {"units": date.units, "long_name": f"quantiles of {date.target}"}
        return {f"{date.target}_quantile": new_field("quantile_level", values, attributes)}
