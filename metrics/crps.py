"""The continuous ranked probability score (CRPS) of normals and of ensembles.

One function for torch tensors (differentiable), numpy arrays, xarray DataArrays and dask arrays
(lazy): each gives back what it was given. Lower is better; the unit is that of the forecast.
"""

from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import _kernels_numpy as on_numpy
from ens10.metrics._dispatch import backend_of, common_dtype, dask_array

Estimator = Literal["plain", "fair", "almost_fair"]


def crps_normal(mu: Any, sigma: Any, y: Any, *, check: bool = True) -> Any:
    """CRPS of normal distributions, elementwise.

    With z = (y - mu) / sigma it is sigma [z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)] (Gneiting
    et al. 2005, doi:10.1175/MWR2904.1, eq. 5), and |y - mu| at sigma = 0. NaN propagates.
    Gradients of tensors are analytic and finite for every sigma >= 0.

    Args:
        mu: means; any shape.
        sigma: standard deviations, 0 or more, in the unit of `mu`.
        y: observations. Arrays broadcast by position, DataArrays by dimension name, with equal
            coordinates. Plain numbers are accepted for each of the three.
        check: refuse a negative sigma. A training loss whose sigma comes from a head that cannot
            be negative passes False, because looking at the values waits for the device.

    Returns:
        The scores, in the unit of `mu`, as the kind of array that was given.

    Raises:
        ArgumentError: a negative sigma (on lazy arrays when they are computed), or arrays of
            several libraries.
    """
    kind = backend_of({"mu": mu, "sigma": sigma, "y": y})
    if kind == "torch":
        from ens10.metrics import _kernels_torch as on_torch

        return on_torch.crps_normal(mu, sigma, y, check=check)
    if kind == "numpy":
        return on_numpy.crps_normal(mu, sigma, y, check=check)
    kernel, dtype = partial(on_numpy.crps_normal, check=check), common_dtype(mu, sigma, y)
    if kind == "dask":
        return dask_array().core.elemwise(kernel, mu, sigma, y, dtype=dtype)
    score = xr.apply_ufunc(
        kernel,
        *(mu, sigma, y),
        join="exact",
        dask="parallelized",
        output_dtypes=[dtype],
    )
    return _labelled(score, mu, "normal")


def crps_ensemble(
    members: Any,
    y: Any,
    *,
    estimator: str,
    member_dim: int | str,
    alpha: float = 0.95,
) -> Any:
    """CRPS of ensembles of M members.

    mean |x_i - y| - a / M^2 sum_{i<j} |x_i - x_j|, with a = 1 ("plain": the score of the
    members' step distribution), a = M / (M - 1) ("fair": unbiased for the distribution that the
    members are drawn from; Ferro 2014, doi:10.1002/qj.2270), or the mixture
    a = alpha M / (M - 1) + 1 - alpha ("almost_fair"; Lang et al. 2024, arXiv:2412.15832).
    A NaN in any member or in `y` gives NaN. Tensors are differentiable in both arguments.

    Args:
        members: the ensemble; any shape with a member axis. A lazy array whose member axis is cut
            into chunks has them joined first.
        y: observations: the members' shape without the member axis, or what broadcasts to it.
        estimator: "plain", "fair" or "almost_fair"; there is no default.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        alpha: weight of the fair score in "almost_fair"; unused otherwise.

    Returns:
        The scores, in the unit of `members`, as the kind of array that was given.

    Raises:
        UnknownNameError: another estimator.
        ArgumentError: no such axis; fair or almost fair with one member; observations that have
            a member axis of their own or do not fit; arrays of several libraries.
    """
    kind = backend_of({"members": members, "y": y})
    if kind == "xarray":
        return _crps_ensemble_xarray(members, y, estimator, member_dim, alpha)
    if kind == "numpy":
        members, y = np.asarray(members), y if np.isscalar(y) else np.asarray(y)
    axis = member_axis(members, member_dim)
    check_observations(members.shape, getattr(y, "shape", ()), axis)
    factor = spread_factor(members.shape[axis], estimator, alpha)
    if kind == "torch":
        from ens10.metrics import _kernels_torch as on_torch

        return on_torch.crps_ensemble(members, y, factor, axis)
    if kind == "numpy":
        return on_numpy.crps_ensemble(members, y, factor, axis)
    return _crps_ensemble_dask(members, y, factor, axis)


