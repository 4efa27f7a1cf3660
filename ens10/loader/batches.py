"""`Batches`: an iterable of numpy batches from a store or a lazy dataset, without torch."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from copy import copy, deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.channels import step_number
from ens10.climate import Normaliser
from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import Fields, Job, Kind, KindName, batch_layout
from ens10.loader.buffers import (
    Allocator,
    Block,
    BlockPool,
    BufferLayout,
    CachedContent,
    dates_that_fit,
    plain_memory,
    read_ahead,
)
from ens10.loader.content import (
    EXTRA_NAMES,
    Arrays,
    Content,
    DateContent,
    Extra,
    Input,
    LeadsContent,
    biased_factor,
    feature_statistics,
    inputs_at,
    masked_inputs,
    parse_inputs,
)
from ens10.loader.order import (
    Even,
    GridPart,
    IterationProgress,
    Position,
    Ranks,
    jobs_of_epoch,
)
from ens10.loader.samples import Members, Samples, SeveralSamples
from ens10.protocol import Protocol, Split, protocol_of
from ens10.splits import Splits, split_dates


def open_samples(
    data: Path | str | xr.Dataset | Samples,
    target: str | Sequence[str],
    truth: xr.Dataset | xr.DataArray | None = None,
    ensemble: Members = None,
    step: float | Sequence[float] | None = None,
) -> Samples:
    """Open samples from a store's path, or from any lazy dataset with its truth.

    Args:
        data: path of a store, a lazy dataset, or samples, which are returned unchanged.
        target: channel or channels, with `@step` if the truth has several steps.
        truth: of a lazy dataset; None if there is none.
        ensemble: members that make the ensemble; see `ens10.loader.samples.Members`.
        step: lead time or times, in place of `@step`.

    Raises:
        ArgumentError: data that are neither a path nor a dataset; a target or lead time that the
            data lack, or that occurs twice.
    """
    if isinstance(data, Samples):
        return data
    names_by_lead = _by_lead(target, step)
    samples_of = _opener(data, truth, ensemble)
    parts = [[samples_of(name) for name in names] for names in names_by_lead]
    first = parts[0][0]
    all_samples = [samples for part in parts for samples in part]
    if len({(samples.target, samples.step) for samples in all_samples}) < len(all_samples):
        description = ", ".join(f"{samples.target}@{samples.step:g}" for samples in all_samples)
        raise ArgumentError("target", f"{description}: one occurs twice", "Name each once")
    if any(samples.step != part[0].step for part in parts for samples in part):
        description = ", ".join(f"{samples.target}@{samples.step:g}" for samples in all_samples)
        reason = f"the targets of one training have the same lead times, not {description}"
        raise ArgumentError("target", reason, "Name the lead times with `step`")
    return SeveralSamples(parts) if len(all_samples) > 1 else first


def _by_lead(target: str | Sequence[str], step: float | Sequence[float] | None) -> list[list[str]]:
    """Return the targets with `@step` of each lead time."""
    targets = [target] if isinstance(target, str) else list(target)
    if step is None and targets:
        return [targets]
    steps = step if isinstance(step, Sequence) else [step or 0]
    if not targets or not steps:
        argument = "step" if targets else "target"
        raise ArgumentError(argument, "none is given", "Name one or more")
    if targets_with_step := [name for name in targets if "@" in name]:
        reason = f"{targets_with_step[0]!r} has a lead time, and so has `step`"
        raise ArgumentError("target", reason, "Give one of the two")
    return [[f"{name}@{step_number(s)}" for name in targets] for s in steps]


def _opener(
    data: Path | str | xr.Dataset,
    truth: xr.Dataset | xr.DataArray | None,
    ensemble: Members,
) -> Callable[[str], Samples]:
    """Return a function from a target to its samples; a store is opened once for all."""
    if isinstance(data, xr.Dataset):
        from ens10.loader.dataset_samples import DatasetSamples  # needs dask

        truth = truth.to_dataset() if isinstance(truth, xr.DataArray) else truth
        return lambda target: DatasetSamples(data, truth, target, ensemble)
    if not isinstance(data, str | Path):
        raise ArgumentError("data", f"{type(data).__name__} is neither a path nor a Dataset")
    from ens10.loader.store_samples import StoreParts, StoreSamples  # needs zarr

    parts = StoreParts(data)
    return lambda target: StoreSamples(parts, target, ensemble)


def _of_tree(data: Any, group: str) -> Any:
    """Return the dataset of a group of a tree; other data are unchanged."""
    if not isinstance(data, xr.DataTree):
        return data
    from ens10.source.stores import dataset_of  # needs dask

    return dataset_of(data, group)


class Batches:
    """An iterable of batches of one split.

    A batch is unchanged as long as any of its arrays (or a view of one) is referenced; its memory
    is reused afterwards. A loop that keeps no batch runs in the memory of the ring, for any number
    of dates.

    Args:
        data: path of a store, any lazy dataset in this package's layout or that of a producer,
            streamed as it is, a tree of them, or samples of them that are open already (`target`,
            `truth` and `ensemble` are theirs).
        target: channel to correct, such as "t2m" or "z500", with `@step` if truth has several;
            or several channels.
        inputs: channels that are features; see `ens10.loader.content`.
        split: "train", "val" or "test". Dates without any truth are left out of "train".
        kind: what a batch is made of: "fields", "members", "slabs", "patches", "points", or one
            of the classes of these names with settings of its own, such as `Patches((64, 64))` or
            `Views(members=5)`.
        protocol: "clean", "paper", the path of a YAML file, or a `Protocol`.
        truth: of a lazy dataset.
        ensemble: members that make the ensemble, counted from the first; None for all.
        extras: "location", "altitude" (of stations, in km) and "day_of_year" features.
        members: True if batches hold the members of the target.
        batch_size: dates in a batch (for points: dates that are shuffled together).
        shuffle: None shuffles the training split only.
        seed: seed of the shuffling.
        rank: rank of this process.
        world: number of processes.
        even: "drop" or "pad" for as many batches on every rank; see `ens10.loader.order.share`.
        threads: number of threads that read ahead; 0 to read on demand. Batches are the same.
        ring: number of read-ahead buffers.
        cache: part of the dates to keep in memory after their first reading: a size such as
            "2GB", or a share from 0 to 1; None for none.
        allocate: function that allocates buffers, e.g. in pinned memory.
        normalise: True if features are normalised. If not, they keep their units, and gaps are NaN:
            for normalisation elsewhere, since here it takes twice as long as the reading.
        step: lead time of the target in place of `@step`, or several, each of which makes an
            element of the batches of every date, with the feature "lead".
        normaliser: statistics of an earlier training; None to take them from the data. With them
            forecasts without truth can be read, whose dates are all of the split "test".
        group: of a tree with several groups of fields.

    Raises:
        MissingDataError: there is no truth, and the split is not "test" or there is no normaliser.
        UnknownNameError: a channel, split, protocol, kind or extra that is not known.
        ArgumentError: a step or number that cannot be, or a normaliser of other features.
        OverlapError: splits that overlap.
    """

    def __init__(
        self,
        data: Path | str | xr.Dataset | xr.DataTree | Samples,
        target: str | Sequence[str],
        inputs: Sequence[str] | None = None,
        split: Split = "train",
        *,
        kind: KindName | Kind = "fields",
        protocol: str | Protocol = "clean",
        truth: xr.Dataset | xr.DataArray | None = None,
        ensemble: int | None = None,
        extras: Sequence[Extra] = (),
        members: bool = False,
        batch_size: int = 1,
        shuffle: bool | None = None,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        even: Even | None = None,
        threads: int = 1,
        ring: int = 3,
        cache: str | float | None = None,
        allocate: Allocator = plain_memory,
        normalise: bool = True,
        normaliser: Normaliser | None = None,
        step: float | Sequence[float] | None = None,
        group: str = "",
    ) -> None:
        _check_names(split, extras)
        _check_minimums({"batch_size": (batch_size, 1), "ring": (ring, 1), "threads": (threads, 0)})
        self.kind = batch_layout(kind)
        self.samples = open_samples(_of_tree(data, group), target, truth, ensemble, step)
        if split != "test" or normaliser is None:
            self.samples.require_truth()
        self.protocol = protocol_of(protocol)
        self.splits = _splits(self.protocol, self.samples)
        without_truth = np.isin(self.splits.index[split], self.samples.without_truth())
        without_truth &= split == "train"
        self.index, self.left_out = (
            self.splits.index[split][mask] for mask in (~without_truth, without_truth)
        )
        self.inputs = parse_inputs(inputs, self.samples)
        self.allocate, self.bytes_read = allocate, 0
        self._rows = self.kind.rows(self.samples)
        self._shuffle = split == "train" if shuffle is None else shuffle
        self.extras, self._members, self._batch_size = tuple(extras), members, batch_size
        if len(self.samples.leads) > 1:
            self.extras = with_lead(extras)
        self._normalise = normalise
        self._seed, self._ranks = seed, Ranks(rank, world, even)
        self._threads, self._ring, self._cache = threads, ring, cache
        self._factor = self._deviation_factor()
        self._pool: BlockPool | None = None
        self._lock = threading.Lock()
        self._position = Position(len(self), seed, len(self.index), batch_size, world)
        if normaliser is not None:
            self.normaliser = normaliser
            _check_leads(normaliser, self.samples)
            masked_inputs(normaliser, self.inputs, self.samples.step)  # refuses another training's

    @cached_property
    def normaliser(self) -> Normaliser:
        """Statistics of the features; taken from the data when they are first needed."""
        return feature_statistics(
            self.samples, self.inputs, self.protocol, self.splits, self._factor
        )

    @cached_property
    def _date_content(self) -> DateContent | LeadsContent:
        leads = self.samples.leads
        if len(leads) == 1:
            return self._date_content_of(self.samples, self.inputs, self.normaliser)
        return LeadsContent(
            self.samples,
            [
                self._date_content_of(lead, inputs_at(self.inputs, lead), self.normaliser.at(n))
                for n, lead in enumerate(leads)
            ],
        )

    def _date_content_of(
        self, samples: Samples, inputs: Sequence[Input], normaliser: Normaliser
    ) -> DateContent:
        return DateContent(
            samples,
            inputs,
            normaliser,
            masked_inputs(normaliser, inputs, samples.step),
            self._factor,
            area_weights(samples.latitude, self.protocol.weighting),
            self.extras,
            self.kind.features,
            self._members,
            self._normalise,
        )

    @cached_property
    def content(self) -> Content:
        """The reader of dates, with a cache of some of them if `cache` is set."""
        if self._cache is None:
            return self._date_content
        cached_dates = dates_that_fit(
            self._cache, self.index.tolist(), self._date_content, self._rows
        )
        return CachedContent(self._date_content, cached_dates, self._rows)

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the features, in order: "t2m:mean", ..., "t2m:std", ..., "sst:mask", ..."""
        return self._date_content.channels

    @property
    def dates(self) -> npt.NDArray[np.datetime64]:
        """Valid dates of the split, in the order of time."""
        dates: npt.NDArray[np.datetime64] = self.samples.valid_time[self.index]
        return dates

    def by_lead(self) -> list[tuple[Samples, npt.NDArray[np.int64]]]:
        """Return the samples of each lead time, and the positions of the split's dates in them."""
        samples = self.samples
        return list(zip(samples.leads, samples.by_lead(self.index), strict=True))

    @property
    def epoch(self) -> int:
        """The epoch of the next iteration."""
        return self._position.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, and with it the order, of the next iteration."""
        self._position.set_epoch(epoch)

    def state_dict(self) -> dict[str, int]:
        """Return the position: the number of batches the consumer has received."""
        return self._position.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume at a saved position, with the same following batches.

        Raises:
            ArgumentError: in mid-epoch of other dates, batch sizes, seeds or numbers of ranks.
        """
        self._position.load_state_dict(state)

    def __len__(self) -> int:
        return self._count(self._ranks.count(len(self.index)))

    def __iter__(self) -> Iterator[Batch]:
        progress, jobs, skipped_batches = self.begin()
        with closing(self.read(jobs)) as buffers:
            for job, arrays in buffers:
                batches = self.kind.batches(job, arrays, self._point_count)
                for number, batch in enumerate(batches):
                    if number >= skipped_batches:
                        progress.batches += 1
                        yield batch
                skipped_batches = 0

    def begin(self) -> tuple[IterationProgress, list[Job], int]:
        """Begin an epoch.

        Returns:
            Its progress, which the consumer counts on; the jobs that are left of it; and how many
            batches of the first one were received before.
        """
        progress = self._position.begin()
        jobs = jobs_of_epoch(
            self.index, self._ranks, self._batch_size, self._seed, progress.epoch, self._shuffle
        )
        skipped_jobs, skipped_batches = divmod(
            progress.batches, max(1, self._count(self._batch_size))
        )
        return progress, jobs[skipped_jobs:], skipped_batches

    def read(self, jobs: Sequence[Job]) -> Generator[tuple[Job, Arrays], None, None]:
        """Yield jobs with their filled arrays, read ahead, in memory that is used again."""
        date_count = min(self._batch_size, max(1, self._ranks.count(len(self.index))))
        layout = BufferLayout(self.kind.arrays(self.content, date_count))
        filled_buffers = read_ahead(
            jobs,
            lambda job, block: self._fill(job, layout, block),
            self._pool_of(layout.size),
            self._ring,
            self._threads,
        )
        with closing(filled_buffers) as buffers:
            for job, block in buffers:
                yield job, layout.views(block)

    def batch(self, positions: npt.NDArray[np.int64]) -> Batch:
        """Return the batch of the dates at these positions of `samples`, in its own memory."""
        positions = np.asarray(positions, np.int64)
        layout = BufferLayout(self.kind.arrays(self.content, len(positions)))
        block = np.empty(layout.size, np.uint8)
        no_repeats = np.zeros(len(positions), np.bool_)
        self._fill(Job(0, positions, no_repeats, (self._seed, self.epoch)), layout, block)
        return cast("Batch", layout.views(block))

    def full_fields(self) -> "Batches":
        """Return batches of the same dates in the layout of evaluation, not split by processes.

        These are full fields (of slabs: the slab). They are this object if it has this layout, or a
        copy with its own counters, buffers and position, and no cache.
        """
        kind = self.kind.evaluation
        if isinstance(kind, GridPart):
            kind = Fields(features=kind.features)
        if kind is self.kind:
            return self
        other = copy(self)
        other._position = deepcopy(self._position)
        other.kind, other._cache, other.bytes_read = kind, None, 0
        other._rows = other.kind.rows(self.samples)
        other.__dict__.pop("content", None)  # it depends on the rows
        return other

    def free(self) -> None:
        """Free the buffers; the next iteration makes new ones."""
        self._pool = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def _point_count(self) -> int:
        return len(self.samples.latitude) * len(self.samples.longitude)

    def _count(self, dates: int) -> int:
        """Return the number of batches from `dates` dates."""
        full_buffers, remainder = divmod(dates, self._batch_size)
        last = self.kind.count(remainder, self._point_count) if remainder else 0
        return full_buffers * self.kind.count(self._batch_size, self._point_count) + last

    def _fill(self, job: Job, layout: BufferLayout, block: Block) -> None:
        count = self.kind.fill(job, self.content, layout.views(block))
        with self._lock:
            self.bytes_read += count

    def _pool_of(self, size: int) -> BlockPool:
        if self._pool is None or self._pool.size != size:
            self._pool = BlockPool(size, self.allocate)
        return self._pool

    def _deviation_factor(self) -> float:
        """Return the factor from the stored standard deviation (n - 1) to the protocol's."""
        count = self.samples.members
        biased = not self.protocol.unbiased and count > 1
        return biased_factor(count) if biased else 1.0


