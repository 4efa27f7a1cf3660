"""The variogram score, which compares differences between variables with the observed ones."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import as_array
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.crps import spread_factor
from ens10.metrics.multivariate._variables import flatten, size_of, variable_axes

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
    core, shape = variable_axes(members, y, member_dim, variable_dim)
    spread_factor(size_of(members, member_dim), estimator)
    options = {
        "variables": len(shape),
        "order": float(order),
        "fair": estimator == "fair",
        "pairs": _symmetric_weights(pair_weights, int(np.prod(shape))),
    }
    attrs = {"estimator": estimator, "order": float(order)}
    score = apply(SCORE, {"members": members, "y": y}, core, options=options, attrs=attrs)
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


def _on_tensors(members: Any, y: Any, **options: Any) -> Any:
    from ens10.metrics.multivariate._torch import variogram_score as on_torch

    return on_torch(members, y, **options)


SCORE = Score("variogram_score", "variogram score", _on_numpy, _on_tensors)
