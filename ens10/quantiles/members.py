"""Members of one channel and step, read by dates and rows, and their quantiles at many points."""

from collections.abc import Sequence
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize

from ens10.channels import channel_names, field_of, resolve, split_exactly
from ens10.compiled import OPTIONS
from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.stations import as_row
from ens10.store import forecasts
from ens10.store.chunks import Reader, open_reader

_DIMS = ("time", "number", "latitude", "longitude")


class ArrayMembers:
    """Members of any array, lazy or not; parts of lazy arrays are computed when they are read.

    Args:
        field: array over time, number, latitude, longitude.

    Attributes:
        field: the lazy field over (time, number, latitude, longitude).
        token: identifier of the members, computed without reading them.
    """

    def __init__(self, field: xr.DataArray) -> None:
        missing = [dim for dim in _DIMS if dim not in field.dims]
        missing += [name for name in ("time", "valid_time") if name not in field.coords]
        if missing:
            remedy = "Pass forecasts as `open_store` returns them"
            raise MissingDataError("members", missing, remedy)
        self.field = field.transpose(*_DIMS)
        self.token = tokenize(field)

    def read(self, position: int, rows: slice) -> npt.NDArray[np.float32]:
        """Read the members of one date, shape (members, points)."""
        part = self.field.isel(time=position, latitude=rows).compute(scheduler="synchronous")
        return part.to_numpy().astype(np.float32, copy=False).reshape(part.sizes["number"], -1)


class StoreMembers:
    """Members of a store's channel, read directly from its chunks; thread-safe.

    Args:
        store: its path; it may still be in preparation.
        channel: such as "t2m" or "z500".
        step: lead time; optional if there is only one.
        dataset: `forecasts(store)`, if it is already open.

    Attributes:
        field: the lazy field over (time, number, latitude, longitude).
        token: identifier of the members, computed without reading them.
    """

    def __init__(
        self, store: Path | str, channel: str, step: float | None, dataset: xr.Dataset | None = None
    ) -> None:
        dataset = forecasts(store, dask=False) if dataset is None else dataset
        name = resolve(channel, channel_names(dataset))
        self.field, n = _at_step(field_of(dataset, name), step)
        self.field = self.field.transpose(*_DIMS)
        self._position: tuple[int, ...] = (n,)
        self._store, self._name = store, f"sfc/{name}"
        if name not in dataset.data_vars:
            variable, level = split_exactly(name)
            levels = dataset["level"].to_numpy().tolist()
            self._name, self._position = f"pl/{variable}", (n, levels.index(level))
        self._reader: Reader | None = None
        self.token = tokenize(str(store), self._name, self._position)

    def read(self, position: int, rows: slice) -> npt.NDArray[np.float32]:
        """Read the members of one date, shape (members, points)."""
        if self._reader is None:
            self._reader = open_reader(self._store, self._name)
        first, last, _ = rows.indices(self._reader.rows)
        out = np.empty((self._reader.fields, last - first, self._reader.columns), np.float32)
        self._reader.read_into((position, *self._position), out, rows=rows)
        return out.reshape(len(out), -1)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the reader, which has buffers for each thread."""
        return {**self.__dict__, "_reader": None}


Members = ArrayMembers | StoreMembers


def members_of(
    source: Path | str | xr.DataArray, channel: str | None, step: float | None
) -> Members:
    """Return the members of a store or of an array.

    Args:
        source: a store's path, or an array over time[, step], number, latitude, longitude, with
            the coordinate `valid_time`.
        channel: channel of the store; ignored for an array.
        step: lead time; optional if there is only one.

    Raises:
        ArgumentError: no channel, or no step where there are several.
        UnknownNameError: no such channel or step.
        MissingDataError: the array lacks dimensions or valid times.
    """
    if isinstance(source, xr.DataArray):
        return ArrayMembers(_at_step(source, step)[0])
    if channel is None:
        raise ArgumentError("channel", "it is missing", "Name one, such as t2m or z500")
    return StoreMembers(source, channel, step)


def _at_step(field: xr.DataArray, step: float | None) -> tuple[xr.DataArray, int]:
    """Return the field at one step, with stations as one row, and the position of the step."""
    field = as_row(field)
    if "step" not in field.dims:
        return field, 0
    steps: Sequence[float] = field["step"].to_numpy().tolist()
    if step is None and len(steps) > 1:
        raise ArgumentError("step", "not given", f"Choose from {', '.join(map(str, steps))}")
    if step is not None and step not in steps:
        raise UnknownNameError("step", step, steps)
    place = 0 if step is None else steps.index(step)
    return field.isel(step=place), place


_POINTS = 512  # sorted at a time: 1530 members of so many points are 3 MB


def quantiles_of(
    members: Sequence[npt.NDArray[np.float32]], levels: npt.NDArray[np.float64]
) -> npt.NDArray[np.float32]:
    """Return the quantiles over all members at every point.

    They are numpy's "linear" quantiles (type 7 of Hyndman and Fan, 1996, doi:10.2307/2684934),
    computed in float64 and rounded once. NaN members are left out; points with only NaN are NaN.

    Args:
        members: arrays of shape (members, points); the sample is their concatenation.
        levels: shape (quantiles,), in [0, 1].

    Returns:
        Shape (quantiles, points).
    """
    total, points = sum(len(part) for part in members), members[0].shape[1]
    out = np.empty((levels.size, points), np.float32)
    block = np.empty((min(_POINTS, points), total), np.float32)
    for first in range(0, points, _POINTS):
        last = min(first + _POINTS, points)
        sample, begin = block[: last - first], 0
        for part in members:
            sample[:, begin : begin + len(part)] = part[:, first:last].T
            begin += len(part)
        sample.sort(axis=1)  # NaN goes last
        _interpolate(sample, levels, out[:, first:last])
    return out


@numba.njit(**OPTIONS)
def _interpolate(sorted_members, levels, out):  # type: ignore[no-untyped-def]
    for point in range(sorted_members.shape[0]):
        count = sorted_members.shape[1]
        while count > 0 and np.isnan(sorted_members[point, count - 1]):
            count -= 1
        for n in range(levels.size):
            if count == 0:
                out[n, point] = np.nan
                continue
            position = levels[n] * (count - 1)
            index = int(position)
            weight = position - index
            low = np.float64(sorted_members[point, index])
            high = np.float64(sorted_members[point, min(index + 1, count - 1)])
            # From the nearer end, as numpy does: rises with the level and meets both ends.
            if weight >= 0.5:
                out[n, point] = np.float32(high - (high - low) * (1.0 - weight))
            else:
                out[n, point] = np.float32(low + (high - low) * weight)
