"""Groups of points: latitude bands, land and sea, regions, seasons, any labels.

Groups are a DataArray of shares in [0, 1] of every point in every group; its first dimension is
that of the groups, with their names as coordinate. Groups may overlap and need not cover all
points. A point belongs to a group by its centre: a grid cell cut by an edge counts with its whole
area. `mean_state(..., by=groups)` sums points in groups, `group_state` dates.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import mul
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._dispatch import refuse_datasets

__all__ = [
    "BANDS",
    "SEASONS",
    "DateGroup",
    "date_groups",
    "group_masks",
    "land_sea",
    "latitude_bands",
    "region_boxes",
]
DateGroup = Literal["season", "month", "year"]
Box = tuple[float, float, float, float]
SEASONS = ("DJF", "MAM", "JJA", "SON")
# South and north edge. The extratropics and the tropics are those of WMO's exchange of scores
# (Manual on the GDPFS, WMO-No. 485); the three cover the globe, the polar bands lie in them.
BANDS: dict[str, tuple[float, float]] = {
    "nh_polar": (60.0, 90.0),
    "nh_extratropics": (20.0, 90.0),
    "tropics": (-20.0, 20.0),
    "sh_extratropics": (-90.0, -20.0),
    "sh_polar": (-90.0, -60.0),
}
_CLOSE = 1e-4  # degrees; more than the rounding of float32 coordinates


def group_masks(
    labels: xr.DataArray, *, name: str | None = None, order: Sequence[Hashable] | None = None
) -> xr.DataArray:
    """Return groups of the points with the same label.

    Args:
        labels: over any dimensions, such as basins over latitude and longitude or weather
            regimes over time; missing ones (NaN, None, an empty string) are in no group.
        name: name of the dimension of the groups; that of `labels` if None.
        order: the labels that become groups, in this order; all labels, sorted, if None.

    Returns:
        Shares 0 or 1, (name, *dimensions of labels).

    Raises:
        ArgumentError: no name; no labels; duplicates in `order`.
    """
    name = name or (None if labels.name is None else str(labels.name))
    if not name or name in labels.dims:
        raise ArgumentError("name", "the dimension of the groups needs a name of its own")
    values = labels.to_numpy()
    labelled = labels.notnull().to_numpy() & (values != "")
    names = list(np.unique(values[labelled])) if order is None else list(order)
    if not names or len(set(names)) < len(names):
        raise ArgumentError("labels" if not names else "order", "no labels, or one of them twice")
    shares = np.stack([(values == label) & labelled for label in names]).astype(np.float64)
    coords = {k: v for k, v in labels.coords.items() if k in labels.indexes}
    return xr.DataArray(
        shares, dims=(name, *labels.dims), coords={name: np.asarray(names), **coords}
    )


def latitude_bands(
    latitude: xr.DataArray | npt.ArrayLike,
    bands: Mapping[str, tuple[float, float]] | Sequence[str] | Sequence[float] | None = None,
) -> xr.DataArray:
    """Return groups of the grid rows in latitude bands.

    A row on the edge of a band belongs to the band on the equator's side of that edge, and one on
    the equator to the band north of it, so that bands with common edges share no row.

    Args:
        latitude: latitudes of the rows, degrees north; a DataArray's dimension name is kept.
        bands: names of `BANDS`; or south and north edge by name; or two or more ascending edges of
            adjacent bands, which are named like "-30..30"; None for all of `BANDS`.

    Returns:
        Shares 0 or 1, (latitude_band, latitude).

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import latitude_bands
        >>> latitude_bands(np.array([60.0, 0.0, -60.0]), ["tropics", "sh_extratropics"]).values
        array([[0., 1., 0.],
               [0., 0., 1.]])

    Raises:
        UnknownNameError: a name that is not among `BANDS`.
        ArgumentError: edges that do not ascend or are not latitudes.
    """
    rows = _axis("latitude", latitude)
    edges = _edges(bands)
    lat = rows.to_numpy().astype(np.float64)
    for name, (south, north) in edges.items():
        if not -90.0 - _CLOSE <= south < north <= 90.0 + _CLOSE:
            raise ArgumentError(
                "bands",
                f"{name!r} is from {south} to {north}",
                "Pass the south, then the north edge",
            )
    inside = [_above(lat, south) & ~_above(lat, north) for south, north in edges.values()]
    return _shares("latitude_band", list(edges), np.stack(inside), rows)


def _above(lat: npt.NDArray[np.float64], edge: float) -> npt.NDArray[np.bool_]:
    """Return True for rows north of an edge; rows on it count to the equator's side."""
    return lat > edge - _CLOSE if edge <= 0 else lat > edge + _CLOSE


