"""Fractions of cells in windows around each cell, by running sums in float64."""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ens10.metrics._dispatch import common_dtype
from ens10.metrics.events._checks import check_probability
from ens10.metrics.events._kernels import exceedance, happened

Array = npt.NDArray[Any]


def field_sums(x: Array, y: Array, w: Array, *, members: bool, **options: Any) -> Array:
    """Sums of squares of the fractions of fields, one field after the other.

    Args:
        x: forecast, (..., [member,] latitude, longitude).
        y: observed, (..., latitude, longitude).
        w: weights, (latitude, longitude).
        members: whether the forecast has members.
        **options: of `fractions_sums`.

    Returns:
        (..., 4): of the differences, of the forecast, of the observed, and of the weights.
    """
    own = x.ndim - 2 - members
    loops = np.broadcast_shapes(x.shape[:own], y.shape[:-2])
    x = np.broadcast_to(x, (*loops, *x.shape[own:]))
    y = np.broadcast_to(y, (*loops, *y.shape[-2:]))
    sums = np.empty((*loops, 4))
    for place in np.ndindex(loops):
        sums[place] = _of_field(x[place], y[place], w, members=members, **options)
    return sums


def _of_field(
    x: Array,
    y: Array,
    w: Array,
    *,
    threshold: float | None,
    window: tuple[int, int],
    members: bool,
    periodic: bool,
    edges: str,
    strict: bool,
    omit: bool,
) -> Array:
    p, o = _probabilities(x if members else x[None], y, threshold, strict)
    there = ~(np.isnan(p) | np.isnan(o))
    if not omit and not there.all():
        return np.full(4, np.nan)
    around = partial(window_sums, window=window, periodic=periodic)
    cells = around(there)
    used = cells > 0
    if edges == "inside":
        used &= whole_windows((y.shape[0], y.shape[1]), window, periodic=periodic)
    w, cells = np.where(used, w, 0.0), np.where(used, cells, 1.0)
    f, g = (around(np.where(there, a, 0.0)) / cells for a in (p, o))
    return np.array([np.sum(w * a) for a in ((f - g) ** 2, f**2, g**2, 1.0)])


def _probabilities(
    members: Array, y: Array, threshold: float | None, strict: bool
) -> tuple[Array, Array]:
    """Probabilities and events of one field, in float64."""
    if threshold is None:
        check_probability("forecast", members)
        check_probability("observed", y)
        return members.mean(axis=0, dtype=np.float64), y.astype(np.float64)
    members, y = (a.astype(common_dtype(a), copy=False) for a in (members, y))
    limit = np.asarray(threshold, dtype=members.dtype)
    share = exceedance(members, limit, strict=strict, nan="propagate").astype(np.float64)
    limit = np.asarray(threshold, dtype=y.dtype)
    event = happened(y, limit, strict=strict).astype(np.float64)
    return np.rint(share * len(members)) / len(members), event


def window_sums(field: Array, window: tuple[int, int], *, periodic: bool) -> Array:
    """Sums over the windows that are centred on each cell.

    Windows end at the edges of the field. They are summed axis by axis, so that a running sum is
    no longer than one axis, and each costs the same whatever its size.

    Args:
        field: (..., latitude, longitude).
        window: odd numbers of cells, along latitude and longitude.
        periodic: whether longitudes go round.

    Returns:
        The sums, of the field's shape, float64.
    """
    rows = _along_last(np.swapaxes(field, -1, -2), window[0], periodic=False)
    return _along_last(np.swapaxes(rows, -1, -2), window[1], periodic=periodic)


def _along_last(field: Array, window: int, *, periodic: bool) -> Array:
    n, half = field.shape[-1], window // 2
    if periodic:
        around = np.arange(-half, n + half) % n
        field = field[..., around]
        begin, end = np.arange(n), np.arange(n) + window
    else:
        begin, end = np.maximum(np.arange(n) - half, 0), np.minimum(np.arange(n) + half + 1, n)
    running = np.zeros((*field.shape[:-1], field.shape[-1] + 1))
    np.cumsum(field, axis=-1, dtype=np.float64, out=running[..., 1:])
    sums: Array = running[..., end] - running[..., begin]
    return sums


def whole_windows(shape: tuple[int, int], window: tuple[int, int], *, periodic: bool) -> Array:
    """Whether the window of each cell (latitude, longitude) lies within the field."""
    inside = []
    for n, cells, around in zip(shape, window, (False, periodic), strict=True):
        place, half = np.arange(n), cells // 2
        inside.append((place >= half) & (place < n - half) | around)
    whole: Array = inside[0][:, None] & inside[1]
    return whole
