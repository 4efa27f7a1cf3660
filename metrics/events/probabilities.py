"""Probabilities of events, and their Brier, logarithmic and ranked probability scores."""

import math
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Score, apply
from ens10.metrics._dispatch import backend_of, common_dtype
from ens10.metrics._ops import standardise
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics.distributions.formula import Formula, Kernel
from ens10.metrics.events import _kernels
from ens10.metrics.events._kernels import check_members, check_units

__all__ = [
    "brier_ensemble",
    "brier_score",
    "exceedance_event",
    "exceedance_probability",
    "exceedance_probability_normal",
    "logarithmic_score",
    "rps",
    "rps_ensemble",
]

PointNan = Literal["propagate", "skip-members"]


def exceedance_probability(
    members: Any,
    threshold: Any,
    *,
    member_dim: int | str,
    strict: bool = True,
    nan: str = "propagate",
) -> Any:
    """Return the share of ensemble members above a threshold.

    Args:
        members: the ensemble; any shape with a member axis.
        threshold: a number, or an array that broadcasts to the members' shape without the member
            axis (such as a climatological quantile of each place); a DataArray may have an
            extra dimension of thresholds.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        strict: True if a member equal to the threshold counts as below it.
        nan: "propagate" returns NaN where a member is NaN; "skip-members" takes the share among
            the members present.

    Returns:
        Probabilities as an array of the input's type, without gradient (a share has steps).

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import exceedance_probability
        >>> members = np.array([[272.0, 273.5, 274.0, 275.0]])
        >>> exceedance_probability(members, 273.15, member_dim=1)
        array([0.75])

    Raises:
        UnknownNameError: an unknown policy for NaN.
        ArgumentError: shapes, coordinates or units that do not match.
    """
    if nan not in get_args(PointNan):
        raise UnknownNameError("nan", nan, get_args(PointNan))
    arrays = {"members": members, "threshold": threshold}
    check_units(arrays)
    options = {"strict": strict, "nan": nan}
    return apply(_EXCEEDANCE, arrays, {"members": [member_dim]}, options=options)


def exceedance_event(y: Any, threshold: Any, *, strict: bool = True) -> Any:
    """Return 1 where an observation is above a threshold, 0 elsewhere, NaN where it is missing.

    (The comparison y > threshold would count a missing observation as "did not happen".)

    Args:
        y: observations, any shape.
        threshold: a number or an array that broadcasts to `y`.
        strict: True if an observation equal to the threshold counts as below it; use the same
            value for the forecast.

    Returns:
        Floating numbers, as an array of the input's type.

    Raises:
        ArgumentError: shapes, coordinates or units that do not match.
    """
    arrays = {"y": y, "threshold": threshold}
    check_units(arrays)
    return apply(_EVENT, arrays, options={"strict": strict})


def exceedance_probability_normal(
    mu: Any, sigma: Any, threshold: Any, *, check: bool = True
) -> Any:
    """Return the exceedance probability of normal forecasts, 1 - Phi((threshold - mu) / sigma).

    Where sigma is 0 it is 1, 1/2 or 0 for a mean above, on or below the threshold. Gradients of
    tensors are analytic, and 0 where sigma is 0 and the mean equals the threshold.

    Args:
        mu: means; any shape.
        sigma: standard deviations, 0 or more.
        threshold: a number or an array that broadcasts to `mu`.
        check: True to refuse a negative sigma.

    Returns:
        Probabilities as an array of the input's type.

    Raises:
        ArgumentError: a negative sigma (on lazy arrays when computed); shapes, coordinates or
            units that do not match.
    """
    arrays = {"mu": mu, "sigma": sigma, "threshold": threshold}
    check_units(arrays)
    return apply(_NORMAL.score, arrays, options={"check": check})


def _divisor(ops: Any, sigma: Any) -> Any:
    return ops.where(sigma == 0, ops.full_like(sigma, 1.0), sigma)


def _value(ops: Any, mu: Any, sigma: Any, threshold: Any) -> Any:
    z = standardise(ops, threshold, sigma, mu)
    # torch's ndtr has no more than absolute accuracy far below 0
    return ops.where(z < -1, ops.exp(ops.log_ndtr(z)), ops.ndtr(z))


def _partials(ops: Any, mu: Any, sigma: Any, threshold: Any) -> tuple[Any, ...]:
    z = standardise(ops, threshold, sigma, mu)
    density = ops.exp(-z * z / 2) / math.sqrt(2 * math.pi) / _divisor(ops, sigma)
    density = ops.where(sigma == 0, ops.full_like(z, 0.0), density)
    return density, -ops.where(density == 0, density, z * density), -density


