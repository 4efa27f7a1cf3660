"""Isotonic distributional regression on the ensemble mean, at each grid point."""

from typing import Literal, get_args

import numba
import numpy as np
import torch
from torch import Tensor

from ens10.compiled import OPTIONS
from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Quantiles
from ens10.models.statistical.base import SpooledMethod, require_same_grid
from ens10.models.statistical.newton import Floats
from ens10.models.statistical.pareto_tails import (
    PROBABILITY,
    SHARES,
    common_shape,
    excess_quantiles,
    mean_and_shape,
)
from ens10.models.statistical.spool import Spool, map_blocks

RESULT_VERSION = 2  # raise it when results change
Tails = Literal["none", "upper", "both"]
_SIDES = {"none": (), "upper": (1,), "both": (-1, 1)}


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
def falling_fit(
    values: Floats, weights: Floats, out: Floats, mean: Floats, mass: Floats, size: Floats
) -> None:
    """Write to `out` the non-increasing sequence nearest to `values` (weighted least squares).

    Args:
        values: (N,).
        weights: (N,), above 0.
        out: (N,), written.
        mean: (N,) work space: mean of each block of equal fitted values.
        mass: (N,) work space: its weight.
        size: (N,) work space: its length.
    """
    blocks = 0
    for i in range(len(values)):
        mean[blocks], mass[blocks], size[blocks] = values[i], weights[i], 1.0
        blocks += 1
        while blocks > 1 and mean[blocks - 2] <= mean[blocks - 1]:
            total = mass[blocks - 2] + mass[blocks - 1]
            moment = mean[blocks - 2] * mass[blocks - 2] + mean[blocks - 1] * mass[blocks - 1]
            mean[blocks - 2] = moment / total
            mass[blocks - 2] = total
            size[blocks - 2] += size[blocks - 1]
            blocks -= 1
    place = 0
    for b in range(blocks):
        for _ in range(int(size[b])):
            out[place] = mean[b]
            place += 1


@numba.njit(**OPTIONS)  # type: ignore[untyped-decorator]
def step_functions(x: Floats, y: Floats, thresholds: Floats, nodes: Floats) -> Floats:
    """Fit isotonic distributional regression of y on x: return P(Y <= t) at nodes, (T, G).

    Args:
        x: (N,), in ascending order; equal values form one group.
        y: (N,).
        thresholds: (T,).
        nodes: (G,) values of x; between those of the data it is linear, beyond them constant.
    """
    count = len(x)
    distinct_x, start = np.empty(count), np.empty(count + 1, np.int64)
    groups = 0
    for i in range(count):
        if i == 0 or x[i] > x[i - 1]:
            distinct_x[groups], start[groups] = x[i], i
            groups += 1
    start[groups] = count
    distinct_x = distinct_x[:groups]
    weights = (start[1 : groups + 1] - start[:groups]).astype(np.float64)
    values, fit = np.empty(groups), np.empty(groups)
    mean, mass, size = np.empty(groups), np.empty(groups), np.empty(groups)
    probabilities = np.empty((len(thresholds), len(nodes)))
    for j in range(len(thresholds)):
        for k in range(groups):
            below = 0
            for i in range(start[k], start[k + 1]):
                below += y[i] <= thresholds[j]
            values[k] = below / weights[k]
        falling_fit(values, weights, fit, mean, mass, size)
        probabilities[j] = np.interp(nodes, distinct_x, fit)
    return probabilities


def node_values(x: Floats, count: int) -> Floats:
    """Return the values of x at which the distributions are stored, ascending, (count,).

    Distinct values, the last one repeated, if there are at most `count`. Otherwise the nodes
    divide the data evenly in rank and value, each with half of the weight: quantiles alone leave
    most of the range of rain to the last few nodes, equal steps alone leave the dry dates to the
    first.

    Args:
        x: (N,), in ascending order.
        count: number of nodes.
    """
    distinct = np.unique(x)
    if len(distinct) <= count:
        return np.pad(distinct, (0, count - len(distinct)), mode="edge")
    position = np.linspace(0, 1, len(x)) + (x - x[0]) / (x[-1] - x[0])
    nodes: Floats = np.interp(np.linspace(0, position[-1], count), position, x)
    return nodes


