"""Fractions skill score: fractions in windows around each cell, by running sums in float64."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, RechunkWarning
from ens10.metrics._dispatch import as_array, common_dtype
from ens10.metrics._labels import check_alike, rechunk, rechunk_message
from ens10.metrics._reduce import Nan, Over
from ens10.metrics._tables import as_labelled, names_of
from ens10.metrics.events._kernels import check_probability, event_indicator, exceedance
from ens10.metrics.statistic import check_sizes

__all__ = ["fractions_skill_score", "fractions_sums"]

Array = npt.NDArray[Any]


def field_sums(x: Array, y: Array, w: Array, *, members: bool, **options: Any) -> Array:
    """Return sums of squares of the fractions of fields, one field after the other.

    Args:
        x: forecast, (..., [member,] latitude, longitude).
        y: observed, (..., latitude, longitude).
        w: weights, (latitude, longitude).
        members: True if the forecast has members.
        **options: options of `fractions_sums`.

    Returns:
        (..., 4): sums of squared differences, forecast fractions, observed fractions, and weights.
    """
    loop_ndim = x.ndim - 2 - members
    loops = np.broadcast_shapes(x.shape[:loop_ndim], y.shape[:-2])
    x = np.broadcast_to(x, (*loops, *x.shape[loop_ndim:]))
    y = np.broadcast_to(y, (*loops, *y.shape[-2:]))
    sums = np.empty((*loops, 4))
    for place in np.ndindex(loops):
        sums[place] = _sums_of_field(x[place], y[place], w, members=members, **options)
    return sums


def _sums_of_field(
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
    valid = ~(np.isnan(p) | np.isnan(o))
    if not omit and not valid.all():
        return np.full(4, np.nan)
    around = partial(window_sums, window=window, periodic=periodic)
    cells = around(valid)
    usable = cells > 0
    if edges == "inside":
        usable &= complete_windows((y.shape[0], y.shape[1]), window, periodic=periodic)
    w, cells = np.where(usable, w, 0.0), np.where(usable, cells, 1.0)
    f, g = (around(np.where(valid, a, 0.0)) / cells for a in (p, o))
    return np.array([np.sum(w * a) for a in ((f - g) ** 2, f**2, g**2, 1.0)])


def _probabilities(
    members: Array, y: Array, threshold: float | None, strict: bool
) -> tuple[Array, Array]:
    """Return probabilities and events of one field, in float64."""
    if threshold is None:
        check_probability("forecast", members)
        check_probability("observed", y)
        return members.mean(axis=0, dtype=np.float64), y.astype(np.float64)
    members, y = (a.astype(common_dtype(a), copy=False) for a in (members, y))
    limit = np.asarray(threshold, dtype=members.dtype)
    share = exceedance(members, limit, strict=strict, nan="propagate").astype(np.float64)
    limit = np.asarray(threshold, dtype=y.dtype)
    event = event_indicator(y, limit, strict=strict).astype(np.float64)
    return np.rint(share * len(members)) / len(members), event


def window_sums(field: Array, window: tuple[int, int], *, periodic: bool) -> Array:
    """Return the sums over the windows centred on each cell.

    Windows are cut at the edges of the field. They are summed axis by axis, so that a running sum
    is no longer than one axis, and the cost does not depend on the window size.

    Args:
        field: (..., latitude, longitude).
        window: odd numbers of cells, along latitude and longitude.
        periodic: True if longitudes go round the globe.

    Returns:
        The sums, of the field's shape, float64.
    """
    rows = _sum_along_last(np.swapaxes(field, -1, -2), window[0], periodic=False)
    return _sum_along_last(np.swapaxes(rows, -1, -2), window[1], periodic=periodic)


def _sum_along_last(field: Array, window: int, *, periodic: bool) -> Array:
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


def complete_windows(shape: tuple[int, int], window: tuple[int, int], *, periodic: bool) -> Array:
    """Return True where the window of a cell (latitude, longitude) lies within the field."""
    inside = []
    for n, cells, around in zip(shape, window, (False, periodic), strict=True):
        place, half = np.arange(n), cells // 2
        inside.append((place >= half) & (place < n - half) | around)
    complete: Array = inside[0][:, None] & inside[1]
    return complete


Edges = Literal["cut", "inside"]
_PARTS = {
    "difference": "sum of squared differences of the fractions",
    "forecast": "sum of squared forecast fractions",
    "observed": "sum of squared observed fractions",
    "weight": "sum of weights",
}


def fractions_sums(
    forecast: Any,
    observed: Any,
    *,
    threshold: float | None,
    window: int | tuple[int, int],
    latitude_dim: Dim,
    longitude_dim: Dim,
    member_dim: Dim | None = None,
    dim: Over = (),
    periodic: bool = True,
    edges: str = "cut",
    strict: bool = True,
    weights: Any = None,
    nan: str = "propagate",
) -> xr.Dataset:
    """Return the additive sums over cells that `fractions_skill_score` needs, field by field.

    The fraction of a cell is the share of the cells in a window around it where the event
    happened, or the mean of their probabilities (with members: the neighbourhood probability of
    Schwartz et al. 2010, doi:10.1175/2009WAF2222267.1).

    Args:
        forecast: fields of a quantity; with `threshold=None` probabilities (or 0 and 1).
        observed: fields, without members; with `threshold=None` events, 0 and 1.
        threshold: above which the event happens, or None.
        window: cells along latitude and longitude, or one number for both; odd.
        latitude_dim: the axis of latitudes: a number for arrays (the forecast's; that of
            `observed` is the same but for the member axis), a name for DataArrays.
        longitude_dim: the axis of longitudes.
        member_dim: the member axis of the forecast; None for single fields.
        dim: other dimensions that are summed over, such as dates: names for DataArrays, or
            "all"; numbers, of arrays, count the axes without those named above. None by default:
            sums of each field.
        periodic: True if longitudes go round the globe.
        edges: "cut" makes windows smaller at the edges (of the grid; periodic longitudes have
            none), "inside" leaves out cells whose window is not entirely within the grid.
        strict: True if a value equal to the threshold counts as below it.
        weights: weights of the cells that broadcast to (latitude, longitude), such as area
            weights; all cells within a window count equally.
        nan: "propagate" returns NaN sums for a field with a NaN; "omit" uses the cells that are
            present in both forecast and observation.

    Returns:
        A Dataset of four sums, lazy if the fields are, over the remaining dimensions. Merge
        with `merge_states`, finish with `fractions_skill_score`.

    Raises:
        UnknownNameError: an unknown policy for NaN or kind of edges.
        ArgumentError: an even window or one larger than the grid; values that are not
            probabilities (on lazy arrays when computed); shapes, coordinates or units that do
            not fit.
    """
    for name, choice, choices in (("nan", nan, get_args(Nan)), ("edges", edges, get_args(Edges))):
        if choice not in choices:
            raise UnknownNameError(name, choice, choices)
    ready = _as_dataarrays(forecast, observed, latitude_dim, longitude_dim, member_dim)
    grid_dims: dict[str, Dim] = {"_latitude": latitude_dim, "_longitude": longitude_dim}
    plane = list(grid_dims)
    x, y = ready["forecast"], ready["observed"]
    shape = (x.sizes[plane[0]], x.sizes[plane[1]])
    cells = _checked_window(window, shape)
    kernel = partial(
        field_sums,
        threshold=threshold,
        window=cells,
        members=member_dim is not None,
        periodic=periodic,
        edges=edges,
        strict=strict,
        omit=nan == "omit",
    )
    core = [d for d in ("_member", *plane) if d in x.dims]
    sums = xr.apply_ufunc(
        kernel,
        *(
            _one_block("forecast", x, core),
            _one_block("observed", y, plane),
            _weights(weights, x, grid_dims),
        ),
        input_core_dims=[core, plane, plane],
        output_core_dims=[["part"]],
        dask="parallelized",
        output_dtypes=[np.float64],
        dask_gufunc_kwargs={"output_sizes": {"part": len(_PARTS)}},
    )
    loops = {"scores": sums.isel(part=0)}
    sum_dims = names_of(loops, dim, forecast) if dim is not None else []
    parts = {
        name: sums.isel(part=i)
        .sum(sum_dims, skipna=False)
        .drop_attrs()
        .assign_attrs(long_name=long_name, units="1")
        for i, (name, long_name) in enumerate(_PARTS.items())
    }
    attrs = {"window": list(cells), "edges": edges, **_threshold_attrs(threshold)}
    return xr.Dataset(parts, attrs=attrs)


def fractions_skill_score(sums: xr.Dataset) -> xr.DataArray:
    """Return the fractions skill score 1 - sum (P_f - P_o)^2 / (sum P_f^2 + sum P_o^2).

    1 is best; 0 if forecast and observed events never share a window (Roberts and Lean 2008,
    doi:10.1175/2007MWR2123.1). The sums are over all fields; the mean of the scores of single
    fields is different, and undefined for fields without events.

    Args:
        sums: result of `fractions_sums`, or several of them merged.

    Returns:
        Scores over the dimensions of `sums`; NaN where no event was forecast or observed.

    Raises:
        ArgumentError: sums of another function.
    """
    missing = sorted(set(_PARTS) - set(map(str, getattr(sums, "data_vars", {}))))
    if missing:
        names = ", ".join(missing)
        raise ArgumentError("sums", f"they are without {names}", "Make them with fractions_sums")
    worst = sums["forecast"] + sums["observed"]
    score = 1 - sums["difference"] / worst.where(worst > 0)
    attrs = {"long_name": "fractions skill score", "units": "1"}
    return score.assign_attrs(attrs).rename("fss")


def _as_dataarrays(
    forecast: Any, observed: Any, latitude: Dim, longitude: Dim, member: Dim | None
) -> dict[str, xr.DataArray]:
    plane: dict[str, Dim] = {"_latitude": latitude, "_longitude": longitude}
    with_members = plane if member is None else {"_member": member, **plane}
    of_observed = plane
    if isinstance(member, int | np.integer) and hasattr(forecast, "ndim"):
        n, at = forecast.ndim, member
        of_observed = {k: _axis_without_member(v, at, n) for k, v in plane.items()}
    arrays = {"forecast": forecast, "observed": observed}
    ready = as_labelled(arrays, {"forecast": with_members, "observed": of_observed})
    check_sizes(ready)
    return ready


def _axis_without_member(axis: Dim, member: int, ndim: int) -> Dim:
    """Return the number of an axis after the member axis is removed."""
    if not isinstance(axis, int | np.integer):
        return axis  # which is refused later
    return axis % ndim - (axis % ndim > member % ndim)


def _checked_window(window: int | Sequence[int], shape: tuple[int, int]) -> tuple[int, int]:
    cells = (window, window) if isinstance(window, int) else tuple(window)
    odd = len(cells) == 2 and all(n == int(n) and n % 2 == 1 and n > 0 for n in cells)
    if not odd or any(n > size for n, size in zip(cells, shape, strict=True)):
        raise ArgumentError(
            "window", f"expected odd numbers of cells up to those of the grid {shape}, got {window}"
        )
    return int(cells[0]), int(cells[1])


def _one_block(name: str, array: xr.DataArray, core: Sequence[str]) -> xr.DataArray:
    if array.chunks is None:
        return array
    blocks = [len(array.variable.chunksizes[d]) for d in core]
    if max(blocks) > 1:
        warnings.warn(rechunk_message("fss", name, blocks), RechunkWarning, stacklevel=3)
    return rechunk(array, dict.fromkeys(core, -1))


def _weights(weights: Any, x: xr.DataArray, grid_dims: Mapping[str, Dim]) -> xr.DataArray:
    """Return the weights of the cells, (latitude, longitude)."""
    plane = tuple(grid_dims)
    coords = {d: x.indexes[d] for d in plane if d in x.indexes}
    grid = xr.DataArray(np.empty([x.sizes[d] for d in plane]), dims=plane, coords=coords)
    if isinstance(weights, xr.DataArray):
        new_names = {str(old): new for new, old in grid_dims.items() if old in weights.dims}
        extra = sorted({str(d) for d in weights.dims} - set(new_names))
        if extra:
            raise ArgumentError("weights", f"dimensions {extra} that the grid lacks")
        renamed = weights.rename({k: v for k, v in new_names.items() if k != v})
        check_alike({"weights": renamed, "forecast": grid}, ())
        return renamed.astype(np.float64).broadcast_like(grid).transpose(*plane)
    values = as_array(1.0 if weights is None else weights, dtype=np.float64)
    try:
        return xr.DataArray(np.broadcast_to(values, grid.shape), dims=plane)
    except ValueError as error:
        raise ArgumentError(
            "weights", f"shape {values.shape} does not broadcast to the grid {grid.shape}"
        ) from error


def _threshold_attrs(threshold: float | None) -> dict[str, float]:
    return {} if threshold is None else {"threshold": float(threshold)}
