"""Temporary file of training batches, written by date and read by blocks of grid points."""

import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ens10.errors import ArgumentError

Floats = npt.NDArray[np.float64]
Points = slice | npt.NDArray[np.int64]
Part = TypeVar("Part")
Result = TypeVar("Result")
_ONE_THREAD = ("synchronous", "sync", "single-threaded")
_SAMPLES = 1 << 17  # samples of a block: some 40 temporaries of 1 MB


class Spool:
    """Fields of the training dates in an unnamed temporary file.

    Main memory holds one batch while it is written and a few blocks of grid points while they are
    fitted; the file takes 4 bytes for each field, date and point, in the folder of temporary files
    (environment variable TMPDIR), and is deleted with the object.

    The file is an array (dates, fields, H W) of float32, with dates in the order of `append`.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the object)
        weakref.finalize(self, self._file.close)
        self._dates: list[npt.NDArray[np.int64]] = []
        self._area: Floats | None = None
        self._shape: tuple[int, ...] = ()

    @property
    def area(self) -> Floats:
        """Largest weight that each point had, (H, W)."""
        if self._area is None:
            raise ArgumentError("spool", "no batch was added")
        return self._area

    @property
    def fields(self) -> int:
        """Number of fields of a date."""
        return self._shape[0]

    @property
    def dates(self) -> npt.NDArray[np.int64]:
        """Valid dates in seconds, in the order of time, (N,)."""
        return np.sort(np.concatenate(self._dates), kind="stable")

    def append(self, fields: Sequence[Tensor], weights: Tensor, dates: Tensor) -> None:
        """Write fields of N dates, (N, H, W) or (N, M, H, W) each; NaN where the weight is 0.

        Raises:
            ArgumentError: the number of fields or the grid differs from those of earlier batches.
        """
        valid = weights.detach().cpu().numpy() > 0
        stacked = [
            f.detach().cpu().numpy().reshape(len(valid), -1, *valid.shape[1:]) for f in fields
        ]
        records = np.where(valid[:, None], np.concatenate(stacked, 1), np.nan)
        records = np.ascontiguousarray(records, np.float32)
        if self._shape and records.shape[1:] != self._shape:
            raise ArgumentError(
                "batch",
                f"has fields of shape {records.shape[1:]}, those before {self._shape}",
                "Fit with one number of members on one grid",
            )
        self._shape = records.shape[1:]
        self._file.write(records.data)
        self._dates.append(dates.detach().cpu().numpy().astype(np.int64).copy())
        area = weights.detach().cpu().double().numpy().max(0)
        self._area = area if self._area is None else np.maximum(self._area, area)

    def read(self, points: Points) -> Floats:
        """Read fields at points, (F, P, N), with dates in order of time.

        Args:
            points: their numbers in the grid, row by row; ascending.
        """
        self._file.flush()
        dates = np.concatenate(self._dates)
        count, size = len(dates) * self._shape[0], int(np.prod(self._shape[1:]))
        indices = np.arange(*points.indices(size)) if isinstance(points, slice) else points
        first, last = (int(indices[0]), int(indices[-1])) if len(indices) else (0, 0)
        values, span = np.empty((count, len(indices)), np.float32), np.empty(last - first + 1, "f4")
        # At offsets, as threads share the file and its position. Not mapped: reading a few bytes
        # of each date would map 64 kB of the file.
        for n, of_field in enumerate(values):
            if os.preadv(self._file.fileno(), [span.data], 4 * (n * size + first)) < span.nbytes:
                raise OSError("the temporary file of the fit has lost data")
            of_field[:] = span if len(span) == len(indices) else span[indices - first]
        order = np.argsort(dates, kind="stable")
        fields = values.reshape(len(dates), -1, len(indices))[order]
        return np.ascontiguousarray(fields.transpose(1, 2, 0).astype(np.float64))

    def blocks(self, per_date: int = 1) -> list[slice]:
        """Return slices of points that fill a block; `per_date` values count as one date."""
        width = max(1, _SAMPLES // (len(self.dates) * per_date))
        return [slice(i, i + width) for i in range(0, self.area.size, width)]

    def maps(self, fit: Callable[[slice], Floats], per_date: int = 1) -> Floats:
        """Fit all points, and return their coefficients as maps (C, H, W).

        Args:
            fit: function of some points that returns a row of coefficients for each, (P, C).
            per_date: values that count as one date.
        """
        rows = np.concatenate(map_blocks(fit, self.blocks(per_date)))
        return np.ascontiguousarray(rows.T).reshape(-1, *self.area.shape)

    def some_points(self, most: int) -> npt.NDArray[np.int64]:
        """Return at most `most` of the points that have a weight, drawn with a fixed seed."""
        weighted_points = np.flatnonzero(self.area > 0)
        if len(weighted_points) <= most:
            return weighted_points
        return np.sort(np.random.default_rng(0).choice(weighted_points, most, replace=False))


def map_blocks(function: Callable[[Part], Result], blocks: Sequence[Part]) -> list[Result]:
    """Apply `function` to each block, in dask's threads.

    `dask.config.set(scheduler="synchronous")` makes it one thread, `num_workers` that many.
    Multi-process schedulers, which cannot read the temporary file, are ignored.
    """
    if len(blocks) == 1:  # also within a thread of dask: a second pool would wait for the first
        return [function(blocks[0])]
    from dask import config as dask_config  # here: networks and heads load without dask
    from dask.base import compute
    from dask.delayed import delayed

    dask_scheduler = dask_config.get("scheduler", None)
    scheduler = dask_scheduler if dask_scheduler in _ONE_THREAD else "threads"
    jobs = [delayed(function)(block) for block in blocks]
    return list(compute(*jobs, scheduler=scheduler))  # type: ignore[no-untyped-call]


def _changed(change: Callable[[Part], Result], maker: Callable[[], Part]) -> Result:
    return change(maker())


class Blocks(Generic[Part]):
    """Blocks of samples, which are computed whenever they are used; a single one is computed once.

    Memory holds as many blocks as dask has threads.

    Args:
        makers: functions that return the blocks.
    """

    def __init__(self, makers: Sequence[Callable[[], Part]]) -> None:
        self.makers = list(makers)
        if len(self.makers) == 1:
            block = self.makers[0]()
            self.makers = [lambda: block]

    def map(self, change: Callable[[Part], Result]) -> "Blocks[Result]":
        """Apply a function to each block, lazily."""
        return Blocks([partial(_changed, change, maker) for maker in self.makers])

    def apply(self, function: Callable[[Part], Result]) -> list[Result]:
        """Return a function of each block."""
        return map_blocks(lambda maker: function(maker()), self.makers)

    def sum(self, function: Callable[[Part], Floats]) -> Floats:
        """Sum a function of the blocks, in their order."""
        return np.asarray(np.sum(self.apply(function), axis=0))
