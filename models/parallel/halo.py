"""Halo exchange: gather rows and columns from neighbours and grid edges, and the adjoint."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ens10.models.domain import Edges, Sides
from ens10.models.parallel.exchange import Exchange, Link, Strips


class Halo(NamedTuple):
    """Strips around fields (N, C, h, w); None where the width is 0.

    Attributes:
        rows: strips above and below, as wide as the fields.
        columns: strips left and right, as high as the fields with these rows.
    """

    rows: Strips
    columns: Strips


class Frame(NamedTuple):
    """Width and sources of a halo.

    Attributes:
        exchange: communication with neighbours.
        sides: width on each side.
        edges: padding beyond the grid.
    """

    exchange: Exchange
    sides: Sides
    edges: Edges

    def gather(self, fields: Tensor) -> Halo:
        """Return the halo of fields; rows first, so that the columns include the corners."""
        _, columns_link = self.exchange.links
        _, _, left, right = self.sides
        rows = self._rows(fields, zeros=True)

        def columns_at(start: int, count: int) -> Tensor:
            above, below = (s if s is None else s.narrow(-1, start, count) for s in rows)
            return _with_strips((above, below), fields.narrow(-1, start, count))

        columns = _gather(
            columns_link, columns_at, fields.shape[-1], -1, (left, right), self.edges.columns
        )
        return Halo(rows, columns)

    def has_rows_only(self, fields: Tensor) -> bool:
        """Return True for a halo of rows only, as wide above as below, at most the part's rows."""
        top, bottom, left, right = self.sides
        return top == bottom and 0 < top <= fields.shape[-2] and left == right == 0

    def gather_rows(self, fields: Tensor) -> Strips:
        """Return the rows of the halo without its columns, (N, C, top, w) and (N, C, bottom, w).

        None stands for rows of zeros beyond the grid.
        """
        return self._rows(fields, zeros=False)

    def _rows(self, fields: Tensor, zeros: bool) -> Strips:
        """Return the rows above and below; beyond the grid zeros if `zeros` is True, else None."""
        link, _ = self.exchange.links
        top, bottom, _, _ = self.sides

        def rows_at(start: int, count: int) -> Tensor:
            return fields.narrow(-2, start, count)

        edge = self.edges.rows
        return _gather(link, rows_at, fields.shape[-2], -2, (top, bottom), edge, zeros)

    def add_halo(self, fields: Tensor, halo: Halo) -> Tensor:
        """Return the fields with their halo, (N, C, h + top + bottom, w + left + right)."""
        if halo.columns == (None, None):
            return _with_strips(halo.rows, fields)
        top, bottom, left, right = self.sides
        height, width = fields.shape[-2:]
        channels_last = fields.is_contiguous(memory_format=torch.channels_last)
        padded = torch.empty(
            (*fields.shape[:-2], top + height + bottom, left + width + right),
            dtype=fields.dtype,
            device=fields.device,
            memory_format=torch.channels_last if channels_last else torch.contiguous_format,
        )
        middle = padded.narrow(-1, left, width)
        middle.narrow(-2, top, height).copy_(fields)
        for target, dim, strips in ((middle, -2, halo.rows), (padded, -1, halo.columns)):
            for strip, at_end in zip(strips, (False, True), strict=True):
                if strip is not None:
                    count = strip.shape[dim]
                    start = target.shape[dim] - count if at_end else 0
                    target.narrow(dim, start, count).copy_(strip)
        return padded

    def scatter(self, gradient: Tensor) -> Tensor:
        """Adjoint of the halo exchange: add gradients of halo points to their source points.

        Args:
            gradient: gradient of the fields with their halo; changed in place: the result is a view
                of it.
        """
        rows_link, columns_link = self.exchange.links
        top, bottom, left, right = self.sides
        inner = _scatter(columns_link, gradient, -1, (left, right), self.edges.columns)
        return _scatter(rows_link, inner, -2, (top, bottom), self.edges.rows)

    def scatter_rows(self, gradient: Tensor, strips: Strips) -> None:
        """Adjoint of `gather_rows`: add gradients of halo rows to their source rows.

        Args:
            gradient: gradient of the fields alone, to which the received gradients are added.
            strips: gradients of the rows above and below; tensors also for zeros beyond the grid,
                where their values do not matter.
        """
        _add_to_sources(self.exchange.links[0], gradient, strips, -2, self.edges.rows)


def _gather(
    link: Link,
    lines: Callable[[int, int], Tensor],
    length: int,
    dim: int,
    widths: tuple[int, int],
    edge: str,
    zeros: bool = True,
) -> Strips:
    """Return the strips of a halo along one dimension, from the neighbours and the grid's edges.

    Args:
        link: neighbours along the dimension.
        lines: function of start and count that returns lines of this part.
        length: number of lines of this part.
        dim: the dimension.
        widths: width of the halo before and after the part.
        edge: padding beyond the grid, "zeros", "replicate" or "circular".
        zeros: True to return strips of zeros beyond the grid, False for None.
    """
    before, after = widths
    head = tail = None
    # without a split, the halo may be wider than the part
    if link.ends(edge == "circular") != (True, True):
        first = lines(0, after).contiguous() if after else None
        last = lines(length - before, before).contiguous() if before else None
        head, tail = link.swap(first, last, edge == "circular")
    if zeros or edge == "replicate":
        if before and head is None:
            head = _edge_padding(lines(0, 1), dim, before, edge)
        if after and tail is None:
            tail = _edge_padding(lines(length - 1, 1), dim, after, edge)
    return head, tail


def _edge_padding(line: Tensor, dim: int, width: int, edge: str) -> Tensor:
    """Return the padding beyond the outermost line of the grid, without a copy."""
    shape = list(line.shape)
    shape[dim] = width
    return (line if edge == "replicate" else torch.zeros_like(line)).expand(shape)


def _with_strips(strips: Strips, fields: Tensor) -> Tensor:
    """Concatenate strips above and below with the fields."""
    parts = [part for part in (strips[0], fields, strips[1]) if part is not None]
    return torch.cat(parts, -2) if len(parts) > 1 else fields


def _scatter(link: Link, gradient: Tensor, dim: int, widths: tuple[int, int], edge: str) -> Tensor:
    """Adjoint of `_gather`: return the gradient of the fields, a view of that with the halo."""
    before, after = widths
    if not (before or after):
        return gradient
    length = gradient.shape[dim] - before - after
    inner = gradient.narrow(dim, before, length)
    head = gradient.narrow(dim, 0, before).contiguous() if before else None
    tail = gradient.narrow(dim, before + length, after).contiguous() if after else None
    _add_to_sources(link, inner, (head, tail), dim, edge)
    return inner


def _add_to_sources(link: Link, inner: Tensor, strips: Strips, dim: int, edge: str) -> None:
    """Adjoint of the halo exchange: add the halo's gradients to their source lines."""
    length = inner.shape[dim]
    from_before, from_after = link.swap(*strips, edge == "circular")
    if from_before is not None:
        inner.narrow(dim, 0, from_before.shape[dim]).add_(from_before)
    if from_after is not None:
        count = from_after.shape[dim]
        inner.narrow(dim, length - count, count).add_(from_after)
    if edge == "replicate":
        for strip, ends, place in zip(strips, link.ends(False), (0, length - 1), strict=True):
            if ends and strip is not None:
                inner.narrow(dim, place, 1).add_(strip.sum(dim, keepdim=True))
