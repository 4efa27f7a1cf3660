"""The maximum mean discrepancy (MMD) of ensembles: the kernel score of a Gaussian kernel."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ens10.errors import ArgumentError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._labels import check_alike
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.crps import spread_factor
from ens10.metrics.multivariate._variables import root_weights, size_of, variable_axes

__all__ = ["mmd_score"]


def mmd_score(
    members: Any,
    y: Any,
    *,
    estimator: str,
    member_dim: Dim,
    variable_dim: Dim | Sequence[Dim],
    bandwidth: float,
    variable_weights: Any = None,
    alpha: float = 0.95,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the squared maximum mean discrepancy of ensembles of M vectors from the observation.

    With the kernel k(u, v) = exp(-||u - v||^2 / (2 h^2)) of bandwidth h it is
    k(y, y) - 2 E k(X, y) + E k(X, X') (Gretton et al. 2012, JMLR 13, 723-773, eq. 3, for a point
    mass at y), twice the kernel score of k (Gneiting and Raftery 2007,
    doi:10.1198/016214506000001437, section 5.1), and therefore proper. It is computed as
    2 mean d(x_i, y) - 2 a / M^2 sum_{i<j} d(x_i, x_j) with d = 1 - k, the form of `energy_score`
    and with its a: 1 ("plain") is the biased, M / (M - 1) ("fair") the unbiased estimate of
    Gretton et al. (eq. 5). Members much farther than h from the observation all count alike, and
    for h far above all distances it tends to the squared error of the mean divided by h^2.

    Tensors are differentiable; the backward pass keeps the differences of all pairs of members.

    Args:
        members: the ensemble; any shape with a member axis and variable axes.
        y: observations: the members' shape without the member axis.
        estimator: "plain", "fair" or "almost_fair".
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        variable_dim: the axis or axes of the norm, counted in `members`.
        bandwidth: h, above 0, in the unit of the norm; often the median distance of observations.
        variable_weights: weights w_k of the norm ||v||^2 = sum_k w_k v_k^2, as in `energy_score`.
        alpha: weight of the fair score in "almost_fair"; unused otherwise.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        Scores without unit, as an array of the input's type: "plain" in [0, 2], 0 where all
        members equal the observation; "fair" also below 0.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import mmd_score
        >>> members, y = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([0.0, 0.0])
        >>> options = {"estimator": "plain", "member_dim": 0, "variable_dim": 1}
        >>> round(float(mmd_score(members, y, bandwidth=5.0, **options)), 4)  # (1 - exp(-1/2)) / 2
        0.1967

    Raises:
        UnknownNameError: an unknown estimator or NaN policy.
        ArgumentError: a bandwidth that is not above 0; no such axis; a fair score of one member;
            arrays, weights, coordinates or units that do not match.
    """
    if not 0 < bandwidth < np.inf:
        raise ArgumentError("bandwidth", f"expected a number above 0, got {bandwidth}")
    core, shape = variable_axes(members, y, member_dim, variable_dim)
    arrays = {"members": members, "y": y}
    check_alike(arrays, list(arrays))
    options = {
        "factor": spread_factor(size_of(members, member_dim), estimator, alpha),
        "variables": len(shape),
        "scale": root_weights(variable_weights, members, core, shape),
        "bandwidth": bandwidth,
    }
    score = apply(_SCORE, arrays, core, options=options, attrs={"estimator": estimator})
    return mean_over(score, dim, weights, nan)


def _on_numpy(members: Any, y: Any, *, scale: Any, variables: int, **options: Any) -> Any:
    x = (members - y).astype(np.float64)
    if scale is not None:
        x = x * scale.reshape(*scale.shape, *(1,) * (x.ndim - 1 - variables))
    return _score(np, x, variables, **options).astype(members.dtype)


def _on_tensors(members: Any, y: Any, *, scale: Any, variables: int, **options: Any) -> Any:
    torch, x = import_module("torch"), members - y
    if scale is not None:
        scale = torch.as_tensor(scale).to(x)
        x = x * scale.reshape(*scale.shape, *(1,) * (x.ndim - 1 - variables))
    return _score(torch, x, variables, **options)


def _score(xp: Any, x: Any, variables: int, factor: float, bandwidth: float) -> Any:
    """Return the scores of members less the observation, (members, variable axes, points)."""
    axes, M = tuple(range(1, 1 + variables)), len(x)

    def distance(difference: Any) -> Any:
        # 1 - k by expm1, which keeps its digits where the bandwidth is far above the differences
        return -xp.expm1(-0.5 * ((difference / bandwidth) ** 2).sum(axes))

    score = distance(x).sum(0) * (2 / M)
    for i in range(M - 1):
        score = score - distance(x[i + 1 :] - x[i]).sum(0) * (2 * factor / M**2)
    return score


_SCORE = Score("mmd", "squared maximum mean discrepancy", _on_numpy, _on_tensors, units=False)
