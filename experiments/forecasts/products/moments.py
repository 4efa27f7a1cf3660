"""Mean and standard deviation, which `apply` writes to GRIB in place of parameters."""

from dataclasses import dataclass
from typing import ClassVar

from ens10.experiments.forecasts.products.base import (
    CorrectedDate,
    Fields,
    ForecastProduct,
    new_field,
)
from ens10.options import option


@dataclass(frozen=True)
class MomentFields(ForecastProduct):
    """Mean and standard deviation, in GRIB files in place of the parameters.

    Attributes:
        moments: write mean and standard deviation (GRIB: always).
    """

    variables: ClassVar[tuple[str, ...]] = ("mean", "std")
    moments: bool = option(False, flag="")

    def fields(self, date: CorrectedDate) -> Fields:
        """Return both moments of a date."""
        return {
            f"{date.target}_{name}": new_field(
                "",
                getattr(date.forecast, name),
                {"units": date.units, "long_name": f"{name} of the forecast of {date.target}"},
            )
            for name in ("mean", "std")
        }
