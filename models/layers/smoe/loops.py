"""Compiled loops of the mixture-of-experts layer on the CPU, with the interpreter lock released.

In this order: values of the chosen experts (`forward_band`) and their gradients (`backward_band`);
the gradient of the routing classification (`classify`); the choice of the experts of largest weight
(`choose`); a weighted quantile by radix selection (`select`); the bands of the first four.

The first two are convolutions that compute only what was chosen. A band of rows of one sample is
processed at a time. Rows of the input, padded beyond the grid, are copied into a ring buffer
(columns, rows of a filter, channels), so that the numbers of a patch (a filter's input) are
contiguous: the product of a patch and a filter is a dot product of two vectors. Input row r stays
at index r % K of K rows; therefore filters are stored K times, with their rows rotated like the
ring buffer. The gradient for the input is summed in a second ring buffer, whose rows are added to
the field when the last filter that covers them has passed.
"""

import numba
import numpy as np
import torch

from ens10.compiled import FUSED, OPTIONS, exp
from ens10.metrics._ensemble_loops import POINTS, merge_fours, sort_four

_DOT_PRODUCT = {**OPTIONS, "fastmath": {"contract", "reassoc"}}  # sums in the order of vectors
_TILE = 32  # columns that are transposed at once: all their channels fit in the L1 cache
_BLOCK = 1024  # points whose classification gradients for all experts stay in the L2 cache
_INDEX = 2**16  # more than there are experts


@numba.njit(**OPTIONS)
def _source_row(h, H, replicate):  # type: ignore[no-untyped-def]
    """Return the input row that is used for row h, which may lie beyond the grid; -1 for zeros."""
    if 0 <= h < H:
        return h
    if replicate:
        return 0 if h < 0 else H - 1
    return -1


@numba.njit(**OPTIONS)
def _load_row(field, h, ring, wrap, replicate):  # type: ignore[no-untyped-def]
    """Copy row h of a field, with padding of the columns, to its place in the ring buffer."""
    C, H, W = field.shape
    K = ring.shape[1]
    half, place, h = K // 2, h % K, _source_row(h, H, replicate)
    if h < 0:
        ring[:, place] = 0
        return
    for first in range(0, W, _TILE):
        for c in range(C):
            for w in range(first, min(first + _TILE, W)):
                ring[half + w, place, c] = field[c, h, w]
    for j in range(half):
        for c in range(C):
            ring[j, place, c] = field[c, h, W - half + j] if wrap else 0
            ring[half + W + j, place, c] = field[c, h, j] if wrap else 0


@numba.njit(**OPTIONS)
def _flush_row(field, h, ring, wrap, replicate):  # type: ignore[no-untyped-def]
    """Adjoint of `_load_row`: add a row of the ring buffer to row h of a field, and clear it."""
    C, H, W = field.shape
    K = ring.shape[1]
    half, place, h = K // 2, h % K, _source_row(h, H, replicate)
    if h >= 0:
        for first in range(0, W, _TILE):
            for c in range(C):
                for w in range(first, min(first + _TILE, W)):
                    field[c, h, w] += ring[half + w, place, c]
        if wrap:
            for j in range(half):
                for c in range(C):
                    field[c, h, W - half + j] += ring[j, place, c]
                    field[c, h, j] += ring[half + W + j, place, c]
    ring[:, place] = 0


@numba.njit(**_DOT_PRODUCT)
def _product(patch, a):  # type: ignore[no-untyped-def]
    """Return the dot product of a patch and a filter."""
    total = patch.dtype.type(0)
    for i in range(patch.size):
        total += patch[i] * a[i]
    return total


@numba.njit(**_DOT_PRODUCT)
def _four_products(patch, a, b, c, d):  # type: ignore[no-untyped-def]
    """Return the dot products of a patch and four filters; the patch is loaded once."""
    zero = patch.dtype.type(0)
    s, t, u, v = zero, zero, zero, zero
    for i in range(patch.size):
        s += patch[i] * a[i]
        t += patch[i] * b[i]
        u += patch[i] * c[i]
        v += patch[i] * d[i]
    return s, t, u, v


