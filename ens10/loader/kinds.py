"""Kinds of batches: how the dates of an epoch become arrays. Full fields, slabs, and their base."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.loader.content import Arrays, Content, Features, Shapes
from ens10.loader.samples import Samples
from ens10.loader.slots import Layout

KindName = Literal["fields", "members", "slabs", "patches", "points"]
Specification = dict[str, tuple[tuple[int, ...], npt.DTypeLike]]


@dataclass(frozen=True)
class Job:
    """What one buffer is filled with.

    Attributes:
        number: of the buffer in the epoch, from 0.
        dates: positions of its dates in the samples.
        repeated: (N,) whether a date is there to make ranks equal, and must have no weight.
        seed: (seed, epoch) of what is drawn at random; ranks differ by their dates.
    """

    number: int
    dates: npt.NDArray[np.int64]
    repeated: npt.NDArray[np.bool_]
    seed: tuple[int, int]


@dataclass(frozen=True)
class Kind(ABC):
    """How dates become batches. A kind is immutable: it may be shared and pickled.

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
        """The rows of the grid that this kind can ever need.

        Raises:
            ArgumentError: it needs rows that the grid does not have.
        """
        return slice(0, len(samples.latitude))

    @abstractmethod
    def arrays(self, content: Content, dates: int) -> Specification:
        """Shape and type of each array of a buffer for this number of dates."""

    @abstractmethod
    def fill(self, job: Job, content: Content, arrays: Arrays) -> int:
        """Does a job, and returns the bytes read; called by several threads at once."""

    def count(self, dates: int, points: int) -> int:  # noqa: ARG002
        """Number of batches that a buffer of this number of dates (and grid points) gives."""
        return 1

    def batches(self, job: Job, arrays: Arrays, points: int) -> Iterator[Batch]:  # noqa: ARG002
        """The batches of a filled buffer, as views of it."""
        count = len(job.dates) * self.per_date
        yield cast("Batch", {key: values[:count] for key, values in arrays.items()})


@dataclass(frozen=True)
class Fields(Kind):
    """Full fields: arrays (N, C, H, W), or (N, M, C, H, W) with `features="members"`."""

    def arrays(self, content: Content, dates: int) -> Specification:
        """Shape and type of each array of a buffer for this number of dates."""
        return specification(content.shapes(length(self.rows(content.samples))), dates)

    def fill(self, job: Job, content: Content, arrays: Arrays) -> int:
        """Reads each date into its place."""
        rows, count = self.rows(content.samples), 0
        for n, date in enumerate(job.dates.tolist()):
            one = {key: values[n] for key, values in arrays.items() if key != "dates"}
            count += self.read(date, content, one, rows)
            if job.repeated[n]:
                one["weights"][...] = 0
        arrays["dates"][: len(job.dates)] = seconds(content.samples, job.dates)
        return count

    def read(self, date: int, content: Content, out: Arrays, rows: slice) -> int:
        """Reads one date, and returns the bytes read."""
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
        """The rows of the slab."""
        height = len(samples.latitude)
        last = height if self.last is None else self.last
        if not 0 <= self.first < last <= height:
            raise ArgumentError(
                "kind",
                f"rows {self.first} to {last} are no slab of {height} rows",
                f"Give 0 <= first < last <= {height}",
            )
        return slice(self.first, last)


class Scratch:
    """Memory for one date, kept by each thread."""

    def __init__(self) -> None:
        self._kept = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def arrays(self, shapes: Shapes) -> Arrays:
        """Float32 arrays of these shapes, with whatever they held before."""
        if getattr(self._kept, "shapes", None) != shapes:
            layout = Layout({key: (shape, np.float32) for key, shape in shapes.items()})
            self._kept.arrays = layout.views(np.empty(layout.size, np.uint8))
            self._kept.shapes = shapes
        held: Arrays = self._kept.arrays
        return held


def specification(shapes: Shapes, count: int) -> Specification:
    """Float32 arrays of `count` elements of these shapes, and their dates."""
    wanted: Specification = {key: ((count, *shape), "f4") for key, shape in shapes.items()}
    return wanted | {"dates": ((count,), "i8")}


def seconds(samples: Samples, dates: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Valid dates in seconds since 1970."""
    return samples.valid_time[dates].astype("datetime64[s]").astype(np.int64)


def length(rows: slice) -> int:
    """Number of rows."""
    return int(rows.stop - rows.start)
