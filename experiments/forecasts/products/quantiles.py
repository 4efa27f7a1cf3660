"""Quantiles of the forecast."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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
        calibration: correct each quantile at each point by the model's past forecasts and the truth
            that is known at the start of the new one: split, adaptive or pid
            (`ens10.models.conformal`).
        calibration_window: number of past dates that count (default: all).
        past_forecasts: run or predictions with these forecasts and their truth (default: the
            predictions of the run).

    Raises:
        ArgumentError: a level outside (0, 1).
    """

    variables: ClassVar[tuple[str, ...]] = ("quantile",)
    quantiles: Sequence[float] = option((), metavar="LEVEL")
    calibration: Literal["split", "adaptive", "pid"] | None = None
    calibration_window: int | None = option(None, metavar="DATES")
    past_forecasts: str = option("", metavar="RUN")

    def __post_init__(self) -> None:
        for name in ("past_forecasts", "calibration_window"):
            if getattr(self, name) and not self.calibration:
                remedy = "Choose a --calibration as well"
                raise ArgumentError(name, "is for a calibration", remedy)
        if self.calibration and not self.quantiles:
            raise ArgumentError("calibration", "is of quantiles", "Name levels with --quantiles")
        for level in self.quantiles:
            if not 0 < level < 1:
                raise ArgumentError("quantiles", f"{level} is not between 0 and 1", "Use 0.9, say")

    def coordinates(self, date: CorrectedDate) -> dict[str, Any]:  # noqa: ARG002
        """Return the levels in ascending order."""
        return {"quantile_level": sorted(self.quantiles)}

    def fields(self, date: CorrectedDate) -> Fields:
        """Return the quantiles of a date."""
        import numpy as np
        import torch

        levels = sorted(self.quantiles)
        values = date.forecast.quantile(np.array(levels)).transpose(0, 1)
        attributes = {"units": date.units, "long_name": f"quantiles of {date.target}"}
        if self.calibration:
            attributes["calibration"] = self.calibration
            if date.is_read:
                options = self.calibration, self.calibration_window
                past = date.past_forecasts(self.past_forecasts, levels, *options)
                found = past.calibrated(values[0].cpu().double().numpy(), date.start)
                values = torch.from_numpy(found)[None]
        return {f"{date.target}_quantile": new_field("quantile_level", values, attributes)}
