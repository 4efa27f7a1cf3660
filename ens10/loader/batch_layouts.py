"""Batch layouts: how the dates of an epoch become full fields, slabs, patches, points or views.

Places of patches, and members and moves of views, are drawn from seed, epoch and date alone. Points
of several dates are shuffled in memory: whole dates are read, and the features of each point are
written straight to the point's place in the shuffled order, so that a batch is one piece of memory.
"""

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
import numpy.typing as npt

from ens10.channels import split_exactly
from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import is_global
from ens10.loader.batch import Batch
from ens10.loader.buffers import BufferLayout
from ens10.loader.content import (
    EXTRA_NAMES,
    STATIC,
    Arrays,
    Content,
    Features,
    Shapes,
    scatter_points,
)
from ens10.loader.member_subset import Members, Subset
from ens10.loader.samples import Samples

KindName = Literal["fields", "members", "slabs", "patches", "points"]
_LABELS = ("dates", "steps")  # arrays without a grid
_NORTHWARD = re.compile(r"v\d*|vo|pv")  # v, v10, v100, vorticity: odd if north and south change
Specification = dict[str, tuple[tuple[int, ...], npt.DTypeLike]]


@dataclass(frozen=True)
class Job:
    """The content of one buffer.

    Attributes:
        number: index of the buffer in the epoch, from 0.
        dates: positions of its dates in the samples.
        is_repeat: (N,) True for a date that makes ranks equal in length and must have no weight.
        seed: (seed, epoch) of random choices; ranks differ by their dates.
    """

    number: int
    dates: npt.NDArray[np.int64]
    is_repeat: npt.NDArray[np.bool_]
    seed: tuple[int, int]


@dataclass(frozen=True)
class Kind(ABC):
    """How dates become batches. Layouts are immutable: they may be shared and pickled.

    Attributes:
        features: "moments" (ensemble mean and deviation of the inputs) or "members" (of the
            inputs, normalised as their mean is).
    """

    features: Features = field(default="moments", kw_only=True)

    @property
    def per_date(self) -> int:
        """Elements of a batch that one date gives."""
        return 1

    def rows(self, samples: Samples) -> slice:
        """Return the rows of the grid that this layout may need.

        Raises:
            ArgumentError: it needs rows that the grid does not have.
        """
        return slice(0, len(samples.latitude))

    @property
    def evaluation(self) -> "Kind":
        """The layout in which a model that trains on this one is validated, tested and applied."""
        return self

    @abstractmethod
    def arrays(self, content: Content, dates: int) -> Specification:
        """Return shape and type of each array of a buffer for `dates` dates."""

    @abstractmethod
    def fill(self, job: Job, content: Content, arrays: Arrays) -> int:
        """Fill the arrays for a job, and return the bytes read; thread-safe."""

    def count(self, dates: int, points: int) -> int:  # noqa: ARG002
        """Return the number of batches from a buffer of `dates` dates of `points` grid points."""
        return 1

    def batches(self, job: Job, arrays: Arrays, points: int) -> Iterator[Batch]:  # noqa: ARG002
        """Yield the batches of a filled buffer, as views of it."""
        count = len(job.dates) * self.per_date
        yield cast("Batch", {key: values[:count] for key, values in arrays.items()})


@dataclass(frozen=True)
class Fields(Kind):
    """Full fields: arrays (N, C, H, W), or (N, M, C, H, W) with `features="members"`."""

    def arrays(self, content: Content, dates: int) -> Specification:
        """Return shape and type of each array of a buffer for `dates` dates."""
        samples = content.samples
        return specification(content.shapes(length(self.rows(samples))), dates, samples)

    def fill(self, job: Job, content: Content, arrays: Arrays) -> int:
        """Read each date into its place."""
        rows, count = self.rows(content.samples), 0
        for n, date in enumerate(job.dates.tolist()):
            date_arrays = {key: values[n] for key, values in arrays.items() if key not in _LABELS}
            count += self.read(date, content, date_arrays, rows)
            if job.is_repeat[n]:
                date_arrays["weights"][...] = 0
        for key, values in labels(content.samples, job.dates).items():
            arrays[key][: len(job.dates)] = values
        return count

    def read(self, date: int, content: Content, out: Arrays, rows: slice) -> int:
        """Read one date, and return the bytes read."""
        return content.read(date, out, rows)


