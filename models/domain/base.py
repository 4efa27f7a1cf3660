"""The interface `Domain` that layers use for neighbours and sums, and its serial implementation."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from torch import Tensor
from torch.nn import functional


class Sides(NamedTuple):
    """Number of rows and columns of padding on each side of a field."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0


class Edges(NamedTuple):
    """Padding beyond the outermost rows and columns of the whole grid.

    Attributes:
        rows: beyond the first and last row: zeros, or that row replicated.
        columns: beyond the first and last column: zeros, that column replicated, or periodic.
    """

    rows: Literal["zeros", "replicate"] = "zeros"
    columns: Literal["zeros", "replicate", "circular"] = "zeros"


class Domain(ABC):
    """The part of the grid that this process holds.

    Fields are tensors (..., h, w) of this process's part, on any level of a network; maps are
    tensors (..., H, W) of the whole grid, such as parameters with a value at each point.

    Attributes:
        size: number of processes that hold parts of the same samples.
    """

    size: int = 1

    @property
    def whole(self) -> bool:
        """True if there is only one part."""
        return self.size == 1

    @abstractmethod
    def shape(self, fields: Tensor) -> tuple[int, int]:
        """Return rows and columns of the whole grid, on the network level of `fields`."""

    @abstractmethod
    def origin(self, fields: Tensor) -> tuple[int, int]:
        """Return row and column in the whole grid, on its level, of the first point of `fields`."""

    @abstractmethod
    def part(self, whole: Tensor) -> Tensor:
        """Return this process's part of a map, differentiably; dimensions of length 1 stay."""

    @abstractmethod
    def pad(self, fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
        """Pad fields (N, C, h, w) by values of neighbouring parts or grid edges, differentiably."""

    @abstractmethod
    def convolve(
        self,
        fields: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        half: int,
        edges: Edges,
        stride: int = 1,
        dilation: int = 1,
    ) -> Tensor:
        """Convolve with `half` rows and columns of padding on each side, differentiably."""

    @abstractmethod
    def sum(self, parts: Tensor) -> Tensor:
        """Sum over all processes that hold parts of a sample (all-reduce), differentiably."""

    @abstractmethod
    def total(self, parts: Tensor) -> Tensor:
        """Sum over all processes that hold parts of a sample, without gradient."""


class Whole(Domain):
    """The whole grid, in one process."""

    def shape(self, fields: Tensor) -> tuple[int, int]:
        """Return the shape of the fields, which are the whole grid."""
        return fields.shape[-2], fields.shape[-1]

    def origin(self, fields: Tensor) -> tuple[int, int]:  # noqa: ARG002
        """Return (0, 0): the fields begin at the grid's first point."""
        return 0, 0

    def part(self, whole: Tensor) -> Tensor:
        """Return the map itself."""
        return whole

    def pad(self, fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
        """Pad the columns, then the rows, so that corners belong to the padded rows."""
        top, bottom, left, right = sides
        wide = _padded(fields, (left, right, 0, 0), edges.columns)
        return _padded(wide, (0, 0, top, bottom), edges.rows)

    def convolve(
        self,
        fields: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        half: int,
        edges: Edges,
        stride: int = 1,
        dilation: int = 1,
    ) -> Tensor:
        """Convolve, leaving zero padding to the convolution itself."""
        rows, columns = (0 if edge == "zeros" else half for edge in edges)
        padding = half - rows, half - columns
        padded = self.pad(fields, Sides(rows, rows, columns, columns), edges)
        return functional.conv2d(padded, weight, bias, stride, padding, dilation)

    def sum(self, parts: Tensor) -> Tensor:
        """Return the values themselves: there is one part."""
        return parts

    def total(self, parts: Tensor) -> Tensor:
        """Return the values themselves: there is one part."""
        return parts.detach()


def _padded(fields: Tensor, widths: tuple[int, int, int, int], mode: str) -> Tensor:
    if not any(widths):
        return fields
    return functional.pad(fields, widths, mode="constant" if mode == "zeros" else mode)


_current: Domain = Whole()


def current() -> Domain:
    """Return the domain of this process: the whole grid, or the one set by `use`."""
    return _current


@contextmanager
def use(domain: Domain) -> Iterator[Domain]:
    """Set the current domain for all threads, since backward passes run in threads of their own."""
    global _current
    before, _current = _current, domain
    try:
        yield domain
    finally:
        _current = before
