"""Heat that diffuses at another rate in each region, as runs and as batches of field pairs.

u'(y, x) = u + a(y, x) (u_north + u_south + u_west + u_east - 4 u), with u = 0 outside the grid and
the coefficient a that of the point's region (Dryden & Hoefler 2022, arXiv:2211.13491, section 3.1).
One convolution with a 3x3 filter for each region, and the map of the regions, are exact.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import pytorch_lightning as pl
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from ens10.errors import ArgumentError

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]

COEFFICIENTS = (0.0025, 0.025, 0.25)
_BACKGROUND = 0.1  # initial noise is U(0, 0.1)
_SOURCE = 1.0  # a hot point
_MOST_SOURCES = 3  # in each region
_BLOCK = 8  # runs made together, which the processor's cache holds
_MAP_STREAM = 2**32  # so that no set of runs shares the map's random numbers
Split = Literal["train", "val", "test"]
Pair = tuple[Tensor, Tensor]
_STREAMS: dict[Split, int] = {"train": 0, "test": 1, "val": 2}


@dataclass(frozen=True)
class HeatWorld:
    """A hidden map of regions, and runs of heat on it.

    The map is drawn as in the authors' public code, row by row: the more of its drawn neighbours
    have a region, the more probable it is for a point. Initial fields are theirs too: noise
    U(0, 0.1) at every point, and one to three points of 1 in each region.

    Args:
        grid: rows and columns (H, W).
        coefficients: a of each region, from 0 to 1/4, so that no point passes its neighbours.
        seed: of the map and of all runs.

    Raises:
        ArgumentError: coefficients out of range, or a grid that is not two positive numbers.
    """

    grid: tuple[int, int] = (64, 64)
    coefficients: tuple[float, ...] = COEFFICIENTS
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.grid) != 2 or min(self.grid) < 1:
            raise ArgumentError("grid", f"{self.grid} is not two positive numbers")
        if not self.coefficients or not all(0 <= a <= 0.25 for a in self.coefficients):
            raise ArgumentError(
                "coefficients",
                f"{self.coefficients} are not all from 0 to 0.25",
                "Larger ones make the scheme unstable",
            )

    @cached_property
    def regions(self) -> Ints:
        """Region of each point, (H, W), from 0."""
        rng = np.random.default_rng([self.seed, _MAP_STREAM])
        return region_map(self.grid, len(self.coefficients), rng)

    @property
    def rates(self) -> Floats:
        """Coefficient a of each point, (H, W)."""
        rates: Floats = np.asarray(self.coefficients)[self.regions]
        return rates

    def runs(self, count: int, steps: int, stream: int = 0) -> Floats:
        """Compute runs from random initial fields.

        Args:
            count: number of runs.
            steps: of each; the initial field comes before them.
            stream: which set of runs, e.g. 0 to train on and 1 to test on; sets share no numbers.

        Returns:
            (count, steps + 1, H, W) float32, computed in float64.
        """
        rng = np.random.default_rng([self.seed, stream])
        runs = np.empty((count, steps + 1, *self.grid), np.float32)
        for first in range(0, count, _BLOCK):
            block = runs[first : first + _BLOCK]
            fields = np.stack([initial_field(self.regions, rng) for _ in block])
            block[:, 0] = fields
            for step in range(1, steps + 1):
                fields = diffuse(fields, self.rates)
                block[:, step] = fields
        return runs


def diffuse(fields: Floats, rates: Floats | float) -> Floats:
    """Advance fields by one step.

    Args:
        fields: (..., H, W).
        rates: a of each point, (H, W), or one for all.

    Returns:
        The fields after the step.
    """
    change = -4 * fields
    change[..., 1:, :] += fields[..., :-1, :]
    change[..., :-1, :] += fields[..., 1:, :]
    change[..., :, 1:] += fields[..., :, :-1]
    change[..., :, :-1] += fields[..., :, 1:]
    change *= rates
    change += fields
    return change


def initial_field(regions: Ints, rng: np.random.Generator) -> Floats:
    """Draw noise U(0, 0.1) with the same number of hot points in each region, one to three.

    A point may be drawn twice; then it is one hot point.
    """
    field = rng.uniform(0, _BACKGROUND, regions.shape)
    sources = rng.integers(1, _MOST_SOURCES + 1)
    for region in range(int(regions.max()) + 1):
        places = np.argwhere(regions == region)
        if len(places):
            rows, columns = rng.choice(places, sources).T
            field[rows, columns] = _SOURCE
    return field


def region_map(grid: tuple[int, int], count: int, rng: np.random.Generator) -> Ints:
    """Draw a map of loosely connected regions.

    Points are drawn row by row. The probability of each region is 1/count at first. Each of the (at
    most four) neighbours that are drawn already adds a fifth of (1 - 1/count) to that of its own
    region, and takes the same in equal parts from the others.

    Args:
        grid: rows and columns (H, W).
        count: number of regions.
        rng: of the draws.

    Returns:
        (H, W) integers from 0 to count - 1.
    """
    H, W = grid
    gain = (1 - 1 / count) / 5
    loss = gain / max(count - 1, 1)
    regions = np.full((H + 1, W + 2), -1)  # with a margin above and on both sides
    draws = rng.uniform(size=grid)
    for i in range(H):
        for j in range(W):
            before = (*regions[i, j : j + 3], regions[i + 1, j])
            same = np.array([before.count(region) for region in range(count)])
            odds = 1 / count + same * gain - (same.sum() - same) * loss
            region = np.searchsorted(odds.cumsum(), draws[i, j], side="right")
            regions[i + 1, j + 1] = min(region, count - 1)
    return regions[1:, 1:-1].astype(np.int64)


class Pairs(IterableDataset[Pair]):
    """All pairs of successive fields of some runs, in batches.

    Args:
        runs: (R, S + 1, H, W) float32.
        batch_size: pairs in a batch.
        seed: of the order, which changes from epoch to epoch; None keeps that of the runs.

    Raises:
        ArgumentError: no pairs, or a batch size that is not positive.
    """

    def __init__(self, runs: Floats, batch_size: int, seed: int | None = None) -> None:
        super().__init__()
        self.runs, self.batch_size = runs, batch_size
        self.steps = int(runs.shape[1]) - 1
        self.count: int = len(runs) * self.steps
        if batch_size < 1:
            raise ArgumentError("batch_size", f"{batch_size} is not positive")
        if self.count < 1:
            raise ArgumentError("runs", f"{len(runs)} runs of {self.steps} steps have no pairs")
        self._order = None if seed is None else np.random.default_rng(seed)

    def __iter__(self) -> Iterator[Pair]:
        """Yield fields (N, 1, H, W) and those one step later; the last batch may be smaller."""
        order = np.arange(self.count)
        if self._order is not None:
            self._order.shuffle(order)
        for first in range(0, self.count, self.batch_size):
            run, step = np.divmod(order[first : first + self.batch_size], self.steps)
            yield tuple(  # type: ignore[misc]
                torch.from_numpy(self.runs[run, at][:, None]) for at in (step, step + 1)
            )


class HeatData(pl.LightningDataModule):
    """Batches from runs of a `HeatWorld`, computed from the seed; nothing is written.

    Args:
        grid: rows and columns (H, W).
        coefficients: of the regions.
        runs: for training.
        held_out: runs for validation, and as many for the test.
        steps: of each run.
        batch_size: pairs in a batch.
        seed: of the map, the runs and the order of the pairs.

    Raises:
        ArgumentError: no runs, or what `HeatWorld` refuses.
    """

    def __init__(
        self,
        grid: Sequence[int] = (64, 64),
        coefficients: Sequence[float] = COEFFICIENTS,
        runs: int = 1000,
        held_out: int = 20,
        steps: int = 100,
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if min(runs, held_out, steps) < 1:
            raise ArgumentError("runs", f"{runs} and {held_out} of {steps} steps: none may be 0")
        self.world = HeatWorld(tuple(grid), tuple(coefficients), seed)  # type: ignore[arg-type]
        self.counts: dict[Split, int] = {"train": runs, "val": held_out, "test": held_out}
        self.steps, self.batch_size = steps, batch_size
        self._runs_by_split: dict[Split, Floats] = {}

    def pairs(self, split: Split) -> Pairs:
        """Return the pairs of a split, shuffled for training."""
        if split not in self._runs_by_split:
            self._runs_by_split[split] = _runs(self.world, self.counts[split], self.steps, split)
        order = self.world.seed if split == "train" else None
        return Pairs(self._runs_by_split[split], self.batch_size, order)

    def train_dataloader(self) -> DataLoader[Pair]:
        """Return the training pairs."""
        return DataLoader(self.pairs("train"), batch_size=None)

    def held_out(self, split: Split = "test") -> DataLoader[Pair]:
        """Return the validation or test pairs, in the order of the runs."""
        return DataLoader(self.pairs(split), batch_size=None)


@lru_cache(maxsize=2)
def _runs(world: HeatWorld, count: int, steps: int, split: Split) -> Floats:
    """Return the runs of a split, cached for the next configuration with the same seed."""
    return world.runs(count, steps, _STREAMS[split])
