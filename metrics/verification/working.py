"""What is done with one block of dates: fields of every case, and their sums."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.metrics._dispatch import Array
from ens10.metrics.distributions.registry import distribution_class, kind_of
from ens10.metrics.scores.registry import HERSBACH, HISTOGRAM, statistic_of
from ens10.metrics.states import PARTS, NanPolicy
from ens10.metrics.verification.alignment import GRID, Matched
from ens10.metrics.verification.climatology import Climatology
from ens10.metrics.verification.pairs import Pair
from ens10.metrics.verification.raw import LoadedRaw, RawIndex
from ens10.metrics.verification.zones import Zones

Numbers = npt.NDArray[Any]
TRUTH, FORECAST = 1, 2  # what is missing altogether


@dataclass(frozen=True)
class Plan:
    """What is made of every date.

    Attributes:
        means: names of the means of each forecast.
        tables: names of the tables (histograms, sums for a decomposition) of each forecast.
        rows: weights of the rows of the grid.
        zones: parts of the grid that are summed apart.
        nan: what a missing point makes of a sum.
        bins: of the PIT histogram.
        seed: of the random ranks among ties.
    """

    means: tuple[tuple[str, ...], ...]
    tables: tuple[tuple[str, ...], ...]
    rows: npt.NDArray[np.float64]
    zones: Zones | None
    nan: NanPolicy
    bins: int
    seed: int


@dataclass(frozen=True)
class Loaded:
    """A block in memory.

    Attributes:
        kinds: of each forecast.
        arrays: each forecast's variables, (dates, steps, levels, [core,] H, W).
        truth: (dates, steps, levels, H, W).
        labels: whole numbers (dates, steps, levels, 3) that tell the cases apart.
        quantiles: the levels of each forecast of quantiles.
        raw: what the extreme forecast index is made of, if a score needs it.
        climatology: (dates, steps, levels, H, W), if a score needs it.
    """

    kinds: tuple[str, ...]
    arrays: tuple[dict[str, Array], ...]
    truth: Array
    labels: npt.NDArray[np.int64]
    quantiles: tuple[Any, ...]
    raw: LoadedRaw | None = None
    climatology: Array | None = None


@dataclass
class Part:
    """What a block comes to, of one forecast.

    Attributes:
        sums: by name of the mean: (dates, steps, levels) of each of `PARTS`.
        zones: the same with a last axis of parts of the grid.
        maps: by name of the mean, the fields of the cases in order.
        tables: of each case in turn, sums by name.
        empty: (dates, steps, levels): TRUTH or FORECAST where that has no value at all, else 0.
    """

    sums: dict[str, tuple[Numbers, ...]] = field(default_factory=dict)
    zones: dict[str, tuple[Numbers, ...]] = field(default_factory=dict)
    maps: dict[str, list[Array]] = field(default_factory=dict)
    tables: list[dict[str, Numbers]] = field(default_factory=list)
    empty: Numbers = field(default_factory=lambda: np.zeros((0, 1, 1), np.int64))


def load(
    block: Sequence[Matched],
    raw: RawIndex | None = None,
    climatology: Climatology | None = None,
) -> Loaded:
    """Read a block: forecasts of the same dates, their truth, raw ensemble and climatology."""
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
    return Loaded(
        tuple(kind_of(one.forecast).kind for one in block),
        tuple(arrays),
        first.observed(dates),
        _labels(first),
        tuple(
            one.forecast["quantile"].to_numpy().astype(np.float64)
            if "quantile" in one.forecast.dims
            else None
            for one in block
        ),
        None if raw is None else raw.load(),
        None if climatology is None else climatology.load(),
    )


def load_block(block: tuple[Sequence[Matched], RawIndex | None, Climatology | None]) -> Loaded:
    """`load` with one argument."""
    return load(*block)


def _labels(one: Matched) -> npt.NDArray[np.int64]:
    seconds = one.forecast["time"].to_numpy().astype("datetime64[s]").astype(np.int64)
    steps, levels = (_whole(one.forecast.coords.get(d)) for d in ("step", "level"))
    grid = np.meshgrid(seconds, steps, levels, indexing="ij")
    together: npt.NDArray[np.int64] = np.stack(grid, axis=-1)
    return together


def _whole(coordinate: Any) -> npt.NDArray[np.int64]:
    """A coordinate as whole numbers; time differences in hours."""
    if coordinate is None or coordinate.dtype.kind not in "mfiu":
        return np.zeros(1 if coordinate is None else max(1, coordinate.size), np.int64)
    values = np.atleast_1d(coordinate.to_numpy())
    if values.dtype.kind == "m":
        values = values / np.timedelta64(1, "h")
    whole: npt.NDArray[np.int64] = np.rint(values).astype(np.int64)
    return whole


def work(plan: Plan, block: Loaded) -> list[Part]:
    """The sums of a block, of each forecast.

    Of several forecasts, a point counts where none of them is missing.
    """
    truth = _common(block) if len(block.kinds) > 1 else block.truth
    index = None
    if block.raw is not None:
        block.raw.check([arrays.get("members") for arrays in block.arrays])
        index = block.raw.index()
    return [_part(plan, block, n, truth, index) for n in range(len(block.kinds))]


def _common(block: Loaded) -> Array:
    truth = block.truth.copy()
    for arrays in block.arrays:
        for values in arrays.values():
            missing = np.isnan(values)
            truth[missing.any(axis=3) if missing.ndim > truth.ndim else missing] = np.nan
    return truth


def _part(plan: Plan, block: Loaded, n: int, truth: Array, index: Array | None) -> Part:
    from ens10.metrics.verification.sums import date_key

    shape = truth.shape[:3]
    part = Part(empty=np.zeros(shape, np.int64))
    for case in np.ndindex(shape):
        arrays = {name: values[case] for name, values in block.arrays[n].items()}
        y = truth[case].astype(next(iter(arrays.values())).dtype, copy=False)
        key = date_key(plan.seed, *block.labels[case])
        efi = None if index is None else index[case]
        climatology = None if block.climatology is None else block.climatology[case]
        kind = distribution_class(block.kinds[n])
        forecast = kind.from_variables(arrays, {"quantile": block.quantiles[n]})
        one = Pair(forecast, y, key, efi, climatology)
        found = 0
        for name in plan.means[n]:
            statistic, number = statistic_of(name)
            values = statistic.values(one, number)
            found = max(found, _add_sums(plan, part, name, values, case))
            if statistic.on_map:
                part.maps.setdefault(name, []).append(values)
        if HISTOGRAM in plan.tables[n]:
            counted = one.histograms(plan.bins)
            found = max(found, int(counted["pit_count"].sum()))
            part.tables.append(counted)
        if HERSBACH in plan.tables[n]:
            sums = one.hersbach(plan.rows)
            found = max(found, int(sums["hersbach_count"]))
            part.tables.append(sums)
        if not found and (plan.means[n] or plan.tables[n]):
            part.empty[case] = TRUTH if np.isnan(block.truth[case]).all() else FORECAST
    return part


def _add_sums(plan: Plan, part: Part, name: str, values: Array, case: tuple[int, ...]) -> int:
    """Puts the sums of a field in their places; gives the number of its points."""
    from ens10.metrics.verification.sums import field_sums

    shape = part.empty.shape
    made = field_sums(values, plan.rows)
    count = int(made[2][0])
    if plan.nan == "propagate" and count < values.size:
        made[0][0] = np.nan
    _put(part.sums, name, made, shape, case)
    if plan.zones is not None:
        zones = plan.zones
        apart = field_sums(values, plan.rows, zones.part, zones.number)
        if plan.nan == "propagate":
            whole = np.bincount(zones.part.ravel(), minlength=zones.number)
            apart[0][apart[2] < whole] = np.nan
        _put(part.zones, name, apart, shape, case)
    return count


def _put(
    into: dict[str, tuple[Numbers, ...]],
    name: str,
    made: tuple[Numbers, ...],
    shape: tuple[int, ...],
    case: tuple[int, ...],
) -> None:
    if name not in into:
        into[name] = tuple(np.zeros((*shape, m.size), m.dtype) for m in made)
    for whole, one in zip(into[name], made, strict=True):
        whole[case] = one


def joined(parts: Sequence[Mapping[str, tuple[Numbers, ...]]], name: str) -> dict[str, Numbers]:
    """The sums of one mean of all blocks, one after the other, by `PARTS`."""
    return {
        part: np.concatenate([block[name][i] for block in parts]) for i, part in enumerate(PARTS)
    }
