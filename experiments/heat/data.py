"""Batches of the heat experiment: the temperature now and one step later."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from ens10.errors import ArgumentError
from ens10.experiments.heat.diffusion import COEFFICIENTS, Floats, HeatWorld

Split = Literal["train", "val", "test"]
Pair = tuple[Tensor, Tensor]
_STREAMS: dict[Split, int] = {"train": 0, "test": 1, "val": 2}


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
        """Fields (N, 1, H, W) and those one step later; the last batch may be smaller."""
        order = np.arange(self.count)
        if self._order is not None:
            self._order.shuffle(order)
        for first in range(0, self.count, self.batch_size):
            run, step = np.divmod(order[first : first + self.batch_size], self.steps)
            yield tuple(  # type: ignore[misc]
                torch.from_numpy(self.runs[run, at][:, None]) for at in (step, step + 1)
            )


class HeatData(pl.LightningDataModule):
    """Runs of a `HeatWorld`, made anew from the seed; nothing is written.

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
        self._made: dict[Split, Floats] = {}

    def pairs(self, split: Split) -> Pairs:
        """The pairs of a split, shuffled for training."""
        if split not in self._made:
            self._made[split] = _runs(self.world, self.counts[split], self.steps, split)
        order = self.world.seed if split == "train" else None
        return Pairs(self._made[split], self.batch_size, order)

    def train_dataloader(self) -> DataLoader[Pair]:
        """The training pairs."""
        return DataLoader(self.pairs("train"), batch_size=None)

    def held_out(self, split: Split = "test") -> DataLoader[Pair]:
        """The validation or test pairs, in the order of the runs."""
        return DataLoader(self.pairs(split), batch_size=None)


@lru_cache(maxsize=2)
def _runs(world: HeatWorld, count: int, steps: int, split: Split) -> Floats:
    """The runs of a split, kept for the next configuration with the same seed."""
    return world.runs(count, steps, _STREAMS[split])