@dataclass(frozen=True)
class Slabs(Fields):
    """The same rows of every field; no other bytes are read.

    Attributes:
        first: first row, counted from the north.
        last: the row past the last one; None for all that follow.
    """

    first: int = 0
    last: int | None = None

    def rows(self, samples: Samples) -> slice:
        """Return the rows of the slab."""
        height = len(samples.latitude)
        last = height if self.last is None else self.last
        if not 0 <= self.first < last <= height:
            reason = f"rows {self.first} to {last} are no slab of {height} rows"
            raise ArgumentError("kind", reason, f"Choose 0 <= first < last <= {height}")
        return slice(self.first, last)


class Scratch:
    """Reusable arrays for one date; each thread has its own."""

    def __init__(self) -> None:
        self._thread_buffers = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def arrays(self, shapes: Shapes) -> Arrays:
        """Return float32 arrays of these shapes, with undefined content."""
        if getattr(self._thread_buffers, "shapes", None) != shapes:
            layout = BufferLayout({key: (shape, np.float32) for key, shape in shapes.items()})
            self._thread_buffers.arrays = layout.views(np.empty(layout.size, np.uint8))
            self._thread_buffers.shapes = shapes
        arrays: Arrays = self._thread_buffers.arrays
        return arrays


def specification(shapes: Shapes, count: int, samples: Samples) -> Specification:
    """Specify float32 arrays of `count` elements of these shapes, and their labels."""
    fields: Specification = {key: ((count, *shape), "f4") for key, shape in shapes.items()}
    empty_labels = labels(samples, np.empty(0, np.int64))
    return fields | {key: ((count,), values.dtype) for key, values in empty_labels.items()}


def labels(samples: Samples, dates: npt.NDArray[np.int64]) -> Arrays:
    """Return valid dates in seconds since 1970 and, of several lead times, the lead of each."""
    valid = samples.valid_time[dates].astype("datetime64[s]").astype(np.int64)
    leads = samples.leads
    if len(leads) == 1:
        return {"dates": valid}
    steps = [leads[samples.locate(date)[0]].step for date in dates.tolist()]
    return {"dates": valid, "steps": np.array(steps, np.float32)}


def length(rows: slice) -> int:
    """Return the number of rows."""
    return int(rows.stop - rows.start)


@dataclass(frozen=True)
class _Parts(Kind):
    """Parts of fields: each date is read into memory of the thread, and parts of it are copied."""

    _scratch: Scratch = field(
        default_factory=Scratch, init=False, repr=False, compare=False, kw_only=True
    )

    @property
    def evaluation(self) -> Kind:
        """Full fields."""
        return Fields(features=self.features)