def with_lead(extras: Sequence[Extra]) -> tuple[Extra, ...]:
    """Return the extras of several lead times, with the lead time."""
    return (*extras, "lead") if "lead" not in extras else tuple(extras)


def _check_leads(normaliser: Normaliser, samples: Samples) -> None:
    """Refuse statistics of another number of lead times."""
    leads = 1 if normaliser.mean.ndim == 3 else len(normaliser.mean)
    if leads != (count := len(samples.leads)):
        reason = f"{count} lead times do not fit the statistics of the training, which have {leads}"
        raise ArgumentError("step", reason, "Use the lead times of the training")


def _splits(protocol: Protocol, samples: Samples) -> Splits:
    """Return the dates of each split; forecasts without truth all belong to the test split.

    Each date is assigned to a split at each lead time separately; the years of the splits are the
    same at all lead times.
    """
    if samples.has_truth:
        return split_dates(protocol, samples.time, samples.valid_time)
    no_dates = np.empty(0, np.int64)
    index = {"train": no_dates, "val": no_dates, "test": np.arange(len(samples))}
    return Splits({"train": [], "val": [], "test": []}, index, no_dates)


def _check_names(split: str, extras: Sequence[str]) -> None:
    if split not in get_args(Split):
        raise UnknownNameError("split", split, get_args(Split))
    for extra in extras:
        if extra not in EXTRA_NAMES:
            raise UnknownNameError("extras", extra, EXTRA_NAMES)


def _check_minimums(numbers: dict[str, tuple[int, int]]) -> None:
    for argument, (number, least) in numbers.items():
        if number < least:
            raise ArgumentError(argument, f"{number} is less than {least}")
