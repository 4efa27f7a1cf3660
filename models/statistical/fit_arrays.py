"""Statistical methods fitted to DataArrays and applied to them, without a store."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr

from ens10.errors import ArgumentError
from ens10.grid import area_weights
from ens10.loader.batch import Batch
from ens10.metrics.verification.alignment import Join, check_same_grid, match_truth, valid_times
from ens10.models.statistical.base import StatisticalMethod, join_dates
from ens10.stations import as_row, as_stations

_DIMS = ("time", "number", "latitude", "longitude")
_DATES = 64  # of a batch: memory holds one


@dataclass(frozen=True)
class FittedMethod:
    """A statistical method with coefficients, as a function of DataArrays.

    Args:
        method: the method, solved.
        points: coordinates of the grid or the stations that it was fitted at.
    """

    method: StatisticalMethod
    points: xr.Dataset

    def __call__(self, members: xr.DataArray) -> xr.Dataset:
        """Return the forecast distribution of each date and point.

        Args:
            members: raw ensemble as in `fit`, at the points of the fit.

        Returns:
            Dataset that `ens10.metrics.verify` scores: the parameters of the distribution over time
            and the points, with the kind in the attribute `forecast_kind`.

        Raises:
            ArgumentError: other dimensions, other stations, or a single member.
            MissingDataError: another grid.
        """
        raw = _checked(members)
        check_same_grid("members", self.points, raw)
        starts = range(0, raw.sizes["time"], _DATES)
        with torch.no_grad():
            parts = [self.method(_batch(raw.isel(time=slice(n, n + _DATES)))) for n in starts]
        places = {name: raw[name].to_numpy() for name in ("time", "latitude", "longitude")}
        times = {"valid_time": ("time", valid_times(raw)[:, 0]), "step": 0}
        units = str(raw.attrs.get("units", ""))
        forecast = join_dates(parts).to_dataset(places | times, units).drop_vars("step")
        own = {k: c for k, c in raw.coords.items() if "number" not in c.dims}
        return as_stations(forecast.assign_coords(own))


def fit(
    method: StatisticalMethod,
    members: xr.DataArray,
    truth: xr.DataArray,
    *,
    join: Join = "exact",
) -> FittedMethod:
    """Fit a statistical method to past forecasts and their truth.

    Forecasts are matched with the truth at their valid times: the coordinate `valid_time` if there
    is one, otherwise `time`. Points of a grid are weighted by area, stations equally; dates with a
    missing member or truth do not count. Predictors are those of the ensemble itself: `RidgeEMOS`
    and `BoostedEMOS` see its mean and spread, and no other variables.

    Args:
        method: such as `EMOS(local=True)`; it is copied, and not changed.
        members: raw ensemble over time, number and latitude, longitude (or station), of one lead
            time; read in batches of 64 dates if it is lazy.
        truth: over time and the same points, in the same units; it may hold more times.
        join: "exact" refuses dates without truth; "inner" leaves them out and warns.

    Returns:
        The fitted method, to be called with the members of other dates.

    Raises:
        ArgumentError: other dimensions, units that differ, a single member, or data that the method
            cannot be fitted to.
        MissingDataError: dates or points that the truth lacks.

    Examples:
        >>> import numpy as np, xarray as xr
        >>> from ens10.models import statistical
        >>> rng = np.random.default_rng(0)
        >>> time = np.arange("2020-01-01", "2020-07-01", dtype="M8[D]").astype("M8[ns]")
        >>> weather = rng.normal(280, 5, (time.size, 1, 3))
        >>> dims = ("time", "number", "station")
        >>> coords = {"time": time, "station": ["a", "b", "c"]}
        >>> noise = rng.normal(size=(time.size, 10, 3))
        >>> members = xr.DataArray(weather + noise, coords, dims, attrs={"units": "K"})
        >>> truth = (members.mean("number") + 2).assign_attrs(units="K")
        >>> fitted = statistical.fit(statistical.EMOS(local=True), members, truth)
        >>> forecast = fitted(members)
        >>> (forecast["mu"] - members.mean("number")).mean().round(2).item()
        2.0
    """
    forecast = xr.Dataset({"members": _checked(members)}, attrs={"forecast_kind": "ensemble"})
    match = match_truth(forecast, truth, join, "members")
    raw, copy = match.forecast["members"], deepcopy(method)
    for first in range(0, raw.sizes["time"], _DATES):
        dates = slice(first, first + _DATES)
        copy.collect(_batch(raw.isel(time=dates), match.observations(dates)[:, 0, 0]))
    copy.solve()
    return FittedMethod(copy, raw.coords.to_dataset())


def _checked(members: xr.DataArray) -> xr.DataArray:
    """Return the members as (time, number, latitude, longitude), stations in one row."""
    raw = as_row(members)
    raw = raw.squeeze("step") if raw.sizes.get("step") == 1 else raw
    if set(raw.dims) != set(_DIMS):
        reason = f"dimensions {members.dims} instead of time, number and latitude, longitude"
        remedy = "Select one lead time and level, or name the dimension of stations 'station'"
        raise ArgumentError("members", reason, remedy)
    if raw.sizes["number"] < 2:
        raise ArgumentError("members", "a single member has no spread", "Pass two or more")
    return raw.transpose(*_DIMS)


def _batch(raw: xr.DataArray, truth: npt.NDArray[Any] | None = None) -> Batch:
    """Return a batch of some dates; without truth all weights are 0."""
    members = raw.to_numpy().astype(np.float64)
    mean, std = members.mean(1), members.std(1, ddof=1)
    target = np.full_like(mean, np.nan) if truth is None else truth
    weights = area_weights(raw["latitude"].to_numpy())[:, None] * np.isfinite(mean + target)
    fields = {
        "features": np.zeros_like(mean[:, None]),  # constant: no method selects it
        "members": members,
        "raw_mean": mean,
        "raw_std": std,
        "target": np.where(weights > 0, target, 0.0),
        "weights": weights,
    }
    dates = valid_times(raw)[:, 0].astype("M8[s]").astype(np.int64)
    batch = {name: torch.from_numpy(x.astype(np.float32)) for name, x in fields.items()}
    return cast("Batch", batch | {"dates": torch.from_numpy(dates)})
