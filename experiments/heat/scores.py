"""Scores of the heat experiment: points within 1 %, mean squared error, agreement of two maps."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment  # type: ignore[attr-defined]
from torch import Tensor

from ens10.errors import ArgumentError

Ints = NDArray[np.int64]
RELATIVE, ABSOLUTE = 0.01, 1e-8


def close(forecast: Tensor, truth: Tensor) -> Tensor:
    """Which points are within 1 %: |y - t| <= 1e-8 + 0.01 |t|, as in the authors' public code.

    The first term is for a truth of 0. No point of a run reaches it: all initial temperatures are
    positive, and a step makes positive mixtures of positive temperatures.
    """
    return (forecast - truth).abs() <= ABSOLUTE + RELATIVE * truth.abs()


@dataclass
class Sums:
    """Sums over samples, kept for each point, from which the scores are finished.

    Attributes:
        within: (H, W) number of samples within 1 %.
        squares: (H, W) sum of squared errors.
        samples: number of samples.
    """

    within: Tensor = field(default_factory=lambda: torch.zeros(()))
    squares: Tensor = field(default_factory=lambda: torch.zeros(()))
    samples: int = 0

    def add(self, forecast: Tensor, truth: Tensor) -> None:
        """Adds a batch, (N, 1, H, W) each."""
        self.within = self.within + close(forecast, truth).sum((0, 1))
        self.squares = self.squares + (forecast - truth).double().square().sum((0, 1))
        self.samples += len(truth)

    def finish(self, regions: Ints) -> dict[str, float | list[float]]:
        """`within`, `within_by_region` (shares) and `mse`.

        Args:
            regions: (H, W) from 0.
        """
        within = (self.within.double() / self.samples).numpy()
        parts = [regions == region for region in range(int(regions.max()) + 1)]
        return {
            "within": float(within.mean()),
            "within_by_region": [float(within[part].mean()) for part in parts if part.any()],
            "mse": float(self.squares.mean() / self.samples),
        }


def matched(found: Ints, regions: Ints) -> tuple[Ints, float]:
    """The found map in the true one's numbers, and the share of points where they agree.

    Experts have no names: each gets the region that makes the agreement largest over all
    one-to-one assignments (Kuhn-Munkres).

    Args:
        found: (H, W) experts from 0.
        regions: (H, W) true regions from 0.

    Returns:
        (H, W) regions, or larger numbers for experts without one; and the agreement.

    Raises:
        ArgumentError: different shapes.
    """
    if found.shape != regions.shape:
        raise ArgumentError("found", f"shape {found.shape}, the true map has {regions.shape}")
    size = int(max(found.max(), regions.max())) + 1
    counts = np.zeros((size, size), int)
    np.add.at(counts, (found.ravel(), regions.ravel()), 1)
    experts, names = linear_sum_assignment(counts, maximize=True)
    renamed: Ints = names[np.argsort(experts)][found].astype(np.int64)
    return renamed, float((renamed == regions).mean())
