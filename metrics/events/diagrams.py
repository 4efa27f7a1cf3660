"""Brier decomposition, reliability diagram, ROC curve and economic value from `event_sums`."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._labels import rechunk
from ens10.metrics.events.standard_errors import area_standard_error, brier_standard_errors
from ens10.metrics.events.sums import PARTS

__all__ = [
    "brier_decomposition",
    "contingency_tables",
    "relative_economic_value",
    "reliability_diagram",
    "roc_curve",
]


def brier_decomposition(
    sums: xr.Dataset, *, bias_corrected: bool = False, standard_errors: bool = False
) -> xr.Dataset:
    """Decompose the Brier score (Murphy), with terms for different forecasts within a bin.

    brier = reliability - resolution + uncertainty + within_bin_variance - within_bin_covariance
    holds for every choice of bins (Murphy 1973; Stephenson et al. 2008,
    doi:10.1175/2007WAF2006116.1). The last two terms are 0 where all probabilities of a bin are
    equal, as with `members`, `digits` or "unique" bins.

    The corrected terms (Ferro and Fricker 2012, doi:10.1002/qj.1924; Broecker 2012,
    doi:10.1007/s00382-011-1191-1) remove what the sampling error of the observed frequencies of
    n_k points adds to reliability and resolution: the mean over the bins, weighted by n_k, of the
    estimated variance o_k (1 - o_k) / (n_k - 1). That of the base rate is added to resolution and
    uncertainty. Bins of one point are not corrected.
    With weights n_k is the effective number (sum w)^2 / sum w^2. Points are taken to be
    independent: neighbours on a grid are not, so there the correction is too small.

    Bins contain their lower edge (the last one also its upper edge). R's `cut`, and with it
    SpecsVerification, puts a probability on an edge into the bin below: the Brier score and the
    uncertainty are the same, the other terms are not. For shares of members use `members`, where
    both agree.

    Args:
        sums: result of `event_sums`, or several of them merged.
        bias_corrected: True to return the corrected terms; the identity holds in both cases.
        standard_errors: True to add the standard errors of `brier` (Bradley et al. 2008,
            doi:10.1175/2007WAF2007049.1; NaN if bins hold different probabilities) and of
            reliability, resolution and uncertainty (propagation of error, Siegert 2014,
            doi:10.1002/qj.2228), for independent points; those of the uncorrected terms.

    Returns:
        A Dataset of `brier`, the five terms, and `generalised_resolution` (resolution -
        within_bin_variance + within_bin_covariance), over the dimensions of `sums` without `bin`;
        with `standard_errors` also `brier_standard_error` and so on.

    Raises:
        ArgumentError: not the sums of `event_sums`.
    """
    check_sums(sums)
    w = sums["weight"]
    positive_weight, total = w.where(w > 0), sum_bins(w)
    mean, rate = sums["probability"] / positive_weight, sums["event"] / positive_weight
    base = sum_bins(sums["event"]) / total
    terms = {
        "brier": brier_of_sums(sums),
        "reliability": _sum_present_bins(w * (mean - rate) ** 2) / total,
        "resolution": _sum_present_bins(w * (rate - base) ** 2) / total,
        "uncertainty": base * (1 - base),
    }
    if bias_corrected:
        scatter = _sum_present_bins(w * _variance_of_rate(rate, w, sums["weight_square"])) / total
        of_base = _variance_of_rate(base, sum_bins(w), sum_bins(sums["weight_square"]))
        terms["reliability"] = terms["reliability"] - scatter
        terms["resolution"] = terms["resolution"] - scatter + of_base
        terms["uncertainty"] = terms["uncertainty"] + of_base
    variance = _sum_present_bins(sums["probability_square"] - sums["probability"] * mean) / total
    covariance = 2 * _sum_present_bins(sums["product"] - sums["probability"] * rate) / total
    terms["within_bin_variance"], terms["within_bin_covariance"] = variance, covariance
    terms["generalised_resolution"] = terms["resolution"] - variance + covariance
    if standard_errors:
        terms |= brier_standard_errors(sums)
    attrs = {"bins": sums.attrs["bins"], "bias_corrected": int(bias_corrected)}
    missing = sum_bins(w).isnull()  # a sum over bins leaves out NaN, which empty bins have too
    return table({k: v.where(~missing) for k, v in terms.items()}, attrs)


def brier_of_sums(sums: xr.Dataset) -> xr.DataArray:
    """Return the Brier score of all points."""
    squares = sums["probability_square"] - 2 * sums["product"] + sums["event"]
    return sum_bins(squares) / sum_bins(sums["weight"])


def check_sums(sums: Any) -> None:
    """Refuse a Dataset that is not a result of `event_sums`.

    Raises:
        ArgumentError: parts or the dimension of bins are missing.
    """
    missing = sorted(set(PARTS) - set(map(str, getattr(sums, "data_vars", {}))))
    if missing or "bin" not in sums.dims or "bins" not in sums.attrs:
        names = ", ".join(missing) or "bins"
        raise ArgumentError("sums", f"no sums of events, without {names}", "Make with event_sums")


def check_single_values(sums: xr.Dataset) -> None:
    """Refuse sums of bins that hold different probabilities.

    Raises:
        ArgumentError: a bin whose lower and upper probability differ.
    """
    check_sums(sums)
    if not np.array_equal(sums["bin"], sums["bin_upper"]):
        raise ArgumentError(
            "sums",
            f"their bins ({sums.attrs['bins']}) hold different probabilities",
            'Sum with members, digits or bins="unique"',
        )


def table(variables: Mapping[str, xr.DataArray], attrs: Mapping[str, Any]) -> xr.Dataset:
    """Return a Dataset of the variables, with `long_name` and without the attributes of sums."""
    labelled = {
        name: values.drop_attrs().assign_attrs(long_name=name.replace("_", " "), units="1")
        for name, values in variables.items()
    }
    return xr.Dataset(labelled, attrs=attrs)


def sum_bins(part: xr.DataArray) -> xr.DataArray:
    """Return the sum over all bins; NaN where one of them is NaN."""
    return part.sum("bin", skipna=False)


def _sum_present_bins(part: xr.DataArray) -> xr.DataArray:
    return part.sum("bin")


def _variance_of_rate(rate: xr.DataArray, w: xr.DataArray, squares: xr.DataArray) -> xr.DataArray:
    """Return the estimated variance of an observed frequency; 0 for a single point."""
    share = squares / (w * w).where(w > 0)  # 1 / n of equal weights
    several = share < 1 - 1e-9
    return (rate * (1 - rate) * share / (1 - share).where(several)).where(several, 0.0)


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
    """Return mean forecast and observed frequency of each bin, with consistency bands.

    If the forecast is reliable, the observed frequency of a bin lies in its band with probability
    `level` (Broecker and Smith 2007, doi:10.1175/WAF993.1). "binomial" takes the quantiles of
    the binomial distribution of n_k points with the bin's mean probability; "resampling" also
    draws the number of points of the bin, as those authors do.

    Args:
        sums: result of `event_sums`, or several of them merged.
        band: "binomial" or "resampling".
        level: coverage of the bands, in (0, 1).
        independent: effective number of independent points per point; below 1 where neighbours
            or successive dates are correlated, which makes the bands wider.
        resamples: number of draws of "resampling".
        seed: seed of the draws; needed for "resampling".

    Returns:
        A Dataset of `forecast_mean`, `observed_frequency`, `band_lower`, `band_upper` (NaN for
        empty bins), `count` and `share` (of the weight) over the dimensions of `sums`.

    Raises:
        UnknownNameError: an unknown band.
        ArgumentError: not the sums of `event_sums`; numbers out of range; no seed.
    """
    check_sums(sums)
    if band not in get_args(Band):
        raise UnknownNameError("band", band, get_args(Band))
    check_band(level, independent, resamples)
    w = sums["weight"]
    positive_weight = w.where(w > 0)
    mean, rate = sums["probability"] / positive_weight, sums["event"] / positive_weight
    tails = ((1 - level) / 2, (1 + level) / 2)
    if band == "binomial":
        n = (w * positive_weight / sums["weight_square"] * independent).round()
        bounds = partial(_binomial, tails=tails)
        lower, upper = _apply_on_bins(bounds, n, mean)
    else:
        draw = partial(_bootstrap_bounds, tails=tails, resamples=resamples, seed=checked_seed(seed))
        lower, upper = _apply_on_bins(
            draw, effective_number(sums, independent), w / sum_bins(w), mean
        )
    variables = {
        "forecast_mean": mean,
        "observed_frequency": rate,
        "band_lower": lower,
        "band_upper": upper,
        "count": sums["count"],
        "share": w / sum_bins(w),
    }
    attrs = {"bins": sums.attrs["bins"], "band": band, "level": level, "independent": independent}
    return table(variables, attrs)


def effective_number(sums: xr.Dataset, independent: float) -> xr.DataArray:
    """Return (sum w)^2 / sum w^2 times the share of independent points, rounded."""
    squares = sum_bins(sums["weight_square"])
    return (sum_bins(sums["weight"]) ** 2 / squares.where(squares > 0) * independent).round()


def check_band(level: float, independent: float, resamples: int) -> None:
    """Check the parameters of a consistency band.

    Raises:
        ArgumentError: a number out of range.
    """
    if not 0 < level < 1:
        raise ArgumentError("level", f"expected a number between 0 and 1, got {level}")
    if not independent > 0:
        raise ArgumentError("independent", f"expected a number above 0, got {independent}")
    if resamples < 1:
        raise ArgumentError("resamples", f"expected one or more, got {resamples}")


def checked_seed(seed: int | None) -> int:
    """Return the seed, which must not be None.

    Raises:
        ArgumentError: the seed is None.
    """
    if seed is None:
        raise ArgumentError("seed", "resampling needs one", "Pass a whole number, such as seed=0")
    return seed


def _apply_on_bins(kernel: Any, *arrays: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Apply a kernel that returns two bounds for each bin, to arrays with or without bins."""
    ready = [
        rechunk(a, {"bin": -1}) if a.chunks is not None and "bin" in a.dims else a for a in arrays
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

    number = np.where(n > 0, n, np.nan)
    p = np.clip(p, 0, 1)  # a mean may be above 1 by a rounding
    return tuple(stats.binom.ppf(tail, number, p) / number for tail in tails)


def _bootstrap_bounds(
    n: Array, share: Array, mean: Array, *, tails: tuple[float, float], resamples: int, seed: int
) -> tuple[Array, ...]:
    bounds = np.full((2, *share.shape), np.nan)
    for place in np.ndindex(share.shape[:-1]):
        rng = np.random.default_rng(seed)  # one for each diagram: chunks make no difference
        if np.isnan(n[place]) or np.isnan(share[place]).any():
            continue
        for k in np.flatnonzero(share[place] > 0):
            size = rng.binomial(int(n[place]), min(share[(*place, k)], 1.0), resamples)
            events = rng.binomial(size, np.clip(mean[(*place, k)], 0, 1))
            if (size > 0).any():
                rates = events[size > 0] / size[size > 0]
                bounds[(slice(None), *place, k)] = np.quantile(rates, tails, method="inverted_cdf")
    return bounds[0], bounds[1]


def contingency_tables(sums: xr.Dataset) -> xr.Dataset:
    """Return contingency tables for warnings issued at each probability threshold.

    For yes-or-no forecasts (sums with `members=1` of probabilities 0 and 1) use the table at the
    threshold 1.

    Args:
        sums: result of `event_sums`, or several of them merged.

    Returns:
        A Dataset of `hits`, `misses`, `false_alarms` and `correct_negatives` (sums of weights)
        over `threshold` and the dimensions of `sums` without `bin`. A threshold is the lower edge
        of a bin or a probability: a warning is issued where the forecast is at least as large;
        at the last threshold, infinity, never.

    Raises:
        ArgumentError: not the sums of `event_sums`.
    """
    check_sums(sums)
    events, others = sums["event"], sums["weight"] - sums["event"]
    tables = {
        "hits": _sums_from_bin(events),
        "misses": _sums_before_bin(events),
        "false_alarms": _sums_from_bin(others),
        "correct_negatives": _sums_before_bin(others),
    }
    return table(tables, {"bins": sums.attrs["bins"]})


def roc_curve(sums: xr.Dataset) -> xr.Dataset:
    """Return the ROC curve, hit rate against false alarm rate, and its area (Mason 1982).

    The area is by trapezoids. It equals the probability that an event had a higher forecast than
    a non-event, ties counting half (Mann and Whitney), if all probabilities of a bin are equal:
    with `members`, `digits` or "unique" bins. Wider bins make it smaller.

    Args:
        sums: result of `event_sums`, or several of them merged.

    Returns:
        A Dataset of `hit_rate` and `false_alarm_rate` over `threshold` (see
        `contingency_tables`) and the dimensions of `sums` without `bin`, and `area` and
        `area_standard_error` without `threshold`; NaN where the event happened always or never.
        The standard error is that of DeLong et al. (1988, doi:10.2307/2531595), for independent
        points, which needs no assumption on the distributions of the forecasts.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import event_sums, roc_curve
        >>> p, event = np.array([0.1, 0.4, 0.6, 0.9]), np.array([0, 1, 0, 1])
        >>> float(roc_curve(event_sums(p, event, dim="all", digits=1))["area"])
        0.75

    Raises:
        ArgumentError: not the sums of `event_sums`.
    """
    tables = contingency_tables(sums)
    hit_rate, false_alarm_rate = rates(tables)
    first, second = slice(None, -1), slice(1, None)
    width = _at_thresholds(false_alarm_rate, first) - _at_thresholds(false_alarm_rate, second)
    height = (_at_thresholds(hit_rate, first) + _at_thresholds(hit_rate, second)) / 2
    variables = {
        "hit_rate": hit_rate,
        "false_alarm_rate": false_alarm_rate,
        "area": (width * height).sum("threshold", skipna=False),
    }
    variables["area_standard_error"] = area_standard_error(sums, variables["area"])
    return table(variables, tables.attrs)


def rates(tables: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Return hit rate and false alarm rate of `contingency_tables`; NaN for 0 / 0."""
    events = tables["hits"] + tables["misses"]
    others = tables["false_alarms"] + tables["correct_negatives"]
    hit_rate = tables["hits"] / events.where(events > 0)
    return hit_rate, tables["false_alarms"] / others.where(others > 0)


def _sums_from_bin(part: xr.DataArray) -> xr.DataArray:
    """Return sums from each bin to the last, and 0 at the end, over thresholds."""
    back = slice(None, None, -1)
    sums = part.isel(bin=back).cumsum("bin", skipna=False).isel(bin=back)
    return _over_thresholds(sums.pad(bin=(0, 1), constant_values=0.0), part)


def _sums_before_bin(part: xr.DataArray) -> xr.DataArray:
    """Return sums of the bins before each one, and of all at the end, over thresholds."""
    sums = part.cumsum("bin", skipna=False)
    return _over_thresholds(sums.pad(bin=(1, 0), constant_values=0.0), part)


def _over_thresholds(sums: xr.DataArray, part: xr.DataArray) -> xr.DataArray:
    edges = np.append(part["bin"].to_numpy(), np.inf)
    bare = sums.drop_vars(["bin", "bin_upper"], errors="ignore").rename(bin="threshold")
    return bare.assign_coords(threshold=edges)


def _at_thresholds(array: xr.DataArray, part: slice) -> xr.DataArray:
    return array.isel(threshold=part).drop_vars("threshold")


def relative_economic_value(
    sums: xr.Dataset, *, cost_loss: float | Sequence[float] | None = None
) -> xr.Dataset:
    """Return the relative economic value of warnings at every threshold, and its envelope.

    For a user with the ratio a of the cost of protection to the loss, V is the saving relative to
    climatology (the observed frequency s), as a share of that of a perfect forecast:
    V = [min(a, s) - F a (1 - s) + H s (1 - a) - s] / [min(a, s) - s a], with the hit rate H and
    the false alarm rate F (Richardson 2000, doi:10.1002/qj.49712656313). The envelope is the value
    if each user takes the best threshold. It is 0 or more, because always and never protecting
    are among the thresholds, and its largest value is the maximum of H - F, at a = s.

    Args:
        sums: result of `event_sums`, or several of them merged.
        cost_loss: ratios a in (0, 1); 0.01, 0.02, ... 0.99 if None.

    Returns:
        A Dataset of `value` over `cost_loss`, `threshold` (see `contingency_tables`) and the
        dimensions of `sums` without `bin`, and `envelope` without `threshold`; NaN where the
        event happened always or never.

    Raises:
        ArgumentError: ratios outside (0, 1); not the sums of `event_sums`.
    """
    requested = np.arange(1, 100) / 100 if cost_loss is None else cost_loss
    ratios = np.atleast_1d(np.asarray(requested, dtype=np.float64))
    if ratios.ndim != 1 or not bool(((ratios > 0) & (ratios < 1)).all()):
        raise ArgumentError("cost_loss", f"expected ratios between 0 and 1, got {cost_loss}")
    tables = contingency_tables(sums)
    hit_rate, false_alarm_rate = rates(tables)
    events = tables["hits"] + tables["misses"]
    total = events + tables["false_alarms"] + tables["correct_negatives"]
    s = (events / total.where(total > 0)).isel(threshold=0, drop=True)
    a = xr.DataArray(ratios, dims="cost_loss", coords={"cost_loss": ratios})
    least = a.where(a < s, s)
    saving = least - false_alarm_rate * a * (1 - s) + hit_rate * s * (1 - a) - s
    value = saving / (least - s * a)
    variables = {"value": value, "envelope": value.max("threshold", skipna=False)}
    return table(variables, tables.attrs)
