"""Anomaly correlation coefficient (ACC) of forecast and observed anomalies."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ens10.metrics._call import Score, apply
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.scores.pairs import Pair
from ens10.metrics.statistic import Floats, Metric, PointStatistic


def anomaly_correlation(
    forecast: Any,
    y: Any,
    climatology: Any,
    *,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the correlation of forecast and observed anomalies from a climatology.

    sum(w f o) / sqrt(sum(w f^2) sum(w o^2)) with f = forecast - climatology and
    o = y - climatology, without subtracting the means of the anomalies (Wilks 2011, Statistical
    Methods in the Atmospheric Sciences, eq. 8.69). 1 is a perfect pattern, 0 that of random
    anomalies. Sums over dates and points are taken first: the mean of the correlations of dates
    is a different number.

    Args:
        forecast: one number for each point, such as the ensemble mean.
        y: observations.
        climatology: the mean state of each point and date.
        dim: dimensions that are summed over; "all" by default.
        weights: weights of the points, such as area weights.
        nan: "propagate", or "omit" points where one of the three is missing.

    Returns:
        The correlation, as an array of the input's type; NaN where all anomalies of one
        side are 0.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import anomaly_correlation
        >>> climatology = np.array([280.0, 285.0, 290.0])
        >>> y = climatology + np.array([1.0, -1.0, 2.0])
        >>> float(anomaly_correlation(climatology + np.array([2.0, -2.0, 4.0]), y, climatology))
        1.0

    Raises:
        ArgumentError: shapes, coordinates or units that differ.
    """
    arrays = {"forecast": forecast, "y": y, "climatology": climatology}
    product, forecast2, observed2 = (
        mean_over(apply(score, arrays), dim, weights, nan) for score in _PRODUCTS
    )
    correlation = product / (forecast2 * observed2) ** 0.5
    if hasattr(correlation, "assign_attrs"):
        long_name = "anomaly correlation coefficient"
        correlation = correlation.rename("acc").assign_attrs(long_name=long_name, units="1")
    return correlation


def _anomaly_product(forecast: Any, y: Any, climatology: Any) -> Any:
    return (forecast - climatology) * (y - climatology)


def _forecast_anomaly2(forecast: Any, y: Any, climatology: Any) -> Any:
    return (forecast - climatology) ** 2 + 0.0 * y  # missing where the observation is


def _observed_anomaly2(forecast: Any, y: Any, climatology: Any) -> Any:
    return (y - climatology) ** 2 + 0.0 * forecast


_PRODUCTS = [
    Score("acc", "product of anomalies", function, function)
    for function in (_anomaly_product, _forecast_anomaly2, _observed_anomaly2)
]


def _anomalies(pair: Pair) -> tuple[Floats, Floats]:
    """Return the anomalies of the forecast's mean and of the truth; NaN where one is missing."""
    observed = pair.y.astype(np.float64) - pair.climatology
    return observed + pair.field("error"), observed


def _product(pair: Pair, number: float | None = None) -> Floats:  # noqa: ARG001
    forecast, observed = _anomalies(pair)
    return forecast * observed


def _forecast2(pair: Pair, number: float | None = None) -> Floats:  # noqa: ARG001
    return _anomalies(pair)[0] ** 2


def _observed2(pair: Pair, number: float | None = None) -> Floats:  # noqa: ARG001
    forecast, observed = _anomalies(pair)
    return observed**2 + 0.0 * forecast


def _finish(means: Sequence[Floats], members: int | None) -> Floats:  # noqa: ARG001
    product, forecast2, observed2 = means
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation: Floats = product / np.sqrt(forecast2 * observed2)
    return correlation


STATISTICS = tuple(
    PointStatistic(name, values, "truth2", requires=("error",), needs_also="climatology")
    for name, values in (
        ("anomaly_product", _product),
        ("forecast_anomaly2", _forecast2),
        ("observed_anomaly2", _observed2),
    )
)
METRICS = (
    Metric(
        "acc",
        "anomaly correlation coefficient of the mean",
        tuple(one.name for one in STATISTICS),
        "1",
        _finish,
    ),
)
