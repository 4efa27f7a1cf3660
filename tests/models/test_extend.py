"""Padding beyond the edges, against concatenation and torch's own padding."""

import itertools

import pytest
import torch
from torch.nn import functional

from ens10.models.domain import Edges, Sides
from ens10.models.extend import extend

ALL_EDGES = [
    Edges(r, c) for r in ("zeros", "replicate") for c in ("zeros", "replicate", "circular")
]


def padded(x, sides, edges):
    """Columns, then rows, by slices and concatenation."""
    top, bottom, left, right = sides
    if edges.columns == "zeros":
        x = functional.pad(x, (left, right, 0, 0))
    elif edges.columns == "circular":
        x = torch.cat([x[..., x.shape[-1] - left :], x, x[..., :right]], -1)
    else:
        x = torch.cat([x[..., :1]] * left + [x] + [x[..., -1:]] * right, -1)
    if edges.rows == "zeros":
        return functional.pad(x, (0, 0, top, bottom))
    return torch.cat([x[..., :1, :]] * top + [x] + [x[..., -1:, :]] * bottom, -2)


@pytest.mark.parametrize("edges", ALL_EDGES, ids=str)
def test_values_gradients_and_memory_format_are_those_of_concatenation(edges):
    g = torch.Generator().manual_seed(0)
    for sides, is_last in itertools.product(itertools.product((0, 1, 2), repeat=4), (False, True)):
        kept = torch.channels_last if is_last else torch.contiguous_format
        x = torch.randn(2, 3, 3, 4, dtype=torch.float64, generator=g).contiguous(memory_format=kept)
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        a, b = extend(ours, Sides(*sides), edges), padded(theirs, sides, edges)
        assert torch.equal(a, b), sides
        assert a.is_contiguous(memory_format=kept)
        slope = torch.randn(a.shape, dtype=a.dtype, generator=g)
        a.backward(slope)
        b.backward(slope)
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-13)


def test_first_and_second_derivatives():
    x = torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    for edges in ALL_EDGES:
        assert torch.autograd.gradcheck(lambda x, e=edges: extend(x, Sides(1, 2, 2, 1), e), x)
        squares = lambda x, e=edges: extend(x, Sides(1, 2, 2, 1), e) ** 2  # noqa: E731
        assert torch.autograd.gradgradcheck(squares, x)


def test_it_compiles_without_a_break():
    x = torch.randn(1, 2, 3, 4, requires_grad=True)

    def total(x):
        return (extend(x, Sides(1, 1, 1, 1), Edges("replicate", "circular")) * x.sum()).sum()

    compiled = torch.compile(total, backend="aot_eager", fullgraph=True)
    gradient = torch.autograd.grad(compiled(x), x)[0]
    torch.testing.assert_close(gradient, torch.autograd.grad(total(x), x)[0])
