"""Single grid points of several dates, shuffled together in memory.

Whole dates are read, and the features of each point are written side by side straight to the
point's place in the shuffled order: a batch is then a piece of memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.loader.content import Arrays, Content
from ens10.loader.kernels import turn
from ens10.loader.kinds import Job, Kind, Scratch, Specification, length, seconds
from ens10.loader.samples import Samples


@dataclass(frozen=True)
class Points(Kind):
    """Grid points: arrays (P, C), or (P, M, C) with `features="members"`, and (P,).

    `batch_size` dates are shuffled together; the points of a date come in batches of `size`, the
    last of the dates' being smaller. `latitude` and `longitude` are further arrays, (P,).

    Attributes:
        size: points in a batch.
        shuffle: whether the points are shuffled; if not, they come date by date, row by row.
    """

    size: int = 4096
    shuffle: bool = True
    _scratch: Scratch = field(default_factory=Scratch, init=False, repr=False, compare=False)

    def rows(self, samples: Samples) -> slice:
        """All rows."""
        if self.size < 1:
            raise ArgumentError("kind", f"{self.size} points are no batch", "Give at least one")
        return super().rows(samples)

    def arrays(self, content: Content, dates: int) -> Specification:
        """Shape and type of each array, for all points of the dates."""
        shapes = content.shapes(length(self.rows(content.samples)))
        points = dates * _grid_points(content.samples)
        held: Specification = {key: ((points, *s[:-2]), "f4") for key, s in shapes.items()}
        located: Specification = dict.fromkeys(("latitude", "longitude"), ((points,), "f4"))
        return held | located | {"dates": ((points,), "i8")}

    def fill(self, job: Job, content: Content, arrays: Arrays) -> int:
        """Reads the dates and turns them into points, each at its shuffled place."""
        samples, rows = content.samples, self.rows(content.samples)
        grid, count = _grid_points(samples), 0
        places = self.places(job, grid)
        held = self._scratch.arrays(content.shapes(length(rows)))
        when = seconds(samples, job.dates)
        where = np.meshgrid(samples.latitude, samples.longitude, indexing="ij")
        for n, date in enumerate(job.dates.tolist()):
            count += content.read(date, held, rows)
            if job.repeated[n]:
                held["weights"][...] = 0
            first = n * grid
            for key, values in held.items():
                flat = values.reshape(-1, grid)
                turn(flat, first, places, arrays[key].reshape(-1, len(flat)))
            mine = places[first : first + grid]
            arrays["dates"][mine] = when[n]
            for key, degrees in zip(("latitude", "longitude"), where, strict=True):
                arrays[key][mine] = degrees.reshape(-1)
        return count

    def places(self, job: Job, grid: int) -> npt.NDArray[np.int64]:
        """The place of each point of each date in the order of the batches."""
        points = len(job.dates) * grid
        if not self.shuffle:
            return np.arange(points)
        return np.random.default_rng([*job.seed, *job.dates.tolist()]).permutation(points)

    def count(self, dates: int, points: int) -> int:
        """Number of batches that the points of these dates give."""
        return -(-dates * points // self.size)

    def batches(self, job: Job, arrays: Arrays, points: int) -> Iterator[Batch]:
        """The points of the dates, `size` at a time."""
        held = len(job.dates) * points
        for first in range(0, held, self.size):
            mine = slice(first, min(first + self.size, held))
            yield cast("Batch", {key: values[mine] for key, values in arrays.items()})


def _grid_points(samples: Samples) -> int:
    return len(samples.latitude) * len(samples.longitude)
