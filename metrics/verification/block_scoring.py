"""Scoring in blocks of dates: size of blocks, parallel processing, sums of each block."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from os import sched_getaffinity
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.extras import cluster_library
from ens10.metrics._dispatch import Array
from ens10.metrics.distributions.forecast_dataset import GRID, STEP_AND_LEVEL
from ens10.metrics.distributions.registry import distribution_class, kind_of
from ens10.metrics.scores.pairs import Pair
from ens10.metrics.scores.registry import HERSBACH, HISTOGRAM, statistic_of
from ens10.metrics.states import PARTS, NanPolicy
from ens10.metrics.verification.alignment import MatchedForecast
from ens10.metrics.verification.climatology import Climate
from ens10.metrics.verification.efi_weights import EFIWeights, LoadedEFIWeights
from ens10.metrics.verification.options import ScoringOptions
from ens10.metrics.verification.zones import Zones
from ens10.progress import track
from ens10.stations import COORDINATES, as_stations

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
_TABLE_DIMS = {"rank_count": ("rank",), "pit_count": ("pit_bin",)}
BLOCK_VALUES = 2**22  # values of a forecast in a block: 16 MiB in float32
LOCAL = ("threads", "processes")


def blocks_of(
    forecast: xr.Dataset, values: int | None = None, *, extra_values: int = 0
) -> Iterator[slice]:
    """Return the slices of dates that are read together: whole chunks, of limited size.

    Args:
        forecast: its chunks are those of dask, or of the file that it is read from.
        values: largest number of values in a block; `BLOCK_VALUES` if None. A larger chunk is a
            block by itself.
        extra_values: number of values of other data that are read for all these dates.
    """
    n = forecast.sizes["time"]
    most = BLOCK_VALUES if values is None else values
    each = max(1, most * n // max(1, extra_values + sum(v.size for v in forecast.values())))
    start = stop = 0
    for length in _chunks(forecast, n):
        if stop > start and stop + length - start > each:
            yield slice(start, stop)
            start = stop
        stop += length
    if stop > start:
        yield slice(start, stop)


def _chunks(forecast: xr.Dataset, n: int) -> tuple[int, ...]:
    lengths: set[tuple[int, ...]] = set()
    for variable in forecast.values():
        if variable.chunks is not None:
            lengths.add(tuple(variable.variable.chunksizes["time"]))
        elif not variable.variable._in_memory:
            length = int((variable.encoding.get("preferred_chunks") or {}).get("time", 1))
            lengths.add(tuple(min(length, n - i) for i in range(0, n, max(1, length))))
    return min(lengths, key=len) if lengths else (1,) * n


def map_in_order(
    read: Callable[[A], B], work: Callable[[B], C], blocks: Iterable[A], scheduler: Any = None
) -> Iterator[C]:
    """Yield the results of `work(read(block))` in the order of the blocks.

    The number of tasks in flight is limited.

    Args:
        read: function that loads a block.
        work: function that computes the result of a loaded block.
        blocks: the blocks.
        scheduler: None to work in this thread while another one reads ahead; "threads" or
            "processes" of this machine, one for each core; a `distributed.Client`, or
            the address of a scheduler.

    Raises:
        UnknownNameError, ArgumentError: no such scheduler.
    """
    if scheduler is None:
        with ThreadPoolExecutor(1, "ens10-read") as pool:
            for block in _run_ahead(pool.submit, read, blocks, 2):
                yield work(block)
        return
    with _open_executor(scheduler) as (submit, number):
        yield from _run_ahead(submit, partial(_read_and_work, read, work), blocks, 2 * number)


def _read_and_work(read: Callable[[A], B], work: Callable[[B], C], block: A) -> C:
    return work(read(block))


def _run_ahead(
    submit: Callable[..., "Future[C]"], task: Callable[[A], C], blocks: Iterable[A], number: int
) -> Iterator[C]:
    """Yield results in order, with up to `number` tasks started in advance."""
    remaining, running = iter(blocks), deque[Any]()
    try:
        for block in remaining:
            running.append(submit(task, block))
            if len(running) > number:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for future in running:
            future.cancel()


@contextmanager
def _open_executor(scheduler: Any) -> Iterator[tuple[Callable[..., Any], int]]:
    """Yield a function like `Executor.submit`, and the number of tasks that run at once."""
    if isinstance(scheduler, str) and "://" not in scheduler:
        if scheduler not in LOCAL:
            raise UnknownNameError("scheduler", scheduler, (*LOCAL, "tcp://HOST:PORT"))
        number = len(sched_getaffinity(0))
        pool: Executor = (
            ThreadPoolExecutor(number, "ens10-score")
            if scheduler == "threads"
            else ProcessPoolExecutor(number, get_context("spawn"))
        )
        with pool:
            yield pool.submit, number
        return
    distributed = cluster_library()
    if isinstance(scheduler, distributed.Client):
        yield _client_executor(scheduler)
        return
    if not isinstance(scheduler, str):
        raise ArgumentError(
            "scheduler",
            f"type {type(scheduler).__name__} is not a scheduler",
            "Pass an address or a Client",
        )
    try:
        client = distributed.Client(scheduler, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ArgumentError(
            "scheduler", f"no scheduler answers at {scheduler} ({error})", "Check the address"
        ) from error
    with client:
        yield _client_executor(client)


def _client_executor(client: Any) -> tuple[Callable[..., Any], int]:
    return partial(client.submit, pure=False), max(int(sum(client.ncores().values())), 1)


Numbers = npt.NDArray[Any]
TRUTH, FORECAST = 1, 2  # codes: which of the two has no value at all


@dataclass(frozen=True)
class ScoringPlan:
    """The sums that are computed for every date.

    Attributes:
        means: names of the means of each forecast.
        tables: names of the tables (histograms, sums for a decomposition) of each forecast.
        rows: weights of the rows of the grid.
        zones: zones of the grid that are summed separately.
        nan: "omit" or "propagate", as in `ScoringOptions`.
        bins: number of bins of the PIT histogram.
        seed: seed of the random ranks among ties.
    """

    means: tuple[tuple[str, ...], ...]
    tables: tuple[tuple[str, ...], ...]
    rows: npt.NDArray[np.float64]
    zones: Zones | None
    nan: NanPolicy
    bins: int
    seed: int


@dataclass(frozen=True)
class LoadedBlock:
    """A block in memory.

    Attributes:
        kinds: kind of each forecast.
        arrays: variables of each forecast, (dates, steps, levels, [core,] H, W).
        truth: (dates, steps, levels, H, W).
        labels: integers (dates, steps, levels, 3) that identify each date, step and level.
        quantiles: levels of each quantile forecast.
        raw: the raw ensemble or its EFI, if a score needs it.
        climate: (dates, steps, levels, H, W) each, if a score needs it.
    """

    kinds: tuple[str, ...]
    arrays: tuple[dict[str, Array], ...]
    truth: Array
    labels: npt.NDArray[np.int64]
    quantiles: tuple[Any, ...]
    raw: LoadedEFIWeights | None = None
    climate: Mapping[str | float, Array] = field(default_factory=dict)


@dataclass
class BlockSums:
    """The sums of one forecast in a block.

    Attributes:
        sums: for each of `PARTS`, by name of the mean (dates, steps, levels, 1), and by its name
            with `_zone` (dates, steps, levels, parts of the grid).
        maps: by name of the mean, the fields of each date, step and level in order.
        tables: sums by name for each date, step and level in order.
        empty: (dates, steps, levels): TRUTH or FORECAST where that has no value at all, else 0.
    """

    sums: dict[str, tuple[Numbers, ...]] = field(default_factory=dict)
    maps: dict[str, list[Array]] = field(default_factory=dict)
    tables: list[dict[str, Numbers]] = field(default_factory=list)
    empty: Numbers = field(default_factory=lambda: np.zeros((0, 1, 1), np.int64))


def load(
    block: Sequence[MatchedForecast],
    raw: EFIWeights | None = None,
    climate: Climate | None = None,
) -> LoadedBlock:
    """Read a block: forecasts of the same dates, their truth, raw ensemble and climate."""
    first = block[0]
    dates = slice(0, first.forecast.sizes["time"])
    arrays = []
    for one in block:
        kind, sizes = kind_of(one.forecast), one.forecast.sizes
        shape = [sizes.get(d, 1) for d in ("time", "step", "level")]
        shape += [sizes[d] for d in (*kind.core_dims(), *GRID)]
        arrays.append(
            {
                v: one.forecast[v].to_numpy().reshape(shape)
                for v in kind.stored_variables(one.forecast)
            }
        )
    return LoadedBlock(
        tuple(kind_of(one.forecast).kind for one in block),
        tuple(arrays),
        first.observations(dates),
        _labels(first),
        tuple(
            one.forecast["quantile"].to_numpy().astype(np.float64)
            if "quantile" in one.forecast.dims
            else None
            for one in block
        ),
        None if raw is None else raw.load(),
        {name: one.load() for name, one in (climate or {}).items()},
    )


def load_block(
    block: tuple[Sequence[MatchedForecast], EFIWeights | None, Climate],
) -> LoadedBlock:
    """Read a block from one tuple of its parts, for `map_in_order`."""
    return load(*block)


def _labels(match: MatchedForecast) -> npt.NDArray[np.int64]:
    seconds = match.forecast["time"].to_numpy().astype("datetime64[s]").astype(np.int64)
    steps, levels = (_to_integers(match.forecast.coords.get(d)) for d in ("step", "level"))
    grid = np.meshgrid(seconds, steps, levels, indexing="ij")
    labels: npt.NDArray[np.int64] = np.stack(grid, axis=-1)
    return labels


def _to_integers(coordinate: Any) -> npt.NDArray[np.int64]:
    """Convert a coordinate to integers; time differences to hours."""
    if coordinate is None or coordinate.dtype.kind not in "mfiu":
        return np.zeros(1 if coordinate is None else max(1, coordinate.size), np.int64)
    values = np.atleast_1d(coordinate.to_numpy())
    if values.dtype.kind == "m":
        values = values / np.timedelta64(1, "h")
    integers: npt.NDArray[np.int64] = np.rint(values).astype(np.int64)
    return integers


def score_block(plan: ScoringPlan, block: LoadedBlock) -> list[BlockSums]:
    """Return the sums of a block for each forecast.

    With several forecasts, a point counts only where none of them is missing.
    """
    truth = _common_truth(block) if len(block.kinds) > 1 else block.truth
    index = None
    if block.raw is not None:
        block.raw.check([arrays.get("members") for arrays in block.arrays])
        index = block.raw.index()
    return [_sums(plan, block, n, truth, index) for n in range(len(block.kinds))]


def _common_truth(block: LoadedBlock) -> Array:
    """Return the truth, NaN where one of the forecasts is missing."""
    truth = block.truth.copy()
    for arrays in block.arrays:
        for values in arrays.values():
            missing = np.isnan(values)
            truth[missing.any(axis=3) if missing.ndim > truth.ndim else missing] = np.nan
    return truth


def _pairs(
    plan: ScoringPlan, block: LoadedBlock, n: int, truth: Array, index: Array | None
) -> Iterator[tuple[tuple[int, ...], Pair]]:
    """Yield the index of each date, step and level, and the pair of forecast and truth there."""
    from ens10.metrics._random_loops import date_key  # numba takes a while to import

    kind = distribution_class(block.kinds[n])
    for place in np.ndindex(truth.shape[:3]):
        arrays = {name: values[place] for name, values in block.arrays[n].items()}
        yield (
            place,
            Pair(
                kind.from_variables(arrays, {"quantile": block.quantiles[n]}),
                truth[place].astype(next(iter(arrays.values())).dtype, copy=False),
                date_key(plan.seed, *block.labels[place]),
                None if index is None else index[place],
                {name: values[place] for name, values in block.climate.items()},
            ),
        )


def _sums(
    plan: ScoringPlan, block: LoadedBlock, n: int, truth: Array, index: Array | None
) -> BlockSums:
    """Return the sums of one forecast of a block."""
    sums = BlockSums(empty=np.zeros(truth.shape[:3], np.int64))
    for place, pair in _pairs(plan, block, n, truth, index):
        points = []
        for name in plan.means[n]:
            statistic, number = statistic_of(name)
            values = statistic.values(pair, number)
            points.append(_add_field(plan, sums, name, values, place))
            if statistic.on_map:
                sums.maps.setdefault(name, []).append(values)
        if HISTOGRAM in plan.tables[n]:
            sums.tables.append(pair.histograms(plan.bins))
            points.append(int(sums.tables[-1]["pit_count"].sum()))
        if HERSBACH in plan.tables[n]:
            sums.tables.append(pair.hersbach(plan.rows))
            points.append(int(sums.tables[-1]["hersbach_count"]))
        if points and not any(points):
            sums.empty[place] = TRUTH if np.isnan(block.truth[place]).all() else FORECAST
    return sums


def _add_field(
    plan: ScoringPlan, sums: BlockSums, name: str, values: Array, place: tuple[int, ...]
) -> int:
    """Store the sums of a field; return the number of points with a value."""
    from ens10.metrics._field_sums import field_sums

    propagate = plan.nan == "propagate"
    whole = field_sums(values, plan.rows, propagate=propagate)
    _store(sums, name, whole, place)
    if plan.zones is not None:
        zones = plan.zones.part, plan.zones.number
        _store(sums, f"{name}_zone", field_sums(values, plan.rows, *zones, propagate), place)
    return int(whole[2][0])


def _store(sums: BlockSums, name: str, parts: tuple[Numbers, ...], place: tuple[int, ...]) -> None:
    if name not in sums.sums:
        shape = sums.empty.shape
        sums.sums[name] = tuple(np.zeros((*shape, part.size), part.dtype) for part in parts)
    for all_dates, part in zip(sums.sums[name], parts, strict=True):
        all_dates[place] = part


class CollectedSums:
    """The sums of one forecast, added block by block."""

    def __init__(self, match: MatchedForecast, plan: ScoringPlan, n: int) -> None:
        self.forecast, self.truth, self.means = match.forecast, match.truth, plan.means[n]
        self.parts: list[BlockSums] = []
        self.counts: dict[str, npt.NDArray[np.int64]] = {}
        shape = tuple(match.forecast.sizes[d] for d in GRID)
        on_map = [name for name in self.means if statistic_of(name)[0].on_map]
        self.maps = {name: (np.zeros(shape), np.zeros(shape, np.int64)) for name in on_map}

    def add(self, part: BlockSums) -> None:
        """Add the sums of the next block."""
        from ens10.metrics._field_sums import add_map  # numba takes a while to import

        for name, fields in part.maps.items():
            for values in fields:
                add_map(values, *self.maps[name])
        for table in part.tables:
            for name, counts in table.items():
                self.counts[name] = self.counts.get(name, 0) + counts
        part.maps, part.tables = {}, []
        self.parts.append(part)

    def empty(self) -> npt.NDArray[np.int64]:
        """Return TRUTH or FORECAST for dates where that has no value at all, else 0; (dates,)."""
        empty = np.concatenate([part.empty for part in self.parts])
        return np.where((empty > 0).all(axis=(1, 2)), empty.max(axis=(1, 2)), 0)

    def states(self, plan: ScoringPlan, settings: dict[str, Any]) -> xr.Dataset:
        """Return the state of all blocks, with the settings as attributes."""
        variables: dict[str, Any] = {}
        for mean in self.means:
            attrs = self._attributes(mean)
            for name, over, parts in self._sums_of(mean, plan):
                for part, values in zip(PARTS, parts, strict=True):
                    variable = (over, values, attrs if part == "sum" else {})
                    variables[f"{name}_{part}"] = variable
        for name, counts in self.counts.items():
            dims = _TABLE_DIMS.get(name, ("bin",) if np.ndim(counts) else ())
            variables[name] = (dims, counts)
        states = xr.Dataset(variables).assign_coords(self._coordinates(plan))
        kind = {"forecast_kind": kind_of(self.forecast).kind, **settings}
        members = self.forecast.sizes.get("number")
        return as_stations(states.assign_attrs(kind | ({"members": members} if members else {})))

    def _sums_of(
        self, mean: str, plan: ScoringPlan
    ) -> Iterator[tuple[str, tuple[str, ...], Sequence[Numbers]]]:
        """Yield name, dimensions and sums of a mean: of dates, of zones, and at each point."""
        dims = ("time", *(d for d in STEP_AND_LEVEL if d in self.forecast.dims))
        sizes = tuple(self.forecast.sizes[d] for d in dims)
        yield mean, dims, [values.reshape(sizes) for values in self._all_dates(mean)]
        if plan.zones is not None:
            sums = [plan.zones.sums(values) for values in self._all_dates(f"{mean}_zone")]
            over = (*dims, *plan.zones.labels)
            yield f"{mean}_zone", over, [s.reshape(*sizes, *s.shape[3:]) for s in sums]
        if mean in self.maps:
            total, count = self.maps[mean]
            yield f"{mean}_map", GRID, (total, count.astype(float), count)

    def _all_dates(self, name: str) -> list[Numbers]:
        """Concatenate the sums of one mean over all blocks, for each of `PARTS`."""
        return [
            np.concatenate(parts)
            for parts in zip(*(part.sums[name] for part in self.parts), strict=True)
        ]

    def _attributes(self, name: str) -> dict[str, str]:
        kind, statistic = kind_of(self.forecast), statistic_of(name)[0]
        target_arrays = [self.forecast[name] for name in kind.target_unit_variables(self.forecast)]
        like = (target_arrays or [self.truth])[0]
        units = like.attrs.get("units")
        attrs = {"truth": units, "truth2": f"({units})2" if units else None, "1": "1"}
        units_of_mean = attrs[statistic.units]
        attributes = {"units": units_of_mean} if units_of_mean else {}
        if statistic.name in ("crps", "crps_fair"):
            attributes["estimator"] = (
                "fair" if statistic.name == "crps_fair" else kind.crps_estimator
            )
        return {k: str(v) for k, v in attributes.items()}

    def _coordinates(self, plan: ScoringPlan) -> dict[str, Any]:
        names = (
            "time",
            "valid_time",
            *STEP_AND_LEVEL,
            *((*GRID, *COORDINATES) if self.maps else ()),
        )
        source = self.forecast.coords  # in the order in which a store happened to list them
        coords: dict[str, Any] = {k: _writable(source[k]) for k in names if k in source}
        if "rank_count" in self.counts:
            coords["rank"] = np.arange(self.counts["rank_count"].size)
        if "pit_count" in self.counts:
            coords["pit_bin"] = (np.arange(plan.bins) + 0.5) / plan.bins
        if "hersbach_alpha" in self.counts:
            coords["bin"] = np.arange(self.counts["hersbach_alpha"].size)
        if plan.zones is not None:
            coords |= {name: list(labels) for name, labels in plan.zones.labels.items()}
        return coords


def _writable(coordinate: xr.DataArray) -> xr.Variable:
    """Convert a coordinate for netCDF: time differences to hours."""
    variable = coordinate.variable.compute()
    if variable.dtype.kind != "m":
        return variable.to_base_variable()
    hours = variable.to_numpy() / np.timedelta64(1, "h")
    return xr.Variable(variable.dims, hours, {"units": "hours"})


def collect_sums(
    forecasts: Sequence[MatchedForecast],
    plan: ScoringPlan,
    index: Any,
    climate: Climate,
    options: ScoringOptions,
) -> list[CollectedSums]:
    """Return the sums of all blocks of dates; each date is read once."""
    extras = [*([] if index is None else [index]), *climate.values()]
    extra_values = sum(extra.size for extra in extras)
    slices = list(blocks_of(forecasts[0].forecast, extra_values=extra_values))
    # One by one: a part keeps what was read of it.
    blocks = (
        (
            [one.part(dates) for one in forecasts],
            None if index is None else index.part(dates),
            {name: one.part(dates) for name, one in climate.items()},
        )
        for dates in slices
    )
    collected = [CollectedSums(one, plan, n) for n, one in enumerate(forecasts)]
    results = map_in_order(load_block, partial(score_block, plan), blocks, options.scheduler)
    for parts in track(results, "blocks", len(slices), options.progress):
        for one, part in zip(collected, parts, strict=True):
            one.add(part)
    return collected