_EXCEEDANCE = Score(
    "probability",
    "probability of exceeding the threshold",
    _kernels.exceedance,
    _kernels.exceedance,
    units=False,
)
_EVENT = Score(
    "event",
    "threshold exceeded",
    _kernels.event_indicator,
    _kernels.event_indicator,
    units=False,
)
_NORMAL = Formula(
    "probability",
    "probability of exceeding the threshold",
    {"mu": "real", "sigma": "nonnegative"},
    Kernel(_value, _partials),
    units=False,
)


def brier_score(
    probability: Any,
    event: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the Brier score (p - o)^2 of event probabilities (Brier 1950); 0 is best.

    Args:
        probability: of the event, in [0, 1]; any shape. Tensors are differentiable in it.
        event: 1 (or True) where it happened, 0 where not; see `exceedance_event`.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean, such as area weights.
        nan: "propagate" or "omit", in the mean.
        check: True to check probabilities and events; a training loss passes False.

    Returns:
        Scores in [0, 1], as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import brier_score
        >>> float(brier_score(np.array([0.9, 0.2]), np.array([1, 0]), dim="all"))
        0.025

    Raises:
        ArgumentError: probabilities outside [0, 1] or events other than 0 and 1 (on lazy arrays
            when computed); shapes or coordinates that do not match.
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
    """Return the Brier score of an ensemble of M members for exceeding a threshold.

    With p the share of members above the threshold it is (p - o)^2 ("plain") or
    (p - o)^2 - p (1 - p) / (M - 1) ("fair": its expectation does not depend on M;
    Ferro 2014, doi:10.1002/qj.2270).

    Args:
        members: the ensemble; any shape with a member axis.
        y: observations: the members' shape without the member axis, or one that broadcasts to it.
        threshold: a number, or an array that broadcasts to `y`; a DataArray may have an extra
            dimension of thresholds.
        estimator: "plain" or "fair"; there is no default.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        strict: True if a value equal to the threshold counts as below it, in both forecast and
            observation.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate", "omit" (in the mean), or "skip-members": M is the number of members
            present at a point, and points with too few are left out of the mean.

    Returns:
        Scores as an array of the input's type; no gradient (a share has steps).

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import brier_ensemble
        >>> members, y = np.array([272.0, 273.5, 274.0, 275.0]), 274.5
        >>> float(brier_ensemble(members, y, threshold=273.15, estimator="plain", member_dim=0))
        0.0625
        >>> float(brier_ensemble(members, y, threshold=273.15, estimator="fair", member_dim=0))
        0.0

    Raises:
        UnknownNameError: an unknown estimator or policy.
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
    """Return the logarithmic score, minus the logarithm of the probability of the outcome.

    With base 2 it is the ignorance score, in bits (Roulston and Smith 2002,
    doi:10.1175/1520-0493(2002)130<1653:EPFUIT>2.0.CO;2). It is infinite where the outcome had the
    probability 0, as often with shares of members. `clip` makes it finite, but changes the
    forecast: report it with the score. Values between 1 / (2 M) and 1 / (M + 1) are usual for M
    members. Where clipped, the gradient is 0.

    Args:
        probability: of the event, in [0, 1]; any shape. Tensors are differentiable in it.
        event: 1 (or True) where it happened, 0 where not; see `exceedance_event`.
        clip: probabilities are clipped to [clip, 1 - clip]; 0 for no clipping.
        base: base of the logarithm.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to check probabilities and events; a training loss passes False.

    Returns:
        Scores of 0 or more, as an array of the input's type.

    Examples:
        >>> from ens10.metrics import logarithmic_score
        >>> float(logarithmic_score(0.25, 1, base=2))  # bits
        2.0

    Raises:
        ArgumentError: probabilities outside [0, 1], events other than 0 and 1, a clip outside
            [0, 0.5), a base of 1 or less; shapes or coordinates that do not match.
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


_BRIER = Score("brier", "Brier score", _kernels.brier, _kernels.brier, units=False)
_BRIER_OF_MEMBERS = Score(
    "brier",
    "Brier score",
    _kernels.brier_of_members,
    _kernels.brier_of_members,
    units=False,
)
_LOGARITHMIC = Score(
    "logarithmic",
    "logarithmic score",
    _kernels.logarithmic,
    _kernels.logarithmic,
    units=False,
)


def rps(
    probabilities: Any,
    category: Any,
    *,
    category_dim: int | str,
    normalised: bool = False,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the ranked probability score of K ordered categories; 0 is best.

    The sum over k of (P_k - O_k)^2, with P_k and O_k the forecast and the observed (0 or 1)
    probability that the category is k or lower (Epstein 1969,
    doi:10.1175/1520-0450(1969)008<0985:ASSFPF>2.0.CO;2; Murphy 1971).

    Args:
        probabilities: of the categories, with sum 1; any shape with an axis of categories.
            Tensors are differentiable in them.
        category: number of the observed category, from 0 to K - 1.
        category_dim: the axis of categories: a number, or a dimension name for DataArrays.
        normalised: True to divide the sum by K - 1, so that the worst score is 1.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to check probabilities and events; a training loss passes False.

    Returns:
        Scores as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import rps
        >>> terciles = np.array([0.2, 0.3, 0.5])
        >>> round(float(rps(terciles, 2, category_dim=0, normalised=False)), 4)
        0.29

    Raises:
        ArgumentError: probabilities outside [0, 1] or whose sum is not 1, categories outside
            0 .. K - 1 (on lazy arrays when computed); shapes or coordinates that do not match.
    """
    arrays, core = {"probabilities": probabilities, "category": category}, [category_dim]
    options = {"normalised": normalised, "check": check}
    score = apply(_RPS, arrays, {"probabilities": core}, options=options)
    return mean_over(score, dim, weights, nan)


def rps_ensemble(
    members: Any,
    y: Any,
    *,
    thresholds: Any,
    estimator: str,
    member_dim: int | str,
    threshold_dim: int | str | None = None,
    strict: bool = True,
    normalised: bool = False,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the ranked probability score of an ensemble, the sum of Brier scores of thresholds.

    Args:
        members: the ensemble; any shape with a member axis.
        y: observations: the members' shape without the member axis, or one that broadcasts to it.
        thresholds: ascending thresholds between the categories; numbers, or an array with an axis
            of thresholds whose other axes broadcast to `y` (such as terciles of each place).
        estimator: "plain" or "fair" (see `brier_ensemble`); there is no default.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        threshold_dim: the axis of thresholds of an array, the first if None; a dimension name
            for DataArrays.
        strict: True if a value equal to a threshold belongs to the category below it.
        normalised: True to divide the sum by the number of thresholds.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate", "omit" (in the mean), or "skip-members" (score the members present).

    Returns:
        Scores as an array of the input's type; no gradient (shares have steps).

    Raises:
        UnknownNameError: an unknown estimator or policy.
        ArgumentError: thresholds that fall (on lazy arrays when computed); fair with one member;
            no such axis; shapes, coordinates or units that do not match.
    """
    backend_of({"members": members, "y": y})
    labelled = isinstance(members, xr.DataArray)
    if not hasattr(thresholds, "ndim"):
        thresholds = np.asarray(thresholds, dtype=_dtype(members, y))
        thresholds = xr.DataArray(thresholds, dims="threshold") if labelled else thresholds
        threshold_dim = "threshold" if labelled else 0
    if threshold_dim is None:
        threshold_dim = "threshold" if labelled else 0
    arrays = {"members": members, "y": y, "thresholds": _like(thresholds, members)}
    check_units(arrays)
    check_members(members, member_dim, estimator, nan)
    core = {"members": [member_dim], "thresholds": [threshold_dim]}
    options = {"estimator": estimator, "strict": strict, "nan": nan, "normalised": normalised}
    attrs = {"estimator": estimator}
    score = apply(_RPS_OF_MEMBERS, arrays, core, options=options, attrs=attrs)
    return mean_over(score, dim, weights, nan, policies=EnsembleNan)


def _dtype(*arrays: Any) -> Any:
    """Return the dtype of the arrays, so that a list of numbers does not widen float32."""
    return np.float64 if backend_of({"a": arrays[0]}) == "torch" else common_dtype(*arrays)


def _like(thresholds: Any, members: Any) -> Any:
    """Convert a list of thresholds to a tensor if the members are a tensor."""
    if backend_of({"members": members}) == "torch" and isinstance(thresholds, np.ndarray):
        torch: Any = import_module("torch")  # integer members would cut the numbers off
        dtype = members.dtype if members.dtype.is_floating_point else None
        return torch.as_tensor(thresholds.tolist(), dtype=dtype, device=members.device)
    return thresholds


_RPS = Score(
    "rps",
    "ranked probability score",
    _kernels.rps_of_probabilities,
    _kernels.rps_of_probabilities,
    units=False,
)
_RPS_OF_MEMBERS = Score(
    "rps",
    "ranked probability score",
    _kernels.rps_of_members,
    _kernels.rps_of_members,
    units=False,
)
