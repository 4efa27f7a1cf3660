"""A fixed part of the dates, kept in memory after its first reading.

Epochs are permutations, so a cache that keeps what was used last forgets each date just before it
comes again. A part that is fixed beforehand is hit whenever its turn comes: holding a quarter of
the dates saves a quarter of the reading, which no cache of that size can better.
"""

import re
import threading
from collections.abc import Sequence

import numpy as np

from ens10.errors import ArgumentError
from ens10.loader.content import Arrays, Content, Shapes
from ens10.loader.samples import Samples
from ens10.loader.slots import Layout

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(?P<number>\d+(\.\d*)?)\s*(?P<unit>[KMGT]?)B", re.IGNORECASE)


class PinnedContent:
    """Reads dates, of which some are kept, decoded and normalised.

    Args:
        content: reads dates.
        dates: the positions to keep.
        rows: the rows of the grid that are ever asked for.

    Attributes:
        hits: dates (or parts of them) that were taken from memory.
        kept_bytes: memory in use.
    """

    def __init__(self, content: Content, dates: Sequence[int], rows: slice) -> None:
        self.samples: Samples = content.samples
        self._content, self._rows, self._chosen = content, rows, frozenset(dates)
        self._layout = _layout(content, rows)
        self._kept: dict[int, Arrays] = {}
        self._lock = threading.Lock()
        self.hits = 0

    def __getstate__(self) -> dict[str, object]:
        # A worker process keeps its own part: sending the memory would take longer than reading.
        return {**self.__dict__, "_kept": {}, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def kept_bytes(self) -> int:
        """Memory in use."""
        return len(self._kept) * self._layout.size

    def shapes(self, rows: int) -> Shapes:
        """Shapes of a date's arrays, with this number of rows."""
        return self._content.shapes(rows)

    def read(self, i: int, out: Arrays, rows: slice) -> int:
        """Writes the arrays of date `i`, and returns the bytes read from the data."""
        if i not in self._chosen:
            return self._content.read(i, out, rows)
        held, count = self._kept.get(i), 0
        if held is None:
            held = self._layout.views(np.empty(self._layout.size, np.uint8))
            count = self._content.read(i, held, self._rows)
            with self._lock:
                self._kept[i] = held
        else:
            with self._lock:
                self.hits += 1
        first = rows.start - self._rows.start
        for key, values in out.items():
            values[...] = held[key][..., first : first + values.shape[-2], :]
        return count


def dates_that_fit(
    cache: str | float, positions: Sequence[int], content: Content, rows: slice
) -> list[int]:
    """The first of these dates that fit into the memory given.

    Args:
        cache: a size such as "2GB" or "500 MB", or a share of the dates from 0 to 1.
        positions: of the dates, in order.
        content: says how large a date is.
        rows: the rows that are kept.

    Raises:
        ArgumentError: neither a size nor a share.
    """
    if isinstance(cache, str):
        match = _SIZE.fullmatch(cache.strip())
        if not match:
            raise ArgumentError("cache", f"{cache!r} is no size", 'Give one such as "2GB", or 0.25')
        size = float(match["number"]) * _UNITS[match["unit"].upper()]
        return list(positions[: int(size // _layout(content, rows).size)])
    if not 0 <= cache <= 1:
        raise ArgumentError("cache", f"{cache} is no share of the dates", 'Give 0 to 1, or "2GB"')
    return list(positions[: round(cache * len(positions))])


def _layout(content: Content, rows: slice) -> Layout:
    shapes = content.shapes(rows.stop - rows.start)
    return Layout({key: (shape, np.float32) for key, shape in shapes.items()})
