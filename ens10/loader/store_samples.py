"""Samples of a store, read chunk by chunk into the caller's memory."""

import re
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.channels import split_exactly
from ens10.climate import blocks
from ens10.errors import FileError
from ens10.loader.samples import (
    _ALL,
    _COPY,
    Field,
    Members,
    Moment,
    Moves,
    Samples,
    SumsOfDates,
    Where,
    move_in_place,
)
from ens10.store import store_kinds
from ens10.store.checked import open_strictly
from ens10.store.chunks import Move, Reader, open_reader
from ens10.store.manifest import open_record
from ens10.store.opening import share_coordinates

_PARTS = ("count", "sum", "square_sum")


class StoreParts:
    """The parts of a store, opened once for the samples of all its targets and lead times.

    Args:
        path: of the store.

    Raises:
        DamagedFileError: coordinates differ from the manifest.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path
        kinds = store_kinds(path)
        self.record = open_record(path)
        self.root = open_strictly(path, self.record)
        names = [name for name in ("sfc", "pl", "truth", "statistics") if name in kinds]
        parts = {name: self._open(name) for name in names}
        forecasts = [parts[name] for name in ("sfc", "pl") if name in parts]
        self.dataset = xr.merge(forecasts, join="exact", combine_attrs="override", compat="equals")
        truth = parts.get("truth")
        self.truth = None if truth is None else share_coordinates(truth, self.dataset)
        self.statistics = parts.get("statistics")

    def _open(self, name: str) -> xr.Dataset:
        """Open one part without dask, whose graph of 20,000 dates takes seconds."""
        store: Any = self.root.store
        part: xr.Dataset = xr.open_zarr(store, group=name, consolidated=False, chunks=None)
        return part


class StoreSamples(Samples):
    """Samples of a store; dates are read without dask and zarr, into reused memory.

    Coordinates, statistics, truth and forecasts are compared with the checksums of the store's
    manifest when they are first read, and again if their file has changed.

    Means and deviations of an ensemble that is smaller than the store's are read if the store has
    them (`ensemble_mean_first5`), and else computed from the members.

    Args:
        store: its path, or its parts, which the samples of several targets share.
        target: channel, with `@step` if the truth has several steps.
        ensemble: members that make the ensemble; see `ens10.loader.samples.Members`.

    Raises:
        UnknownNameError: the store lacks the target.
        ArgumentError: more members than the store has.
        DamagedFileError: coordinates differ from the manifest. When dates are read: a chunk does.
    """

    def __init__(
        self, store: Path | str | StoreParts, target: str, ensemble: Members = None
    ) -> None:
        parts = store if isinstance(store, StoreParts) else StoreParts(store)
        path, dataset, truth, statistics = parts.path, parts.dataset, parts.truth, parts.statistics
        self._arguments = (path, target, ensemble)
        self.label = str(path)
        self._record, self._root = parts.record, parts.root
        super().__init__(dataset, truth, target, ensemble)
        self._suffix = "" if self.members == dataset.sizes["number"] else f"_first{self.members}"
        is_first = self._member_places == list(range(self.members))
        channels = [] if statistics is None else statistics["channel"].to_numpy().tolist()
        self._channel_rows = {str(c): n for n, c in enumerate(channels)}
        mean = f"ensemble_mean{self._suffix}"
        self._has_moments = is_first and statistics is not None and mean in statistics
        # None, for all, is read faster than a list
        self._fields = None if is_first and not self._suffix else self._member_places
        # the block of each date of the store, as the sums are ordered
        years, block = blocks(dataset["valid_time"].to_numpy())
        self._block = np.array(block, np.int64)
        valid_years = years if statistics is None else statistics["valid_year"].to_numpy()
        if self._has_moments and not np.array_equal(valid_years, years):
            reason = "the years of its statistics are not those of its valid dates"
            raise FileError(path, reason, "Run `ens10 verify`, or prepare the store again")
        self._levels = dataset["level"].to_numpy().tolist() if "level" in dataset else []
        self._truth_place = () if truth is None else self._truth_place_in(truth)
        self._readers: dict[str, Reader] = {}
        self._lock = threading.Lock()
        self._thread_buffers = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process opens the store anew: buffers belong to one process.
        return type(self), self._arguments

    def read_truth(self, i: int, out: Field, rows: slice = _ALL) -> int:
        """Read the truth of date `i` into `out` (h, W), NaN where missing."""
        if not self.has_truth:
            out[...] = np.nan
            return 0
        reader = self._reader(f"truth/{self._variable_and_level(self.target)[0]}")
        return reader.read_into((i, *self._truth_place), out[None], rows=rows)

    def read_moments(
        self, where: Where, channels: Sequence[str], mean: Field, std: Field, moves: Moves = _COPY
    ) -> int:
        """Read ensemble mean and standard deviation (n - 1), each (C, h, W)."""
        if self.checks is not None or not self._has_moments:
            return self._moments_of_members(where, channels, mean, std, moves)
        place = self._place(where)
        fields = [self._channel_rows[channel] for channel in channels]
        count = 0
        for moment, out, move in (("mean", mean, moves[0]), ("std", std, moves[1])):
            reader = self._reader(f"statistics/ensemble_{moment}{self._suffix}")
            count += reader.read_into(place, out, fields, where.rows, move)
        return count

    def read_members(self, where: Where, channel: str, out: Field, move: Move | None = None) -> int:
        """Read the members of one channel, (M, h, W)."""
        array, place = self._chunk(where, channel)
        reader = self._reader(array)
        if self.checks is None:  # no member is missing
            return reader.read_into(place, out, self._fields, where.rows, move)
        present = np.empty((len(self._present), *out.shape[1:]), np.float32)
        count = reader.read_into(place, present, self._member_places, where.rows)
        out[...] = np.nan
        out[self._present] = present
        self.checks.examine(where.date, where.step, channel, out)
        move_in_place((move,), out)
        return count

    def sums(
        self, dates: npt.NDArray[np.int64], step: float, channels: Sequence[str]
    ) -> dict[Moment, SumsOfDates]:
        """Return sums of ensemble mean and deviation over the dates at these positions.

        Sums of blocks whose dates are all requested are read from the store; those of other blocks
        are computed from the requested dates.
        """
        if not self._has_moments:
            return super().sums(dates, step, channels)
        is_requested = np.isin(np.arange(self._block.size), self._positions[dates])
        block_sizes = np.bincount(self._block)
        full = np.bincount(self._block, is_requested) == block_sizes
        full_blocks = np.flatnonzero(full).tolist()
        other_dates = dates[~full[self._block[self._positions[dates]]]]
        rows = [self._channel_rows[channel] for channel in channels]
        other_sums = super().sums(other_dates, step, channels) if other_dates.size else None
        sums: dict[Moment, Any] = {}
        for moment in get_args(Moment):
            names = [f"{moment}{self._suffix}_{part}" for part in _PARTS]
            parts = [self._read_sum(name, full_blocks, step, rows) for name in names]
            for part, other in zip(parts, other_sums[moment] if other_sums else [], strict=False):
                part += other
            sums[moment] = tuple(parts)
        return sums

    def without_truth(self) -> npt.NDArray[np.int64]:
        """Return positions of dates whose truth is missing at every point, by the manifest.

        The record of 20,000 dates is large: some megabytes of it are searched at a time.
        """
        if self._record is None or not self.has_truth:
            return super().without_truth()
        name = f"truth/{self._variable_and_level(self.target)[0]}"
        if self._reader(name).dates > 1:  # the manifest has one row for all of them
            is_empty = [np.isnan(self.truth(i)).all() for i in range(len(self))]
            return np.flatnonzero(is_empty).astype(np.int64)
        place = "/".join(map(str, self._truth_place))
        path = f"{name}/c/(\\d+)/{place}/0/0"
        row = re.compile(f'"{path}",\\d+,\\d+,[^,]*,[^,]*,{self._point_count},'.encode())
        matches = (match for lines in self._record.blocks() for match in row.finditer(lines))
        positions = [int(match[1]) for match in matches]
        return np.array(sorted(positions), np.int64)

    def missing_points(self, i: int, step: float, channel: str) -> npt.NDArray[np.bool_]:
        """Return the points (H, W) that some member lacks; read if the manifest lists a gap."""
        array, place = self._chunk(Where(i, step), channel)
        paths = self._with_gaps
        chunk = self._reader(array).chunk_of(place)
        if paths is None or "/".join([array, "c", *map(str, chunk)]) in paths:
            return super().missing_points(i, step, channel)
        return np.zeros(self._grid, np.bool_)

    @cached_property
    def _with_gaps(self) -> set[str] | None:
        """Chunks of forecasts with missing values: their paths, up to the outer dimensions.

        None for a store without a manifest.
        """
        if self._record is None:
            return None
        row = re.compile(rb'\["((?:sfc|pl)/[^"]+)/0/0/0",\d+,\d+,[^,]*,[^,]*,[1-9]')
        matches = (match for lines in self._record.blocks() for match in row.finditer(lines))
        return {match[1].decode() for match in matches}

    @property
    def _point_count(self) -> int:
        return len(self.latitude) * len(self.longitude)

    def _read_sum(self, name: str, blocks: list[int], step: float, rows: list[int]) -> Any:
        """Return one of the sums, added over blocks in order, (channels, H, W)."""
        name, s = f"statistics/{name}", self.steps.index(step)
        array: Any = self._root[name]
        total = np.zeros((len(rows), *self._grid), array.dtype)
        if array.chunks[1] != 1:  # of earlier versions: a chunk holds all steps
            for block in blocks:
                total += np.asarray(array[block, s])[rows]
            return total
        reader = open_reader(self._arguments[0], name, self._record, array.dtype.name)
        planes: Any = np.empty_like(total)
        for block in blocks:
            reader.read_into((block, s), planes, rows)
            total += planes
        return total

    def _chunk(self, where: Where, channel: str) -> tuple[str, tuple[int, ...]]:
        """Return the array of a field's members, and the place of its chunk."""
        name, level = self._variable_and_level(channel)
        if level is None:
            return f"sfc/{name}", self._place(where)
        return f"pl/{name}", (*self._place(where), self._levels.index(level))

    def _place(self, where: Where) -> tuple[int, ...]:
        return int(self._positions[where.date]), self.steps.index(where.step)

    def _moments_of_members(
        self, where: Where, channels: Sequence[str], mean: Field, std: Field, moves: Moves
    ) -> int:
        members = getattr(self._thread_buffers, "members", None)
        shape = (self.members, *mean.shape[1:])
        if members is None or members.shape != shape:
            members = self._thread_buffers.members = np.empty(shape, np.float32)
        count = 0
        for n, channel in enumerate(channels):
            count += self.read_members(where, channel, members)
            mean[n], std[n] = self._moments_of(where, channel, members)
        move_in_place(moves, mean, std)
        return count

    def _variable_and_level(self, channel: str) -> tuple[str, float | None]:
        surface = self.levels[channel] is None
        return (channel, None) if surface else split_exactly(channel)

    def _truth_place_in(self, truth: xr.Dataset) -> tuple[int, ...]:
        """Return the truth's position along step (and level)."""
        place = [truth.get_index("step").get_loc(self.step)]
        _, level = self._variable_and_level(self.target)
        if level is not None:
            place.append(truth.get_index("level").get_loc(level))
        return tuple(int(p) for p in place)

    def _reader(self, name: str) -> Reader:
        with self._lock:  # two threads would search the manifest twice
            if name not in self._readers:
                self._readers[name] = open_reader(self._arguments[0], name, self._record)
            return self._readers[name]
