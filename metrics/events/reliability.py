"""Reliability diagrams: how often the event happened when it was forecast with a probability."""

from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._labels import rechunked
from ens10.metrics.events.decomposition import check_sums, table, whole

Array = npt.NDArray[Any]
Band = Literal["binomial", "resampling"]


def reliability_diagram(
    sums: xr.Dataset,
    *,
    band: str = "binomial",
    level: float = 0.9,
    independent: float = 1.0,
    resamples: int = 1000,
    seed: int | None = None,
) -> xr.Dataset:
    """Mean forecast and observed frequency of each bin, with bands of consistency.

    In the band lies the observed frequency of a bin with the probability `level` if the forecast
    is reliable (Broecker and Smith 2007, doi:10.1175/WAF993.1). "binomial" takes the quantiles of
    the binomial distribution of n_k points with the bin's mean probability; "resampling" draws
    the number of points of the bin as well, as those authors do (their frequencies depend on the
    forecasts through the sums alone, so nothing else is needed).

    Args:
        sums: of `event_sums`, merged at will.
        band: "binomial" or "resampling".
        level: of the bands, in (0, 1).
        independent: how many independent points there are for each point; below 1 where
            neighbours or following dates are alike, which makes the bands wider.
        resamples: draws of "resampling".
        seed: of the draws; needed for "resampling".

    Returns:
        A Dataset of `forecast_mean`, `observed_frequency`, `band_lower`, `band_upper` (NaN for
        empty bins), `count` and `share` (of the weight) over the dimensions of `sums`.

    Raises:
        UnknownNameError: another band.
        ArgumentError: not the sums of `event_sums`; numbers out of range; no seed.
    """
    check_sums(sums)
    if band not in get_args(Band):
        raise UnknownNameError("band", band, get_args(Band))
    check_band(level, independent, resamples)
    w = sums["weight"]
    there = w.where(w > 0)
    mean, rate = sums["probability"] / there, sums["event"] / there
    tails = ((1 - level) / 2, (1 + level) / 2)
    if band == "binomial":
        n = (w * there / sums["weight_square"] * independent).round()
        bounds = partial(_binomial, tails=tails)
        lower, upper = _on_bins(bounds, n, mean)
    else:
        draw = partial(_resampled, tails=tails, resamples=resamples, seed=checked_seed(seed))
        lower, upper = _on_bins(draw, effective_number(sums, independent), w / whole(w), mean)
    found = {
        "forecast_mean": mean,
        "observed_frequency": rate,
        "band_lower": lower,
        "band_upper": upper,
        "count": sums["count"],
        "share": w / whole(w),
    }
    attrs = {"bins": sums.attrs["bins"], "band": band, "level": level, "independent": independent}
    return table(found, attrs)


def effective_number(sums: xr.Dataset, independent: float) -> xr.DataArray:
    """(sum w)^2 / sum w^2 of all points, times the share of independent ones, whole."""
    squares = whole(sums["weight_square"])
    return (whole(sums["weight"]) ** 2 / squares.where(squares > 0) * independent).round()


def check_band(level: float, independent: float, resamples: int) -> None:
    """Refuse numbers that make no band.

    Raises:
        ArgumentError: such numbers.
    """
    if not 0 < level < 1:
        raise ArgumentError("level", f"expected a number between 0 and 1, got {level}")
    if not independent > 0:
        raise ArgumentError("independent", f"expected a number above 0, got {independent}")
    if resamples < 1:
        raise ArgumentError("resamples", f"expected one or more, got {resamples}")


def checked_seed(seed: int | None) -> int:
    """The seed that was given.

    Raises:
        ArgumentError: none was.
    """
    if seed is None:
        raise ArgumentError("seed", "resampling needs one", "Give a whole number, such as seed=0")
    return seed


def _on_bins(kernel: Any, *arrays: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Two bounds of each bin, of arrays with or without the axis of bins."""
    ready = [
        rechunked(a, {"bin": -1}) if a.chunks is not None and "bin" in a.dims else a for a in arrays
    ]
    lower, upper = xr.apply_ufunc(
        kernel,
        *ready,
        input_core_dims=[["bin"] if "bin" in a.dims else [] for a in ready],
        output_core_dims=[["bin"], ["bin"]],
        dask="parallelized",
        output_dtypes=[np.float64, np.float64],
    )
    return lower, upper


def _binomial(n: Array, p: Array, *, tails: tuple[float, float]) -> tuple[Array, ...]:
    stats: Any = import_module("scipy.stats")

    known = np.where(n > 0, n, np.nan)
    p = np.clip(p, 0, 1)  # a mean may be above 1 by a rounding
    return tuple(stats.binom.ppf(tail, known, p) / known for tail in tails)


def _resampled(
    n: Array, share: Array, mean: Array, *, tails: tuple[float, float], resamples: int, seed: int
) -> tuple[Array, ...]:
    bounds = np.full((2, *share.shape), np.nan)
    for place in np.ndindex(share.shape[:-1]):
        rng = np.random.default_rng(seed)  # one for each diagram: chunks make no difference
        if np.isnan(n[place]) or np.isnan(share[place]).any():
            continue
        for k in np.flatnonzero(share[place] > 0):
            size = rng.binomial(int(n[place]), min(share[(*place, k)], 1.0), resamples)
            drawn = rng.binomial(size, np.clip(mean[(*place, k)], 0, 1))
            if (size > 0).any():
                rates = drawn[size > 0] / size[size > 0]
                bounds[(slice(None), *place, k)] = np.quantile(rates, tails, method="inverted_cdf")
    return bounds[0], bounds[1]