@numba.njit(**OPTIONS)
def _values(patch, filters, experts, out):  # type: ignore[no-untyped-def]
    """Write the chosen experts' values for a patch to `out` (k,)."""
    k = experts.size
    for r in range(0, k - k % 4, 4):
        a, b, c, d = experts[r], experts[r + 1], experts[r + 2], experts[r + 3]
        four = _four_products(patch, filters[a], filters[b], filters[c], filters[d])
        out[r], out[r + 1], out[r + 2], out[r + 3] = four
    for r in range(k - k % 4, k):
        out[r] = _product(patch, filters[experts[r]])


@numba.njit(**OPTIONS)
def forward_band(field, band, filters, choices, out, ring, wrap, replicate):  # type: ignore[no-untyped-def]
    """Write the chosen experts' values at the rows of a band to `out`.

    Args:
        field: (C, H, W).
        band: first row and the one after the last.
        filters: (K, E, columns x rows x channels): rotated by 0 to K - 1 rows.
        choices: (H, W, k) indices of the chosen experts.
        out: (k, H, W), written.
        ring: (W + columns - 1, rows, C) ring buffer, scratch memory.
        wrap: True if longitude is periodic.
        replicate: True if the outer rows are replicated.
    """
    W, K = field.shape[2], ring.shape[1]
    half, size, step = K // 2, filters.shape[2], K * ring.shape[2]
    flat = ring.reshape(-1)
    for new_row in range(band[0] - half, band[1] + half):
        _load_row(field, new_row, ring, wrap, replicate)
        h = new_row - half
        if h < band[0]:
            continue
        rotated_filters = filters[(h - half) % K]
        for w in range(W):
            patch = flat[w * step : w * step + size]
            _values(patch, rotated_filters, choices[h, w], out[:, h, w])


# Filters are read as filters[a, i]: slices of them, in loops that store, count references.
@numba.njit(**FUSED)
def _add(total, factor, filters, a):  # type: ignore[no-untyped-def]
    """Add the filters of expert `a`, multiplied by `factor`, to `total`."""
    for i in range(total.size):
        total[i] += factor * filters[a, i]


@numba.njit(**FUSED)
def _add_four(total, s, t, u, v, filters, a, b, c, d):  # type: ignore[no-untyped-def]
    """Add filters a, b, c and d times factors s, t, u and v to `total`."""
    for i in range(total.size):
        total[i] += (s * filters[a, i] + t * filters[b, i]) + (
            u * filters[c, i] + v * filters[d, i]
        )


@numba.njit(**OPTIONS)
def _add_to_patch(patch, filters, experts, factors):  # type: ignore[no-untyped-def]
    """Add to a patch the chosen filters times their factors."""
    k = experts.size
    for r in range(0, k - k % 4, 4):
        multipliers = factors[r], factors[r + 1], factors[r + 2], factors[r + 3]
        four_experts = experts[r], experts[r + 1], experts[r + 2], experts[r + 3]
        _add_four(patch, *multipliers, filters, *four_experts)
    for r in range(k - k % 4, k):
        _add(patch, factors[r], filters, experts[r])


@numba.njit(**FUSED)
def _add_to_filters(filters, experts, factors, patch):  # type: ignore[no-untyped-def]
    """Add to each chosen filter the patch times its factor."""
    for r in range(experts.size):
        a, factor = experts[r], factors[r]
        for i in range(patch.size):
            filters[a, i] += factor * patch[i]