def _crps_ensemble_dask(members: Any, y: Any, factor: float, axis: int) -> Any:
    da = dask_array()
    last = da.moveaxis(da.asarray(members), axis, -1).rechunk({-1: -1})
    return da.apply_gufunc(
        partial(on_numpy.crps_ensemble, factor=factor, axis=-1),
        "(m),()->()",
        *(last, da.broadcast_to(da.asarray(y), last.shape[:-1]).rechunk(last.chunks[:-1])),
        output_dtypes=[common_dtype(members, y)],
    )


def _crps_ensemble_xarray(
    members: Any, y: Any, estimator: str, member_dim: int | str, alpha: float
) -> xr.DataArray:
    if not isinstance(members, xr.DataArray) or member_dim not in members.dims:
        had = getattr(members, "dims", ())
        raise ArgumentError("member_dim", f"members have no dimension {member_dim!r}, only {had}")
    if member_dim in getattr(y, "dims", ()):
        raise ArgumentError(
            "y",
            f"observations have the member dimension {member_dim!r}",
            "Give one observation for each ensemble",
        )
    if members.chunks is not None:
        members = members.chunk({member_dim: -1})
    score = xr.apply_ufunc(
        on_numpy.crps_ensemble,
        *(members, y),
        kwargs={"factor": spread_factor(members.sizes[member_dim], estimator, alpha), "axis": -1},
        input_core_dims=[[member_dim], []],
        join="exact",
        dask="parallelized",
        output_dtypes=[common_dtype(members, y)],
    )
    return _labelled(score, members, estimator)


def spread_factor(M: int, estimator: str, alpha: float = 0.95) -> float:
    """The factor a of the spread term for M members.

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
            "Give two or more, or take the plain estimator",
        )
    if estimator == "plain":
        return 1.0
    share = 1.0 if estimator == "fair" else alpha
    return share * M / (M - 1) + 1.0 - share


def member_axis(members: Any, member_dim: int | str) -> int:
    """The number of the member axis, from 0.

    Raises:
        ArgumentError: the members have no such axis.
    """
    ndim = getattr(members, "ndim", 0)
    if not isinstance(member_dim, int) or not -ndim <= member_dim < ndim:
        raise ArgumentError(
            "member_dim",
            f"expected the number of one of the {ndim} axes of members, got {member_dim!r}",
        )
    return member_dim % ndim


def check_observations(members: tuple[int, ...], y: tuple[int, ...], axis: int) -> None:
    """A y of the members' own shape would broadcast to a mean absolute error, silently."""
    wanted = members[:axis] + members[axis + 1 :]
    shape = (1,) * (len(wanted) - len(y)) + tuple(y)
    fits = len(y) <= len(wanted) and all(n in (1, m) for n, m in zip(shape, wanted, strict=True))
    if not fits:
        raise ArgumentError(
            "y",
            f"observations of shape {tuple(y)} for members of shape {tuple(members)} "
            f"with member axis {axis}",
            f"Give one observation for each ensemble: shape {wanted}",
        )


def _labelled(score: xr.DataArray, like: Any, estimator: str) -> xr.DataArray:
    """The score with its name, estimator and unit."""
    units = getattr(like, "attrs", {}).get("units")
    score.attrs = {"long_name": "continuous ranked probability score", "estimator": estimator}
    if units is not None:
        score.attrs["units"] = units
    return score.rename("crps")
