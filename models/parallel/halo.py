"""What lies beyond a part of the fields: gathered from neighbours and edges, and given back."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ens10.models.domain import Edges, Sides
from ens10.models.parallel.exchange import Exchange, Link, Strips


class Halo(NamedTuple):
    """Strips around fields (N, C, h, w); None where nothing is wanted.

    Attributes:
        rows: above and below, as wide as the fields.
        columns: left and right, as high as the fields with the rows around them.
    """

    rows: Strips
    columns: Strips


class Frame(NamedTuple):
    """How wide a halo is, and where it comes from.

    Attributes:
        exchange: the messages.
        sides: how wide.
        edges: what lies beyond the grid.
    """

    exchange: Exchange
    sides: Sides
    edges: Edges

    def gather(self, fields: Tensor) -> Halo:
        """The halo of fields; rows first, so that the corners come with the columns."""
        rows_link, columns_link = self.exchange.links
        top, bottom, left, right = self.sides
        height, width = fields.shape[-2:]

        def rows_at(start: int, count: int) -> Tensor:
            return fields.narrow(-2, start, count)

        rows = _gather(rows_link, rows_at, height, -2, (top, bottom), self.edges.rows)

        def columns_at(start: int, count: int) -> Tensor:
            above, below = (s if s is None else s.narrow(-1, start, count) for s in rows)
            return _joined((above, below), fields.narrow(-1, start, count), -2)

        columns = _gather(columns_link, columns_at, width, -1, (left, right), self.edges.columns)
        return Halo(rows, columns)

    def around(self, fields: Tensor, halo: Halo) -> Tensor:
        """The fields with their halo, (N, C, h + top + bottom, w + left + right)."""
        return _joined(halo.columns, _joined(halo.rows, fields, -2), -1)

    def scatter(self, gradient: Tensor) -> Tensor:
        """The adjoint: what points of the halo got goes to where they came from."""
        rows_link, columns_link = self.exchange.links
        top, bottom, left, right = self.sides
        inner = _scatter(columns_link, gradient, -1, (left, right), self.edges.columns)
        return _scatter(rows_link, inner, -2, (top, bottom), self.edges.rows)


def _gather(
    link: Link,
    lines: Callable[[int, int], Tensor],
    length: int,
    dim: int,
    widths: tuple[int, int],
    edge: str,
) -> Strips:
    """Strips on both sides; `lines` gives so many lines of the part from one on."""
    before, after = widths
    first = lines(0, after).contiguous() if after else None
    last = lines(length - before, before).contiguous() if before else None
    head, tail = link.swap(first, last, edge == "circular")
    if before and head is None:
        head = _beyond(lines(0, 1), dim, before, edge)
    if after and tail is None:
        tail = _beyond(lines(length - 1, 1), dim, after, edge)
    return head, tail


def _beyond(line: Tensor, dim: int, width: int, edge: str) -> Tensor:
    """What lies beyond the outermost line of the grid, without a copy."""
    shape = list(line.shape)
    shape[dim] = width
    return (line if edge == "replicate" else torch.zeros_like(line)).expand(shape)


def _joined(strips: Strips, fields: Tensor, dim: int) -> Tensor:
    parts = [part for part in (strips[0], fields, strips[1]) if part is not None]
    return torch.cat(parts, dim) if len(parts) > 1 else fields


def _scatter(link: Link, gradient: Tensor, dim: int, widths: tuple[int, int], edge: str) -> Tensor:
    before, after = widths
    if not (before or after):
        return gradient
    length = gradient.shape[dim] - before - after
    inner = gradient.narrow(dim, before, length)
    head = gradient.narrow(dim, 0, before).contiguous() if before else None
    tail = gradient.narrow(dim, before + length, after).contiguous() if after else None
    from_before, from_after = link.swap(head, tail, edge == "circular")
    inner = inner.clone()
    if from_before is not None:
        inner.narrow(dim, 0, after).add_(from_before)
    if from_after is not None:
        inner.narrow(dim, length - before, before).add_(from_after)
    if edge == "replicate":
        for strip, ends, place in zip((head, tail), link.ends(False), (0, length - 1), strict=True):
            if ends and strip is not None:
                inner.narrow(dim, place, 1).add_(strip.sum(dim, keepdim=True))
    return inner
