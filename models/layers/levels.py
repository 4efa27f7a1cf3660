"""Levels of a U-Net: halving the grid, upsampling, and concatenation with skip connections."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.models.domain import Edges, Sides, current
from ens10.models.layers.padding import upsample_twice

Grid = tuple[int, int]
Block = Callable[[Tensor], Tensor]


def through_levels(
    fields: Tensor,
    down: Sequence[Block],
    up: Sequence[Block],
    pool: Block,
    *,
    periodic_longitude: bool = False,
) -> Tensor:
    """Apply a U-Net's blocks: down through the levels, and up again with skip connections.

    Args:
        fields: (..., C, H, W).
        down: one block for each level, from the full grid to the coarsest.
        up: one block for each level but the coarsest, in the same order; its input is the map of
            the level from the way down, concatenated with the upsampled map of the level below.
        pool: function that halves rows and columns, and drops the last one of an odd number.
        periodic_longitude: True if first and last column are neighbours.

    Returns:
        Output of the block `up[0]`, on the full grid.
    """
    maps: list[Tensor] = []
    for block in down:
        fields = block(pool(fields) if maps else fields)
        maps.append(fields)
    for block, skip in zip(reversed(up), reversed(maps[:-1]), strict=True):
        fields = block(join_level(skip, fields, periodic_longitude=periodic_longitude))
    return fields


def join_level(skip: Tensor, coarse: Tensor, *, periodic_longitude: bool = False) -> Tensor:
    """Concatenate the map `skip` of a level with the upsampled map `coarse` of the level below.

    Pooling dropped the last row of an odd number: the upsampled map gets a copy of its first row on
    top (the rule of the ENS-10 paper, whose grid has 361 rows). It dropped the last of an odd
    number of columns too: the upsampled map gets one in the east, a copy of its last one, or of the
    first one if longitude is periodic.

    Args:
        skip: (..., C, H, W).
        coarse: (..., C', H // 2, W // 2).
        periodic_longitude: True if first and last column are neighbours.

    Returns:
        (..., C + C', H, W).
    """
    upper = upsample_twice(coarse.flatten(0, -4), periodic_longitude=periodic_longitude)
    domain = current()
    odd_row, odd_column = (length % 2 for length in domain.shape(skip))
    if odd_row or odd_column:
        edges = Edges("replicate", "circular" if periodic_longitude else "replicate")
        upper = domain.pad(upper, Sides(top=odd_row, right=odd_column), edges)
        # in a part that does not end the grid, the appended row belongs to the next part
        upper = upper[..., : skip.shape[-2], : skip.shape[-1]]
    return torch.cat([skip, upper.reshape(*skip.shape[:-3], *upper.shape[1:])], dim=-3)


def level_grid(grid: Grid, level: int) -> Grid:
    """Return rows and columns of the grid after `level` halvings."""
    return grid[0] >> level, grid[1] >> level


def check_levels(fields: Tensor, levels: int, min_size: int, network: str, remedy: str) -> None:
    """Refuse a grid that is too small for the levels of a network.

    Args:
        fields: (..., H, W).
        levels: number of levels.
        min_size: smallest number of rows and of columns.
        network: the network's name, for the error message.
        remedy: advice in the error message.

    Raises:
        ArgumentError: fewer rows or columns.
    """
    rows, columns = current().shape(fields)
    if min(rows, columns) < min_size:
        raise ArgumentError(
            "features",
            f"a grid of {rows} x {columns} points is too small for {levels} levels",
            f"{network} needs at least {min_size} x {min_size}{remedy}",
        )
