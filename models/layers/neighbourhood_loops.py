"""Compiled attention of grid points to their neighbours on the CPU, forward and backward.

In torch's operations each of the window^2 neighbours is a pass over all fields, and most of the
time goes into memory traffic and into gradients of views that are filled with zeros. Here each
block of points of one sample and head stays in the cache, and the loops over points use vector
instructions.

Rows of all fields are padded to the length of the padded key's rows and stored as one line. The
neighbour at a given offset is then at the same distance in memory for every point. Results in the
extra columns are discarded. The weights of the neighbours are kept for the backward pass.
"""

from itertools import product
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.compiled import FUSED, exp
from ens10.models.layers.threads import in_threads

_MIN_EXPONENT = -80.0  # exp(-80) is negligible against the largest weight
_BLOCK = 512  # points


@numba.njit(**FUSED)
def _add_product(a, b, out):  # type: ignore[no-untyped-def]
    """Add a * b to `out`."""
    for p in range(out.size):
        out[p] += a[p] * b[p]


@numba.njit(**FUSED)
def _add_shifted_product(a, b, shift, out):  # type: ignore[no-untyped-def]
    """Add a * (b + shift) to `out`, for a scalar shift."""
    for p in range(out.size):
        out[p] += a[p] * (b[p] + shift)


@numba.njit(**FUSED)
def _normalise(products, first, last):  # type: ignore[no-untyped-def]
    """Replace scalar products (window^2, points) by their softmax over the window.

    Only points from `first` to before `last` are replaced.
    """
    places, points = products.shape[0], last - first
    least = products.dtype.type(_MIN_EXPONENT)
    highest, total = products[0, first:last].copy(), np.zeros(points, products.dtype)
    for place in range(1, places):
        row = products[place, first:last]
        for p in range(points):
            highest[p] = row[p] if row[p] > highest[p] else highest[p]
    for place in range(places):
        row = products[place, first:last]
        for p in range(points):
            below = row[p] - highest[p]
            power = exp(below if below > least else least)
            row[p] = power if below == below else below  # NaN stays NaN
            total[p] += row[p]
    for place in range(places):
        row = products[place, first:last]
        for p in range(points):
            row[p] /= total[p]


# Slices of one row are contiguous arrays for the compiler; those of several rows would not be.


@numba.njit(**FUSED)
def _attend(query, key, value, offsets, distances, weights, out):  # type: ignore[no-untyped-def]
    """Write the outputs and the weights of the neighbours of one sample and head.

    Args:
        query: (c, points).
        key: (c, padded points).
        value: (d, padded points).
        offsets: (window^2, c).
        distances: (window^2,) distances of the neighbours in memory.
        weights: (window^2, points), zeros; written.
        out: (d, points), zeros; written.
    """
    places, points = weights.shape
    for first in range(0, points, _BLOCK):
        last = min(first + _BLOCK, points)
        for place in range(places):
            products, near = weights[place, first:last], distances[place]
            for c in range(query.shape[0]):
                line = key[c, first + near : last + near]
                _add_shifted_product(query[c, first:last], line, offsets[place, c], products)
        _normalise(weights, first, last)
        for place in range(places):
            share, near = weights[place, first:last], distances[place]
            for d in range(out.shape[0]):
                line = value[d, first + near : last + near]
                _add_product(share, line, out[d, first:last])


@numba.njit(**FUSED)
def _differentiate(  # type: ignore[no-untyped-def]
    query, key, value, offsets, distances, weights, grad, by_query, by_key, by_value, by_offsets
):
    """Add the gradients of one sample and head to the last four arguments.

    Arguments as in `_attend`, with `grad` the gradient of the outputs, (d, points), and one array
    for each gradient, in the shape of its argument.
    """
    places, points = weights.shape
    changes, mean = np.empty((places, _BLOCK), grad.dtype), np.empty(_BLOCK, grad.dtype)
    for first in range(0, points, _BLOCK):
        last = min(first + _BLOCK, points)
        n = last - first
        changes[:] = 0
        mean[:] = 0
        for place in range(places):
            near, change, share = distances[place], changes[place, :n], weights[place, first:last]
            for d in range(grad.shape[0]):
                grad_row = grad[d, first:last]
                _add_product(grad_row, value[d, first + near : last + near], change)
                _add_product(grad_row, share, by_value[d, first + near : last + near])
            _add_product(change, share, mean[:n])
        for place in range(places):
            near, change, share = distances[place], changes[place, :n], weights[place, first:last]
            for p in range(n):
                change[p] = share[p] * (change[p] - mean[p])
            for c in range(query.shape[0]):
                query_row, line = query[c, first:last], key[c, first + near : last + near]
                _add_shifted_product(change, line, offsets[place, c], by_query[c, first:last])
                _add_product(change, query_row, by_key[c, first + near : last + near])
                by_offsets[place, c] += np.dot(change, query_row)