@numba.njit(**OPTIONS)
def backward_band(  # type: ignore[no-untyped-def]
    field, band, filters, choices, gradient, for_field, for_filters, needs, ring, sums, wrap,
    replicate,
):  # fmt: skip
    """Add the gradients of a band's values to those for the field and the filters.

    Arguments as in `forward_band`, and:
        gradient: (k, H, W) gradient of the experts' values.
        for_field: (C, H, W) gradient for the field, added to.
        for_filters: gradient for the filters, in the shape of `filters`, added to.
        needs: True for each of the two gradients (field, filters) to compute.
        sums: scratch memory in the shape of `ring` for the field's gradient; zero before and after.
    """
    W, K = field.shape[2], ring.shape[1]
    half, size, step = K // 2, filters.shape[2], K * ring.shape[2]
    flat, flat_sums = ring.reshape(-1), sums.reshape(-1)
    # Values at row h are of input rows h - half to h + half: row h + half is loaded before, and row
    # h - half flushed after it. The range is that of the first row to load and the last to flush.
    for h in range(band[0] - 2 * half, band[1] + 2 * half):
        if h < band[1]:
            _load_row(field, h + half, ring, wrap, replicate)
        if band[0] <= h < band[1]:
            rotated_filters, for_rotated = filters[(h - half) % K], for_filters[(h - half) % K]
            for w in range(W):
                offset, experts, factors = w * step, choices[h, w], gradient[:, h, w]
                if needs[0]:
                    _add_to_patch(
                        flat_sums[offset : offset + size], rotated_filters, experts, factors
                    )
                if needs[1]:
                    _add_to_filters(for_rotated, experts, factors, flat[offset : offset + size])
        if h >= band[0] and needs[0]:
            _flush_row(for_field, h - half, sums, wrap, replicate)


@numba.njit(**FUSED)
def _write_unchosen_gradient(weights, targets, factor, gradient):  # type: ignore[no-untyped-def]
    """Write the classification gradient of an expert as if no sample had chosen it."""
    # `exp` takes float32 from -87 to 88; beyond 87 the sigmoid is within e^-87 = 2e-38 of 0 or 1
    one, end = weights.dtype.type(1), weights.dtype.type(87)
    for p in range(weights.size):
        x = -weights[p]
        x = x if not x > end else end  # NaN stays
        x = x if not x < -end else -end
        gradient[p] = (one / (one + exp(x)) - targets[p]) * factor


@numba.njit(**OPTIONS)
def classify(weights, choices, wrong, factor, band, gradient):  # type: ignore[no-untyped-def]
    """Write the routing classification gradient (sigmoid(R) - target) / n of a map of weights.

    With s_r the share of samples whose choice r was incorrect, the target of a chosen expert is
    1 - s_r, and that of each other one sum(s_r) / (E - k). All are written with the target of the
    others; then the chosen get the difference of the two targets.

    Args:
        weights: (E, P) weights R of the experts at P points.
        choices: (P, k) indices of the chosen experts.
        wrong: (N, k, P), 1 where a choice of one of the N samples with this map was incorrect.
        factor: factor of the gradient, loss scale / n.
        band: first point and the one after the last.
        gradient: (E, P), written.
    """
    E, (N, k, _) = weights.shape[0], wrong.shape
    share, others = np.zeros((k, _BLOCK), weights.dtype), np.zeros(_BLOCK, weights.dtype)
    for start in range(band[0], band[1], _BLOCK):
        stop = min(start + _BLOCK, band[1])
        share[:], others[:] = 0, 0
        for r in range(k):
            for n in range(N):
                for p in range(stop - start):
                    share[r, p] += weights.dtype.type(wrong[n, r, start + p])
            for p in range(_BLOCK):
                share[r, p] /= N
                others[p] += share[r, p]
        for p in range(_BLOCK):
            others[p] /= max(E - k, 1)
        for e in range(E):
            _write_unchosen_gradient(
                weights[e, start:stop], others, factor, gradient[e, start:stop]
            )
        for p in range(stop - start):
            for r in range(k):
                gradient[choices[start + p, r], start + p] += (
                    others[p] - (1 - share[r, p])
                ) * factor


@numba.njit(**OPTIONS)
def _keys(bits, rank, keys):  # type: ignore[no-untyped-def]
    """Write sort keys in the order of float32 weights, NaN last, ties broken by rank.

    The bits of a number are an integer in the order of its size; 16 bits more hold the rank, which
    a float64 number has room for.
    """
    for p in range(bits.size):
        size = np.int32(bits[p] & 0x7FFFFFFF)
        order = np.int32(-size) if bits[p] < 0 else size
        order = np.int32(0x7FFFFFFF) if size > 0x7F800000 else order  # NaN: beyond infinity's bits
        keys[p] = np.float64(order) * _INDEX + rank


