"""Shift of tails of the forecast: how far its tails are beyond those of the truth's climate."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ens10.experiments.forecasts.products.base import (
    CorrectedDate,
    Fields,
    ForecastProduct,
    new_field,
)

_LEVELS = (10, 90)  # percent
_CLIMATE = (0.01, 0.1, 0.9, 0.99)


@dataclass(frozen=True)
class ShiftOfTails(ForecastProduct):
    """Shift of tails (SOT) at the levels `sot_level` 10 and 90 %, against the climate of the truth.

    (Qf90 - Qc99) / (Qc99 - Qc90), and (Qf10 - Qc1) / (Qc1 - Qc10) at the lower tail: above 0 if a
    tenth of the forecast lies beyond 1 % of the climate (Zsoter 2006, ECMWF Newsletter 107). Qf are
    quantiles of the corrected forecast, Qc those of the truth on the training dates within 30
    days of the calendar. A corrected forecast is compared with the truth, not with the climate of
    the raw model, against which its correction would be an extreme event. With less than 100 dates
    the outer quantile lies between the two most extreme ones.

    Attributes:
        shift_of_tails: write the shift of tails, which compares the tails of the forecast with
            those of past truth.
    """

    variables: ClassVar[tuple[str, ...]] = ("sot",)
    needs_history: ClassVar[bool] = True
    in_grib: ClassVar[bool] = False
    may_be_nan: ClassVar[bool] = True  # where the climate's tail does not vary
    shift_of_tails: bool = False

    def coordinates(self, date: CorrectedDate) -> dict[str, Any]:  # noqa: ARG002
        """Return the levels in percent."""
        return {"sot_level": list(_LEVELS)}

    def fields(self, date: CorrectedDate) -> Fields:
        """Return the shifts of a date."""
        import numpy as np
        import torch

        from ens10.metrics import sot
        from ens10.metrics.verification.climatology import quantiles_of_dates

        climate = quantiles_of_dates(date.past_truth()[0].cpu().numpy(), _CLIMATE)
        quantiles = date.forecast.quantile(np.array(_LEVELS) / 100)[:, 0].cpu().double().numpy()
        # quantiles between two equal members are these members
        shifts = [
            sot(
                np.stack([q, q]),
                climate,
                level=level,
                member_dim=0,
                quantile_dim=0,
                levels=_CLIMATE,
            )
            for level, q in zip(_LEVELS, quantiles, strict=True)
        ]
        values = torch.from_numpy(np.stack(shifts))[None]
        attributes = {"units": "1", "long_name": f"shift of tails of {date.target}"}
        return {f"{date.target}_sot": new_field("sot_level", values, attributes)}
