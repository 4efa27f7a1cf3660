"""The fractions skill score: whether an event is forecast as often as observed, nearby."""

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, RechunkWarning
from ens10.metrics._labels import check_alike, joined_message, rechunked
from ens10.metrics._reduce import Nan, Over
from ens10.metrics._tables import as_labelled, names_of
from ens10.metrics.events._checks import check_sizes
from ens10.metrics.events._windows import field_sums

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
    """Additive sums of the fractions skill score, field by field.

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
        periodic: whether longitudes go round the globe.
        edges: "cut" makes windows smaller at the edges (of the grid; periodic longitudes have
            none), "inside" leaves out cells whose window is not all within.
        strict: whether a value on the threshold counts as below it.
        weights: of the cells, (latitude, longitude) or what broadcasts to it, such as area
            weights; the cells within a window count alike.
        nan: "propagate" makes the sums of a field NaN that has one, "omit" takes the fractions
            among the cells that are neither missing in the forecast nor in the observation.

    Returns:
        A Dataset of four sums, lazy if the fields are, with the dimensions that are left. Merge
        with `merge_states`, finish with `fractions_skill_score`.

    Raises:
        UnknownNameError: another policy or kind of edges.
        ArgumentError: an even window or one larger than the grid; values that are no
            probabilities (on lazy arrays when computed); shapes, coordinates or units that do
            not fit.
    """
    for name, given, known in (("nan", nan, get_args(Nan)), ("edges", edges, get_args(Edges))):
        if given not in known:
            raise UnknownNameError(name, given, known)
    ready = _labelled(forecast, observed, latitude_dim, longitude_dim, member_dim)
    named: dict[str, Dim] = {"_latitude": latitude_dim, "_longitude": longitude_dim}
    plane = list(named)
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
        *(_joined("forecast", x, core), _joined("observed", y, plane), _weights(weights, x, named)),
        input_core_dims=[core, plane, plane],
        output_core_dims=[["part"]],
        dask="parallelized",
        output_dtypes=[np.float64],
        dask_gufunc_kwargs={"output_sizes": {"part": len(_PARTS)}},
    )
    loops = {"scores": sums.isel(part=0)}
    summed = names_of(loops, dim, forecast) if dim is not None else []
    parts = {
        name: sums.isel(part=i)
        .sum(summed, skipna=False)
        .drop_attrs()
        .assign_attrs(long_name=long_name, units="1")
        for i, (name, long_name) in enumerate(_PARTS.items())
    }
    attrs = {"window": list(cells), "edges": edges, **_told(threshold)}
    return xr.Dataset(parts, attrs=attrs)


def fractions_skill_score(sums: xr.Dataset) -> xr.DataArray:
    """1 - sum (P_f - P_o)^2 / (sum P_f^2 + sum P_o^2), of sums over any number of fields.

    1 is best; 0 is the score of events that never meet in a window (Roberts and Lean 2008,
    doi:10.1175/2007MWR2123.1). Means of the scores of fields differ from it, and are undefined
    for fields without events.

    Args:
        sums: of `fractions_sums`, merged at will.

    Returns:
        Scores over the dimensions of `sums`; NaN where no event was forecast or observed.

    Raises:
        ArgumentError: not such sums.
    """
    missing = sorted(set(_PARTS) - set(map(str, getattr(sums, "data_vars", {}))))
    if missing:
        told = ", ".join(missing)
        raise ArgumentError("sums", f"they are without {told}", "Make them with fractions_sums")
    worst = sums["forecast"] + sums["observed"]
    score = 1 - sums["difference"] / worst.where(worst > 0)
    attrs = {"long_name": "fractions skill score", "units": "1"}
    return score.assign_attrs(attrs).rename("fss")


def _labelled(
    forecast: Any, observed: Any, latitude: Dim, longitude: Dim, member: Dim | None
) -> dict[str, xr.DataArray]:
    plane: dict[str, Dim] = {"_latitude": latitude, "_longitude": longitude}
    with_members = plane if member is None else {"_member": member, **plane}
    of_observed = plane
    if isinstance(member, int | np.integer) and hasattr(forecast, "ndim"):
        n, at = forecast.ndim, member
        of_observed = {k: _without(v, at, n) for k, v in plane.items()}
    arrays = {"forecast": forecast, "observed": observed}
    ready = as_labelled(arrays, {"forecast": with_members, "observed": of_observed})
    check_sizes(ready)
    return ready


def _without(axis: Dim, member: int, ndim: int) -> Dim:
    """The number of an axis once the member axis is gone."""
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


def _joined(name: str, array: xr.DataArray, core: Sequence[str]) -> xr.DataArray:
    if array.chunks is None:
        return array
    blocks = [len(array.variable.chunksizes[d]) for d in core]
    if max(blocks) > 1:
        warnings.warn(joined_message("fss", name, blocks), RechunkWarning, stacklevel=3)
    return rechunked(array, dict.fromkeys(core, -1))


def _weights(weights: Any, x: xr.DataArray, named: Mapping[str, Dim]) -> xr.DataArray:
    """Weights of the cells, (latitude, longitude)."""
    plane = tuple(named)
    coords = {d: x.indexes[d] for d in plane if d in x.indexes}
    grid = xr.DataArray(np.empty([x.sizes[d] for d in plane]), dims=plane, coords=coords)
    if isinstance(weights, xr.DataArray):
        own = {str(old): new for new, old in named.items() if old in weights.dims}
        extra = sorted({str(d) for d in weights.dims} - set(own))
        if extra:
            raise ArgumentError("weights", f"dimensions {extra} that the grid has not")
        renamed = weights.rename({k: v for k, v in own.items() if k != v})
        check_alike({"weights": renamed, "forecast": grid}, ())
        return renamed.astype(np.float64).broadcast_like(grid).transpose(*plane)
    values = np.asarray(1.0 if weights is None else weights, dtype=np.float64)
    try:
        return xr.DataArray(np.broadcast_to(values, grid.shape), dims=plane)
    except ValueError as error:
        raise ArgumentError(
            "weights", f"shape {values.shape} does not broadcast to the grid {grid.shape}"
        ) from error


def _told(threshold: float | None) -> dict[str, float]:
    return {} if threshold is None else {"threshold": float(threshold)}
