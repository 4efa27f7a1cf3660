"""Patches of the grid, cut at random places that depend on seed, epoch and date alone."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError
from ens10.grid import is_global
from ens10.loader.content import Arrays, Content
from ens10.loader.kinds import Job, Kind, Scratch, Specification, seconds, specification
from ens10.loader.samples import Samples


@dataclass(frozen=True)
class Patches(Kind):
    """Patches of `size` points: arrays (N * number, C, h, w), with the place of each patch.

    Columns go on past the last meridian where the grid goes round the Earth. Only the rows of a
    patch are read.

    Attributes:
        size: rows and columns.
        number: patches of each date, one after the other in the batch.
    """

    size: tuple[int, int] = (128, 128)
    number: int = 1
    _scratch: Scratch = field(default_factory=Scratch, init=False, repr=False, compare=False)

    @property
    def per_date(self) -> int:
        """Elements of a batch that one date gives."""
        return self.number

    def rows(self, samples: Samples) -> slice:
        """All rows, if a patch fits into them."""
        height, width = len(samples.latitude), len(samples.longitude)
        fits = 1 <= self.size[0] <= height and 1 <= self.size[1] <= width
        if not fits or self.number < 1:
            raise ArgumentError(
                "kind",
                f"{self.number} patches of {self.size[0]} x {self.size[1]} points cannot be cut "
                f"from {height} x {width}",
                "Give a smaller size, and at least one patch",
            )
        return slice(0, height)

    def arrays(self, content: Content, dates: int) -> Specification:
        """Shape and type of each array, with `rows` and `columns` of each patch's corner."""
        height, width = self.size
        shapes = {key: (*s[:-1], width) for key, s in content.shapes(height).items()}
        count = dates * self.number
        corners: Specification = dict.fromkeys(("rows", "columns"), ((count,), "i8"))
        return specification(shapes, count) | corners

    def fill(self, job: Job, content: Content, arrays: Arrays) -> int:
        """Cuts the patches of each date."""
        count, place = 0, 0
        held = self._scratch.arrays(content.shapes(self.size[0]))
        for date, repeated in zip(job.dates.tolist(), job.repeated.tolist(), strict=True):
            for row, column in self.corners(content.samples, date, job.seed):
                count += content.read(date, held, slice(row, row + self.size[0]))
                for key, values in held.items():
                    _cut(values, column, arrays[key][place])
                if repeated:
                    arrays["weights"][place] = 0
                arrays["rows"][place], arrays["columns"][place] = row, column
                place += 1
        arrays["dates"][:place] = np.repeat(seconds(content.samples, job.dates), self.number)
        return count

    def corners(self, samples: Samples, date: int, seed: tuple[int, int]) -> list[tuple[int, int]]:
        """First row and column of each patch of a date."""
        height, width = len(samples.latitude), len(samples.longitude)
        rng = np.random.default_rng([*seed, date])
        around = width if is_global(samples.longitude) else width - self.size[1] + 1
        rows = rng.integers(0, height - self.size[0] + 1, self.number).tolist()
        return list(zip(rows, rng.integers(0, around, self.number).tolist(), strict=True))


def _cut(values: npt.NDArray[Any], column: int, out: npt.NDArray[Any]) -> None:
    """Columns from `column` on, going round where they reach the last."""
    width = out.shape[-1]
    first = min(width, values.shape[-1] - column)
    out[..., :first] = values[..., column : column + first]
    out[..., first:] = values[..., : width - first]
