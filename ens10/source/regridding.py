"""Interpolation of truth to the grid of the forecasts: bilinear, or conservative of area integrals.

Both methods treat rows and columns of a latitude-longitude grid separately, so that a field is
interpolated by two sparse matrices.
"""

from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.sparse import csr_array

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import is_global

Regrid = Literal["bilinear", "conservative"]
Floats = npt.NDArray[np.float64]
_GRID = ("latitude", "longitude")
_TOLERANCE = 1e-6  # degrees, or share of a cell: below it two points are one
_MIN_SHARE = 0.5  # of a cell's area that must have values


def regrid_truth(truth: xr.Dataset, forecasts: xr.Dataset, method: Regrid) -> xr.Dataset:
    """Return the truth on the grid of the forecasts.

    Bilinear: linear in latitude and longitude between the four nearest points. Poleward of the
    outermost row of a global grid, the value at the pole is the mean of that row. NaN where one of
    the points that contribute is NaN.

    Conservative: the mean over a cell of the forecasts' grid, weighted by the exact area on the
    sphere that it shares with each cell of the truth's grid (Jones 1999, first order,
    doi:10.1175/1520-0493(1999)127<2204:FASOCR>2.0.CO;2). Edges of cells are half-way between
    points, cut at the poles. A cell takes the mean of its part with values; NaN where that is less
    than half of its area.

    Args:
        truth: fields over (..., latitude, longitude), lazy or not; rows and columns in order.
        forecasts: with the coordinates latitude and longitude.
        method: "bilinear" or "conservative".

    Returns:
        Fields over (..., latitude, longitude) of the forecasts, float32, lazy if the truth is, with
        the attribute `regridded`.

    Raises:
        UnknownNameError: another method.
        ArgumentError: the truth does not cover the forecasts' points, or a grid has fewer than two
            rows or columns.
    """
    if method not in get_args(Regrid):
        raise UnknownNameError("regrid", method, get_args(Regrid))
    lat, lon, to_lat, to_lon = (
        grid[dim].to_numpy().astype(np.float64) for grid in (truth, forecasts) for dim in _GRID
    )
    weights = Weights(lat, lon, to_lat, to_lon, method)
    description = f"{method}, from {truth.sizes['latitude']} x {truth.sizes['longitude']} points"
    fields = {
        name: _regrid(field, weights).assign_attrs(regridded=description)
        for name, field in truth.data_vars.items()
    }
    return xr.Dataset(fields, {dim: forecasts[dim] for dim in _GRID}, truth.attrs)


def _regrid(field: xr.DataArray, weights: "Weights") -> xr.DataArray:
    if field.chunks:
        field = field.chunk(dict.fromkeys(_GRID, -1))
    rows, columns = weights.shape
    dims: dict[str, Any] = {"input_core_dims": [_GRID], "output_core_dims": [_GRID]}
    sizes = {"output_sizes": {"latitude": rows, "longitude": columns}}
    result: xr.DataArray = xr.apply_ufunc(
        weights.apply, field.drop_vars(_GRID), **dims, exclude_dims=set(_GRID), keep_attrs=True,
        dask="parallelized", output_dtypes=[np.float32], dask_gufunc_kwargs=sizes,
    )  # fmt: skip
    return result


