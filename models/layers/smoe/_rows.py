"""Compiled loops of the mixture-of-experts layer: a band of rows of one sample at a time.

Rows of the input are copied into a ring of as many rows as a filter has, channels last and with
what lies beyond the grid, so that the numbers of a patch lie together and nothing larger than
some rows is kept. Fields are (channels, rows, columns), weights (E, rows, columns, channels) flat.
"""

import numba

from ens10.compiled import OPTIONS
from ens10.models.layers.smoe._patches import dots, to_filters, to_patch
from ens10.models.layers.smoe._transposes import add_columns, from_columns, to_columns

_RANKS = (0,) * 4  # ranks and columns that are transposed at a time


@numba.njit(**OPTIONS)
def _inside(h, H, replicate):  # type: ignore[no-untyped-def]
    """The row that stands for row h, or -1 for zeros."""
    if 0 <= h < H:
        return h
    if replicate:
        return 0 if h < 0 else H - 1
    return -1


@numba.njit(**OPTIONS)
def _fill(field, h, line, at, padding, lanes):  # type: ignore[no-untyped-def]
    """Row h of a field, as filters see it, to line[at:]."""
    half, size, _, wrap, replicate = padding
    C, H, W = field.shape
    h = _inside(h, H, replicate)
    if h < 0:
        line[at : at + (W + 2 * half) * size] = 0
        return
    to_columns(field.reshape(-1), h * W, H * W, C, W, line, at + half * size, size, lanes)
    for j in range(half):
        left, right = at + j * size, at + (half + W + j) * size
        for c in range(C):
            line[left + c] = field[c, h, W - half + j] if wrap else 0
            line[right + c] = field[c, h, j] if wrap else 0


@numba.njit(**OPTIONS)
def _empty(field, h, line, at, padding, lanes):  # type: ignore[no-untyped-def]
    """Adds line[at:] to row h of a field, the reverse of `_fill`, and clears it."""
    half, size, _, wrap, replicate = padding
    C, H, W = field.shape
    h = _inside(h, H, replicate)
    if h >= 0:
        add_columns(line, at + half * size, size, field.reshape(-1), h * W, H * W, C, W, lanes)
        if wrap:
            for j in range(half):
                left, right = at + j * size, at + (half + W + j) * size
                for c in range(C):
                    field[c, h, W - half + j] += line[left + c]
                    field[c, h, j] += line[right + c]
    line[at : at + (W + 2 * half) * size] = 0


@numba.njit(**OPTIONS)
def _turn(places, h, half, length):  # type: ignore[no-untyped-def]
    """Where in the ring the rows h - half to h + half are."""
    K = places.size
    for i in range(K):
        places[i] = (h - half + i) % K * length


@numba.njit(**OPTIONS)
def forward_band(field, band, filters, chosen, out, ring, line, places, padding, layout):  # type: ignore[no-untyped-def]
    """The chosen experts' values at the rows of a band.

    Args:
        field: (C, H, W).
        band: first row and the one after the last.
        filters: (E rows columns channels,).
        chosen: (H, W, k) indices.
        out: (k, H, W), written.
        ring: (rows x (W + columns - 1) x channels,) zeros where channels are added.
        line: (2, W k) scratch.
        places: (rows,) scratch.
        padding: half a filter, channels in the ring, numbers of an expert, whether longitude is
            periodic, whether the outer rows are replicated.
        layout: of a patch, or of a part of it.
    """
    half, channels, size = padding[:3]
    _, H, W = field.shape
    k, K = chosen.shape[2], places.size
    length = (W + 2 * half) * channels
    whole, run = len(layout[1]) * len(layout[2]), K * channels
    experts = chosen.reshape(-1)
    for new in range(band[0] - half, band[1] + half):
        _fill(field, new, ring, new % K * length, padding, layout[2])
        h = new - half
        if h < band[0]:
            continue
        _turn(places, h, half, length)
        line[0] = 0
        for i in range(0, K, len(layout[0])):
            for v in range(0, run, whole):
                for w in range(W):
                    dots(line[0], w * k, ring, places, i, w * channels + v, experts,
                         (h * W + w) * k, k, filters, i * run + v, size, layout)  # fmt: skip
        from_columns(line[0], 0, k, out.reshape(-1), h * W, H * W, k, W, _RANKS)


