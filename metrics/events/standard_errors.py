"""Standard errors of Brier terms and of the ROC area, from the sums of `event_sums`.

A term is a function g of means over points, and its standard error is that of the mean of the
points' influences on g. The influences are polynomials of the event o (0 or 1) and, within a bin,
of the probability p, so that their mean squares follow from the sums.
"""

import numpy as np
import xarray as xr


def brier_standard_errors(sums: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return the standard errors of the Brier score, reliability, resolution and uncertainty.

    Points are independent; with weights their number is the effective one, (sum w)^2 / sum w^2.

    Args:
        sums: result of `event_sums`.
    """
    total = sums["weight"].sum("bin", skipna=False)
    a, b, c = (sums[k] / total for k in ("weight", "event", "probability"))  # means over points
    present = a.where(a > 0)
    rate, gap, y = b / present, (b - c) / present, b.sum("bin", skipna=False)
    # of (o - p)^2 within the bins
    square = (sums["probability_square"] - 2 * sums["product"] + sums["event"]) / total
    reliability, resolution = (a * gap**2).sum("bin"), (a * (rate - y) ** 2).sum("bin")
    # influences: -gap^2 + 2 gap (o - p); y^2 - rate^2 + 2 (rate - y) o; (1 - 2 y) o
    of_reliability = a * gap**4 - 4 * gap**3 * (b - c) + 4 * gap**2 * square
    if_event, if_none = (rate - y) * (2 - rate - y), -(rate - y) * (rate + y)
    of_resolution = b * if_event**2 + (a - b) * if_none**2
    variances = {
        "reliability": of_reliability.sum("bin") - reliability**2,
        "resolution": of_resolution.sum("bin") - resolution**2,
        "uncertainty": (1 - 2 * y) ** 2 * y * (1 - y),
        "brier": _variance_of_brier(sums, a, b, square.sum("bin", skipna=False)),
    }
    n = _effective_number(sums)
    return {f"{name}_standard_error": _root(variance / n) for name, variance in variances.items()}


def _variance_of_brier(
    sums: xr.Dataset, a: xr.DataArray, b: xr.DataArray, brier: xr.DataArray
) -> xr.DataArray:
    """Return the variance of (o - p)^2; NaN where bins hold different probabilities."""
    if not np.array_equal(sums["bin"], sums["bin_upper"]):
        return np.nan * brier
    p = sums["bin"].drop_vars("bin_upper", errors="ignore")
    fourth = b * (1 - p) ** 4 + (a - b) * p**4
    return fourth.sum("bin", skipna=False) - brier**2


def area_standard_error(sums: xr.Dataset, area: xr.DataArray) -> xr.DataArray:
    """Return the standard error of the ROC area by the method of DeLong et al. (1988).

    The area is the mean over events of the share of non-events with a lower forecast, ties
    counting half, and likewise over non-events; its variance is that of both means.

    Args:
        sums: result of `event_sums`.
        area: the area.
    """
    events, others = sums["event"], sums["weight"] - sums["event"]
    m, n = events.sum("bin", skipna=False), others.sum("bin", skipna=False)
    lower_others = (others.cumsum("bin") - others / 2) / n.where(n > 0)
    higher_events = (m - events.cumsum("bin") + events / 2) / m.where(m > 0)
    points = _effective_number(sums) / (m + n)  # in a unit of weight
    variance = 0.0 * area
    for group, total, share in ((events, m, lower_others), (others, n, higher_events)):
        spread = (group * (share - area) ** 2).sum("bin", skipna=False) / total
        number = total * points
        variance = variance + spread / (number - 1).where(number > 1)
    return _root(variance)


def _effective_number(sums: xr.Dataset) -> xr.DataArray:
    squares = sums["weight_square"].sum("bin", skipna=False)
    return sums["weight"].sum("bin", skipna=False) ** 2 / squares.where(squares > 0)


def _root(variance: xr.DataArray) -> xr.DataArray:
    return variance.clip(min=0.0) ** 0.5  # below 0 by rounding only
