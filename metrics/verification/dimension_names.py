"""Names of dimensions: the user's arrays have any, the computation those of this package."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics.distributions.forecast_dataset import GRID, STEP_AND_LEVEL
from ens10.metrics.distributions.registry import kind_of
from ens10.stations import PLACES, STATION, Data

_ROLES = {"lat": "latitude", "y": "latitude", "lon": "longitude", "x": "longitude"}


@dataclass(frozen=True)
class DimensionNames:
    """Names of the dimensions that cannot be known from the arrays alone.

    Dimensions other than members, dates, `step` and `level` are points: none is one station, one
    (of any name) are stations, and two are a grid: `latitude` or `lat` or `y`, and `longitude` or
    `lon` or `x`.

    Attributes:
        member: dimension of the members.
        time: dimension of the dates; None for `time`, or the only dimension with dates.
    """

    member: str = "number"
    time: str | None = None

    def forecast(self, data: xr.Dataset | xr.DataArray, name: str = "forecast") -> xr.Dataset:
        """Return a forecast of any kind, or of members alone, under this package's names.

        Raises:
            ArgumentError: no dimension of the members or of dates, or names that are ambiguous.
        """
        if isinstance(data, xr.Dataset):
            kind = kind_of(data, name)
            known = [variable for variable in kind.stored_variables(data) if variable in data]
            return self.standard(data[known], name, kind.core_dims())
        members = self.standard(data, name, ("number",))
        return members.to_dataset(name="members").assign_attrs(forecast_kind="ensemble")

    def standard(self, data: Data, name: str, core: Sequence[str] = ()) -> Data:
        """Return data under this package's names; stations lie along `station`.

        Args:
            data: the user's.
            name: of the argument, for errors.
            core: dimensions besides dates and points, such as `number`.

        Raises:
            ArgumentError: see `forecast`.
        """
        names = self._names(data, name, core)
        # a coordinate of our name along their dimension, such as station(site), labels it
        labels = {
            k: v for k, v in names.items() if v in data.coords and data[v].dims == (k,) != (v,)
        }
        try:
            new_names = {k: v for k, v in names.items() if k != v and k not in labels}
            renamed = data.swap_dims(labels).rename(new_names)
        except ValueError as error:
            raise ArgumentError(name, str(error), "Rename or drop this coordinate") from error
        if _has_points(names):
            return renamed
        bare = renamed.drop_vars([STATION, *GRID], errors="ignore")
        return bare.expand_dims({STATION: [0]}, axis=-1)

    def original(self, result: Data, members: xr.DataArray) -> Data:
        """Return a result over dates and points of the user's members under their names."""
        names = self._names(members, "members", ("number",))
        if not _has_points(names):
            result = result.squeeze(STATION, drop=True)
        present = {*result.dims, *result.coords}
        new_names = {new: old for old, new in names.items() if new in present and new != old}
        return result.rename(new_names)

    def _names(self, data: Any, name: str, core: Sequence[str]) -> dict[str, str]:
        """Return our name of each of the user's dimensions, and of the places of stations."""
        has_members = "number" in core
        self._check_given(data, name, has_members)
        names = {self.member: "number"} if has_members else {}
        names[self._dates(data, name)] = "time"
        dims = map(str, data.dims)
        points = [d for d in dims if d not in {*names, *core, *STEP_AND_LEVEL}]
        if len(points) != 1 or points[0] in GRID:  # one station without a dimension, or a grid
            return names | {d: _ROLES.get(d, d) for d in points}
        # stations: latitude and longitude along them are places, which have other names here
        places = zip(GRID, PLACES, strict=True)
        names |= {k: v for k, v in places if k in data.coords and data[k].dims == (points[0],)}
        return names | {points[0]: STATION}

    def _check_given(self, data: Any, name: str, has_members: bool) -> None:
        """Raise an error if data of members lack a dimension that was given."""
        dims = tuple(map(str, data.dims))
        given = {"member_dim": self.member, "time_dim": self.time} if has_members else {}
        for option, dim in given.items():
            if dim is not None and dim not in dims:
                raise ArgumentError(
                    name, f"no dimension {dim!r}, only {dims}", f"Name it: {option}"
                )

    def _dates(self, data: Any, name: str) -> str:
        """Return the user's dimension of dates: that given, `time`, or the only one with dates."""
        dims = tuple(map(str, data.dims))
        dated = [d for d in dims if np.issubdtype(data[d].dtype, np.datetime64)]
        for dim in (self.time, "time", dated[0] if len(dated) == 1 else None):
            if dim in dims:
                return str(dim)
        raise ArgumentError(name, f"no dimension of dates among {dims}", "Name it: time_dim")


def _has_points(names: Mapping[str, str]) -> bool:
    """Return False for data of one station, without a dimension of points."""
    return bool({STATION, *GRID} & set(names.values()))
