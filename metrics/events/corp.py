"""CORP: reliability by isotonic regression, without a choice of bins."""

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics._labels import rechunk
from ens10.metrics.events.diagrams import (
    brier_of_sums,
    check_band,
    check_single_values,
    checked_seed,
    effective_number,
    sum_bins,
    table,
)

__all__ = ["corp_decomposition", "corp_diagram"]

Array = npt.NDArray[Any]
_MOST_DRAWS = 200_000_000  # numbers of float64 for one diagram


def corp_decomposition(sums: xr.Dataset) -> xr.Dataset:
    """Decompose the mean Brier score into miscalibration, discrimination and uncertainty.

    brier = miscalibration - discrimination + uncertainty, with the scores of the forecast, of the
    forecast recalibrated by isotonic regression, and of the observed frequency (Dimitriadis,
    Gneiting and Jordan 2021, doi:10.1073/pnas.2016191118). The first two are 0 or more.

    Args:
        sums: result of `event_sums` with `members`, `digits` or `bins="unique"`, or several of
            them merged.

    Returns:
        A Dataset of `brier` and the three terms, over the dimensions of `sums` without `bin`.

    Raises:
        ArgumentError: sums of another function.
    """
    check_single_values(sums)
    total, events, w = sum_bins(sums["weight"]), sums["event"], sums["weight"]
    fit = recalibrate(sums).fillna(0.0)  # only where there is no weight
    brier = brier_of_sums(sums)
    after = sum_bins(events * (1 - fit) ** 2 + (w - events) * fit**2) / total
    base = sum_bins(events) / total
    terms = {
        "brier": brier,
        "miscalibration": brier - after,
        "discrimination": base * (1 - base) - after,
        "uncertainty": base * (1 - base),
    }
    return table(terms, {"bins": sums.attrs["bins"]})


def corp_diagram(
    sums: xr.Dataset,
    *,
    seed: int,
    level: float = 0.9,
    independent: float = 1.0,
    resamples: int = 1000,
) -> xr.Dataset:
    """Return the recalibrated probability of each forecast probability, with a consistency band.

    The band holds if the forecast is reliable: forecasts are resampled, events are drawn from the
    forecasts, and the isotonic regression is repeated (Dimitriadis, Gneiting and Jordan 2021,
    doi:10.1073/pnas.2016191118, with `resamples` draws).

    Args:
        sums: result of `event_sums` with `members`, `digits` or `bins="unique"`, or several of
            them merged.
        seed: seed of the draws.
        level: coverage of the band at each probability, in (0, 1).
        independent: effective number of independent points per point; below 1 where neighbours
            or successive dates are correlated, which makes the band wider.
        resamples: number of draws.

    Returns:
        A Dataset of `forecast`, `recalibrated`, `band_lower`, `band_upper` (NaN for probabilities
        that were never forecast), `count` and `share` (of the weight) over the dimensions of
        `sums`.

    Raises:
        ArgumentError: sums of another function; numbers out of range; too many probabilities.
    """
    check_single_values(sums)
    check_band(level, independent, resamples)
    if sums.sizes["bin"] * resamples > _MOST_DRAWS:
        raise ArgumentError(
            "resamples",
            f"{resamples} draws of {sums.sizes['bin']} probabilities take too much memory",
            "Draw fewer, or round the probabilities with digits=3",
        )
    w = sums["weight"]
    share = _one_chunk(w / sum_bins(w))
    draw = partial(_band, level=level, resamples=resamples, seed=checked_seed(seed))
    lower, upper = xr.apply_ufunc(
        draw,
        *(effective_number(sums, independent), share, sums["bin"].variable),
        input_core_dims=[[], ["bin"], ["bin"]],
        output_core_dims=[["bin"], ["bin"]],
        dask="parallelized",
        output_dtypes=[np.float64, np.float64],
    )
    variables = {
        "forecast": sums["bin"].reset_coords(drop=True).where(w > 0).transpose(*w.dims),
        "recalibrated": recalibrate(sums).where(w > 0),
        "band_lower": lower.where(w > 0),
        "band_upper": upper.where(w > 0),
        "count": sums["count"],
        "share": share,
    }
    attrs = {"bins": sums.attrs["bins"], "level": level, "independent": independent}
    return table(variables, attrs)


def recalibrate(sums: xr.Dataset) -> xr.DataArray:
    """Return the isotonic regression of events on forecast probabilities."""
    fit: xr.DataArray = xr.apply_ufunc(
        isotonic,
        *(_one_chunk(sums["event"]), _one_chunk(sums["weight"])),
        input_core_dims=[["bin"], ["bin"]],
        output_core_dims=[["bin"]],
        dask="parallelized",
        output_dtypes=[np.float64],
    )
    return fit


def _one_chunk(array: xr.DataArray) -> xr.DataArray:
    return array if array.chunks is None else rechunk(array, {"bin": -1})


def isotonic(total: Array, weight: Array) -> Array:
    """Return the non-decreasing fit to total / weight with the least weighted squared error.

    Args:
        total: sums of weight times value, (..., points).
        weight: sums of weights, 0 or more, of the same shape.

    Returns:
        The fit, (..., points); NaN at points without weight that lie between two runs, and
        everywhere where a sum is NaN.
    """
    regression: Any = import_module("scipy.optimize").isotonic_regression
    fit: Array = np.full_like(total, np.nan, dtype=np.float64)
    for place in np.ndindex(fit.shape[:-1]):
        sums, weights = total[place], np.asarray(weight[place], dtype=np.float64)
        positive = np.flatnonzero(weights > 0)
        if not positive.size or np.isnan(sums).any() or np.isnan(weights).any():
            continue
        runs = regression(sums[positive] / weights[positive], weights=weights[positive])
        run = np.repeat(np.arange(len(runs.blocks) - 1), np.diff(runs.blocks))
        # points without weight within a run take its value
        points = np.arange(fit.shape[-1])
        before = np.searchsorted(positive, points, side="right") - 1
        after = np.minimum(np.searchsorted(positive, points), positive.size - 1)
        inside = (points >= positive[0]) & (points <= positive[-1]) & (run[before] == run[after])
        fit[place] = np.where(inside, runs.x[before], np.nan)
    return fit


def _band(
    n: Any, share: Array, p: Array, *, level: float, resamples: int, seed: int
) -> tuple[Array, Array]:
    bounds = np.full((2, *share.shape), np.nan)
    tails = ((1 - level) / 2, (1 + level) / 2)
    for place in np.ndindex(share.shape[:-1]):
        rng = np.random.default_rng(seed)  # one for each diagram: chunks make no difference
        if np.isnan(n[place]) or np.isnan(share[place]).any():
            continue
        size = rng.multinomial(int(n[place]), share[place] / share[place].sum(), resamples)
        events = rng.binomial(size, p)
        fit = isotonic(events, size)
        for draw in fit:
            gaps = np.isnan(draw)
            draw[gaps] = np.interp(p[gaps], p[~gaps], draw[~gaps])
        bounds[(slice(None), *place)] = np.quantile(fit, tails, axis=0)
    return bounds[0], bounds[1]
