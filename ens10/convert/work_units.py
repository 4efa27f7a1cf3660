"""Work units of `prepare`: forecasts of one date and step, truth of one date, sums of one year.

Where dates share a chunk, a unit is all dates of the chunk.

A unit is a plain object that can be sent to another process or machine, and can be repeated without
harm: it writes the same bytes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.climate import blocks
from ens10.convert.empty_store import SUMS, Form, StorePart, chunk_path, forecast_parts
from ens10.convert.files import Writer
from ens10.convert.moments import Chunk, Range, add_date
from ens10.convert.plan import Plan
from ens10.convert.sources import DatasetForecasts, Fields, Forecasts
from ens10.convert.workers import Unit
from ens10.errors import FileError, MissingDataError
from ens10.identity import member_labels
from ens10.packed16.layout import encode, values_begin
from ens10.progress import track
from ens10.source.layout import read_values
from ens10.source.units import check_range
from ens10.stations import STATION, has_stations
from ens10.store.manifest import Row, field_checksums

_SLAB = 1 << 16  # points
_MIN_THREADED_POINTS = 1 << 16  # points of a grid whose moments are worth another thread


@dataclass(frozen=True)
class ForecastUnit:
    """One date and step: all chunks of the forecasts, and the ensemble's mean and deviation.

    Attributes:
        name: of the unit.
        place: index of the date and of the step.
        form: sizes and options.
        parts: the chunks.
        fields: the source of their fields.
    """

    name: str
    place: tuple[int, int]
    form: Form
    parts: tuple[StorePart, ...]
    fields: Fields

    def write(self, writer: Writer) -> None:
        """Read each field once, and write its chunks."""
        form = self.form
        shape = (len(form.ensembles), 2, form.channels, form.rows * form.columns)
        moments = np.empty(shape, np.float32)
        futures: list[Future[None]] = []
        with self.fields.open() as read:
            for n, part in enumerate(self.parts):
                path = part.path(self.place)
                key = path if form.records_position else ""
                data = encode(read(n), form.rows, form.columns, key)
                chunk = Chunk(data, form.members, form.rows, form.columns)
                ranges = chunk.ranges()
                for member, limits in enumerate(ranges):
                    self._check(part, limits, partial(self.fields.place, n, member))
                details = [*_combine_ranges(ranges), self.fields.origin(n)]
                writer.put(path, data, details, form.packing)
                if part.channel is not None:
                    for pair, (_, members) in zip(moments, form.ensembles, strict=True):
                        job = (pair[0, part.channel], pair[1, part.channel], members)
                        if chunk.points < _MIN_THREADED_POINTS:
                            chunk.moments(*job)
                        else:
                            futures.append(_moments_pool().submit(chunk.moments, *job))
            for future in futures:
                future.result()
        for pair, (suffix, _) in zip(moments, form.ensembles, strict=True):
            for values, kind in zip(pair, ("mean", "std"), strict=True):
                path = chunk_path(f"statistics/ensemble_{kind}{suffix}", self.place, 3)
                writer.put(path, values, [field_checksums(values)])

    def _check(self, part: StorePart, limits: Range, where: Callable[[], str]) -> None:
        """Refuse a field without any value, and implausible values, as the options say."""
        if self.form.refuse_empty and self.fields.may_be_empty and part.channel is not None:
            _refuse_empty(limits, where)
        if not self.form.any_values:
            check_plausible(part.variable, limits.minimum, limits.maximum, where)


@cache
def _moments_pool() -> ThreadPoolExecutor:
    """Return a pool of one thread that computes moments while messages are read."""
    return ThreadPoolExecutor(1, thread_name_prefix="moments")


class EmptyFieldError(MissingDataError):
    """A field has no value at any point."""


def _refuse_empty(limits: Range, where: Callable[[], str]) -> None:
    if np.isnan(limits.minimum):
        raise EmptyFieldError(where(), ["all values of this field"])


def check_plausible(name: str, low: float, high: float, where: Callable[[], str]) -> None:
    """Refuse impossible values of a variable.

    Args:
        name: the variable.
        low: smallest value.
        high: largest value.
        where: returns the place of the field; called for the error message only.
    """
    try:
        check_range(name, low, high, "")
    except FileError:
        try:
            check_range(name, low, high, where())
        except FileError as error:
            error.args = (f"{error} For anomalies and the like, give --any-values.",)
            raise


def _combine_ranges(ranges: Sequence[Range]) -> Row:
    """Return minimum, maximum and number of gaps of several fields, for JSON."""
    lows = [r.minimum for r in ranges if r.minimum == r.minimum]
    highs = [r.maximum for r in ranges if r.maximum == r.maximum]
    gaps = sum(r.gaps for r in ranges)
    return (
        [_shortest_float(min(lows)), _shortest_float(max(highs)), gaps]
        if lows
        else [None, None, gaps]
    )


def _shortest_float(value: float) -> float | None:
    """Return a float32 number with the fewest digits that identify it."""
    return float(str(np.float32(value))) if np.isfinite(value) else None


@dataclass(frozen=True)
class PlainUnit:
    """The dates of one chunk of plain numbers: truth, or members of stations and few points.

    Attributes:
        name: of the unit.
        chunk: index of the chunk along the dates.
        dataset: variables over (time, step[, level][, number], latitude, longitude), lazy.
        source: of the data, for messages.
        form: sizes and options.
    """

    name: str
    chunk: int
    dataset: Any
    source: str
    form: Form

    def write(self, writer: Writer) -> None:
        """Read each field once, and write a chunk for each variable, step and level."""
        dates = self.form.dates
        for name, field in self._values().data_vars.items():
            values = np.ascontiguousarray(field.to_numpy(), dtype="<f4")
            inner, kind = (3, "sfc") if "number" in field.dims else (2, "truth")
            kind = "pl" if inner == 3 and "level" in field.dims else kind
            for place in np.ndindex(values.shape[1:-inner]):
                part = values[:, *place]
                details = [*_combine_ranges([*self._ranges(field, place, part)]), ""]
                path = chunk_path(f"{kind}/{name}", (self.chunk, *place), inner)
                rest = np.zeros((dates - len(part), *part.shape[1:]), "<f4")
                writer.put(path, np.concatenate([part, rest]), details)

    def _values(self) -> xr.Dataset:
        """Read all dates at once; an error names the first date and step that cannot be read."""
        dates = self.dataset["time"].to_numpy()
        try:
            return read_values(self.dataset, self._where(dates[0]))
        except FileError:
            for place in np.ndindex(len(dates), self.dataset.sizes["step"]):
                part = self.dataset.isel(time=place[0], step=place[1])
                where = f"{self._where(dates[place[0]])}, step {float(part['step']):g}"
                read_values(part, where)
            raise

    def _where(self, date: np.datetime64) -> str:
        return f"{self.source}: {str(date)[:13]}"

    def _ranges(
        self, field: xr.DataArray, place: tuple[int, ...], part: npt.NDArray[np.float32]
    ) -> Iterator[Range]:
        """Yield the range of each field, after checks of the options."""
        may_be_empty = has_stations(field) or _is_absent_level(field, place)
        for date, fields in zip(field["time"].to_numpy(), part, strict=True):
            where = partial(self._where, date)
            for values in fields.reshape(-1, self.form.rows * self.form.columns):
                limits = Chunk.of_floats(values)
                if self.form.refuse_empty and not may_be_empty:
                    _refuse_empty(limits, where)
                if not self.form.any_values:
                    check_plausible(str(field.name), limits.minimum, limits.maximum, where)
                yield limits


@dataclass(frozen=True)
class SumsUnit:
    """Count, sum and sum of squares at one step over the dates of one block.

    Attributes:
        name: of the unit.
        root: the store.
        place: index of the block and of the step.
        dates: indices of the block's dates, ascending.
        kinds: such as "mean" or "std_first5".
        shape: (channels, rows, columns).
    """

    name: str
    root: Path
    place: tuple[int, int]
    dates: tuple[int, ...]
    kinds: tuple[str, ...]
    shape: tuple[int, int, int]

    def write(self, writer: Writer) -> None:
        """Sum over the dates in order, so that the sums depend on the data alone."""
        points = int(np.prod(self.shape))
        for kind in self.kinds:
            sums = np.zeros(points, "<i8"), np.zeros(points), np.zeros(points)
            paths = [
                self.root / chunk_path(f"statistics/ensemble_{kind}", (date, self.place[1]), 3)
                for date in self.dates
            ]
            for path in paths:
                if path.stat().st_size != 4 * points:
                    reason = f"{path.stat().st_size} bytes instead of {4 * points}"
                    raise FileError(path, reason, "Prepare the store anew")
            # By slabs of points, so that the sums stay in the processor's cache for all dates.
            for begin in range(0, points, _SLAB):
                slab = [values[begin : begin + _SLAB] for values in sums]
                for path in paths:
                    add_date(np.fromfile(path, "<f4", slab[0].size, offset=4 * begin), *slab)
            for part, values in zip(SUMS, sums, strict=True):
                details = [field_checksums(values.reshape(self.shape[0], -1))]
                key = chunk_path(f"statistics/{kind}_{part}", self.place, 3)
                writer.put(key, values, details)


_FLOAT_BYTES, _SUM_BYTES = 4, 8


@dataclass(frozen=True)
class PlannedUnit:
    """Name and size of a unit, and a function that builds it just before it is executed.

    Attributes:
        name: of the unit.
        size: maximum number of bytes that it writes.
        make: builds the unit.
    """

    name: str
    size: int
    make: Callable[[], Unit]


def _is_absent_level(field: xr.DataArray, place: Sequence[int]) -> bool:
    """Return True if a place (step[, level]) is a level that the variable lacks."""
    levels = field.attrs.get("levels_hpa")
    if levels is None or "level" not in field.dims:
        return False
    return field["level"].to_numpy()[place[-1]] not in np.atleast_1d(levels)


def empty_fields(fields: xr.Dataset, where: str, *, progress: bool = False) -> dict[int, list[str]]:
    """Return the fields without any value in words, by index of the date; all values are read.

    Args:
        fields: variables over (time, step, ..., latitude, longitude), lazy.
        where: the source, for messages.
        progress: show a progress bar.
    """
    empty: dict[int, list[str]] = defaultdict(list)
    places = list(product(range(fields.sizes["time"]), range(fields.sizes["step"])))
    for i, j in track(places, "missing fields", len(places), progress):
        lazy = fields.isel(time=i, step=j)
        date = f"{str(lazy['time'].to_numpy())[:13]} step {lazy['step'].item():g}"
        unit = read_values(lazy, f"{where}: {date}")
        for name, field in unit.data_vars.items():
            is_empty = field.isnull().all(["latitude", "longitude"])
            if "levels_hpa" in field.attrs and "level" in field.dims:
                is_empty &= is_empty["level"].isin(np.atleast_1d(field.attrs["levels_hpa"]))
            for place in np.argwhere(is_empty.to_numpy()).tolist():
                dims = zip(is_empty.dims, place, strict=True)
                labels = [f"{dim} {member_labels(unit[dim])[n]}" for dim, n in dims]
                empty[i].append(" ".join([f"{name} of {date}", *labels]))
    return empty


def planned_units(
    forecasts: Forecasts, form: Form, truth: xr.Dataset | None, where: str
) -> list[PlannedUnit]:
    """Return the work units of forecasts and truth, in the order of the dates."""
    plain_truth = [] if truth is None else _plain_units("truth", truth, where, form)
    if form.dates > 1 and isinstance(forecasts, DatasetForecasts):
        return _plain_units("forecast", forecasts.template, forecasts.label, form) + plain_truth
    sizes = forecasts.template.sizes
    points = form.rows * form.columns
    moments = 2 * len(form.ensembles) * form.channels * points * _FLOAT_BYTES
    parts = forecast_parts(forecasts.template)
    header_size = len(parts) * (values_begin(form.members) + 8 * form.members)
    units = []
    for place in product(range(sizes["time"]), range(sizes["step"])):
        name = f"forecast-{place[0]:06d}-{place[1]:03d}"
        size = forecasts.max_bytes(place, parts) + header_size + moments
        make = partial(_forecast_unit, name, place, form, parts, forecasts)
        units.append(PlannedUnit(name, size, make))
    return units + plain_truth


def _forecast_unit(
    name: str,
    place: tuple[int, int],
    form: Form,
    parts: tuple[StorePart, ...],
    forecasts: Forecasts,
) -> Unit:
    return ForecastUnit(name, place, form, parts, forecasts.fields(place, parts))


def _plain_units(kind: str, dataset: xr.Dataset, source: str, form: Form) -> list[PlannedUnit]:
    dates = dataset.sizes["time"]
    size = sum(field[0].size for field in dataset.data_vars.values()) * _FLOAT_BYTES * form.dates

    def make(chunk: int) -> Unit:
        part = dataset.isel(time=slice(chunk * form.dates, (chunk + 1) * form.dates))
        (culled,) = dask.optimize(part)  # type: ignore[no-untyped-call, attr-defined]
        return PlainUnit(f"{kind}-{chunk:06d}", chunk, culled, source, form)

    chunks = range(-(-dates // form.dates))
    return [PlannedUnit(f"{kind}-{n:06d}", size, partial(make, n)) for n in chunks]


def planned_sums(root: Path, forecasts: xr.Dataset, form: Form) -> list[PlannedUnit]:
    """Return the work units of sums, one for each block of valid years and step, if any."""
    if form.dates > 1:
        return []
    years, block_of = blocks(forecasts["valid_time"].to_numpy())
    shape = (form.channels, form.rows, form.columns)
    kinds = tuple(f"{kind}{suffix}" for suffix, _ in form.ensembles for kind in ("mean", "std"))
    size = len(kinds) * len(SUMS) * int(np.prod(shape)) * _SUM_BYTES
    units = []
    for block, step in product(range(len(years)), range(forecasts.sizes["step"])):
        dates = tuple(i for i, date_block in enumerate(block_of) if date_block == block)
        unit = SumsUnit(f"sums-{block:06d}-{step:03d}", root, (block, step), dates, kinds, shape)
        units.append(PlannedUnit(unit.name, size, lambda unit=unit: unit))  # type: ignore[misc]
    return units


def axes_of(forecasts: xr.Dataset, truth: xr.Dataset | None) -> Plan:
    """Return the axes of the store's arrays, for JSON."""
    axes: Plan = {"forecasts": _axes(forecasts)}
    if truth is not None:
        axes["truth"] = _axes(truth)
    return axes


def _axes(dataset: xr.Dataset) -> Plan:
    axes: Plan = {}
    for dim in map(str, dataset.dims):
        values = dataset[dim].to_numpy()
        if np.issubdtype(values.dtype, np.datetime64):
            axes[dim] = [str(value) for value in values.astype("datetime64[s]")]
        elif dim in ("latitude", "longitude"):
            axes[dim] = [values.size, float(values[0]), float(values[-1])]
        else:
            axes[dim] = values.tolist()
    if has_stations(dataset):
        axes[STATION] = [str(name) for name in dataset[STATION].to_numpy().tolist()]
    axes["variables"] = {str(n): list(map(str, f.dims)) for n, f in dataset.data_vars.items()}
    return axes