class IsotonicRegression(SpooledMethod):
    """The distribution of the truth given the ensemble mean m, constrained only to increase with m.

    Henzi, Ziegel and Gneiting (2021), doi:10.1111/rssb.12450; EasyUQ (Walz et al. 2024) where the
    forecast is a single number, as here. At each threshold the probability of a truth below it is
    the least-squares fit that does not increase with m; this minimises the CRPS among all
    distributions that increase stochastically with m. Thresholds are independent, so that the
    probabilities at those used are exact. The stored result is the quantiles at `levels` levels (k
    - 1/2) / K and at nodes, values of m (see `node_values`); they are linear in m between nodes
    and constant beyond them, and linear between the levels. With the default number of nodes
    the CRPS is within 0.5 % of that of the exact regression at two stations
    (`benchmarks/isotonic.py`). At points with few dates fewer nodes are better: they smooth a fit
    that is too free.

    A regression knows no value beyond those of its training. With `tails` the outermost tenth has a
    generalised Pareto distribution above the quantile at 0.9 (below that at 0.1), see
    `pareto_tails`: its mean excess is that of each point, its shape the median of all points. The
    levels are then those of `levels` inside, and up to 0.9999 in the tail.

    The raw spread and the season are not used. A point without valid dates has a NaN forecast.

    Training batches are kept in a temporary file, 8 bytes for each date and point; main memory
    holds a few blocks of points. The result has 4 G (K + 1) bytes for each point.

    Args:
        levels: number K of quantiles.
        nodes: number G of values of the mean.
        thresholds: maximum number of thresholds at each point, quantiles of its truth.
        tails: which tails have a Pareto distribution: "none", "upper" or "both".

    Raises:
        ArgumentError: fewer than one level or threshold, or than two nodes.
        UnknownNameError: other tails.
    """

    may_be_nan = ("node_means", "quantiles")

    def __init__(
        self, levels: int = 20, nodes: int = 64, thresholds: int = 400, tails: Tails = "none"
    ) -> None:
        super().__init__()
        if tails not in get_args(Tails):
            raise UnknownNameError("tails", tails, get_args(Tails))
        for name, value, least in (
            ("levels", levels, 1),
            ("nodes", nodes, 2),
            ("thresholds", thresholds, 1),
        ):
            if value < least:
                raise ArgumentError(name, f"{value} is less than {least}")
        self.levels, self.nodes, self.thresholds = levels, nodes, thresholds
        self.node_means: Tensor
        self.quantiles: Tensor
        self.register_buffer("node_means", torch.zeros(nodes, 0, 0))
        self.tails, self._sides = tails, _SIDES[tails]
        self.register_buffer("quantiles", torch.zeros(len(self._fitted_levels), nodes, 0, 0))
        if tails != "none":
            self.mean_excess: Tensor
            self.tail_shapes: Tensor
            self.register_buffer("mean_excess", torch.zeros(len(self._sides), 0, 0))
            self.register_buffer("tail_shapes", torch.zeros(len(self._sides)))

    @property
    def fitted_parameters(self) -> int:
        """Quantiles at all nodes and points."""
        return self.quantiles.numel()

    def _fields(self, batch: Batch) -> list[Tensor]:
        return [batch["raw_mean"], batch["target"]]

    def _fit(self, spool: Spool) -> dict[str, Tensor]:
        # 5.4 kB for each point: blocks write them where they stay, in float32
        parts = {
            "node_means": torch.empty(self.nodes, spool.area.size),
            "quantiles": torch.empty(self.quantiles.shape[0] * self.nodes, spool.area.size),
            "tails": torch.empty(2 * len(self._sides), spool.area.size),
        }

        def of_block(points: slice) -> None:
            data = spool.read(points).swapaxes(0, 1)
            columns = torch.from_numpy(np.stack([self._fit_point(*pair) for pair in data], 1))
            sizes = [len(part) for part in parts.values()]
            for part, rows in zip(parts.values(), torch.split(columns, sizes), strict=True):
                part[:, points] = rows

        map_blocks(of_block, spool.blocks())
        node_means = parts["node_means"].reshape(-1, *spool.area.shape)
        fitted = {
            "node_means": node_means,
            "quantiles": parts["quantiles"].reshape(-1, *node_means.shape),
        }
        if self._sides:
            means, shapes = parts["tails"].reshape(2, -1, *spool.area.shape)
            fitted["mean_excess"] = means.nan_to_num(0)  # of a point whose truth never exceeds
            common = [common_shape(shape.numpy().astype(np.float64)) for shape in shapes]
            fitted["tail_shapes"] = torch.tensor(common)
        return fitted

    def forward(self, batch: Batch) -> Quantiles:
        """Return the quantiles, (N, K, H, W)."""
        self._require_solved()
        require_same_grid(self, self.node_means, batch)
        mean = batch["raw_mean"]
        nodes = self.node_means
        # the last node at or below the mean, such that there is another above
        inner = nodes[1:-1].unsqueeze(0) <= mean.unsqueeze(1)
        place = inner.sum(1, keepdim=True)
        low, high = (nodes.expand(len(mean), -1, -1, -1).gather(1, place + i) for i in (0, 1))
        gap = high - low
        share = ((mean.unsqueeze(1) - low) / torch.where(gap > 0, gap, 1)).clamp(0, 1)
        below, above = (self._quantiles_at(place + i) for i in (0, 1))
        values = below + share * (above - below)
        levels = self._fitted_levels
        for side, mean_excess, shape in self._tails:
            excess = excess_quantiles(mean_excess, shape)
            beyond = [1 - PROBABILITY * s for s in SHARES]
            if side > 0:
                values, levels = torch.cat([values, values[:, -1:] + excess], 1), [*levels, *beyond]
            else:
                values = torch.cat([values[:, :1] - excess.flip(0), values], 1)
                levels = [*(1 - p for p in reversed(beyond)), *levels]
        return Quantiles(values, levels)

    @property
    def _tails(self) -> list[tuple[int, Tensor, Tensor]]:
        """The sides with a Pareto distribution, with its mean excess and shape."""
        if not self._sides:
            return []
        return list(zip(self._sides, self.mean_excess, self.tail_shapes, strict=True))

    @property
    def _fitted_levels(self) -> list[float]:
        """Levels of the regression; with tails those between, and the one where a tail begins."""
        levels = [(k + 0.5) / self.levels for k in range(self.levels)]
        for side in self._sides:
            edge = 1 - PROBABILITY if side > 0 else PROBABILITY
            levels = [p for p in levels if side * (edge - p) > 1e-9]
            levels = sorted([*levels, edge])
        return levels

    def _quantiles_at(self, place: Tensor) -> Tensor:
        """Return the quantiles (N, K, H, W) at the nodes of index `place` (N, 1, H, W)."""
        wide = self.quantiles.unsqueeze(0).expand(len(place), -1, -1, -1, -1)
        index = place.unsqueeze(1).expand(-1, len(self.quantiles), -1, -1, -1)
        return wide.gather(2, index).squeeze(2)

    def _fit_point(self, mean: Floats, truth: Floats) -> Floats:
        """Fit one point: return G nodes, K G quantiles, and mean excess and shape of S tails."""
        valid = np.isfinite(mean) & np.isfinite(truth)
        if not valid.any():
            sizes = self.nodes * (1 + len(self.quantiles)) + 2 * len(self._sides)
            return np.full(sizes, np.nan)
        order = np.argsort(mean[valid], kind="stable")
        x, y = mean[valid][order], truth[valid][order]
        nodes = node_values(x, self.nodes)
        thresholds = np.unique(y)
        if len(thresholds) > self.thresholds:
            places = np.linspace(0, len(thresholds) - 1, self.thresholds).round().astype(int)
            thresholds = thresholds[places]
        probability = step_functions(x, y, thresholds, nodes)
        levels = np.array(self._fitted_levels)
        # the small number: a probability of 0.05 may come out just below it
        reaches_level = probability[None] >= levels[:, None, None] - 1e-9
        quantiles = thresholds[reaches_level.argmax(1)]
        tails = []
        for side in self._sides:
            edge = np.interp(x, nodes, quantiles[-1 if side > 0 else 0])
            distance = side * (y - edge)
            tails.append(mean_and_shape(distance[distance > 0]))
        found = np.reshape(tails, (-1, 2)).T.reshape(-1)
        return np.concatenate([nodes, quantiles.reshape(-1), found])
