"""Assignment of processes to parts of the grid and to groups of samples."""

from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from ens10.errors import ArgumentError


@dataclass(frozen=True)
class Mesh:
    """The processes of a run, in groups that hold the parts of the same samples.

    Neighbouring ranks are in the same group, so that halos stay on a node where they can.

    Attributes:
        lat: number of parts of the rows.
        lon: number of parts of the columns.
        group: the processes with parts of this one's samples.
        data_rank: index of this group.
        data_world: number of groups.
    """

    lat: int
    lon: int
    group: dist.ProcessGroup
    data_rank: int
    data_world: int

    @classmethod
    def of_world(cls, lat: int, lon: int, timeout: timedelta | None = None) -> "Mesh":
        """Build the mesh of all processes; a collective call.

        Args:
            lat: number of parts of the rows.
            lon: number of parts of the columns.
            timeout: timeout of messages within a group.

        Raises:
            ArgumentError: the parts do not divide the number of processes.
        """
        world, rank, parts = dist.get_world_size(), dist.get_rank(), lat * lon
        if world % parts:
            raise ArgumentError(
                "lat",
                f"{lat} x {lon} parts do not divide {world} processes",
                "Choose parts whose product divides the number of processes",
            )
        ranks = [list(range(first, first + parts)) for first in range(0, world, parts)]
        group = [dist.new_group(part, timeout=timeout) for part in ranks][rank // parts]
        return cls(lat, lon, group, rank // parts, world // parts)
