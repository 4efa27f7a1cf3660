"""A learned embedding of the grid points: channels with a parameter at every point."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.grid import area_weights
from ens10.models.domain import current
from ens10.models.layers.location_convolutions import checked_grid

_MAX_SECANT = 10.0  # bound of 1 / cos(latitude), which is infinite at the poles


class PointEmbedding(nn.Module):
    """Learned channels that distinguish grid points, with a penalty on size and roughness.

    The map is z = gain * (p_0 + p_1 + ...), where p_0 has a value at each point and p_n one at each
    2^n-th row and column, interpolated between them. All are learned: the coarse ones let whole
    regions change at the speed of a single parameter. `penalty` depends on their sum only,

        ridge * mean(z^2) + smoothness * mean(|grad z|^2),

    means over the area of the sphere, summed over channels, gradient in radians: values do not
    depend on the resolution. Rows are assumed to be evenly spaced from pole to pole and columns
    around the globe, so that the gradient accounts for the distance of the points (at least a tenth
    of that at the equator).

    Args:
        grid: rows and columns (H, W).
        channels: number of channels of the map.
        ridge: weight of the mean square, in units of the loss.
        smoothness: weight of the mean squared gradient, in units of the loss.
        start: standard deviation of the starting values; 0 starts with a map of zeros.
        levels: number of terms of the sum, 1 for p_0 alone.
        gain: factor of the sum, which scales its speed of learning relative to other parameters.
        periodic_longitude: True if the first and last column are neighbours.

    Raises:
        ArgumentError: a negative strength, channels or levels below 1, a grid that is not two
            positive numbers, or more levels than it has.
    """

    splittable = True
    area: Tensor
    steps: Tensor

    def __init__(
        self,
        grid: Sequence[int],
        channels: int,
        ridge: float = 1e-4,
        smoothness: float = 1e-4,
        *,
        start: float = 0.1,
        levels: int = 1,
        gain: float = 1.0,
        periodic_longitude: bool = True,
    ) -> None:
        super().__init__()
        self.grid = checked_grid(grid)
        _check(self.grid, channels, ridge, smoothness, levels)
        self.channels, self.ridge, self.smoothness = channels, ridge, smoothness
        self.gain, self.periodic_longitude = gain, periodic_longitude
        sizes = [[-(-n // 2**level) for n in self.grid] for level in range(levels)]
        self.maps = nn.ParameterList(nn.Parameter(torch.zeros(channels, *size)) for size in sizes)
        for level, size in enumerate(sizes[1:], 1):
            for kind, fine, coarse, periodic in zip(
                ("rows", "columns"), self.grid, size, (False, periodic_longitude), strict=True
            ):
                matrix = _interpolation_matrix(fine, coarse, periodic).to(self.maps[0].dtype)
                self.register_buffer(f"{kind}_{level}", matrix, persistent=False)
        nn.init.normal_(self.maps[-1], std=start / gain)  # the coarsest: the start is smooth too
        rows, columns = self.grid
        latitude = np.linspace(90, -90, rows) if rows > 1 else np.zeros(1)
        area = torch.from_numpy(area_weights(latitude))[:, None] / columns
        slope = 1 / torch.from_numpy(np.cos(np.deg2rad(latitude))).clamp(min=1 / _MAX_SECANT)
        steps = torch.stack([slope * columns / (2 * math.pi), torch.full_like(slope, rows - 1)])
        steps[1] /= math.pi
        self.register_buffer("area", (area / (area.sum() * columns)).float(), persistent=False)
        self.register_buffer("steps", steps[..., None].float(), persistent=False)

    def forward(self) -> Tensor:
        """Return the learned map, (channels, H, W)."""
        total: Tensor = self.maps[0]
        for level, coarse in enumerate(list(self.maps)[1:], 1):
            rows, columns = self.get_buffer(f"rows_{level}"), self.get_buffer(f"columns_{level}")
            total = total + rows @ coarse @ columns.T
        scaled: Tensor = self.gain * total
        return scaled

    def penalty(self) -> Tensor:
        """Return ridge and smoothness penalty of the map, a scalar in units of the loss."""
        z = self()
        ridge = (self.area * z.square()).sum()
        last = z[..., :1] if self.periodic_longitude else z[..., -1:]
        east = (torch.cat([z[..., 1:], last], -1) - z) * self.steps[0]
        south = (z[:, 1:] - z[:, :-1]) * self.steps[1, 1:]
        between = (self.area[1:] + self.area[:-1]) / 2
        slopes = (self.area * east.square()).sum() + (between * south.square()).sum()
        total: Tensor = self.ridge * ridge + self.smoothness * slopes
        return total


def require_grid(features: Tensor, grid: tuple[int, int], layer: str) -> None:
    """Refuse features on another grid than that of the learned maps.

    Raises:
        ArgumentError: another grid; the message names both.
    """
    shape = current().map_shape(features)
    if shape != grid:
        raise ArgumentError(
            "grid",
            f"the data have {shape[0]} x {shape[1]} points (rows, columns), but {layer} learns "
            f"maps of {grid[0]} x {grid[1]}",
            "Set the network's grid to that of the data",
        )


def _check(
    grid: tuple[int, int], channels: int, ridge: float, smoothness: float, levels: int
) -> None:
    """Refuse arguments of `PointEmbedding` outside their range."""
    if channels < 1:
        raise ArgumentError("channels", f"{channels} is less than 1")
    for name, value in (("ridge", ridge), ("smoothness", smoothness)):
        if not value >= 0:
            raise ArgumentError(name, f"{value} is not 0 or more")
    if levels < 1 or 2 ** (levels - 1) > min(grid):
        raise ArgumentError(
            "levels", f"{levels} levels do not fit {grid[0]} x {grid[1]} points", "Choose fewer"
        )


def _interpolation_matrix(fine: int, coarse: int, periodic: bool) -> Tensor:
    """Return the matrix (fine, coarse) of linear interpolation between the centres of equal cells.

    Args:
        fine: number of cells of the result.
        coarse: number of cells from which it is interpolated.
        periodic: True if the first and last cell are neighbours.
    """
    if coarse == 1:  # its only neighbour around the globe is itself
        return torch.ones(fine, 1)
    place = (torch.arange(fine, dtype=torch.float32) + 0.5) * coarse / fine - 0.5
    if not periodic:
        place = place.clamp(0, coarse - 1)
    distance = (place[:, None] - torch.arange(coarse)).abs()
    if periodic:
        distance = torch.minimum(distance, coarse - distance)
    return (1 - distance).clamp(min=0)
