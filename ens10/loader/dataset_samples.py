"""Samples of any lazy dataset, computed date by date."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from ens10.channels import field_of
from ens10.loader.samples import (
    _ALL,
    _COPY,
    Field,
    Members,
    Move,
    Moves,
    Samples,
    Where,
    move_in_place,
)
from ens10.source.layout import read_values, tidy, with_forecast_dims
from ens10.source.names import Names
from ens10.source.pairing import pair_truth

# The source of a lazy array (HDF5, ecCodes, a user's function) may not be thread-safe.
_COMPUTE_LOCK = threading.RLock()


class DatasetSamples(Samples):
    """Samples of any lazy dataset in this package's layout, streamed as it is.

    Args:
        dataset: forecasts with the dimensions time, step, level, number, latitude and longitude,
            in any order; see `ens10.source.open_source`.
        truth: over (time, ...) at analysis times, or over (time, step, ...); None if there is none.
        target: channel, with `@step` if the truth has several steps.
        ensemble: members that make the ensemble; see `ens10.loader.samples.Members`.

    Raises:
        MissingDataError: valid dates without truth.
        UnknownNameError: the dataset lacks the target.
        ArgumentError: more members than the dataset has.
    """

    def __init__(
        self,
        dataset: xr.Dataset,
        truth: xr.Dataset | None,
        target: str,
        ensemble: Members = None,
    ) -> None:
        self.source, self._truth_source = _source(dataset, "data"), "truth"
        dataset = with_forecast_dims(tidy(dataset, Names(), self.source))
        if truth is not None:
            self._truth_source = _source(truth, "truth")
            truth = pair_truth(dataset, tidy(truth, Names(), "truth", optional_dimensions=True))
        super().__init__(dataset, truth, target, ensemble)
        self._dataset = dataset.isel(number=_slice_or_list(self._member_places))
        if len(self._member_places) < self.members:  # members that the data lack become NaN
            by_place = self._dataset.assign_coords(number=self._present)
            self._dataset = by_place.reindex(number=range(self.members))

    def read_truth(self, i: int, out: Field, rows: slice = _ALL) -> int:
        """Compute the truth of date `i` into `out` (h, W), NaN where missing."""
        if not self.has_truth:
            out[...] = np.nan
            return 0
        field = self._truth.isel(time=i, latitude=rows)
        return _read(field, f"{self._truth_source}: {self._date(i)}", self.target, out)

    def read_moments(
        self, where: Where, channels: Sequence[str], mean: Field, std: Field, moves: Moves = _COPY
    ) -> int:
        """Compute ensemble mean and standard deviation (n - 1), each (C, h, W)."""
        unit = self._unit(where)
        fields = [field_of(unit, channel) for channel in channels]
        lazy = {c: field.variable for c, field in zip(channels, fields, strict=True)}
        computed = _compute(xr.Dataset(lazy), self._place(where))
        for n, channel in enumerate(channels):  # in turn: double precision takes memory
            values = computed[channel].to_numpy()
            mean[n], std[n] = self._moments_of(where, channel, values)
        move_in_place(moves, mean, std)
        return sum(field.nbytes for field in computed.data_vars.values())

    def read_members(self, where: Where, channel: str, out: Field, move: Move | None = None) -> int:
        """Compute the members of one channel, (M, h, W)."""
        count = _read(field_of(self._unit(where), channel), self._place(where), channel, out)
        if self.checks is not None:
            self.checks.examine(where.date, where.step, channel, out)
        move_in_place((move,), out)
        return count

    def _unit(self, where: Where) -> xr.Dataset:
        """Return all fields of a date, lead time and rows, lazily."""
        date = self._dataset.isel(time=int(self._positions[where.date]))
        return date.sel(step=where.step).isel(latitude=where.rows)

    def _date(self, i: int) -> str:
        return str(self.time[i])[:13]  # to the hour

    def _place(self, where: Where) -> str:
        """Return source, date and lead time, for errors."""
        return f"{self.source}: {self._date(where.date)}, step {where.step:g}"


def _source(dataset: xr.Dataset, default: str) -> str:
    """Return the path of the files of a dataset, for errors."""
    return str(dataset.encoding.get("source") or default)


def _slice_or_list(places: list[int]) -> slice | list[int]:
    """Return consecutive places as a slice, a cheaper task of dask than a list."""
    if places and places == list(range(places[0], places[0] + len(places))):
        return slice(places[0], places[-1] + 1)
    return places


def _read(field: xr.DataArray, place: str, name: str, out: Any) -> int:
    """Compute a field into `out`, and return the bytes read; `place` is for errors."""
    values = _compute(xr.Dataset({name: field.variable}), place)[name].to_numpy()
    out[...] = values
    return int(values.nbytes)


def _compute(fields: xr.Dataset, place: str) -> xr.Dataset:
    """Compute all fields at once, in single precision; `place` is for errors."""
    with _COMPUTE_LOCK:
        return read_values(fields.astype(np.float32), place)
