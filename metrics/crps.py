"""The continuous ranked probability score (CRPS) of ensembles.

One function takes torch tensors (differentiable), numpy arrays, xarray DataArrays and dask arrays
(lazy), and returns the same type. Lower is better; the unit is that of the forecast.
"""

from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import _kernels_numpy as on_numpy
from ens10.metrics._call import Score, apply
from ens10.metrics._dispatch import as_array, backend_of, refuse_datasets
from ens10.metrics._reduce import EnsembleNan, Over, mean_over

Estimator = Literal["plain", "fair", "almost_fair"]


def crps_ensemble(
    members: Any,
    y: Any,
    *,
    estimator: str,
    member_dim: int | str,
    alpha: float = 0.95,
    member_weights: Any = None,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the CRPS of ensembles of M members.

    mean |x_i - y| - a / M^2 sum_{i<j} |x_i - x_j|, with a = 1 ("plain": the score of the
    members' step distribution), a = M / (M - 1) ("fair": unbiased for the distribution that the
    members are drawn from; Ferro 2014, doi:10.1002/qj.2270), or the mixture
    a = alpha M / (M - 1) + 1 - alpha ("almost_fair"; Lang et al. 2024, arXiv:2412.15832).

    With member weights w_i, scaled to sum to 1, it is sum_i w_i |x_i - y| - a / 2 sum_ij w_i w_j
    |x_i - x_j|. Here 1 / (1 - sum_i w_i^2) takes the place of M / (M - 1): the weight of all pairs
    i != j is 1 - sum_i w_i^2, so that the term stays unbiased for weights that do not depend on
    the values.

    Tensors are differentiable in both arguments (once); where members are equal the gradient is
    one of the subgradients. Points with a NaN have finite gradients.

    Args:
        members: the ensemble; any shape with a member axis. Chunks of a lazy array along the
            member axis are joined first, with a warning.
        y: observations: the members' shape without the member axis, or one that broadcasts to it.
        estimator: "plain", "fair" or "almost_fair"; there is no default.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        alpha: weight of the fair score in "almost_fair"; unused otherwise.
        member_weights: 0 or more, shape (M,) or the members' shape; equal ones if None.
        dim: dimensions of a weighted mean (numbers of the scores' axes, or names); None for the
            scores of the points.
        weights: weights of the mean, which broadcast to the scores.
        nan: "propagate": a NaN among the members or their weights makes the score NaN; "omit":
            the same, but such points are left out of the mean; "skip-members": each point is
            scored by the members that have a value and a weight, with the estimator for their
            number, and points without a score are left out of the mean. A fair score needs two
            members at a point, and is NaN otherwise.

    Returns:
        The scores, in the unit of `members`, as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import crps_ensemble
        >>> members, y = np.array([[1.0, 3.0], [2.0, 2.0]]), np.array([2.0, 4.0])
        >>> crps_ensemble(members, y, estimator="plain", member_dim=1)
        array([0.5, 2. ])
        >>> float(crps_ensemble(members, y, estimator="fair", member_dim=1, dim="all"))
        1.0

    Raises:
        UnknownNameError: an unknown estimator or policy for NaN.
        ArgumentError: no such axis; fair or almost fair with one member; observations that have
            a member axis of their own or do not fit; negative weights of members (on lazy arrays
            when they are computed); arrays of several libraries; coordinates or units that differ.
    """
    if nan not in get_args(EnsembleNan):
        raise UnknownNameError("nan", nan, get_args(EnsembleNan))
    arrays = {"members": members, "y": y}
    core = {"members": [member_dim]}
    M = _size_along(members, member_dim)
    if member_weights is not None:
        arrays["member_weights"] = _member_weights(members, member_weights, member_dim, M)
        one = arrays["member_weights"].ndim == 1 and backend_of(arrays) != "xarray"
        core["member_weights"] = [0 if one else member_dim]
    # an axis that is not there is told by `apply`
    factor = spread_factor(2 if M is None else M, estimator, alpha)
    options = {"factor": factor, "estimator": estimator, "alpha": alpha}
    score = apply(
        _ENSEMBLE,
        arrays,
        core,
        options=options | {"skip": nan == "skip-members"},
        attrs={"estimator": estimator},
        unlike=["member_weights"],
    )
    return mean_over(score, dim, weights, nan, policies=EnsembleNan)


def _ensemble_tensors(*tensors: Any, **options: Any) -> Any:
    from ens10.metrics import _kernels_torch as on_torch

    return on_torch.crps_ensemble(*tensors, **options)


_NAME = ("crps", "continuous ranked probability score")
_ENSEMBLE = Score(*_NAME, on_numpy.crps_ensemble, _ensemble_tensors)


def _size_along(members: Any, member_dim: int | str) -> int | None:
    """Return the number of members; None if the array has no such axis."""
    refuse_datasets({"members": members})
    if isinstance(members, xr.DataArray):
        return members.sizes.get(member_dim)
    shape = np.shape(members)
    valid = isinstance(member_dim, int) and -len(shape) <= member_dim < len(shape)
    return shape[int(member_dim)] if valid else None


def _member_weights(members: Any, weights: Any, member_dim: int | str, M: int | None) -> Any:
    """Convert member weights to the library of the members; a plain list has shape (M,).

    Raises:
        ArgumentError: shapes that do not match the members.
    """
    if isinstance(members, xr.DataArray) and not isinstance(weights, xr.DataArray):
        if np.ndim(weights) != 1:
            raise ArgumentError("member_weights", "not a DataArray", "Name their dimensions")
        weights = xr.DataArray(as_array(weights, members.dtype), dims=str(member_dim))
    elif not hasattr(weights, "ndim"):
        like = getattr(members, "new_tensor", np.asarray)
        weights = like(weights)
    if isinstance(weights, xr.DataArray):
        fits = weights.sizes.get(member_dim) == M and set(weights.dims) <= set(members.dims)
    else:
        fits = tuple(weights.shape) in ((M,), tuple(np.shape(members)))
    if M is not None and not fits:
        raise ArgumentError(
            "member_weights",
            f"shape {tuple(weights.shape)} for members of shape {tuple(np.shape(members))}",
            f"Pass one weight for each of the {M} members, or the members' shape",
        )
    return weights


def spread_factor(M: int, estimator: str, alpha: float = 0.95) -> float:
    """Return the factor a of the spread term for M members.

    Raises:
        UnknownNameError: no such estimator.
        ArgumentError: the estimator is undefined for so few members.
    """
    if estimator not in get_args(Estimator):
        raise UnknownNameError("estimator", estimator, get_args(Estimator))
    if M < 1 or (M == 1 and estimator != "plain"):
        raise ArgumentError(
            "members",
            f"the {estimator} estimator is undefined for {M} member{'' if M == 1 else 's'}",
            "Pass two or more, or use the plain estimator",
        )
    if estimator == "plain":
        return 1.0
    share = 1.0 if estimator == "fair" else alpha
    return share * M / (M - 1) + 1.0 - share
