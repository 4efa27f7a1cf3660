"""Scores of the mean and of the spread."""

from typing import Any

from ens10.errors import ArgumentError
from ens10.metrics._call import Score, apply
from ens10.metrics._reduce import Over, mean_over


def bias(
    forecast: Any, y: Any, *, dim: Over = None, weights: Any = None, nan: str = "propagate"
) -> Any:
    """Mean error: forecast - y.

    Args:
        forecast: of any kind that is one number for each point, such as a mean.
        y: observations.
        dim: of the mean; None for the errors of the points.
        weights: of the mean, such as area weights.
        nan: "propagate" or "omit", in the mean.

    Returns:
        The error in the unit of the forecast, as the kind of array that was given.

    Raises:
        ArgumentError: shapes, coordinates or units that differ.
    """
    score = Score("bias", "mean error", _difference, _difference)
    return mean_over(apply(score, {"forecast": forecast, "y": y}), dim, weights, nan)


def mae(
    forecast: Any, y: Any, *, dim: Over = None, weights: Any = None, nan: str = "propagate"
) -> Any:
    """Mean absolute error; the arguments are those of `bias`. A median minimises it."""
    score = Score("mae", "mean absolute error", _absolute, _absolute)
    return mean_over(apply(score, {"forecast": forecast, "y": y}), dim, weights, nan)


def rmse(
    mean: Any, y: Any, *, dim: Over = "all", weights: Any = None, nan: str = "propagate"
) -> Any:
    """Root of the weighted mean squared error.

    Args:
        mean: the forecast's mean. Of an ensemble in float32 give `ensemble_error` as `mean` and 0
            as `y`, which loses no digits.
        y: observations.
        dim: of the mean under the root; "all" by default.
        weights: what broadcasts to the points, such as area weights.
        nan: "propagate", or "omit" points without a value.

    Returns:
        In the unit of `mean`, as the kind of array that was given.

    Raises:
        ArgumentError: shapes, coordinates or units that differ.
    """
    squares = Score("rmse", "root mean squared error", _square, _square)
    found = mean_over(apply(squares, {"mean": mean, "y": y}), dim, weights, nan)
    return _root(found)


def spread_error_ratio(
    mean: Any,
    variance: Any,
    y: Any,
    *,
    members: int | None = None,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Root of the mean variance over the root mean squared error; 1 for a calibrated forecast.

    The mean of M exchangeable members has an expected squared error of (M + 1) / M times their
    variance (Fortin et al. 2014, doi:10.1175/JHM-D-14-0008.1), so the variance of an ensemble,
    which must be the unbiased one, takes that factor.

    Args:
        mean: the forecast's mean.
        variance: the predicted variance; of members `ensemble_variance`.
        y: observations.
        members: M of an ensemble; None for a distribution such as a normal.
        dim: what both means are over; "all" by default.
        weights: what broadcasts to the points, such as area weights.
        nan: "propagate", or "omit" points where one of the three is missing.

    Returns:
        The ratio, as the kind of array that was given.

    Raises:
        ArgumentError: fewer than two members; shapes, coordinates or units that differ.
    """
    factor = spread_inflation(members)
    arrays = {"mean": mean, "variance": variance, "y": y}
    means = [
        mean_over(apply(score, arrays, unlike=["variance"]), dim, weights, nan)
        for score in (_VARIANCE, _ERROR2)
    ]
    ratio = (factor * means[0] / means[1]) ** 0.5
    if hasattr(ratio, "rename"):
        text = "spread over error"
        ratio = ratio.rename("spread_error").assign_attrs(long_name=text, units="1")
    return ratio


def spread_inflation(members: int | None) -> float:
    """The factor (M + 1) / M of an ensemble's variance, 1 for None (a distribution).

    Raises:
        ArgumentError: fewer than two members, which have no variance.
    """
    if members is None:
        return 1.0
    if members < 2:
        raise ArgumentError("members", f"a spread needs two or more, got {members}")
    return (members + 1) / members


def _difference(forecast: Any, y: Any) -> Any:
    return forecast - y


def _absolute(forecast: Any, y: Any) -> Any:
    return abs(forecast - y)


def _square(mean: Any, y: Any) -> Any:
    return (mean - y) ** 2


def _root(mean: Any) -> Any:
    root = mean**0.5
    return root.assign_attrs(mean.attrs) if hasattr(root, "assign_attrs") else root


def _variance(mean: Any, variance: Any, y: Any) -> Any:
    return variance + 0.0 * (mean - y)  # missing where the error is


def _error2(mean: Any, variance: Any, y: Any) -> Any:
    return (mean - y) ** 2 + 0.0 * variance


_VARIANCE = Score("variance", "predicted variance", _variance, _variance)
_ERROR2 = Score("error2", "squared error", _error2, _error2)
