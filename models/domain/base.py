"""The questions that layers have about the grid, and their serial answers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from torch import Tensor
from torch.nn import functional


class Sides(NamedTuple):
    """How many rows and columns are wanted beyond each side of a field."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0


class Edges(NamedTuple):
    """What lies beyond the outermost rows and columns of the whole grid.

    Attributes:
        rows: beyond the first and last row: zeros, or that row again.
        columns: beyond the first and last column: zeros, that column again, or the other end.
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
        """Whether there is only one part."""
        return self.size == 1

    @abstractmethod
    def shape(self, fields: Tensor) -> tuple[int, int]:
        """Rows and columns of the whole grid, on the level of `fields`."""

    @abstractmethod
    def origin(self, fields: Tensor) -> tuple[int, int]:
        """Row and column of the first point of `fields` in the whole grid of their level."""

    @abstractmethod
    def part(self, whole: Tensor) -> Tensor:
        """This process's part of a map; dimensions of length 1 stay. Differentiable."""

    @abstractmethod
    def pad(self, fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
        """Fields (N, C, h, w) with what lies beyond them. Differentiable."""

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
        """A convolution that sees `half` rows and columns beyond the fields. Differentiable."""

    @abstractmethod
    def sum(self, parts: Tensor) -> Tensor:
        """The sum over all processes of the sample, on each of them. Differentiable."""

    @abstractmethod
    def total(self, parts: Tensor) -> Tensor:
        """The same without gradient."""


class Whole(Domain):
    """The whole grid: nothing lies elsewhere."""

    def shape(self, fields: Tensor) -> tuple[int, int]:
        """The shape of the fields."""
        return fields.shape[-2], fields.shape[-1]

    def origin(self, fields: Tensor) -> tuple[int, int]:  # noqa: ARG002
        """The first point."""
        return 0, 0

    def part(self, whole: Tensor) -> Tensor:
        """The map itself."""
        return whole

    def pad(self, fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
        """Columns first, so that corners are those of the rows beyond."""
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
        """Zeros are padded by the convolution itself."""
        rows, columns = (0 if edge == "zeros" else half for edge in edges)
        padding = half - rows, half - columns
        padded = self.pad(fields, Sides(rows, rows, columns, columns), edges)
        return functional.conv2d(padded, weight, bias, stride, padding, dilation)

    def sum(self, parts: Tensor) -> Tensor:
        """There is one part."""
        return parts

    def total(self, parts: Tensor) -> Tensor:
        """There is one part."""
        return parts.detach()


def _padded(fields: Tensor, widths: tuple[int, int, int, int], mode: str) -> Tensor:
    if not any(widths):
        return fields
    return functional.pad(fields, widths, mode="constant" if mode == "zeros" else mode)


_current: Domain = Whole()


def current() -> Domain:
    """The domain of this process; the whole grid unless `use` said otherwise."""
    return _current


@contextmanager
def use(domain: Domain) -> Iterator[Domain]:
    """Makes a domain the current one, for all threads: a backward pass has threads of its own."""
    global _current
    before, _current = _current, domain
    try:
        yield domain
    finally:
        _current = before