@dataclass(frozen=True)
class Patches(_Parts):
    """Patches of `size` points: arrays (N * number, C, h, w), with the place of each patch.

    On a global grid, columns continue past the last meridian. Only the rows of a patch are read.

    Attributes:
        size: rows and columns.
        number: patches of each date, one after the other in the batch.
    """

    size: tuple[int, int] = (128, 128)
    number: int = 1

    @property
    def per_date(self) -> int:
        """Elements of a batch that one date gives."""
        return self.number

    def rows(self, samples: Samples) -> slice:
        """Return all rows, if a patch fits into them."""
        height, width = len(samples.latitude), len(samples.longitude)
        if samples.stations:
            reason = "the data are stations, from which no patches can be cut"
            raise ArgumentError("kind", reason, "Choose 'fields', 'members' or 'points'")
        fits = 1 <= self.size[0] <= height and 1 <= self.size[1] <= width
        if not fits or self.number < 1:
            reason = (
                f"{self.number} patches of {self.size[0]} x {self.size[1]} points cannot be cut "
                f"from {height} x {width}"
            )
            raise ArgumentError("kind", reason, "Choose a smaller size, and at least one patch")
        return slice(0, height)

    def arrays(self, content: Content, dates: int) -> Specification:
        """Return shape and type of each array."""
        height, width = self.size
        shapes = {key: (*s[:-1], width) for key, s in content.shapes(height).items()}
        count = dates * self.number
        corners: Specification = dict.fromkeys(("rows", "columns"), ((count,), "i8"))
        return specification(shapes, count, content.samples) | corners

    def fill(self, job: Job, content: Content, arrays: Arrays) -> int:
        """Cut the patches of each date."""
        count, place = 0, 0
        scratch = self._scratch.arrays(content.shapes(self.size[0]))
        for date, is_repeated in zip(job.dates.tolist(), job.is_repeat.tolist(), strict=True):
            for row, column in self.corners(content.samples, date, job.seed):
                count += content.read(date, scratch, slice(row, row + self.size[0]))
                for key, values in scratch.items():
                    _copy_columns(values, column, arrays[key][place])
                if is_repeated:
                    arrays["weights"][place] = 0
                arrays["rows"][place], arrays["columns"][place] = row, column
                place += 1
        for key, values in labels(content.samples, job.dates).items():
            arrays[key][:place] = np.repeat(values, self.number)
        return count

    def corners(self, samples: Samples, date: int, seed: tuple[int, int]) -> list[tuple[int, int]]:
        """Return the first row and column of each patch of a date."""
        height, width = len(samples.latitude), len(samples.longitude)
        rng = np.random.default_rng([*seed, date])
        column_limit = width if is_global(samples.longitude) else width - self.size[1] + 1
        rows = rng.integers(0, height - self.size[0] + 1, self.number).tolist()
        return list(zip(rows, rng.integers(0, column_limit, self.number).tolist(), strict=True))


def _copy_columns(values: npt.NDArray[Any], column: int, out: npt.NDArray[Any]) -> None:
    """Copy columns from `column` on, wrapping around at the last."""
    width = out.shape[-1]
    first = min(width, values.shape[-1] - column)
    out[..., :first] = values[..., column : column + first]
    out[..., first:] = values[..., : width - first]


