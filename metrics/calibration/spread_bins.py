"""The relation of spread and error: does a larger predicted spread go with a larger error?"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._dispatch import Array
from ens10.metrics._reduce import Over
from ens10.metrics._tables import as_labelled
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
from ens10.metrics.calibration.moments import spread_inflation

_SUMS = ("weight", "variance_sum", "error2_sum", "points")


def spread_edges(variance: Any, bins: int = 10) -> Floats:
    """Edges between equally populated bins of the spread (the standard deviation).

    They need all values at once: of a large forecast give a part, such as some dates. They are
    not additive, so that blocks are summed over the same, given edges.

    Args:
        variance: predicted variances; NaN is left out. Lazy ones are computed.
        bins: how many.

    Returns:
        The bins - 1 edges; fewer where many values are alike.

    Raises:
        ArgumentError: fewer than two bins, a negative variance, or no values.
    """
    if bins < 2:
        raise ArgumentError("bins", f"expected two or more, got {bins}")
    values = as_labelled({"variance": variance})["variance"].to_numpy().ravel()
    values = values[~np.isnan(values)].astype(np.float64)
    if not values.size:
        raise ArgumentError("variance", "it has no values")
    _check_variance(values)
    edges: Floats = np.unique(np.quantile(np.sqrt(values), np.arange(1, bins) / bins))
    return edges


def spread_bin_sums(
    mean: Any,
    variance: Any,
    y: Any,
    *,
    edges: Sequence[float] | Floats,
    members: int | None = None,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
) -> xr.Dataset:
    """Sums of variance and squared error in bins of the predicted spread; those of blocks add.

    Args:
        mean: the forecast's mean. Of an ensemble in float32 give `ensemble_error` as `mean` and 0
            as `y`, which loses no digits.
        variance: the predicted variance; of members the unbiased one (`ensemble_variance`).
        y: observations.
        edges: n edges between n + 1 bins of the spread sqrt(variance), in its unit, open at both
            ends; a bin has its lower edge.
        members: M of an ensemble, whose variance takes the factor (M + 1) / M; None for a
            distribution.
        dim: what is summed over; other dimensions are kept.
        weights: of points, such as area weights.
        nan: "propagate" makes the sums NaN where a point has one; "omit" leaves it out.

    Returns:
        `weight`, `variance_sum` (with the factor), `error2_sum` and `points` over `spread_bin`;
        `count` and `missing`. Lazy if an array is.

    Raises:
        ArgumentError: edges that do not rise, fewer than two members, a negative variance (lazy
            ones when computed), arrays that do not fit.
        UnknownNameError: another policy.
    """
    found, factor = checked_edges(edges), spread_inflation(members)
    bins = found.size + 1
    sums, count, missing = sums_over(
        "spread_bin_sums", partial(_kernel, edges=found, factor=factor), 4 * bins,
        {"mean": mean, "variance": variance, "y": y}, {},
        dim=dim, weights=weights, nan=nan, unlike=["variance"],
    )  # fmt: skip
    units = getattr(mean, "attrs", {}).get("units")
    parts: dict[str, Any] = {}
    for i, name in enumerate(_SUMS):
        part = sums.isel({STAT: slice(i * bins, (i + 1) * bins)}).rename({STAT: "spread_bin"})
        told = {"units": f"({units})2"} if units and name.endswith("_sum") else {}
        parts[name] = part.assign_coords(spread_bin=np.arange(bins)).assign_attrs(told)
    parts |= {"count": count, "missing": missing}
    return xr.Dataset(parts, attrs={"edges": written(found)})


def _kernel(
    mean: Array, variance: Array, y: Array, w: Array, *, edges: Floats, factor: float
) -> Floats:
    error, predicted = (mean - y).astype(np.float64), variance.astype(np.float64)
    there = ~np.isnan(error) & ~np.isnan(predicted) & ~np.isnan(w)
    error, predicted = np.where(there, error, 0), np.where(there, predicted, 0)
    _check_variance(predicted)
    used = np.where(there, w, 0.0)
    index = np.searchsorted(edges, np.sqrt(predicted), side="right")
    values = (used, used * predicted * factor, used * error**2, there.astype(np.float64))
    return np.concatenate([binned(index, edges.size + 1, *values), counts_last(there)], axis=1)


def _check_variance(values: Floats) -> None:
    if (values < 0).any():
        raise ArgumentError("variance", f"some are negative, the lowest is {values.min():.6g}")


def spread_error_by_bins(sums: xr.Dataset) -> xr.Dataset:
    """The binned spread-error relation, from `spread_bin_sums` added over blocks.

    Of a calibrated forecast the error equals the spread in each bin (Leutbecher and Palmer 2008,
    doi:10.1016/j.jcp.2007.02.014).

    Args:
        sums: of `spread_bin_sums`.

    Returns:
        Over `spread_bin`: `spread` (root of the mean variance, with the factor (M + 1) / M),
        `rmse`, their `ratio` and `points`, with the coordinates `lower` and `upper` of the bins;
        NaN where a bin is empty.

    Raises:
        ArgumentError: other sums.
    """
    checked_sums(sums, _SUMS, "spread_bin_sums")
    weight = sums["weight"].where(sums["weight"] > 0)
    spread, error = ((sums[f"{name}_sum"] / weight) ** 0.5 for name in ("variance", "error2"))
    units = str(sums["error2_sum"].attrs.get("units", ""))
    unit = {"units": units.removeprefix("(").removesuffix(")2")} if units else {}
    edges = read_edges(sums)
    return xr.Dataset(
        {
            "spread": spread.assign_attrs(long_name="predicted spread", **unit),
            "rmse": error.assign_attrs(long_name="root mean squared error", **unit),
            "ratio": (spread / error).assign_attrs(long_name="spread over error", units="1"),
            "points": sums["points"].assign_attrs(long_name="number of points", units="1"),
        },
        coords={
            "lower": ("spread_bin", np.r_[0.0, edges], unit),
            "upper": ("spread_bin", np.r_[edges, np.inf], unit),
        },
    )
