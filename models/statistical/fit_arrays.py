"""Statistical methods fitted to DataArrays and applied to them, without a store."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError
from ens10.grid import area_weights
from ens10.loader.batch import Batch
from ens10.metrics.verification.alignment import Join, check_same_grid, match_truth, valid_times
from ens10.metrics.verification.dimension_names import DimensionNames
from ens10.models.statistical.advection import Advection
from ens10.models.statistical.anomaly_emos import AnomalyEMOS
from ens10.models.statistical.base import (
    StatisticalMethod,
    join_dates,
    moved,
    take_new_points,
)
from ens10.models.statistical.place_regression import places_in
from ens10.stations import STATION, as_row, as_stations, has_stations, places_of

_DIMS = ("time", "number", "latitude", "longitude")
_DATES = 64  # of a batch: memory holds one


@dataclass(frozen=True)
class FittedMethod:
    """A statistical method with coefficients, as a function of DataArrays.

    Args:
        method: the method, solved.
        points: coordinates of the grid or the stations that it was fitted at.
        names: of the dimensions of the user's arrays.
        predictors: names of the predictors of the fit.
    """

    method: StatisticalMethod
    points: xr.Dataset
    names: DimensionNames = field(default_factory=DimensionNames)
    predictors: tuple[str, ...] = ()

    def __call__(
        self,
        members: xr.DataArray,
        predictors: xr.Dataset | None = None,
        *,
        quantiles: Sequence[float] = (),
    ) -> xr.Dataset:
        """Return the forecast distribution of each date and point.

        Args:
            members: raw ensemble as in `fit`, at the points of the fit; methods whose coefficients
                hold at any station, such as `AnomalyEMOS`, take other stations.
            predictors: as in `fit`.
            quantiles: levels between 0 and 1.

        Returns:
            Dataset that `ens10.metrics.verify` scores, under the names of the arrays' dimensions:
            the parameters of the distribution over dates and points, or members (of `ECC`), with
            the kind in the attribute `forecast_kind`; and `NAME_quantile` over `quantile_level`,
            where NAME is that of the members (`forecast` without one).

        Raises:
            ArgumentError: other dimensions, other stations, or a single member.
            MissingDataError: another grid, or predictors that are missing.
        """
        raw = _standard(members, self.names)
        method = self._method_at(raw)
        fields = _fields(predictors, self.predictors, raw, self.names)
        starts = range(0, raw.sizes["time"], _DATES)
        batches = (_batch(raw, fields, slice(n, n + _DATES)) for n in starts)
        with torch.no_grad():
            forecast = join_dates([method(batch) for batch in batches])
        own_members = len(forecast.core_coordinates().get("number", ()))
        labelled = [d for d in _DIMS if d != "number" or own_members == raw.sizes["number"]]
        places = {name: raw[name].to_numpy() for name in labelled}
        times = {"valid_time": ("time", valid_times(raw)[:, 0]), "step": 0}
        units = str(raw.attrs.get("units", ""))
        result = forecast.to_dataset(places | times, units).drop_vars("step")
        if quantiles:
            levels = np.sort(np.asarray(quantiles, np.float64))
            dims, attrs = ("quantile_level", "time", *_DIMS[2:]), {"units": units}
            values = xr.DataArray(forecast.quantile(levels), {dims[0]: levels}, dims, attrs=attrs)
            result[f"{members.name or 'forecast'}_quantile"] = values.transpose("time", ...)
        own = {k: c for k, c in raw.coords.items() if "number" not in c.dims}
        return self.names.original(as_stations(result.assign_coords(own)), members)

    def _method_at(self, raw: xr.DataArray) -> StatisticalMethod:
        """Return the method at other stations if it takes new ones, else the method itself."""
        points = raw.coords.to_dataset()
        if has_stations(points) and has_stations(self.points) and take_new_points(self.method):
            own, other = (
                list(map(str, one[STATION].to_numpy().tolist())) for one in (self.points, points)
            )
            if own != other:
                places = places_of(other, own)
                return moved(self.method, places, partial(places_in, points))
        check_same_grid("members", self.points, raw)
        return self.method


def fit(
    method: StatisticalMethod,
    members: xr.DataArray,
    truth: xr.DataArray,
    *,
    predictors: xr.Dataset | None = None,
    member_dim: str = "number",
    time_dim: str | None = None,
    join: Join = "exact",
) -> FittedMethod:
    """Fit a statistical method to past forecasts and their truth.

    Forecasts are matched with the truth at their valid times: the coordinate `valid_time` if there
    is one, otherwise the dates. Dimensions have any names, which the fitted method keeps: those
    besides members and dates are the points, of one station (none), stations (one) or a grid (two).
    Points of a grid are weighted by area, stations equally; dates with a missing member or truth do
    not count. Coefficients are those of a fit through a store, for the same members and dates.

    Args:
        method: such as `EMOS(local=True)`; it is copied, and not changed.
        members: raw ensemble over dates, members and points, of one lead time; read in batches of
            64 dates if it is lazy.
        truth: over dates and the same points, in the same units; it may hold more dates.
        predictors: further variables, of which `RidgeEMOS`, `BoostedEMOS` and
            `RegionalRegression` take mean and deviation over members; an advection takes its wind
            from them. Variables without members have deviation 0.
        member_dim: dimension of the members.
        time_dim: dimension of the dates; None for `time`, or the only one that has dates.
        join: "exact" refuses dates without truth; "inner" leaves them out and warns.

    Returns:
        The fitted method, to be called with the members of other dates.

    Raises:
        ArgumentError: other dimensions, units that differ, a single member, no date with members
            and truth, or data that the method cannot be fitted to.
        MissingDataError: dates or points that the truth or a predictor lacks.

    Examples:
        >>> import numpy as np, xarray as xr
        >>> from ens10.models import statistical
        >>> rng = np.random.default_rng(0)
        >>> date = np.arange("2020-01-01", "2020-07-01", dtype="M8[D]").astype("M8[ns]")
        >>> weather = rng.normal(280, 5, (date.size, 1, 3))
        >>> coords = {"date": date, "site": ["a", "b", "c"]}
        >>> noise = rng.normal(size=(date.size, 10, 3))
        >>> members = xr.DataArray(weather + noise, coords, ("date", "realization", "site"))
        >>> truth = members.mean("realization") + 2
        >>> emos = statistical.EMOS(local=True)
        >>> fitted = statistical.fit(emos, members, truth, member_dim="realization")
        >>> forecast = fitted(members, quantiles=[0.1, 0.9])
        >>> (forecast["mu"] - members.mean("realization")).mean().round(2).item()
        2.0
        >>> forecast["forecast_quantile"].dims
        ('date', 'quantile_level', 'site')
    """
    names = DimensionNames(member_dim, time_dim)
    forecast = xr.Dataset(
        {"members": _standard(members, names)}, attrs={"forecast_kind": "ensemble"}
    )
    match = match_truth(forecast, names.standard(truth, "truth"), join, "members")
    raw, copy = match.forecast["members"], deepcopy(method)
    inputs = () if predictors is None else tuple(map(str, predictors.data_vars))
    fields = _fields(predictors, inputs, raw, names)
    points = raw.coords.to_dataset()
    for part in copy.modules():
        if isinstance(part, AnomalyEMOS):
            part.place(places_in(points))
        if isinstance(part, Advection):
            axes = raw["latitude"].to_numpy().tolist(), raw["longitude"].to_numpy().tolist()
            part.place([f"{name}:mean" for name in inputs], str(members.name or ""), *axes)
    total = 0.0
    for first in range(0, raw.sizes["time"], _DATES):
        dates = slice(first, first + _DATES)
        batch = _batch(raw, fields, dates, match.observations(dates)[:, 0, 0])
        total += float(batch["weights"].sum())
        copy.collect(batch)
    if not total:
        raise ArgumentError("truth", "no date has its value and that of all members")
    copy.solve()
    return FittedMethod(copy, points, names, inputs)


def _standard(
    data: xr.DataArray, names: DimensionNames, name: str = "members", members: bool = True
) -> xr.DataArray:
    """Return members, or a field of one, as (time, number, latitude, longitude)."""
    raw = as_row(names.standard(data, name, ("number",) if members else ()))
    raw = raw.squeeze("step") if raw.sizes.get("step") == 1 else raw
    raw = raw if members else raw.expand_dims("number")
    if set(raw.dims) != set(_DIMS):
        reason = f"dimensions {data.dims} instead of members, dates and one or two of points"
        raise ArgumentError(name, reason, "Select one lead time and level")
    if name == "members" and raw.sizes["number"] < 2:
        raise ArgumentError("members", "a single member has no spread", "Pass two or more")
    return raw.transpose(*_DIMS)


def _fields(
    predictors: xr.Dataset | None, inputs: Sequence[str], raw: xr.DataArray, names: DimensionNames
) -> list[xr.DataArray]:
    """Return the predictors on the dates and points of the members."""
    fields = []
    for name in inputs:
        if predictors is None or name not in predictors:
            raise MissingDataError("predictors", [name], "Pass those of the fit")
        one = _standard(predictors[name], names, name, names.member in predictors[name].dims)
        check_same_grid(name, raw.coords.to_dataset(), one)
        if missing := [str(date)[:19] for date in np.setdiff1d(raw["time"], one["time"])]:
            raise MissingDataError(name, missing)
        fields.append(one.sel(time=raw["time"]))
    return fields


def _batch(
    raw: xr.DataArray,
    predictors: Sequence[xr.DataArray],
    dates: slice,
    truth: npt.NDArray[Any] | None = None,
) -> Batch:
    """Return a batch of some dates; without truth all weights are 0."""
    from ens10.convert.moments import ensemble_moments  # needs zarr

    def moments(field: xr.DataArray) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        return ensemble_moments(field[dates].to_numpy().astype(np.float32), 1)

    mean, std = moments(raw)
    target = np.full_like(mean, np.nan) if truth is None else truth
    weights = area_weights(raw["latitude"].to_numpy())[:, None] * np.isfinite(mean + target)
    features = [*zip(*map(moments, predictors), strict=True)] or [[np.zeros_like(mean)]]
    fields = {
        "features": np.stack([field for moment in features for field in moment], 1),
        "members": raw[dates].to_numpy(),
        "raw_mean": mean,
        "raw_std": std,
        "target": np.where(weights > 0, target, 0.0),
        "weights": weights,
    }
    batch = {name: torch.from_numpy(x.astype(np.float32)) for name, x in fields.items()}
    seconds = valid_times(raw[dates])[:, 0].astype("M8[s]").astype(np.int64)
    return cast("Batch", batch | {"dates": torch.from_numpy(seconds)})