@dataclass(frozen=True)
class Points(_Parts):
    """Grid points: arrays (P, C), or (P, M, C) with `features="members"`, and (P,).

    `batch_size` dates are shuffled together; the points of a date come in batches of `size`, the
    last of the dates' being smaller. `latitude`, `longitude`, `rows` and `columns` are further
    arrays, (P,).

    Attributes:
        size: points in a batch.
        shuffle: True if the points are shuffled; if not, they come date by date, row by row.
    """

    size: int = 4096
    shuffle: bool = True

    def rows(self, samples: Samples) -> slice:
        """Return all rows."""
        if self.size < 1:
            reason = f"{self.size} points are not a batch"
            raise ArgumentError("kind", reason, "Choose at least one")
        return super().rows(samples)

    def arrays(self, content: Content, dates: int) -> Specification:
        """Return shape and type of each array."""
        shapes = content.shapes(length(self.rows(content.samples)))
        points = dates * _grid_points(content.samples)
        fields: Specification = {key: ((points, *s[:-2]), "f4") for key, s in shapes.items()}
        locations: Specification = dict.fromkeys(("latitude", "longitude"), ((points,), "f4"))
        locations |= dict.fromkeys(("rows", "columns"), ((points,), "i8"))
        label_arrays = specification({}, points, content.samples)
        return fields | locations | label_arrays

    def fill(self, job: Job, content: Content, arrays: Arrays) -> int:
        """Read the dates, and write each point to its shuffled position."""
        samples, rows = content.samples, self.rows(content.samples)
        grid, count = _grid_points(samples), 0
        places = self.places(job, grid)
        scratch = self._scratch.arrays(content.shapes(length(rows)))
        label_arrays = labels(samples, job.dates)
        corners = np.indices((len(samples.latitude), len(samples.longitude))).reshape(2, -1)
        locations = dict(zip(("latitude", "longitude"), samples.degrees, strict=True))
        locations |= zip(("rows", "columns"), corners, strict=True)
        for n, date in enumerate(job.dates.tolist()):
            count += content.read(date, scratch, rows)
            if job.is_repeat[n]:
                scratch["weights"][...] = 0
            first = n * grid
            for key, values in scratch.items():
                flat = values.reshape(-1, grid)
                scatter_points(flat, first, places, arrays[key].reshape(-1, len(flat)))
            date_places = places[first : first + grid]
            for key, label in label_arrays.items():
                arrays[key][date_places] = label[n]
            for key, values in locations.items():
                arrays[key][date_places] = values.reshape(-1)
        return count

    def places(self, job: Job, grid: int) -> npt.NDArray[np.int64]:
        """Return the position of each point of each date in the order of the batches."""
        points = len(job.dates) * grid
        if not self.shuffle:
            return np.arange(points)
        return np.random.default_rng([*job.seed, *job.dates.tolist()]).permutation(points)

    def count(self, dates: int, points: int) -> int:
        """Return the number of batches from the points of these dates."""
        return -(-dates * points // self.size)

    def batches(self, job: Job, arrays: Arrays, points: int) -> Iterator[Batch]:
        """Yield the points of the dates, `size` at a time."""
        total = len(job.dates) * points
        for first in range(0, total, self.size):
            span = slice(first, min(first + self.size, total))
            yield cast("Batch", {key: values[span] for key, values in arrays.items()})


class View(NamedTuple):
    """One view of a date.

    Attributes:
        places: positions of its members in the ensemble, in increasing order.
        shift: columns by which it is rolled to the east.
        mirrored: True if north and south are exchanged.
    """

    places: list[int]
    shift: int
    mirrored: bool


@dataclass(frozen=True)
class Views(Kind):
    """Several views of each date: full fields of random subsets of its members, with one truth.

    Batch augmentation of Hoffer et al. 2020 (arXiv:1901.09335). Arrays are (N * number, C, H, W),
    the views of a date one after the other. Mean, deviation and members are those of the subset;
    features are normalised with the statistics of the whole ensemble, before a view is moved.

    Attributes:
        members: size of the subsets, which are drawn without repetition, independently for each
            view, date and epoch.
        number: views of each date.
        roll: True to roll each view by a random number of columns, on a global grid.
        mirror: True to mirror half of the views at the equator: north-south winds change their
            sign, and the day of the year moves by half a year.
    """

    members: int
    number: int = 2
    roll: bool = False
    mirror: bool = False

    @property
    def per_date(self) -> int:
        """Elements of a batch that one date gives."""
        return self.number

    @property
    def evaluation(self) -> Kind:
        """Full fields of the whole ensemble, which are not moved."""
        return Fields(features=self.features)

    @property
    def moves(self) -> bool:
        """True if views lie at other places than their dates."""
        return self.roll or self.mirror

    def rows(self, samples: Samples) -> slice:
        """Return all rows of the grid; refuse views that cannot be made of the data."""
        if self.number < 1 or not 2 <= self.members <= samples.members:
            reason = f"{self.number} views of {self.members} members cannot be drawn"
            remedy = f"Choose at least one view, and 2 to {samples.members} members"
            raise ArgumentError("kind", reason, remedy)
        is_symmetric = np.allclose(samples.latitude, -samples.latitude[::-1])
        is_possible = is_global(samples.longitude) or not self.roll
        is_possible &= is_symmetric or not self.mirror
        if self.moves and (samples.stations or not is_possible):
            reason = "views of stations or of a region cannot be moved"
            raise ArgumentError("kind", reason, "Set roll and mirror to false")
        return super().rows(samples)

    def arrays(self, content: Content, dates: int) -> Specification:
        """Return shape and type of each array.

        Raises:
            ArgumentError: views are moved, and features are of the place.
        """
        samples = content.samples
        part = content.of_members(Subset(range(self.members), {}))
        located = {name for extra in STATIC for name in EXTRA_NAMES[extra]} & {*part.channels}
        if self.moves and located:
            reason = f"views cannot be moved with features of places: {', '.join(sorted(located))}"
            raise ArgumentError("kind", reason, "Leave these extras out, or roll and mirror")
        shapes = part.shapes(length(self.rows(samples)))
        return specification(shapes, dates * self.number, samples)

    def fill(self, job: Job, content: Content, arrays: Arrays) -> int:
        """Read the members of each date once, and make its views."""
        samples, count, place = content.samples, 0, 0
        rows = self.rows(samples)
        for date, is_repeated in zip(job.dates.tolist(), job.is_repeat.tolist(), strict=True):
            fields: Members = {}
            for view in self.views(samples, date, job.seed):
                out = {key: values[place] for key, values in arrays.items() if key not in _LABELS}
                part = content.of_members(Subset(view.places, fields))
                count += part.read(date, out, rows)
                _move(view, out, part.channels, [one.target for one in samples.targets])
                if is_repeated:
                    out["weights"][...] = 0
                place += 1
        for key, values in labels(samples, job.dates).items():
            arrays[key][:place] = np.repeat(values, self.number)
        return count

    def views(self, samples: Samples, date: int, seed: tuple[int, int]) -> list[View]:
        """Return the views of a date, which depend on seed, epoch and date alone."""
        rng = np.random.default_rng([*seed, date])
        width = len(samples.longitude)
        return [
            View(
                sorted(rng.choice(samples.members, self.members, replace=False).tolist()),
                int(rng.integers(width)) if self.roll else 0,
                self.mirror and bool(rng.integers(2)),
            )
            for _ in range(self.number)
        ]


def _move(view: View, arrays: Arrays, channels: Sequence[str], targets: Sequence[str]) -> None:
    """Roll and mirror the arrays of a view in place.

    A normalised wind keeps the climate of its own place, (v - mean) / scale. In the mirrored world
    this climate has the other sign too, so that the normalised value changes its sign.
    """
    if view.shift:
        for values in arrays.values():
            values[...] = np.roll(values, view.shift, axis=-1)
    if not view.mirrored:
        return
    for values in arrays.values():
        values[...] = values[..., ::-1, :].copy()
    features = arrays["features"]
    for n, channel in enumerate(channels):
        if _changes_sign(channel):
            np.negative(features[..., n, :, :], out=features[..., n, :, :])
    for n, target in enumerate(targets):
        for key in {"raw_mean", "target", "members"} & {*arrays} if _changes_sign(target) else ():
            values = arrays[key] if len(targets) == 1 else arrays[key][n]
            np.negative(values, out=values)


def _changes_sign(channel: str) -> bool:
    """Return True for fields that are odd in a mirrored world, not for their deviations."""
    name, _, moment = channel.partition(":")
    is_odd = _NORTHWARD.fullmatch(split_exactly(name.partition("@")[0])[0]) is not None
    return name in EXTRA_NAMES["day_of_year"] or (is_odd and moment in ("", "mean"))


def _grid_points(samples: Samples) -> int:
    return len(samples.latitude) * len(samples.longitude)


def batch_layout(kind: KindName | Kind | Mapping[str, Any]) -> Kind:
    """Return the batch layout of a name, or the layout itself.

    Args:
        kind: a layout, its name, or its class and settings as in a YAML file of this package,
            {"class_path": "ens10.loader.Points", "init_args": {"size": 100}}.

    Raises:
        UnknownNameError: no such kind, or one of unknown features.
    """
    if isinstance(kind, Mapping):
        classes = {one.__name__: one for one in (Fields, Slabs, Patches, Points, Views)}
        name = str(kind.get("class_path", "")).rpartition(".")[2]
        if name not in classes:
            raise UnknownNameError("kind", name, tuple(classes))
        return batch_layout(classes[name](**kind.get("init_args", {})))
    if not isinstance(kind, Kind):
        kinds: dict[str, Kind] = {"fields": Fields(), "members": Fields(features="members")}
        kinds |= {"slabs": Slabs(), "patches": Patches(), "points": Points()}
        if kind not in kinds:
            raise UnknownNameError("kind", kind, get_args(KindName))
        return kinds[kind]
    if kind.features not in get_args(Features):
        raise UnknownNameError("features", kind.features, get_args(Features))
    return kind


def uses_members(data: Mapping[str, Any]) -> bool:
    """Return True if the `data` section of a configuration selects the features of each member."""
    return batch_layout(data.get("kind") or "fields").features == "members"
