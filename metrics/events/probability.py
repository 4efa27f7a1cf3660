"""From forecasts of a quantity to probabilities of an event: that it exceeds a threshold."""

import math
from functools import partial
from typing import Any, Literal, get_args

from ens10.errors import UnknownNameError
from ens10.metrics._call import Score, apply
from ens10.metrics.events import _kernels
from ens10.metrics.events._checks import check_units
from ens10.metrics.families._formula import Formula

PointNan = Literal["propagate", "skip-members"]


def exceedance_probability(
    members: Any,
    threshold: Any,
    *,
    member_dim: int | str,
    strict: bool = True,
    nan: str = "propagate",
) -> Any:
    """The share of the members of an ensemble that lie above a threshold.

    Args:
        members: the ensemble; any shape with a member axis.
        threshold: a number, or what broadcasts to the members' shape without the member axis
            (such as a climatological quantile of each place); a DataArray may have a dimension
            of thresholds of its own.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        strict: whether a member on the threshold counts as below it.
        nan: "propagate" makes the probability NaN where a member is; "skip-members" takes the
            share among those that are there.

    Returns:
        Probabilities as the kind of array that was given, without gradient (a share has steps).

    Raises:
        UnknownNameError: another `nan`.
        ArgumentError: shapes, coordinates or units that do not fit.
    """
    if nan not in get_args(PointNan):
        raise UnknownNameError("nan", nan, get_args(PointNan))
    arrays = {"members": members, "threshold": threshold}
    check_units(arrays)
    options = {"strict": strict, "nan": nan}
    return apply(_EXCEEDANCE, arrays, {"members": [member_dim]}, options=options)


def exceedance_event(y: Any, threshold: Any, *, strict: bool = True) -> Any:
    """1 where the observation lies above a threshold, 0 where not, NaN where it is missing.

    A plain comparison makes "did not happen" of a missing observation.

    Args:
        y: observations, any shape.
        threshold: a number or what broadcasts to them.
        strict: whether an observation on the threshold counts as below it; as for the forecast.

    Returns:
        Floating numbers, as the kind of array that was given.

    Raises:
        ArgumentError: shapes, coordinates or units that do not fit.
    """
    arrays = {"y": y, "threshold": threshold}
    check_units(arrays)
    return apply(_EVENT, arrays, options={"strict": strict})


def exceedance_probability_normal(
    mu: Any, sigma: Any, threshold: Any, *, check: bool = True
) -> Any:
    """The probability 1 - Phi((threshold - mu) / sigma) that a normal exceeds a threshold.

    Where sigma is 0 it is 1, 1/2 or 0: the mean above, on or below the threshold. Gradients of
    tensors are analytic; those where the mean is on the threshold with sigma 0 are given as 0.

    Args:
        mu: means; any shape.
        sigma: standard deviations, 0 or more.
        threshold: a number or what broadcasts to them.
        check: whether a negative sigma is looked for.

    Returns:
        Probabilities as the kind of array that was given.

    Raises:
        ArgumentError: a negative sigma (on lazy arrays when computed); shapes, coordinates or
            units that do not fit.
    """
    arrays = {"mu": mu, "sigma": sigma, "threshold": threshold}
    check_units(arrays)
    return apply(_NORMAL.score, arrays, options={"check": check})


def _standardised(ops: Any, mu: Any, sigma: Any, threshold: Any) -> Any:
    """(mu - threshold) / sigma; far outside where sigma is 0, and 0 where both are."""
    far = 1e3 * ops.sign(mu - threshold)
    return ops.where(sigma == 0, far, (mu - threshold) / _divisor(ops, sigma))


def _divisor(ops: Any, sigma: Any) -> Any:
    return ops.where(sigma == 0, ops.full_like(sigma, 1.0), sigma)


def _value(ops: Any, mu: Any, sigma: Any, threshold: Any) -> Any:
    z = _standardised(ops, mu, sigma, threshold)
    # torch's ndtr has no more than absolute accuracy far below 0
    return ops.where(z < -1, ops.exp(ops.log_ndtr(z)), ops.ndtr(z))


def _partials(ops: Any, mu: Any, sigma: Any, threshold: Any) -> tuple[Any, ...]:
    z = _standardised(ops, mu, sigma, threshold)
    density = ops.exp(-z * z / 2) / math.sqrt(2 * math.pi) / _divisor(ops, sigma)
    density = ops.where(sigma == 0, ops.full_like(z, 0.0), density)
    return density, -ops.where(density == 0, density, z * density), -density


def _tensors(name: str, *arrays: Any, **options: Any) -> Any:
    from ens10.metrics.events import _events_torch

    return getattr(_events_torch, name)(*arrays, **options)


def on_tensors(name: str) -> Any:
    """The kernel on tensors of that name; torch is imported when it is called."""
    return partial(_tensors, name)


_EXCEEDANCE = Score(
    "probability",
    "probability of exceeding the threshold",
    _kernels.exceedance,
    on_tensors("exceedance"),
    units=False,
)
_EVENT = Score(
    "event", "threshold exceeded", _kernels.happened, on_tensors("happened"), units=False
)
_NORMAL = Formula(
    "probability",
    "probability of exceeding the threshold",
    {"mu": "real", "sigma": "nonnegative"},
    _value,
    _partials,
    units=False,
)
