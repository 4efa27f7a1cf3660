"""Truth and forecasts brought together: the same grid, and the truth at each valid date."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError
from ens10.layout import as_truth

_GRID = ("latitude", "longitude")
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
        ArgumentError: the truth's grid does not contain the forecasts' points, or the truth has
            several members.
    """
    truth = on_grid(as_truth(truth), forecasts)
    position = _positions(forecasts, truth)
    found = position >= 0
    steps = _steps_meant(found)
    times = _times(forecasts, found, steps, missing)
    return _take(truth, forecasts, position[np.ix_(times, steps)], times, steps)


def on_grid(truth: xr.Dataset, forecasts: xr.Dataset) -> xr.Dataset:
    """The truth at the forecasts' grid points, which must be among its own."""
    picks = {}
    for dim, period in (("latitude", None), ("longitude", 360.0)):
        wanted, held = forecasts[dim].to_numpy(), truth[dim].to_numpy()
        apart = wanted[:, None].astype(np.float64) - held[None, :]
        if period:
            apart = (apart + period / 2) % period - period / 2
        apart = np.abs(apart)
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


def _positions(forecasts: xr.Dataset, truth: xr.Dataset) -> npt.NDArray[np.int64]:
    """Where the truth of each valid time (time, step) is, -1 where it is not.

    Truth over (time, step) counts as one sequence, row by row. Where it holds the forecast's own
    start and step, that field is taken rather than another one of the same valid time.
    """
    when = truth["valid_time" if "valid_time" in truth.coords else "time"]
    wanted = _seconds(forecasts["valid_time"])
    place = {second: n for n, second in enumerate(_seconds(when).ravel().tolist())}
    flat = [place.get(second, -1) for second in wanted.ravel().tolist()]
    position = np.array(flat, dtype=np.int64).reshape(wanted.shape)
    if "step" in truth.dims:
        rows = truth.indexes["time"].get_indexer(forecasts.indexes["time"])[:, None]
        columns = truth.indexes["step"].get_indexer(forecasts.indexes["step"])[None, :]
        own = np.where((rows >= 0) & (columns >= 0), rows * truth.sizes["step"] + columns, -1)
        same = (own >= 0) & (_seconds(when).ravel()[own.clip(0)] == wanted)
        position = np.where(same, own, position)
    return position


def _seconds(when: xr.DataArray) -> npt.NDArray[np.int64]:
    return when.to_numpy().astype("datetime64[s]").astype(np.int64)


def _steps_meant(found: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Indices of the steps that the truth is meant for; all if it has nothing for any."""
    share = found.mean(axis=0)
    return np.flatnonzero(share >= min(_MEANT, share.max()))


def _times(
    forecasts: xr.Dataset,
    found: npt.NDArray[np.bool_],
    steps: npt.NDArray[np.int64],
    missing: Literal["error", "nan", "skip"],
) -> npt.NDArray[np.int64]:
    """Indices of the start dates to keep."""
    whole = found[:, steps].all(axis=1)
    if whole.all() or (missing == "nan" and found.any()):
        return np.arange(len(found))
    if missing == "skip" and whole.any():
        return np.flatnonzero(whole)
    names = forecasts["step"].to_numpy()[steps]
    dates = forecasts["valid_time"].to_numpy()[:, steps]
    units = forecasts["step"].attrs.get("units", "h")
    raise MissingDataError(
        "truth",
        [
            f"{str(dates[i, j])[:13]} (step {names[j]} {units})"
            for i, j in np.argwhere(~found[:, steps])
        ],
        "Add the truth of these valid dates, leave them out with --missing skip, or fill them with "
        "--missing nan",
    )


def _take(
    truth: xr.Dataset,
    forecasts: xr.Dataset,
    position: npt.NDArray[np.int64],
    times: npt.NDArray[np.int64],
    steps: npt.NDArray[np.int64],
) -> xr.Dataset:
    held = truth.drop_vars([c for c in truth.coords if c not in (*_GRID, "level")])
    flat = xr.DataArray(position, dims=("time", "step"))
    if "step" in truth.dims:
        steps_held = truth.sizes["step"]
        place = {"truth_time": flat.clip(0) // steps_held, "truth_step": flat.clip(0) % steps_held}
        held = held.rename(time="truth_time", step="truth_step")
    else:
        place = {"truth_time": flat.clip(0)}
        held = held.rename(time="truth_time")
    taken = held.isel(place)
    if (position < 0).any():
        taken = taken.where(flat >= 0)
    order = ("time", "step", "level", "latitude", "longitude")
    paired = taken.transpose(*order, missing_dims="ignore").astype(np.float32)
    there = forecasts.isel(time=times, step=steps)
    return paired.assign_coords({name: there[name] for name in ("time", "step", "valid_time")})
