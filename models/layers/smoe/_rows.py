"""Compiled loops of the mixture-of-experts layer: a band of rows of one sample at a time.

Rows of the input are copied into a ring of as many rows as a filter has, channels last and with
what lies beyond the grid, so that the numbers of a patch lie together and nothing larger than
some rows is kept. Fields are (channels, rows, columns), weights (E, rows, columns, channels) flat.
"""

import numba

from ens10.compiled import OPTIONS
from ens10.models.layers.smoe._patches import dots, to_filters, to_patch

_TILE = 16  # columns that are transposed at a time


@numba.njit(**OPTIONS)
def _to_columns(row, C, size, line, at):  # type: ignore[no-untyped-def]
    """Channels last: row (C, W) to line[at + w size + c]."""
    W = row.shape[1]
    for start in range(0, W, _TILE):
        for c in range(C):
            place = at + start * size + c
            for w in range(start, min(start + _TILE, W)):
                line[place] = row[c, w]
                place += size


@numba.njit(**OPTIONS)
def _from_columns(line, at, size, C, row, add):  # type: ignore[no-untyped-def]
    """Channels first again; added to what is there, or in its place."""
    W = row.shape[1]
    for start in range(0, W, _TILE):
        for c in range(C):
            place = at + start * size + c
            for w in range(start, min(start + _TILE, W)):
                row[c, w] = row[c, w] + line[place] if add else line[place]
                place += size


@numba.njit(**OPTIONS)
def _inside(h, H, replicate):  # type: ignore[no-untyped-def]
    """The row that stands for row h, or -1 for zeros."""
    if 0 <= h < H:
        return h
    if replicate:
        return 0 if h < 0 else H - 1
    return -1


@numba.njit(**OPTIONS)
def _fill(field, h, line, at, size, half, wrap, replicate):  # type: ignore[no-untyped-def]
    """Row h of a field, as filters see it, to line[at:]."""
    C, H, W = field.shape
    h = _inside(h, H, replicate)
    if h < 0:
        line[at : at + (W + 2 * half) * size] = 0
        return
    _to_columns(field[:, h], C, size, line, at + half * size)
    for j in range(half):
        left, right = at + j * size, at + (half + W + j) * size
        for c in range(C):
            line[left + c] = field[c, h, W - half + j] if wrap else 0
            line[right + c] = field[c, h, j] if wrap else 0


@numba.njit(**OPTIONS)
def _empty(field, h, line, at, size, half, wrap, replicate):  # type: ignore[no-untyped-def]
    """Adds line[at:] to row h of a field, the reverse of `_fill`, and clears it."""
    C, H, W = field.shape
    h = _inside(h, H, replicate)
    if h >= 0:
        _from_columns(line, at + half * size, size, C, field[:, h], True)
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
        line: (W k,) scratch.
        places: (rows,) scratch.
        padding: half a filter, channels in the ring, numbers of an expert, whether longitude is
            periodic, whether the outer rows are replicated.
        layout: of a patch, or of a part of it.
    """
    half, channels, size, wrap, replicate = padding
    W = field.shape[2]
    k, K = chosen.shape[2], places.size
    length = (W + 2 * half) * channels
    whole, run = len(layout[1]) * len(layout[2]), K * channels
    experts = chosen.reshape(-1)
    for h in range(band[0] - half, band[0] + half):
        _fill(field, h, ring, h % K * length, channels, half, wrap, replicate)
    for h in range(band[0], band[1]):
        new = h + half
        _fill(field, new, ring, new % K * length, channels, half, wrap, replicate)
        _turn(places, h, half, length)
        line[:] = 0
        for i in range(0, K, len(layout[0])):
            for v in range(0, run, whole):
                for w in range(W):
                    dots(line, w * k, ring, places, i, w * channels + v, experts,
                         (h * W + w) * k, k, filters, i * run + v, size, layout)  # fmt: skip
        _from_columns(line, 0, k, k, out[:, h], False)


@numba.njit(**OPTIONS)
def incorrect(gradient, area, limit, half, allowed):  # type: ignore[no-untyped-def]
    """Whether a choice was incorrect; see `ens10.models.layers.smoe.routing`."""
    error = abs(gradient)
    if area >= 0:
        error = error / area if area > 0 else 0 * area
    return error > limit and error * half > allowed


@numba.njit(**OPTIONS)
def _damped(part, judged, h, area, limits, damping, line):  # type: ignore[no-untyped-def]
    """The experts' gradient at row h, ranks last."""
    k, _, W = part.shape
    _to_columns(part[:, h], k, k, line, 0)
    if damping == 1:
        return
    for start in range(0, W, _TILE):
        for r in range(k):
            for w in range(start, min(start + _TILE, W)):
                if incorrect(judged[r, h, w], area[h, w], limits[0], limits[1], limits[2]):
                    line[w * k + r] *= damping


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
    field, band, filters, chosen, part, judged, area, limits, damping, for_field, for_filters,
    wanted, rings, line, places, padding, layout,
):  # fmt: skip
    """Adds the gradients of a band's values to those for the field and the filters.

    Arguments as those of `forward_band`, and:
        part: (k, H, W) gradient of the experts' values before damping.
        judged: (k, H, W) gradient of the output.
        area: (H, W) or negative; see `incorrect`, also for the limits.
        damping: of incorrect choices; 1 for none.
        for_field: (C, H, W).
        for_filters: (E rows columns channels,).
        wanted: whether the gradient is for the field, for the filters.
        rings: (2, ...) one of the field, one of its gradient, that is zero.
    """
    half, channels, size, wrap, replicate = padding
    W = field.shape[2]
    k, K = chosen.shape[2], places.size
    length = (W + 2 * half) * channels
    experts = chosen.reshape(-1)
    ring, sums = rings[0], rings[1]
    for h in range(band[0] - half, band[0] + half):
        _fill(field, h, ring, h % K * length, channels, half, wrap, replicate)
    for h in range(band[0], band[1]):
        new = h + half
        _fill(field, new, ring, new % K * length, channels, half, wrap, replicate)
        _turn(places, h, half, length)
        _damped(part, judged, h, area, limits, damping, line)
        row = (h * W, k, W, K, channels, size)
        _differentiate(row, rings, places, experts, filters, for_filters, line, wanted, layout)
        if wanted[0]:
            old = h - half
            _empty(for_field, old, sums, old % K * length, channels, half, wrap, replicate)
    if wanted[0]:
        for h in range(band[1] - half, band[1] + half):
            _empty(for_field, h, sums, h % K * length, channels, half, wrap, replicate)
