"""The part of the grid that this process holds: the interface between layers and parallelism.

By default it is the whole grid. `ens10.models.parallel` sets another domain while samples are split
between processes.
"""

from ens10.models.domain.base import Domain, Edges, Sides, Whole, current, use
from ens10.models.domain.partition import Cut, Level, Odd, parts_of

__all__ = [
    "Cut",
    "Domain",
    "Edges",
    "Level",
    "Odd",
    "Sides",
    "Whole",
    "current",
    "parts_of",
    "use",
]
