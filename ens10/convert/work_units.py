"""Work units of `prepare`: forecasts of one date and step, truth of one date, sums of one year.

A unit is a plain object that can be sent to another process or machine, and can be repeated without
harm: it writes the same bytes. Where dates share a chunk, the units of these dates are one unit.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
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
from ens10.convert.files import Bytes, ChunkWriter
from ens10.convert.moments import Chunk, Range, add_date
from ens10.convert.plan import Plan
from ens10.convert.sources import Fields, Forecasts
from ens10.convert.workers import Unit
from ens10.errors import FileError, MissingDataError
from ens10.identity import member_labels
from ens10.packed16.codec import decode
from ens10.packed16.layout import encode, values_begin
from ens10.progress import track
from ens10.source.layout import read_values
from ens10.source.units import check_range
from ens10.stations import STATION, has_stations
from ens10.store.chunks import CHECKSUM_BYTES, with_checksum
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

    def write(self, writer: ChunkWriter) -> None:
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
class TruthUnit:
    """The truth of one start date, at all its steps and levels.

    Attributes:
        name: of the unit.
        date: index of the date.
        dataset: variables over (step[, level], latitude, longitude), lazy.
        where: source and date, for messages.
        any_values: True if impossible values are accepted.
        refuse_empty: True if a field without any value is an error.
    """

    name: str
    date: int
    dataset: Any
    where: str
    any_values: bool = False
    refuse_empty: bool = False

    def write(self, writer: ChunkWriter) -> None:
        """Read each field once, and write its chunks."""
        for name, field in read_values(self.dataset, self.where).data_vars.items():
            values = np.ascontiguousarray(field.to_numpy(), dtype="<f4")
            for place in np.ndindex(values.shape[:-2]):
                limits = Chunk.of_floats(values[place])
                if self.refuse_empty and not _is_absent_level(field, place):
                    _refuse_empty(limits, lambda: self.where)
                if not self.any_values:
                    check_plausible(str(name), limits.minimum, limits.maximum, lambda: self.where)
                path = chunk_path(f"truth/{name}", (self.date, *place), 2)
                writer.put(path, values[place], [*_combine_ranges([limits]), ""])


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
        dates_of_chunk: dates that share a chunk.
    """

    name: str
    root: Path
    place: tuple[int, int]
    dates: tuple[int, ...]
    kinds: tuple[str, ...]
    shape: tuple[int, int, int]
    dates_of_chunk: int = 1

    def write(self, writer: ChunkWriter) -> None:
        """Sum over the dates in order, so that the sums depend on the data alone."""
        points = int(np.prod(self.shape))
        for kind in self.kinds:
            sums = np.zeros(points, "<i8"), np.zeros(points), np.zeros(points)
            array, shared = f"statistics/ensemble_{kind}", self.dates_of_chunk
            places = [
                (self.root / chunk_path(array, (date // shared, self.place[1]), 3), date % shared)
                for date in self.dates
            ]
            size = 4 * points * shared + (CHECKSUM_BYTES if shared > 1 else 0)
            for path, _ in places:
                if path.stat().st_size != size:
                    reason = f"{path.stat().st_size} bytes instead of {size}"
                    raise FileError(path, reason, "Prepare the store anew")
            # By slabs of points, so that the sums stay in the processor's cache for all dates.
            for begin in range(0, points, _SLAB):
                slab = [values[begin : begin + _SLAB] for values in sums]
                for path, n in places:
                    offset = 4 * (n * points + begin)
                    add_date(np.fromfile(path, "<f4", slab[0].size, offset=offset), *slab)
            for part, values in zip(SUMS, sums, strict=True):
                details = [field_checksums(values.reshape(self.shape[0], -1))]
                key = chunk_path(f"statistics/{kind}_{part}", self.place, 3)
                writer.put(key, values, details)


class _ChunksOfDates:
    """Chunks of single dates as plain numbers, collected to be joined.

    Attributes:
        values: of each date, by the path of the chunk that they share.
        details: entries of the manifest of each date, likewise.
    """

    def __init__(self, form: Form, length: int) -> None:
        self._form, self._length = form, length
        self.values: dict[str, list[npt.NDArray[Any]]] = defaultdict(list)
        self.details: dict[str, list[Row]] = defaultdict(list)

    def put(self, path: str, data: Bytes, details: Row | None = None, codec: Any = None) -> None:  # noqa: ARG002
        """Collect the chunk of one date; forecasts are unpacked."""
        array, _, place = path.partition("/c/")
        date, _, others = place.partition("/")
        values = np.asarray(data)
        if array.startswith(("sfc/", "pl/")):
            form = self._form
            values = decode(np.frombuffer(data, np.uint8), form.members, form.rows, form.columns)
        shared_path = f"{array}/c/{int(date) // self._length}/{others}"
        self.values[shared_path].append(values)
        self.details[shared_path].append(details or [])


@dataclass(frozen=True)
class SharedUnit:
    """Units of consecutive dates that share chunks, or of all blocks of sums.

    Attributes:
        name: of the unit.
        units: in the order of the dates.
        form: sizes and options.
        length: positions of a chunk along the first dimension.
    """

    name: str
    units: tuple[Unit, ...]
    form: Form
    length: int

    def write(self, writer: ChunkWriter) -> None:
        """Write the chunks of all dates as one for each array, step and level."""
        chunks = _ChunksOfDates(self.form, self.length)
        for unit in self.units:
            unit.write(chunks)
        for path, values in chunks.values.items():
            joined = np.zeros((self.length, *values[0].shape), values[0].dtype)  # the last is cut
            joined[: len(values)] = values
            writer.put(path, with_checksum(joined), _join_details(chunks.details[path]))


def _join_details(rows: Sequence[Row]) -> Row:
    """Return range and gaps of several fields; nothing for checksums of single fields."""
    if len(rows[0]) == 1:
        return []
    lows, highs = ([row[n] for row in rows if row[n] is not None] for n in (0, 1))
    return [min(lows, default=None), max(highs, default=None), sum(row[2] for row in rows), ""]


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
    sizes = forecasts.template.sizes
    points = form.rows * form.columns
    moments = 2 * len(form.ensembles) * form.channels * points * _FLOAT_BYTES
    parts = forecast_parts(forecasts.template)
    header_size = len(parts) * (values_begin(form.members) + 8 * form.members)
    units: list[PlannedUnit] = []
    for place in product(range(sizes["time"]), range(sizes["step"])):
        name = f"forecast-{place[0]:06d}-{place[1]:03d}"
        size = forecasts.max_bytes(place, parts) + header_size + moments
        make = partial(_forecast_unit, name, place, form, parts, forecasts)
        units.append(PlannedUnit(name, size, make))
    if truth is not None:
        fields = sum(field[0].size for field in truth.data_vars.values())
        for i in range(truth.sizes["time"]):
            units.append(_plan_truth(truth, i, fields * _FLOAT_BYTES, where, form))
    return _join_dates(units, form, form.dates)


def _join_dates(units: list[PlannedUnit], form: Form, length: int) -> list[PlannedUnit]:
    """Return one unit for the dates that share chunks; `units` if none do."""
    if form.dates == 1:
        return units
    groups: dict[str, list[PlannedUnit]] = defaultdict(list)
    for unit in units:
        kind, date, *step = unit.name.split("-")
        groups["-".join([kind, f"{int(date) // length:06d}", *step])].append(unit)

    def make(name: str) -> Unit:
        return SharedUnit(name, tuple(unit.make() for unit in groups[name]), form, length)

    return [
        PlannedUnit(name, sum(unit.size for unit in group), partial(make, name))
        for name, group in groups.items()
    ]


def _forecast_unit(
    name: str,
    place: tuple[int, int],
    form: Form,
    parts: tuple[StorePart, ...],
    forecasts: Forecasts,
) -> Unit:
    return ForecastUnit(name, place, form, parts, forecasts.fields(place, parts))


def _plan_truth(truth: xr.Dataset, date: int, size: int, where: str, form: Form) -> PlannedUnit:
    name = f"truth-{date:06d}"

    refuse_empty = form.refuse_empty and not has_stations(truth)

    def make() -> Unit:
        (culled,) = dask.optimize(truth.isel(time=date))  # type: ignore[no-untyped-call, attr-defined]
        place = f"{where}: {str(truth['time'].to_numpy()[date])[:13]}"
        return TruthUnit(name, date, culled, place, form.any_values, refuse_empty)

    return PlannedUnit(name, size, make)


def planned_sums(root: Path, forecasts: xr.Dataset, form: Form) -> list[PlannedUnit]:
    """Return the work units of sums, one for each block of valid years and step."""
    years, block_of = blocks(forecasts["valid_time"].to_numpy())
    shape = (form.channels, form.rows, form.columns)
    kinds = tuple(f"{kind}{suffix}" for suffix, _ in form.ensembles for kind in ("mean", "std"))
    size = len(kinds) * len(SUMS) * int(np.prod(shape)) * _SUM_BYTES
    units: list[PlannedUnit] = []
    for block, step in product(range(len(years)), range(forecasts.sizes["step"])):
        dates = tuple(i for i, date_block in enumerate(block_of) if date_block == block)
        name, place = f"sums-{block:06d}-{step:03d}", (block, step)
        unit = SumsUnit(name, root, place, dates, kinds, shape, form.dates)
        units.append(PlannedUnit(unit.name, size, lambda unit=unit: unit))  # type: ignore[misc]
    return _join_dates(units, form, len(years))


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
