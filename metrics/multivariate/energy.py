"""The energy score of ensembles of vectors or whole fields."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.crps import spread_factor
from ens10.metrics.multivariate._variables import flatten, root_weights, size_of, variable_axes
from ens10.metrics.multivariate._weighted import apply_outcome_weighted, chained

__all__ = ["energy_score"]

MANY = 64  # from so many variables on, the inner loop is over variables instead of points


def energy_score(
    members: Any,
    y: Any,
    *,
    estimator: str,
    member_dim: Dim,
    variable_dim: Dim | Sequence[Dim],
    variable_weights: Any = None,
    alpha: float = 0.95,
    chaining: Callable[[Any], Any] | None = None,
    weight: Callable[[Any], Any] | None = None,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the energy score of ensembles of M vectors.

    mean ||x_i - y|| - a / M^2 sum_{i<j} ||x_i - x_j|| (Gneiting and Raftery 2007,
    doi:10.1198/016214506000001437, eq. 22 with exponent 1), with the Euclidean norm
    ||v||^2 = sum_k w_k v_k^2 over the variables and the a of `crps_ensemble`: 1 ("plain"),
    M / (M - 1) ("fair") or the mixture of both ("almost_fair"). With one variable it is the CRPS.
    A NaN anywhere in members or `y` gives NaN.

    With `chaining` it is the threshold-weighted energy score, which judges v of the vectors. With
    `weight` it is the outcome-weighted one: w(y) times the score of members with the weights
    w(x_i) / sum_j w(x_j) (Allen, Ginsbourger and Ziegel 2023, doi:10.1137/22M1532184). The second
    does not depend on the forecast probability of the emphasised outcomes, has no gradient, and is
    NaN where all members have the weight 0.

    Gradients of tensors are analytic, and 0 for a norm of 0 (members that coincide with each other
    or with the observation). The memory needed is a few copies of the members.

    Args:
        members: the ensemble; any shape with a member axis and variable axes.
        y: observations: the members' shape without the member axis. Other axes may be missing or
            of length 1, and then broadcast; variable axes may not.
        estimator: "plain", "fair" or "almost_fair".
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        variable_dim: the axis or axes that the norm is over (channels, levels, a whole field),
            counted in `members`, whose member axis counts too.
        variable_weights: w_k, 0 or more, such as area weights or 1 / variance of each channel:
            an array that broadcasts to the variable axes in the order of `variable_dim`, or a
            DataArray with some of these dimensions. No gradient flows into them. DataArrays
            scored with weights have no unit.
        alpha: weight of the fair score in "almost_fair"; unused otherwise.
        chaining: v of the threshold-weighted score: a function of arrays of the input's type that
            keeps their axes, such as values clipped to thresholds. Members and observations are
            replaced by v of them.
        weight: w of the outcome-weighted score: a function of arrays of the input's type that
            returns 0 or more, without the variable axes. It is called with the members and, with
            one axis less, the observations: count axes from the last, or by name. Only "plain".
        dim: dimensions of a weighted mean of scores: axis numbers or names without members and
            variables; "all"; None for the scores of all points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        The scores, in the unit of `members`, as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import energy_score
        >>> members, y = np.array([[0.0, 0.0], [6.0, 8.0]]), np.array([3.0, 4.0])
        >>> options = {"member_dim": 0, "variable_dim": 1}
        >>> float(energy_score(members, y, estimator="plain", **options))  # 5 - 10 / 4
        2.5

    Raises:
        UnknownNameError: an unknown estimator or NaN policy.
        ArgumentError: no such axis; a fair score of one member; observations, weights,
            coordinates or units that do not match.
    """
    members, y = chained(chaining, members, y)
    core, shape = variable_axes(members, y, member_dim, variable_dim)
    factor = spread_factor(size_of(members, member_dim), estimator, alpha)
    options = {
        "factor": factor,
        "variables": len(shape),
        "scale": root_weights(variable_weights, members, core, shape),
    }
    arrays, attrs = {"members": members, "y": y}, {"estimator": estimator}
    if weight is None:
        score = apply(SCORE, arrays, core, options=options, attrs=attrs)
    else:
        del options["factor"]
        score = apply_outcome_weighted(OUTCOME_WEIGHTED, weight, arrays, core, options, attrs)
    if variable_weights is not None and hasattr(score, "attrs"):
        score.attrs.pop("units", None)
    return mean_over(score, dim, weights, nan)


def _on_numpy(members: Any, y: Any, *, factor: float, variables: int, scale: Any) -> Any:
    x = members - y
    if scale is not None:
        outer = (1,) * (x.ndim - 1 - variables)
        x = x * scale.astype(x.dtype).reshape(*scale.shape, *outer)
    score = energy_of(flatten(x, 1, variables), factor)
    return score.reshape(x.shape[1 + variables :])


def _outcome_weighted(members: Any, y: Any, shares: Any, *, variables: int, scale: Any) -> Any:
    """Return the energy score of members with shares of sum 1, in float64."""
    x = (members - y).astype(np.float64)
    if scale is not None:
        x = x * scale.reshape(*scale.shape, *(1,) * (x.ndim - 1 - variables))
    axes = tuple(range(variables))
    score = np.zeros(np.broadcast_shapes(x.shape[1 + variables :], shares.shape[1:]))
    for i, share in enumerate(shares):
        score += share * np.sqrt((x[i] ** 2).sum(axis=axes))
        for j in range(i):
            distance = np.sqrt(((x[i] - x[j]) ** 2).sum(axis=axes))
            score -= share * shares[j] * distance
    return score


def energy_of(x: Any, factor: float) -> Any:
    """Return the energy scores of members less the observation.

    Args:
        x: shape (members, variables, points).
        factor: factor a of the spread term.

    Returns:
        Shape (points,), of the dtype of `x`; sums are in float64.
    """
    from ens10.metrics.multivariate import _loops as loops

    score = np.empty(x.shape[2], x.dtype if x.dtype != np.float16 else np.float32)
    x = x.astype(score.dtype, copy=False)
    if x.shape[1] < MANY:
        loops.over_points(np.ascontiguousarray(x), factor, score)
    else:
        loops.over_variables(np.ascontiguousarray(np.moveaxis(x, 2, 0)), factor, score)
    return score


def _on_tensors(members: Any, y: Any, *, factor: float, variables: int, scale: Any) -> Any:
    from ens10.metrics.multivariate._torch import energy_score_of_tensors as on_torch

    return on_torch(members, y, factor=factor, variables=variables, scale=scale)


SCORE = Score("energy_score", "energy score", _on_numpy, _on_tensors)
OUTCOME_WEIGHTED = Score("energy_score", "outcome-weighted energy score", _outcome_weighted)