@numba.njit(**OPTIONS)
def choose(bits, band, choices):  # type: ignore[no-untyped-def]
    """Write the experts of the k largest weights in order; of equal weights, the first expert.

    Experts are processed in sorted groups of four and merged into sorted groups of the best so far:
    each of these keeps the four largest of its own and the incoming ones, and passes the others on.

    Args:
        bits: (E, P) float32 weights, as int32.
        band: first point and the one after the last.
        choices: (P, k) indices of experts, written.
    """
    E, k, n = bits.shape[0], choices.shape[1], POINTS
    groups = (k + 3) // 4
    best, four = np.empty((groups, 4 * n)), np.empty(4 * n)
    for start in range(band[0], band[1], n):
        size = min(n, band[1] - start)
        best[:] = -np.inf
        for first in range(0, E, 4):
            four[:] = -np.inf
            for e in range(first, min(first + 4, E)):
                at = (e - first) * n
                _keys(bits[e, start : start + size], E - 1 - e, four[at : at + size])
            sort_four(four)
            for g in range(groups):
                merge_fours(four, best[g])
        for r in range(k):
            row = best[r // 4, (3 - r % 4) * n :]  # the four of a group ascend
            for p in range(size):
                choices[start + p, r] = E - 1 - (np.int64(row[p]) & (_INDEX - 1))


@numba.njit(**OPTIONS)
def _digit_at(sums, below, level):  # type: ignore[no-untyped-def]
    """Return the first digit whose cumulative sum exceeds `level`, and the sum before it.

    If rounding keeps the sum below the level, it is the last digit that occurs.
    """
    total, digit, before = 0.0, -1, below
    for d in range(sums.size):
        if sums[d] > 0:
            digit, before = d, below + total
            total += sums[d]
            if below + total > level:
                break
    return digit, before


@numba.njit(**OPTIONS)
def _with_digit(keys, weights, shift, mask, digit):  # type: ignore[no-untyped-def]
    """Return the keys that have this digit and a positive weight, (1, n), and their weights."""
    count = 0
    for r in range(keys.shape[0]):
        for p in range(keys.shape[1]):
            count += (keys[r, p] >> shift) & mask == digit
    matching, share, n = np.empty((1, count), keys.dtype), np.empty(count, weights.dtype), 0
    for r in range(keys.shape[0]):
        for p in range(keys.shape[1]):
            if (keys[r, p] >> shift) & mask == digit and weights[p] > 0:
                matching[0, n], share[n] = keys[r, p], weights[p]
                n += 1
    return matching[:, :n].copy(), share[:n].copy()


@numba.njit(**OPTIONS)
def select(keys, weights, level, bits, width):  # type: ignore[no-untyped-def]
    """Return the smallest key at which the cumulative weight exceeds `level`.

    Radix selection: count the leading bits first, then look only at keys that share them.

    Args:
        keys: (n, P) integers, not negative.
        weights: (P,) weights of the keys in each row, not negative, not all 0. Keys of weight 0 are
            ignored.
        level: less than the sum of the weights.
        bits: number of bits of a key.
        width: number of bits of a digit, counted in one pass.
    """
    sums, below, mask = np.zeros(1 << width), 0.0, (1 << width) - 1
    for shift in range(bits - bits % width, -1, -width):
        sums[:] = 0
        for r in range(keys.shape[0]):
            for p in range(keys.shape[1]):
                sums[(keys[r, p] >> shift) & mask] += weights[p]
        digit, below = _digit_at(sums, below, level)
        keys, weights = _with_digit(keys, weights, shift, mask, digit)
    return keys[0, 0]


Band = tuple[int, int]


def bands(count: int, size: int) -> list[Band]:
    """Split `count` rows into bands of `size`: (first, past the last); one band for one thread."""
    size = max(count, 1) if torch.get_num_threads() == 1 else size
    return [(first, min(first + size, count)) for first in range(0, count, size)]