class CompiledAttention(torch.autograd.Function):
    """Attention to neighbours from queries, padded keys and values, and offsets of the keys."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, offsets: Tensor) -> Tensor:
        """Return the outputs.

        Args:
            ctx: autograd's context.
            query: (N, heads, c, H, W), divided by the root of c.
            key: (N, heads, c, H + window - 1, W + window - 1).
            value: (N, heads, d, H + window - 1, W + window - 1).
            offsets: (window^2, heads, c).

        Returns:
            (N, heads, d, H, W).
        """
        window, (H, W) = round(len(offsets) ** 0.5), query.shape[-2:]
        shape = (H, W, window)
        arrays = (_lines(query, shape), _all_lines(key), _all_lines(value))
        points = arrays[0].shape[-1]
        weights = query.new_zeros(*query.shape[:2], len(offsets), points)
        out = value.new_zeros(*value.shape[:3], points)
        shifts, distances = _by_head(offsets), _distances(shape)

        def work(n: int, head: int) -> None:
            fields = (array.numpy()[n, head] for array in arrays)
            _attend(
                *fields, shifts[head], distances, weights.numpy()[n, head], out.numpy()[n, head]
            )

        in_threads(work, _samples_and_heads(query))
        ctx.save_for_backward(*arrays, offsets, weights)
        ctx.shape, ctx.padded_shapes = shape, (key.shape, value.shape)
        return _fields(out, shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients by query, key, value and offsets."""
        *arrays, offsets, weights = ctx.saved_tensors
        head_grads = _lines(grad, ctx.shape)
        by_arrays = [torch.zeros_like(t) for t in arrays]
        by_offsets = offsets.new_zeros(*arrays[0].shape[:2], *offsets.shape[::2])
        shifts, distances = _by_head(offsets), _distances(ctx.shape)

        def work(n: int, head: int) -> None:
            fields = (array.numpy()[n, head] for array in arrays)
            outer = weights.numpy()[n, head], head_grads.numpy()[n, head]
            results = (t.numpy()[n, head] for t in (*by_arrays, by_offsets))
            _differentiate(*fields, shifts[head], distances, *outer, *results)

        in_threads(work, _samples_and_heads(weights))
        by_query = _fields(by_arrays[0], ctx.shape)
        by_key, by_value = (
            t.reshape(size) for t, size in zip(by_arrays[1:], ctx.padded_shapes, strict=True)
        )
        return by_query, by_key, by_value, by_offsets.sum(0).transpose(0, 1)


def _lines(fields: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Return fields as lines: rows padded with zeros to W + window - 1, one after another.

    Args:
        fields: (..., H, W).
        shape: H, W and window.

    Returns:
        (..., points), without the zeros of the last row.
    """
    margin = shape[2] - 1
    lines = functional.pad(fields.detach(), (0, margin)).flatten(-2)
    return lines[..., : lines.shape[-1] - margin].contiguous()


def _fields(lines: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Return the fields (..., H, W) of lines (..., points): the inverse of `_lines`."""
    H, W, window = shape
    fields = functional.pad(lines, (0, window - 1)).reshape(*lines.shape[:-1], H, W + window - 1)
    return fields[..., :W].contiguous()


def _all_lines(padded: Tensor) -> Tensor:
    """Return padded fields (..., rows, columns) as lines (..., rows x columns)."""
    return padded.detach().flatten(-2).contiguous()


def _by_head(offsets: Tensor) -> Any:
    """Return offsets (window^2, heads, c) as an array (heads, window^2, c)."""
    return np.ascontiguousarray(offsets.detach().transpose(0, 1).numpy())


def _distances(shape: tuple[int, int, int]) -> Any:
    """Return the distances in memory (window^2,) of the neighbours from the first, row by row."""
    _, W, window = shape
    rows = np.arange(window)[:, None] * (W + window - 1)
    return (rows + np.arange(window)).ravel()


def _samples_and_heads(fields: Tensor) -> list[tuple[int, int]]:
    return list(product(range(fields.shape[0]), range(fields.shape[1])))
