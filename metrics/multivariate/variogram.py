"""The variogram score, which compares differences between variables with the observed ones."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import as_array
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.crps import spread_factor
from ens10.metrics.multivariate._variables import flatten, size_of, variable_axes
from ens10.metrics.multivariate._weighted import apply_outcome_weighted, chained

__all__ = ["variogram_score"]

Estimator = Literal["plain", "fair"]


def variogram_score(
    members: Any,
    y: Any,
    *,
    estimator: str,
    member_dim: Dim,
    variable_dim: Dim | Sequence[Dim],
    order: float = 0.5,
    pair_weights: Any = None,
    chaining: Callable[[Any], Any] | None = None,
    weight: Callable[[Any], Any] | None = None,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the variogram score of order p of ensembles of M vectors.

    sum_{k,l} w_kl (mean_i |x_ik - x_il|^p - |y_k - y_l|^p)^2 over all ordered pairs of variables,
    so each pair counts twice (Scheuerer and Hamill 2015, doi:10.1175/MWR-D-14-00269.1). "fair"
    subtracts w_kl / M times the sample variance of |x_ik - x_il|^p, which makes it unbiased for
    the distribution that the members are drawn from; a single score can then be negative. The
    score is sensitive to the dependence between variables, but not to a bias common to all. A NaN
    anywhere in members or `y` gives NaN.

    With `chaining` it is the threshold-weighted variogram score, which judges v of the vectors.
    With `weight` it is the outcome-weighted one: w(y) times the score in which member i has the
    weight w(x_i) / sum_j w(x_j) (Allen, Ginsbourger and Ziegel 2023, doi:10.1137/22M1532184). The
    second does not depend on the forecast probability of the emphasised outcomes, has no gradient,
    and is NaN where all members have the weight 0.

    Time grows with the square of the number of variables, memory does not. Gradients of tensors
    are analytic; for p <= 1 they are 0 where variables are equal and no derivative exists.

    Args:
        members: the ensemble; any shape with a member axis and variable axes.
        y: observations: the members' shape without the member axis. Other axes may be missing or
            of length 1, and then broadcast; variable axes may not.
        estimator: "plain" or "fair".
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        variable_dim: the axis or axes of the variables (channels, points), counted in `members`,
            whose member axis counts too.
        order: p, above 0.
        pair_weights: w_kl, 0 or more: numbers that broadcast to (D, D), with the D variables in
            the order of `variable_dim`, the last one fastest. The diagonal does not matter, and
            no gradient flows into them. A numpy array for inputs of any library, or a tensor
            for tensors.
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
        The scores, as an array of the input's type, in the unit of `members` to the power 2p (an
        attribute for p = 0.5 only).

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import variogram_score
        >>> members, y = np.array([[0.0, 1.0], [0.0, 4.0]]), np.array([0.0, 4.0])
        >>> options = {"member_dim": 0, "variable_dim": 1, "order": 0.5}
        >>> float(variogram_score(members, y, estimator="plain", **options))  # 2 (1.5 - 2)^2
        0.5

    Raises:
        UnknownNameError: an unknown estimator or NaN policy.
        ArgumentError: no such axis; an order of 0 or less; a fair score of one member; weights,
            observations, coordinates or units that do not match.
    """
    if estimator not in get_args(Estimator):
        raise UnknownNameError("estimator", estimator, get_args(Estimator))
    if not 0 < order < np.inf:
        raise ArgumentError("order", f"expected a number above 0, got {order!r}")
    members, y = chained(chaining, members, y)
    core, shape = variable_axes(members, y, member_dim, variable_dim)
    spread_factor(size_of(members, member_dim), estimator)
    options = {
        "variables": len(shape),
        "order": float(order),
        "fair": estimator == "fair",
        "pairs": _symmetric_weights(pair_weights, int(np.prod(shape))),
    }
    attrs = {"estimator": estimator, "order": float(order)}
    arrays = {"members": members, "y": y}
    if weight is None:
        score = apply(SCORE, arrays, core, options=options, attrs=attrs)
    else:
        del options["fair"]
        score = apply_outcome_weighted(OUTCOME_WEIGHTED, weight, arrays, core, options, attrs)
    if order != 0.5 and isinstance(score, xr.DataArray):
        score.attrs.pop("units", None)
    return mean_over(score, dim, weights, nan)


def _symmetric_weights(weights: Any, variables: int) -> Any:
    """Return the weights w_kl + w_lk of pairs, (D, D), as a tensor if the weights are one.

    Raises:
        ArgumentError: negative weights (tensors are not checked), or ones that do not fit.
    """
    shape = (variables, variables)
    if weights is None:
        return np.full(shape, 2.0)
    try:
        fits = np.broadcast_shapes(np.shape(weights), shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(
            "pair_weights", f"shape {tuple(np.shape(weights))} does not broadcast to {shape}"
        )
    if hasattr(weights, "movedim"):
        return weights.detach().expand(shape) + weights.detach().expand(shape).T
    values = np.broadcast_to(as_array(weights, dtype=np.float64), shape)
    if not (values >= 0).all():
        raise ArgumentError("pair_weights", "some are negative or NaN", "Pass 0 or more")
    return values + values.T


def _on_numpy(members: Any, y: Any, *, variables: int, order: float, fair: bool, pairs: Any) -> Any:
    from ens10.metrics.multivariate._loops import variogram_scores

    shape = np.broadcast_shapes(members.shape[1:], y.shape)
    x = flatten(np.broadcast_to(members, (members.shape[0], *shape)), 1, variables)
    observed = flatten(np.broadcast_to(y, shape), 0, variables)
    score = variogram_scores(x, observed, np.ascontiguousarray(pairs, np.float64), order, fair)
    return score.reshape(shape[variables:]).astype(members.dtype)


def _outcome_weighted(
    members: Any, y: Any, shares: Any, *, variables: int, order: float, pairs: Any
) -> Any:
    """Return the variogram score of members with shares of sum 1, in float64."""
    shape = np.broadcast_shapes(members.shape[1:], y.shape)
    x = flatten(np.broadcast_to(members, (len(members), *shape)).astype(np.float64), 1, variables)
    observed = flatten(np.broadcast_to(y, shape).astype(np.float64), 0, variables)
    p = np.broadcast_to(shares, (len(shares), *shape[variables:])).reshape(len(shares), 1, -1)
    score = 0.0 * (x.sum(axis=(0, 1)) + observed.sum(axis=0))  # NaN where one is missing
    for k in range(1, len(observed)):
        of_members = (p * np.abs(x[:, :k] - x[:, k : k + 1]) ** order).sum(axis=0)
        gaps = of_members - np.abs(observed[:k] - observed[k]) ** order
        score += np.asarray(pairs)[k, :k] @ gaps**2
    return score.reshape(shape[variables:])


def _on_tensors(members: Any, y: Any, **options: Any) -> Any:
    from ens10.metrics.multivariate._torch import variogram_score_of_tensors as on_torch

    return on_torch(members, y, **options)


SCORE = Score("variogram_score", "variogram score", _on_numpy, _on_tensors)
OUTCOME_WEIGHTED = Score("variogram_score", "outcome-weighted variogram score", _outcome_weighted)