def _edges(bands: Any) -> dict[str, tuple[float, float]]:
    if bands is None:
        return BANDS
    if isinstance(bands, Mapping):
        return {str(k): (float(v[0]), float(v[1])) for k, v in bands.items()}
    bands = [bands] if isinstance(bands, str) else bands
    if any(isinstance(b, str) for b in bands):
        for name in bands:
            if name not in BANDS:
                raise UnknownNameError("bands", name, BANDS)
        return {name: BANDS[name] for name in bands}
    edges = [float(e) for e in bands]
    if len(edges) < 2 or any(b <= a for a, b in pairwise(edges)):
        raise ArgumentError("bands", f"expected two or more rising edges, got {edges}")
    return {f"{a:g}..{b:g}": (a, b) for a, b in pairwise(edges)}


def land_sea(
    land: xr.DataArray, *, threshold: float = 0.5, fractional: bool = False
) -> xr.DataArray:
    """Return the groups "land" and "sea" of a land-sea mask.

    Args:
        land: the share of land of each cell, in [0, 1].
        threshold: a cell with more land than this is land, as in ECMWF's definition; the others
            are sea.
        fractional: True to count each cell as land by its share of land and as sea by the rest.

    Returns:
        Shares, (surface, *dimensions of the mask).

    Raises:
        ArgumentError: a mask with missing values or outside [0, 1], or such a threshold.
    """
    values = land.to_numpy().astype(np.float64)
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise ArgumentError(
            "land", "missing values or values outside [0, 1]", "Pass the share of land"
        )
    if not 0.0 <= threshold < 1.0:
        raise ArgumentError("threshold", f"expected at least 0 and below 1, got {threshold}")
    shares = values if fractional else (values > threshold).astype(np.float64)
    return _shares("surface", ["land", "sea"], np.stack([shares, 1.0 - shares]), land)


def region_boxes(
    boxes: Mapping[str, Box],
    latitude: xr.DataArray | npt.ArrayLike,
    longitude: xr.DataArray | npt.ArrayLike,
) -> xr.DataArray:
    """Return groups of the points in latitude-longitude boxes, edges included.

    Args:
        boxes: south, north, west and east edge by name, in degrees. Longitudes count modulo 360;
            a box whose east edge is west of its west edge crosses the date line or the Greenwich
            meridian: (-50, 0, 160, -120) is 80 degrees wide.
        latitude: latitudes of the rows, degrees north.
        longitude: longitudes of the columns, degrees east, in 0..360 or -180..180.

    Returns:
        Shares 0 or 1, (region, latitude, longitude). Regions may overlap.

    Raises:
        ArgumentError: no boxes; south not below north; a box without any point.
    """
    rows, columns = _axis("latitude", latitude), _axis("longitude", longitude)
    lat, lon = rows.to_numpy().astype(np.float64), columns.to_numpy().astype(np.float64)
    if not boxes:
        raise ArgumentError("boxes", "there are none")
    inside = []
    for name, (south, north, west, east) in boxes.items():
        if not south < north:
            raise ArgumentError("boxes", f"{name!r}: south {south} is not below north {north}")
        width = 360.0 if east - west >= 360.0 else (east - west) % 360.0
        within = (lat >= south - _CLOSE) & (lat <= north + _CLOSE)
        along = (lon - west + _CLOSE) % 360.0 <= width + 2 * _CLOSE
        inside.append(within[:, None] & along[None, :])
        if not inside[-1].any():
            raise ArgumentError("boxes", f"{name!r} holds no point of the grid")
    field = xr.DataArray(
        np.zeros((lat.size, lon.size)),
        coords={**rows.coords, **columns.coords},
        dims=(*rows.dims, *columns.dims),
    )
    return _shares("region", list(boxes), np.stack(inside), field)


def date_groups(of: xr.Dataset | xr.DataArray, by: DateGroup) -> xr.DataArray:
    """Return groups of dates by season, month or year of the valid date.

    Args:
        of: states or a field with the coordinate `valid_time` of each date (and step); without
            one its `time` is used.
        by: "season" (DJF, MAM, JJA, SON), "month" (1 to 12) or "year". Seasons pool all years;
            a December counts to its own calendar year.

    Returns:
        Shares 0 or 1, (by, time) or, where the valid time depends on it, (by, time, step). Only
        groups with dates are returned, in calendar order.

    Raises:
        UnknownNameError: an unknown group.
        ArgumentError: no dates.
    """
    if by not in get_args(DateGroup):
        raise UnknownNameError("by", by, get_args(DateGroup))
    when = next((of[c] for c in ("valid_time", "time") if c in of.coords), None)
    if when is None or not when.dims or not when.size:
        raise ArgumentError("of", "it has no dates (coordinate valid_time or time)")
    labels = getattr(when.dt, by)
    present = set(np.unique(labels.to_numpy()[when.notnull().to_numpy()]))
    order = [s for s in SEASONS if s in present] if by == "season" else sorted(map(int, present))
    return group_masks(labels.reset_coords(drop=True), name=by, order=order)