@numba.njit(**OPTIONS)
def incorrect(gradient, area, limit):  # type: ignore[no-untyped-def]
    """Whether a choice was incorrect; see `ens10.models.layers.smoe.routing`.

    Args:
        gradient: of the output.
        area: by which its size is divided, or negative.
        limit: that the error has to exceed, in units of the gradient.
    """
    error = abs(gradient)
    if area >= 0:
        error = error / area if area > 0 else 0 * area
    return error > limit


@numba.njit(**OPTIONS)
def _damped(part, judged, h, area, limit, damping, line):  # type: ignore[no-untyped-def]
    """The experts' gradient at row h, ranks last, to line[0]."""
    k, H, W = part.shape
    if damping == 1:
        to_columns(part.reshape(-1), h * W, H * W, k, W, line[0], 0, k, _RANKS)
        return
    row = line[1].reshape(k, W)
    for r in range(k):
        for w in range(W):
            wrong = incorrect(judged[r, h, w], area[h, w], limit)
            row[r, w] = part[r, h, w] * damping if wrong else part[r, h, w]
    to_columns(line[1], 0, W, k, W, line[0], 0, k, _RANKS)


@numba.njit(**OPTIONS)
def _differentiate(row, rings, places, experts, filters, for_filters, line, wanted, layout):  # type: ignore[no-untyped-def]
    """Adds what the row's gradient, in `line`, gives for the field and the filters."""
    first, k, W, K, channels, size = row
    whole, run = len(layout[1]) * len(layout[2]), K * channels
    ring, sums = rings[0], rings[1]
    for i in range(0, K, len(layout[0])):
        for v in range(0, run, whole):
            if wanted[0]:
                for w in range(W):
                    to_patch(sums, places, i, w * channels + v, experts, (first + w) * k, k,
                             filters, i * run + v, size, line, w * k, layout)  # fmt: skip
            if wanted[1]:
                for w in range(W):
                    to_filters(ring, places, i, w * channels + v, experts, (first + w) * k, k,
                               for_filters, i * run + v, size, line, w * k, layout)  # fmt: skip


@numba.njit(**OPTIONS)
def backward_band(  # type: ignore[no-untyped-def]
    field, band, filters, chosen, part, judged, area, limit, damping, for_field, for_filters,
    wanted, rings, line, places, padding, layout,
):  # fmt: skip
    """Adds the gradients of a band's values to those for the field and the filters.

    Arguments as those of `forward_band`, and:
        part: (k, H, W) gradient of the experts' values before damping.
        judged: (k, H, W) gradient of the output.
        area: (H, W) or negative; see `incorrect`, also for the limit.
        damping: of incorrect choices; 1 for none.
        for_field: (C, H, W).
        for_filters: (E rows columns channels,).
        wanted: whether the gradient is for the field, for the filters.
        rings: (2, ...) one of the field, one of its gradient, that is zero.
    """
    half, channels, size = padding[:3]
    W = field.shape[2]
    k, K = chosen.shape[2], places.size
    length = (W + 2 * half) * channels
    experts = chosen.reshape(-1)
    ring, sums = rings[0], rings[1]
    for h in range(band[0] - 2 * half, band[1] + 2 * half):
        new, old = h + half, h - half
        if h < band[1]:
            _fill(field, new, ring, new % K * length, padding, layout[2])
        if band[0] <= h < band[1]:
            _turn(places, h, half, length)
            _damped(part, judged, h, area, limit, damping, line)
            row = (h * W, k, W, K, channels, size)
            _differentiate(
                row, rings, places, experts, filters, for_filters, line[0], wanted, layout
            )
        if h >= band[0] and wanted[0]:
            _empty(for_field, old, sums, old % K * length, padding, layout[2])
