"""Truth and forecasts brought together: the same grid, and the truth at each valid date."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError
from ens10.source import as_truth

_TOLERANCE_DEGREES = 1e-3
# A step is one that the truth is meant for if at least this share of its valid dates has truth:
# valid dates of other steps can coincide with a few of them (31 December + 48 h, 1 January + 24 h).
_MEANT = 0.5


def pair_truth(
    forecasts: xr.Dataset, truth: xr.Dataset, missing: Literal["error", "nan", "skip"] = "error"
) -> xr.Dataset:
    """The truth at the forecasts' valid dates and grid points.

    Args:
        forecasts: with `valid_time` over (time, step).
        truth: over (time, ...) at analysis times, or over (time, step, ...) like the forecasts.
        missing: what to do about valid dates without truth: "error", "nan" or "skip".

    Returns:
        Dataset over (time, step[, level], latitude, longitude), with the steps that have truth and,
        if dates were skipped, the times that remain.

    Raises:
        MissingDataError: valid dates lack truth; all are listed.
        ArgumentError: the truth's grid does not contain the forecasts' points.
    """
    truth = on_grid(as_truth(truth), forecasts)
    if "step" in truth.dims:
        flat = truth.stack(pair=("time", "step"))
        when = flat["valid_time"].to_numpy()
        truth = flat.drop_vars(["pair", "time", "step", "valid_time"])
    else:
        when = truth["valid_time" if "valid_time" in truth.coords else "time"].to_numpy()
        truth = truth.rename(time="pair").drop_vars(["pair", "valid_time"], errors="ignore")
    valid = forecasts["valid_time"].to_numpy()
    position = _positions(valid, when)
    found = position >= 0
    steps = np.flatnonzero(found.mean(axis=0) >= _MEANT)
    times = _times(forecasts, valid, found, steps, missing)
    return _take(truth, forecasts, position[np.ix_(times, steps)], times, steps)


def on_grid(truth: xr.Dataset, forecasts: xr.Dataset) -> xr.Dataset:
    """The truth at the forecasts' grid points, which must be among its own."""
    picks = {}
    for dim, period in (("latitude", None), ("longitude", 360.0)):
        wanted, held = forecasts[dim].to_numpy(), truth[dim].to_numpy()
        apart = np.abs(wanted[:, None] - held[None, :])
        apart = np.minimum(apart, period - apart) if period else apart
        nearest = apart.argmin(axis=1)
        if apart.min(axis=1).max() > _TOLERANCE_DEGREES:
            raise ArgumentError(
                "truth",
                f"its {dim}s ({held[0]:g} to {held[-1]:g}, {held.size}) do not contain those of "
                f"the forecasts ({wanted[0]:g} to {wanted[-1]:g}, {wanted.size})",
                "Give truth on the same grid or on one that contains its points",
            )
        picks[dim] = nearest
    same = {dim: forecasts[dim] for dim in picks}
    return truth.isel(picks).assign_coords(same)


def _positions(
    valid: npt.NDArray[np.datetime64], when: npt.NDArray[np.datetime64]
) -> npt.NDArray[np.int64]:
    """Index of each valid time in `when`, -1 where it is not there."""
    order = {
        time: n for n, time in enumerate(when.astype("datetime64[s]").astype(np.int64).tolist())
    }
    seconds = valid.astype("datetime64[s]").astype(np.int64)
    flat = [order.get(time, -1) for time in seconds.ravel().tolist()]
    return np.array(flat, dtype=np.int64).reshape(valid.shape)


def _times(
    forecasts: xr.Dataset,
    valid: npt.NDArray[np.datetime64],
    found: npt.NDArray[np.bool_],
    steps: npt.NDArray[np.int64],
    missing: Literal["error", "nan", "skip"],
) -> npt.NDArray[np.int64]:
    lacking = np.argwhere(~found[:, steps]) if steps.size else np.argwhere(~found)
    if steps.size and (missing == "nan" or not len(lacking)):
        return np.arange(len(valid))
    if steps.size and missing == "skip":
        return np.flatnonzero(found[:, steps].all(axis=1))
    names = forecasts["step"].to_numpy()[steps] if steps.size else forecasts["step"].to_numpy()
    dates = valid[:, steps] if steps.size else valid
    units = forecasts["step"].attrs.get("units", "h")
    raise MissingDataError(
        "truth",
        [f"{str(dates[i, j])[:13]} (step {names[j]} {units})" for i, j in lacking],
        "Add the truth of these valid dates, or leave them out with --missing skip",
    )


def _take(
    truth: xr.Dataset,
    forecasts: xr.Dataset,
    position: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64],
    steps: npt.NDArray[np.int64],
) -> xr.Dataset:
    flat = xr.DataArray(position, dims=("time", "step"))
    taken = truth.isel(pair=flat.clip(0)).where(flat >= 0)
    order = ("time", "step", "level", "latitude", "longitude")
    paired = taken.transpose(*order, missing_dims="ignore").astype(np.float32)
    there = forecasts.isel(time=times, step=steps)
    coordinates = {name: there[name] for name in ("time", "step", "valid_time")}
    return paired.assign_coords(coordinates).drop_vars("number", errors="ignore")
