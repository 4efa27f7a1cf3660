"""The climate that a store keeps, for any dates."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.channels import resolve
from ens10.climate import years_of
from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.quantiles.window import ANY_YEAR, month_days_of
from ens10.store import open_store


def stored_climate(
    store: Path | str, channel: str, dates: npt.ArrayLike, *, step: float
) -> xr.DataArray:
    """Quantiles of start dates from STORE/climate, lazily.

    Args:
        store: a store prepared with climate.
        channel: such as "t2m" or "z500".
        dates: start dates.
        step: of the forecasts that are judged.

    Returns:
        Over (time, quantile, latitude, longitude), what `model_climate` gives for these dates.

    Raises:
        MissingDataError: the store has no climate, or none for these dates.
        UnknownNameError: no such channel or step.
        ArgumentError: dates of the climate years, which would be judged by themselves.
    """
    climate = open_store(store, "climate")
    field = climate[resolve(channel, [str(name) for name in climate.data_vars])]
    steps = climate["step"].to_numpy().tolist()
    if step not in steps:
        raise UnknownNameError("step", step, steps)
    start: npt.NDArray[np.datetime64] = np.atleast_1d(np.asarray(dates)).astype("M8[s]")
    valid: npt.NDArray[Any] = start + np.timedelta64(_seconds(climate["step"], step), "s")
    held = climate["month_day"].to_numpy().tolist()
    names = month_days_of(start)
    lacking = sorted({name for name in names if name not in held})
    if lacking:
        raise MissingDataError(store, [f"the climate of {d}" for d in lacking], "Prepare it anew")
    year = _judged_by(store, climate, years_of(valid).tolist())
    chosen = field.isel(
        step=steps.index(step),
        month_day=xr.DataArray([held.index(name) for name in names], dims="time"),
        judged_year=xr.DataArray(year, dims="time"),
    )
    bare = chosen.drop_vars(["month_day", "judged_year", "step"])
    return bare.assign_coords(time=("time", start.astype("M8[ns]")))


def _seconds(steps: xr.DataArray, step: float) -> int:
    units = steps.attrs.get("units", "h")
    if units != "h":
        raise ArgumentError("step", f"in {units}, not hours", "Use model_climate")
    return round(step * 3600)


def _judged_by(store: Path | str, climate: xr.Dataset, years: list[int]) -> list[int]:
    """The position along `judged_year` of the climate of each valid year."""
    judged = climate["judged_year"].to_numpy().tolist()
    if judged == [ANY_YEAR]:
        own = sorted(set(years) & set(np.atleast_1d(climate.attrs["years"]).tolist()))
        if own:
            raise ArgumentError(
                "dates", f"{own} are among the climate years", "Use model_climate, which leaves out"
            )
        return [0] * len(years)
    lacking = sorted({year for year in years if year not in judged})
    if lacking:
        raise MissingDataError(
            store, [f"the climate for {year}" for year in lacking], "Use model_climate"
        )
    return [judged.index(year) for year in years]
