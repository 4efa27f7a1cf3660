"""The quantile score's parts: reliability, resolution and uncertainty."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from ens10.metrics._call import Dim
from ens10.metrics._dispatch import Array
from ens10.metrics._reduce import Over
from ens10.metrics.calibration._blocks import STAT
from ens10.metrics.calibration._sums import (
    Floats,
    binned,
    checked_edges,
    checked_sums,
    counts_last,
    read_edges,
    sums_over,
    written,
)
from ens10.metrics.calibration.levels import levels_of

_QUANTILE = "quantile"
_SUMS = ("observed_weight", "observed_sum", "score_sum")


def quantile_score_sums(
    values: Any,
    y: Any,
    *,
    levels: Sequence[float],
    quantile_dim: Dim,
    edges: Sequence[float] | Floats,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
) -> xr.Dataset:
    """Sums from which `quantile_score_decomposition` is made; those of blocks add.

    Args:
        values: quantiles.
        y: observations, without the quantile axis.
        levels: of the quantiles, rising, inside (0, 1).
        quantile_dim: their axis: a number for arrays, a dimension name for DataArrays.
        edges: n edges between n + 1 bins, open at both ends, of quantiles and observations alike,
            in their unit. Fine ones find the best constant quantile well; 20 to 100 will do.
        dim: what is summed over (axes of `y`, or names); other dimensions are kept.
        weights: of points, such as area weights.
        nan: "propagate" makes the sums NaN where a point has one; "omit" leaves it out.

    Returns:
        `observed_weight` and `observed_sum` (of observations less the middle of the edges) over
        `quantile`, `forecast_bin` and `observed_bin`; `score_sum`, `count` and `missing` over
        `quantile`. Lazy if an array is.

    Raises:
        ArgumentError: levels as for `quantile_score`, edges that do not rise, arrays that do not
            fit.
        UnknownNameError: another policy.
    """
    known, found = levels_of(values, levels, quantile_dim), checked_edges(edges)
    bins = found.size + 1
    level = xr.DataArray(known, dims=[_QUANTILE])
    sums, count, missing = sums_over(
        "quantile_score_sums", partial(_kernel, edges=found), 2 * bins**2 + 1,
        {"values": values, "y": y}, {"values": {_QUANTILE: quantile_dim}},
        dim=dim, weights=weights, nan=nan, extra=[level],
    )  # fmt: skip
    unit = {"units": y.attrs["units"]} if "units" in getattr(y, "attrs", {}) else {}
    parts: dict[str, Any] = {}
    for i, name in enumerate(_SUMS[:2]):
        part = sums.isel({STAT: slice(i * bins**2, (i + 1) * bins**2)})
        axes = {"forecast_bin": np.arange(bins), "observed_bin": np.arange(bins)}
        rows = [part.isel({STAT: slice(b * bins, (b + 1) * bins)}) for b in range(bins)]
        wide = xr.concat(rows, dim="forecast_bin").rename({STAT: "observed_bin"})
        wide = wide.transpose(..., "forecast_bin", "observed_bin")
        parts[name] = wide.assign_coords(axes).assign_attrs(unit if i else {"units": "1"})
    parts["score_sum"] = sums.isel({STAT: -1}).assign_attrs(unit)
    parts |= {"count": count, "missing": missing}
    made = xr.Dataset(parts, attrs={"edges": written(found)})
    return made.assign_coords({_QUANTILE: known})


def _kernel(q: Array, y: Array, w: Array, level: Array, *, edges: Floats) -> Floats:
    bins = edges.size + 1
    there = ~np.isnan(q) & ~np.isnan(y) & ~np.isnan(w)
    used = np.where(there, w, 0.0)
    d = np.where(there, (y - q).astype(np.float64), 0.0)
    from_middle = np.where(there, y.astype(np.float64) - _middle(edges), 0.0)
    index = np.searchsorted(edges, q, side="right") * bins
    index += np.searchsorted(edges, y, side="right")
    score = (used * np.maximum(level * d, (level - 1) * d)).sum(axis=1)
    tables = binned(index, bins**2, used, used * from_middle)
    return np.concatenate([tables, score[:, None], counts_last(there)], axis=1)


def _middle(edges: Floats) -> float:
    return float(edges[0] / 2 + edges[-1] / 2)


def quantile_score_decomposition(sums: xr.Dataset) -> xr.Dataset:
    """Quantile score = reliability - resolution + uncertainty, for each level.

    Uncertainty is the score of the best constant quantile, resolution what is gained by the best
    constant of each forecast bin, reliability what the forecast loses against those (Bentzien
    and Friederichs 2014, doi:10.1002/qj.2284; here the spread of forecasts within a bin is part
    of reliability, so that the identity is exact). The best constants are sought among the edges:
    their scores there are exact, and a constant between two edges is better than both by little
    if these are close.

    Args:
        sums: of `quantile_score_sums`, added over blocks.

    Returns:
        `quantile_score`, `reliability`, `resolution` and `uncertainty` over `quantile`, and over
        `forecast_bin` too the `conditional_quantile` of the observations, an edge, and `weight`;
        NaN where there is none.

    Raises:
        ArgumentError: other sums.
    """
    checked_sums(sums, _SUMS, "quantile_score_sums")
    edges = read_edges(sums)
    n, total = sums["observed_weight"], sums["observed_sum"]
    scores = _scores_at(n, total, edges - _middle(edges))
    weight = n.sum("observed_bin", skipna=False)
    whole = weight.sum("forecast_bin", skipna=False)
    whole = whole.where(whole > 0)
    best = scores.min("edge", skipna=False).sum("forecast_bin", skipna=False) / whole
    uncertainty = scores.sum("forecast_bin", skipna=False).min("edge", skipna=False) / whole
    score = sums["score_sum"] / whole
    place = scores.fillna(0.0).argmin("edge")
    there = weight.where(weight > 0).notnull()
    conditional = xr.apply_ufunc(
        partial(np.take, edges), place, dask="parallelized", output_dtypes=[np.float64]
    ).where(there)
    unit = {k: v for k, v in sums["score_sum"].attrs.items() if k == "units"}
    found = {
        "quantile_score": (score, "mean quantile score"),
        "reliability": (score - best, "reliability part of the quantile score"),
        "resolution": (uncertainty - best, "resolution part of the quantile score"),
        "uncertainty": (uncertainty, "score of the best constant quantile"),
        "conditional_quantile": (conditional, "best constant quantile of the bin"),
    }
    made = {name: v.assign_attrs(long_name=text, **unit) for name, (v, text) in found.items()}
    return xr.Dataset(made | {"weight": weight.assign_attrs(units="1")})


def _scores_at(n: xr.DataArray, total: xr.DataArray, edges: Floats) -> xr.DataArray:
    """Summed scores of the edges as constant quantiles, over `edge`."""
    level = n[_QUANTILE]
    at = xr.DataArray(edges, dims="edge")
    inside = {"observed_bin": slice(None, -1)}  # bins up to edge e: those below it
    low_n, low = (
        a.cumsum("observed_bin")
        .isel(inside)
        .rename(observed_bin="edge")
        .drop_vars("edge", errors="ignore")
        for a in (n, total)
    )
    high_n, high = (
        a.sum("observed_bin", skipna=False) - below for a, below in ((n, low_n), (total, low))
    )
    return (1 - level) * (low_n * at - low) + level * (high - high_n * at)
