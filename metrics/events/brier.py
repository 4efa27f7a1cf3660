"""The Brier and the logarithmic score: squared and logarithmic errors of event probabilities."""

import math
from typing import Any

from ens10.errors import ArgumentError
from ens10.metrics._call import Score, apply
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics.events import _kernels
from ens10.metrics.events._checks import check_members, check_units
from ens10.metrics.events.probability import on_tensors


def brier_score(
    probability: Any,
    event: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Brier score (p - o)^2 of event probabilities (Brier 1950); 0 is best.

    Args:
        probability: of the event, in [0, 1]; any shape. Tensors are differentiable in it.
        event: 1 (or True) where it happened, 0 where not; see `exceedance_event`.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean, such as area weights.
        nan: "propagate" or "omit", in the mean.
        check: whether values are looked at; a training loss passes False.

    Returns:
        Scores in [0, 1], as the kind of array that was given.

    Raises:
        ArgumentError: probabilities outside [0, 1] or events other than 0 and 1 (on lazy arrays
            when computed); shapes or coordinates that do not fit.
    """
    arrays = {"probability": probability, "event": event}
    return mean_over(apply(_BRIER, arrays, options={"check": check}), dim, weights, nan)


def brier_ensemble(
    members: Any,
    y: Any,
    *,
    threshold: Any,
    estimator: str,
    member_dim: int | str,
    strict: bool = True,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Brier score of an ensemble of M members for exceeding a threshold.

    With p the share of members above the threshold it is (p - o)^2 ("plain") or
    (p - o)^2 - p (1 - p) / (M - 1) ("fair": what is expected of it does not depend on M;
    Ferro 2014, doi:10.1002/qj.2270).

    Args:
        members: the ensemble; any shape with a member axis.
        y: observations: the members' shape without the member axis, or what broadcasts to it.
        threshold: a number, or what broadcasts to `y`; a DataArray may have a dimension of
            thresholds of its own.
        estimator: "plain" or "fair"; there is no default.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        strict: whether a value on the threshold counts as below it, forecast and observed.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate", "omit" (in the mean), or "skip-members": M is the number of members that
            are there, and a point without enough of them is left out of the mean.

    Returns:
        Scores as the kind of array that was given; no gradient (a share has steps).

    Raises:
        UnknownNameError: another estimator or policy.
        ArgumentError: fair with one member; no such axis; shapes, coordinates or units that do
            not fit.
    """
    arrays = {"members": members, "y": y, "threshold": threshold}
    check_units(arrays)
    check_members(members, member_dim, estimator, nan)
    options = {"estimator": estimator, "strict": strict, "nan": nan}
    core, attrs = {"members": [member_dim]}, {"estimator": estimator}
    score = apply(_BRIER_OF_MEMBERS, arrays, core, options=options, attrs=attrs)
    return mean_over(score, dim, weights, nan, policies=EnsembleNan)


def logarithmic_score(
    probability: Any,
    event: Any,
    *,
    clip: float = 0.0,
    base: float = math.e,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Logarithmic score: minus the logarithm of the probability of what happened.

    With base 2 it is the ignorance, in bits (Roulston and Smith 2002,
    doi:10.1175/1520-0493(2002)130<1653:EPFUIT>2.0.CO;2). It is infinite where what had the
    probability 0 happened, as shares of members often do. `clip` makes it finite, and is a
    change of the forecast: state it beside the score. Between 1 / (2 M) and 1 / (M + 1) is
    usual for M members. Where clipped, the gradient is 0.

    Args:
        probability: of the event, in [0, 1]; any shape. Tensors are differentiable in it.
        event: 1 (or True) where it happened, 0 where not; see `exceedance_event`.
        clip: probabilities are brought into [clip, 1 - clip]; 0 leaves them.
        base: of the logarithm.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: whether values are looked at; a training loss passes False.

    Returns:
        Scores of 0 or more, as the kind of array that was given.

    Raises:
        ArgumentError: as for `brier_score`; a clip outside [0, 0.5), a base of 1 or less.
    """
    if not 0 <= clip < 0.5:
        raise ArgumentError("clip", f"expected a probability below 0.5, got {clip}")
    if not base > 1:
        raise ArgumentError("base", f"expected a number above 1, got {base}")
    options = {"clip": float(clip), "base": float(base), "check": check}
    arrays = {"probability": probability, "event": event}
    attrs = {"clip": float(clip), "base": float(base)}
    score = apply(_LOGARITHMIC, arrays, options=options, attrs=attrs)
    return mean_over(score, dim, weights, nan)


_BRIER = Score("brier", "Brier score", _kernels.brier, on_tensors("brier"), units=False)
_BRIER_OF_MEMBERS = Score(
    "brier", "Brier score", _kernels.brier_of_members, on_tensors("brier_of_members"), units=False
)
_LOGARITHMIC = Score(
    "logarithmic",
    "logarithmic score",
    _kernels.logarithmic,
    on_tensors("logarithmic"),
    units=False,
)