def _axis(name: str, values: Any) -> xr.DataArray:
    refuse_datasets({name: values})
    if isinstance(values, xr.DataArray):
        return values.reset_coords(drop=True)
    axis = np.asarray(values, dtype=np.float64)
    return xr.DataArray(axis, dims=name, coords={name: axis})


def _shares(name: str, labels: list[str], shares: Any, like: xr.DataArray) -> xr.DataArray:
    coords = {k: v for k, v in like.coords.items() if k in like.indexes}
    return xr.DataArray(
        shares.astype(np.float64), dims=(name, *like.dims), coords={name: labels, **coords}
    )


By = xr.DataArray | Sequence[xr.DataArray] | None


def crossed_shares(by: By, score: xr.DataArray | None) -> xr.DataArray | None:
    """Return the shares in all combinations of groups; `attrs["groups"]` counts the groupings.

    Args:
        by: one or several arrays of shares in [0, 1], each with its groups as first dimension.
        score: the scores, to check dimensions and coordinates; None to skip that check.

    Raises:
        ArgumentError: duplicate names of groupings, a grouping named like a dimension of the
            score, without a coordinate, with shares outside [0, 1], or on coordinates that differ
            from the score's.
    """
    groupings = [] if by is None else [by] if isinstance(by, xr.DataArray) else list(by)
    if not groupings:
        return None
    names = [_name(groups) for groups in groupings]
    if len(set(names)) < len(names):
        raise ArgumentError("by", f"duplicate grouping: {names}")
    for name, groups in zip(names, groupings, strict=True):
        _check(name, groups, score)
    try:
        # dimensions of groups first, in the order given
        aligned = xr.align(*groupings, join="exact")
    except ValueError as error:
        raise ArgumentError("by", f"groups on different coordinates ({error})") from error
    share: xr.DataArray = reduce(mul, [a.astype(np.float64).drop_attrs() for a in aligned])
    return share.transpose(*names, ...).assign_attrs(groups=len(names))


def _name(groups: xr.DataArray) -> str:
    if not groups.dims:
        raise ArgumentError("by", "groups without a dimension", "Make them with `group_masks`")
    return str(groups.dims[0])


def _check(name: str, groups: xr.DataArray, score: xr.DataArray | None) -> None:
    if name not in groups.coords:
        raise ArgumentError("by", f"the groups of {name!r} have no names (no coordinate)")
    if not bool(((groups >= 0) & (groups <= 1)).all()):
        raise ArgumentError("by", f"shares in {name!r} are missing or outside [0, 1]")
    if score is None:
        return
    if name in score.dims:
        raise ArgumentError("by", f"{name!r} is a dimension of the score", "Rename the groups")
    for dim in groups.dims[1:]:
        index, other = score.indexes.get(dim), groups.indexes.get(dim)
        same_size = dim in score.dims and groups.sizes[dim] == score.sizes[dim]
        if not same_size or (index is not None and other is not None and not index.equals(other)):
            raise ArgumentError(
                "by",
                f"{name!r} is on another {dim} than the score",
                "Make the groups for the score's own coordinates, in their order",
            )


def sums_by_group(
    values: xr.DataArray, share: xr.DataArray | None, dims: Sequence[str]
) -> xr.DataArray:
    """Return the sums of values times shares over `dims`, for each group; of all points for None.

    A missing or infinite value affects only the groups that it has a share in. Dimensions that the
    groups do not depend on are summed first, so that latitude bands cost little more than one mean.
    """
    if share is None:
        return values.sum(dims, skipna=False)
    free_dims = [d for d in dims if d not in share.dims]
    shared_dims = [d for d in dims if d in share.dims]
    share = share.astype(np.float64).drop_attrs(deep=False)
    values = values.sum(free_dims, skipna=False) if free_dims else values
    finite = np.isfinite(values)
    total: xr.DataArray = xr.dot(values.where(finite, 0.0), share, dim=shared_dims, optimize=True)
    if values.chunks is None and bool(finite.all()):
        return total
    inside = (share > 0).astype(np.float64)

    def any_in_group(points: xr.DataArray) -> xr.DataArray:
        touched: xr.DataArray = (
            xr.dot(points.astype(np.float64), inside, dim=shared_dims, optimize=True) > 0
        )
        return touched

    above, below = any_in_group(values == np.inf), any_in_group(values == -np.inf)
    missing = any_in_group(values.isnull()) | (above & below)
    return total.where(~above, np.inf).where(~below, -np.inf).where(~missing)