class Weights:
    """Interpolation weights from one latitude-longitude grid to another.

    Args:
        latitude: of the source, shape (h,), degrees, monotonic.
        longitude: of the source, shape (w,), degrees, eastward.
        to_latitude: of the target, shape (H,).
        to_longitude: of the target, shape (W,).
        method: "bilinear" or "conservative".

    Raises:
        ArgumentError: the source does not cover the target, or one of them has fewer than two rows
            or columns.
    """

    def __init__(
        self, latitude: Floats, longitude: Floats, to_latitude: Floats, to_longitude: Floats,
        method: Regrid,
    ) -> None:  # fmt: skip
        sizes = (latitude.size, longitude.size, to_latitude.size, to_longitude.size)
        if min(sizes) < 2:
            reason = f"grids of {sizes[0]} x {sizes[1]} and {sizes[2]} x {sizes[3]} points"
            raise ArgumentError("regrid", reason, "Use grids of two rows and columns or more")
        self.method, self.shape = method, (to_latitude.size, to_longitude.size)
        self._pole_rows = (False, False)
        if method == "bilinear":
            latitude = self._with_poles(latitude, to_latitude, is_global(longitude))
            rows = _linear(to_latitude, latitude)
            columns = _linear_on_circle(to_longitude, longitude)
        else:
            rows = _overlap(np.sin(np.deg2rad(_row_edges(to_latitude))),
                            np.sin(np.deg2rad(_row_edges(latitude))))  # fmt: skip
            columns = _overlap_on_circle(to_longitude, longitude)
        for dim, share, targets, nodes in (
            ("latitude", rows, to_latitude, latitude),
            ("longitude", columns, to_longitude, longitude),
        ):
            if share.sum(axis=1).min() < _MIN_SHARE:
                own = f"its {dim}s ({nodes[0]:g} to {nodes[-1]:g}, {nodes.size})"
                others = f"of the forecasts ({targets[0]:g} to {targets[-1]:g}, {targets.size})"
                remedy = "Pass truth of a larger region, or forecasts of a smaller one"
                raise ArgumentError("truth", f"{own} do not cover those {others}", remedy)
        self._rows: Any = csr_array(rows)  # type: ignore[no-untyped-call]
        self._columns: Any = csr_array(columns)  # type: ignore[no-untyped-call]

    def apply(self, fields: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return fields (..., h, w) on the new grid, (..., H, W)."""
        outer = fields.shape[:-2]
        flat = fields.reshape(-1, *fields.shape[-2:])
        out = np.empty((len(flat), *self.shape), np.float32)
        for n, field in enumerate(flat):
            out[n] = self._regrid_field(field.astype(np.float64))
        return out.reshape(*outer, *self.shape)

    def _regrid_field(self, field: Floats) -> Floats:
        if self.method == "bilinear":
            first, last = (
                np.full((int(pole), field.shape[1]), field[row].mean())
                for row, pole in zip((0, -1), self._pole_rows, strict=True)
            )
            return self._product(np.concatenate([first, field, last]))
        valid = np.isfinite(field)
        share = self._product(valid.astype(np.float64))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = self._product(np.where(valid, field, 0.0)) / share
        return np.where(share >= _MIN_SHARE - _TOLERANCE, mean, np.nan)

    def _product(self, field: Floats) -> Floats:
        # sparse products add in a fixed order: the result does not depend on machine or threads
        along: Floats = (self._columns @ np.ascontiguousarray(field.T)).T
        result: Floats = self._rows @ np.ascontiguousarray(along)
        return result

    def _with_poles(self, latitude: Floats, to_latitude: Floats, is_global_grid: bool) -> Floats:
        """Add rows at the poles to a global grid that ends within one row of them."""
        spacing = np.abs(np.diff(latitude)).max() + _TOLERANCE
        sign = 1 if latitude[0] > latitude[-1] else -1  # of the pole beyond the first row
        first, last = sign * latitude[0], -sign * latitude[-1]  # degrees towards their poles
        self._pole_rows = (
            bool(is_global_grid and 90 - first <= spacing and (sign * to_latitude).max() > first),
            bool(is_global_grid and 90 - last <= spacing and (-sign * to_latitude).max() > last),
        )
        before, after = (90.0 * sign,) * self._pole_rows[0], (-90.0 * sign,) * self._pole_rows[1]
        return np.concatenate([before, latitude, after])


def _linear(points: Floats, nodes: Floats) -> Floats:
    """Return weights (points, nodes) of linear interpolation; 0 for points outside the nodes."""
    order = np.argsort(nodes)
    sorted_nodes = nodes[order]
    left = np.clip(np.searchsorted(sorted_nodes, points, side="right") - 1, 0, nodes.size - 2)
    share = (points - sorted_nodes[left]) / (sorted_nodes[left + 1] - sorted_nodes[left])
    inside = (share > -_TOLERANCE) & (share < 1 + _TOLERANCE)
    share = np.clip(share, 0, 1)
    share = np.where(share < _TOLERANCE, 0.0, np.where(share > 1 - _TOLERANCE, 1.0, share))
    weights, rows = np.zeros((points.size, nodes.size)), np.arange(points.size)
    weights[rows, order[left]] = np.where(inside, 1 - share, 0)
    weights[rows, order[left + 1]] = np.where(inside, share, 0)
    return weights


def _linear_on_circle(points: Floats, nodes: Floats) -> Floats:
    """Return weights of linear interpolation along the circle of longitude."""
    unrolled = _unroll(nodes)
    offset = np.mod(points - nodes[0], 360)
    offset = np.where(offset > 360 - _TOLERANCE, 0.0, offset)
    if not is_global(nodes):
        return _linear(offset, unrolled)
    weights = _linear(offset, np.append(unrolled, 360.0))
    weights[:, 0] += weights[:, -1]
    return weights[:, :-1]


def _unroll(longitude: Floats) -> Floats:
    """Return degrees east of the first column, which increase.

    Raises:
        ArgumentError: the columns are not ordered eastward.
    """
    offset: Floats = np.mod(longitude - longitude[0], 360)
    if np.any(np.diff(offset) <= 0):
        raise ArgumentError("longitude", "columns are not in order eastward", "Sort them")
    return offset


def _row_edges(latitude: Floats) -> Floats:
    """Return the edges of the rows' cells, (H + 1,), cut at the poles."""
    return np.clip(_edges(latitude), -90, 90)


def _edges(points: Floats) -> Floats:
    inner = (points[1:] + points[:-1]) / 2
    first, last = 1.5 * points[0] - 0.5 * points[1], 1.5 * points[-1] - 0.5 * points[-2]
    edges: Floats = np.concatenate([[first], inner, [last]])
    return edges


def _column_edges(longitude: Floats) -> Floats:
    """Return the edges of the columns' cells, (W + 1,), rising from about the first longitude."""
    unrolled = _unroll(longitude)
    edges = _edges(unrolled)
    if is_global(longitude):  # the last cell ends where the first begins
        edges[0] = (unrolled[-1] - 360) / 2
        edges[-1] = edges[0] + 360
    shifted: Floats = edges + longitude[0]
    return shifted


def _overlap(edges: Floats, source_edges: Floats) -> Floats:
    """Return the share of each target cell that lies in each source cell, (target, source).

    Args:
        edges: of the target cells.
        source_edges: of the source cells.
    """
    (low, high), (lows, highs) = (
        (np.minimum(e[1:], e[:-1]), np.maximum(e[1:], e[:-1])) for e in (edges, source_edges)
    )
    common = np.minimum(high[:, None], highs) - np.maximum(low[:, None], lows)
    shares: Floats = np.clip(common, 0, None) / (high - low)[:, None]
    return np.where(shares > 1e-12, shares, 0.0)


def _overlap_on_circle(points: Floats, nodes: Floats) -> Floats:
    """Return the share of each target column that lies in each source column, along the circle."""
    edges, node_edges = _column_edges(points), _column_edges(nodes)
    turns = (360 * np.round((node_edges[0] - edges[0]) / 360) + 360 * turn for turn in (-1, 0, 1))
    return np.asarray(sum(_overlap(edges + turn, node_edges) for turn in turns))
