"""A forecast and the truth of the same moments and points."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError

GRID = ("latitude", "longitude")
VARIABLES = {"normal": ("mu", "sigma"), "ensemble": ("members",)}
_CLOSE_DEGREES = 1e-4  # float32 coordinates of the same grid


def checked_forecast(forecast: xr.Dataset) -> xr.Dataset:
    """The forecast with its variables' dimensions in order: time [, number], latitude, longitude.

    Raises:
        UnknownNameError: no known `forecast_kind` in its attributes.
        MissingDataError: variables of that kind that it lacks.
        ArgumentError: other dimensions, or a date twice.
    """
    kind = forecast.attrs.get("forecast_kind")
    if kind not in VARIABLES:
        raise UnknownNameError("forecast_kind", kind, VARIABLES)
    absent = [name for name in VARIABLES[kind] if name not in forecast]
    if absent:
        raise MissingDataError(f"{kind} forecast", absent)
    wanted = ("time", "number", *GRID) if kind == "ensemble" else ("time", *GRID)
    chosen = forecast[list(VARIABLES[kind])]
    if set(chosen.dims) != set(wanted):
        raise ArgumentError("forecast", f"dimensions {tuple(chosen.dims)} instead of {wanted}")
    if chosen.indexes["time"].has_duplicates:
        raise ArgumentError("forecast", "a date comes twice in its coordinate time")
    return chosen.transpose(*wanted)


def matched_truth(forecast: xr.Dataset, truth: xr.DataArray) -> xr.DataArray:
    """The truth of each date of a forecast, on the forecast's coordinates; lazy if it was.

    Dates are matched exactly: the forecast's `valid_time` (its `time` if it has none) with the
    truth's `valid_time` (its `time` if it has none). The truth may hold more dates, in any order.

    Args:
        forecast: with `time`, `latitude`, `longitude`.
        truth: over time, latitude, longitude; or time, step, latitude, longitude.

    Returns:
        Dimensions time, latitude, longitude.

    Raises:
        MissingDataError: dates, or rows and columns of the grid, that the truth lacks.
        ArgumentError: other dimensions.
    """
    if not {"time", *GRID} <= set(truth.dims) <= {"time", "step", *GRID}:
        raise ArgumentError("truth", f"dimensions {truth.dims} instead of {('time', *GRID)}")
    _check_grid(forecast, truth)
    when = truth["valid_time"] if "valid_time" in truth.coords else truth["time"]
    flat = truth.reset_coords(drop=True).drop_vars(("time", "step"), errors="ignore")
    if "step" in truth.dims:
        when = when.broadcast_like(truth.isel(latitude=0, longitude=0, drop=True))
        when = when.transpose("time", "step")
        flat = flat.stack(moment=("time", "step"), create_index=False).rename(moment="time")
    place = {moment: i for i, moment in enumerate(_moments(when))}
    moments = _moments(forecast["valid_time" if "valid_time" in forecast.coords else "time"])
    missing = [str(m)[:19] for m in moments if m not in place]
    if missing:
        raise MissingDataError(
            "truth", missing, "The truth has to cover the valid date of every forecast"
        )
    rows = flat.isel(time=[place[m] for m in moments])
    return rows.transpose("time", *GRID).assign_coords({d: forecast[d] for d in ("time", *GRID)})


def _moments(when: xr.DataArray) -> npt.NDArray[np.datetime64]:
    return when.to_numpy().ravel().astype("datetime64[ns]")


def _check_grid(forecast: xr.Dataset, truth: xr.DataArray) -> None:
    missing = []
    for name in GRID:
        mine, other = forecast[name].to_numpy(), truth[name].to_numpy()
        if mine.shape == other.shape and np.allclose(mine, other, rtol=0, atol=_CLOSE_DEGREES):
            continue
        near = np.abs(mine[:, None] - other).min(axis=1, initial=np.inf) <= _CLOSE_DEGREES
        lacking = [f"{name} {value:g}" for value in mine[~near]]
        missing += lacking or [f"{name} in the forecast's order and number"]
    if missing:
        raise MissingDataError("truth", missing, "Bring both to one grid")
