"""Which part of the grid this process holds: the one thing that layers ask of parallelism.

By default it is the whole grid, and every question has a serial answer. `ens10.models.parallel`
puts another answer in its place while a sample is split between processes.
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
