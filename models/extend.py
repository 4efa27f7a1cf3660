"""Padding beyond the edges of a grid, written once and with a backward pass of one copy.

Autograd through slices and concatenations fills whole maps with zeros and adds them for each slice;
here the gradient of the inner points is copied, and what belongs to the padding is added to the
edges. `torch.nn.functional.pad` takes twice the time for periodic columns and loses their memory
format.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ens10.errors import ArgumentError


class Sides(NamedTuple):
    """Number of rows and columns of padding on each side of a field."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0


class Edges(NamedTuple):
    """Values of the padding outside the whole grid.

    Attributes:
        rows: beyond the first and last row: zeros, or that row replicated.
        columns: beyond the first and last column: zeros, that column replicated, or periodic.
    """

    rows: Literal["zeros", "replicate"] = "zeros"
    columns: Literal["zeros", "replicate", "circular"] = "zeros"


def extend(fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
    """Pad the columns, then the rows, so that corners belong to the padded rows.

    Args:
        fields: (..., H, W).
        sides: rows and columns to add.
        edges: their values.

    Raises:
        ArgumentError: more periodic columns than the grid has.
    """
    top, bottom, left, right = sides
    if not any(sides):
        return fields
    if (edges.columns == "zeros" or not left + right) and (
        edges.rows == "zeros" or not top + bottom
    ):
        return functional.pad(fields, (left, right, top, bottom))
    if edges.columns == "circular" and max(left, right) > fields.shape[-1]:
        reason = f"{max(left, right)} periodic columns beyond a grid of {fields.shape[-1]}"
        raise ArgumentError("features", reason, "Use a larger grid, or a smaller kernel")
    extended: Tensor = _Extend.apply(fields, sides, edges)  # type: ignore[no-untyped-call]
    return extended


class _Extend(torch.autograd.Function):
    """Padding whose gradient is one copy and thin additions; twice differentiable."""

    @staticmethod
    def forward(ctx: Any, fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
        ctx.sides, ctx.edges = sides, edges
        top, bottom, left, right = sides
        height, width = fields.shape[-2:]
        padded = _empty(fields, top + height + bottom, left + width + right)
        middle = padded.narrow(-2, top, height)
        middle.narrow(-1, left, width).copy_(fields)
        for start, count, first, last in (
            (0, left, width - left, 0),
            (left + width, right, 0, width - 1),
        ):
            columns = middle.narrow(-1, start, count)
            if edges.columns == "zeros":
                columns.zero_()
            elif edges.columns == "circular":
                columns.copy_(fields.narrow(-1, first, count))
            elif count:
                columns.copy_(fields.narrow(-1, last, 1).expand_as(columns))
        if edges.rows == "zeros":
            padded.narrow(-2, 0, top).zero_()
            padded.narrow(-2, top + height, bottom).zero_()
        else:
            for beyond, edge in _edge_rows(padded, middle, top, bottom):
                beyond.copy_(edge.expand_as(beyond))
        return padded

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        top, bottom, left, right = ctx.sides
        height, width = (grad.shape[-2] - top - bottom), (grad.shape[-1] - left - right)
        middle = grad.narrow(-2, top, height)
        inner = _empty(grad, height, width).copy_(middle.narrow(-1, left, width))
        _add_edge_columns(inner, middle, left, right, ctx.edges.columns)
        if ctx.edges.rows == "replicate":
            for beyond, edge in _edge_rows(grad, inner, top, bottom):
                is_sum = beyond.shape[-2] == edge.shape[-2]
                rows = beyond if is_sum else beyond.sum(-2, keepdim=True)
                edge.add_(rows.narrow(-1, left, width))
                _add_edge_columns(edge, rows, left, right, ctx.edges.columns)
        return inner, None, None


def _edge_rows(
    padded: Tensor, inner: Tensor, top: int, bottom: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the rows beyond an edge, and the row at it; both edges at once if each has one."""
    height = inner.shape[-2]
    if top == bottom == 1 and height > 1:
        yield padded[..., :: height + 1, :], inner[..., :: height - 1, :]
        return
    for start, count, edge in ((0, top, 0), (top + height, bottom, height - 1)):
        if count:
            yield padded.narrow(-2, start, count), inner.narrow(-2, edge, 1)


def _add_edge_columns(inner: Tensor, padded: Tensor, left: int, right: int, kind: str) -> None:
    """Add the columns beyond the edges of `padded` to those of `inner` whose values they had."""
    width = inner.shape[-1]
    for count, start, edge, periodic in (
        (left, 0, 0, width - left),
        (right, left + width, width - 1, 0),
    ):
        beyond = padded.narrow(-1, start, count)
        if count and kind == "circular":
            inner.narrow(-1, periodic, count).add_(beyond)
        elif count and kind == "replicate":
            inner.narrow(-1, edge, 1).add_(beyond.sum(-1, keepdim=True))


def _empty(like: Tensor, height: int, width: int) -> Tensor:
    """Return new fields of another height and width, in the type and memory format of others."""
    shape = (*like.shape[:-2], height, width)
    is_last = like.ndim == 4 and like.stride(1) == 1 and like.shape[1] > 1
    kept = torch.channels_last if is_last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=kept)
