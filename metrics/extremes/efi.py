"""The extreme forecast index (EFI): how far a forecast lies from its model climate."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, Score, apply
from ens10.metrics._dispatch import Array
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics.extremes._input import (
    Levels,
    bare,
    check_climate,
    check_even,
    checked_levels,
    member_quantiles,
    over_points,
    read_only,
    refuse,
    sorted_members,
)

EFIMethod = Literal["exact", "ecmwf", "ens10-paper"]
_COUNTS = {"ecmwf": 101, "ens10-paper": 21}
_LONG_NAME = "extreme forecast index"


def efi(
    members: Any,
    climate: Any,
    *,
    method: str = "exact",
    member_dim: Dim,
    quantile_dim: Dim,
    levels: Any = None,
    epsilon: float | None = None,
    check: bool = True,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Extreme forecast index: -1 if all members lie below the model climate, 1 if all above.

    2/pi times the integral over p from 0 to 1 of (p - F(p)) / sqrt(p (1 - p)), where F(p) is the
    share of the members that do not exceed the climate's quantile of level p (Lalaurette 2003,
    doi:10.1256/qj.02.152, with the weight of Zsoter 2006, ECMWF Newsletter 107). A member that
    equals a quantile counts as below it: a dry forecast in a mostly dry climate has the index -1.

    - "exact": 4 / (pi M) sum of arcsin(sqrt(u_i)) - 1, the integral with the members' step
      distribution. u_i is the climate's cdf at member i, linear between its quantiles, and
      the lowest and highest level outside (0 and 1 if the climate has its minimum and maximum);
      where quantiles are equal it is the lowest of their levels.
    - "ecmwf": the operational form. F at 101 quantiles, linear between them, the weight
      integrated analytically. With `epsilon` only intervals of the climate that end above it
      count, divided by the most that they could give (precipitation).
    - "ens10-paper": what the authors of ENS-10 computed (arXiv:2206.14786), to reproduce their
      EECRPS: a sum over 19 levels of step 0.05, F the first of the members' own 21 quantiles that
      reaches the climate's. It lies within -0.7914 and 0.7914.

    Tensors are differentiable in the members with "exact". The gradient is that of the interval
    below at a quantile, grows as 1 / sqrt(u (1 - u)) towards the ends of the climate, and is 0
    from there on (u = 0 and 1), where the index does not change.

    Args:
        members: the ensemble, two or more.
        climate: quantiles of the model climate, ascending, in the unit of the members. Its other
            axes broadcast to those of the members: one climate may serve many dates. For that of
            each date see `ens10.quantiles.stored_climate` and `model_climate`. A point where all
            are NaN (sea temperature over land) has no index.
        method: see above.
        member_dim: the member axis: a number for arrays, a name for DataArrays.
        quantile_dim: the quantile axis of the climate.
        levels: of the quantiles, in [0, 1]; None takes the coordinate `quantile_dim`.
        epsilon: see "ecmwf", in the unit of the members, above 0.
        check: whether tensors are looked at for quantiles that do not ascend, which waits for the
            device. Other arrays always are.
        dim: dimensions of a weighted mean; None for the indices of the points.
        weights: of the mean.
        nan: "propagate" makes a point with a missing member NaN, "omit" leaves it out of the
            mean, "skip-members" takes the members that are there.

    Returns:
        The indices, without unit, as the kind of array that was given.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import efi
        >>> levels = np.linspace(0, 1, 101)
        >>> climate = 270 + 20 * levels  # its quantiles, in K
        >>> members = np.array([285.0, 285.0])  # all at its upper quartile
        >>> round(float(efi(members, climate, member_dim=0, quantile_dim=0, levels=levels)), 4)
        0.3333

    Raises:
        UnknownNameError: another method or policy.
        ArgumentError: one member; levels that the method cannot use; other units or coordinates;
            quantiles that do not ascend or are NaN in part (lazy arrays: when computed).
    """
    if method not in get_args(EFIMethod):
        raise UnknownNameError("method", method, get_args(EFIMethod))
    if nan not in get_args(EnsembleNan):
        raise UnknownNameError("nan", nan, get_args(EnsembleNan))
    if epsilon is not None and not (method == "ecmwf" and 0 < epsilon < np.inf):
        raise ArgumentError(
            "epsilon", f"{epsilon} with method {method!r}", 'It belongs to "ecmwf" and is above 0'
        )
    found = checked_levels(members, climate, member_dim, quantile_dim, levels)
    if method in _COUNTS:
        check_even(found, _COUNTS[method], f'"{method}"')
    score, options = _score(method, found, epsilon)
    options |= {"skip": nan == "skip-members"} | ({"check": check} if score.torch else {})
    index = apply(
        score,
        {"members": members, "climate": bare(climate)},
        {"members": [member_dim], "climate": [quantile_dim]},
        options=options,
        attrs={"method": method},
    )
    return mean_over(index, dim, weights, nan, policies=EnsembleNan)


def _score(method: str, levels: Levels, epsilon: float | None) -> tuple[Score, dict[str, Any]]:
    if method == "exact":
        return Score("efi", _LONG_NAME, _exact, _exact_of_tensors, False), {"levels": levels}
    if method == "ecmwf":
        return Score("efi", _LONG_NAME, _ecmwf, None, False), {"epsilon": epsilon}
    return Score("efi", _LONG_NAME, _paper, None, False), {}


def _exact(members: Array, climate: Array, levels: Levels, skip: bool, check: bool) -> Array:  # noqa: ARG001
    from ens10.metrics.extremes import _kernels

    return _filled(_kernels.exact, members, climate, levels, 1 - levels, skip)


def _exact_of_tensors(members: Any, climate: Any, **options: Any) -> Any:
    from ens10.metrics.extremes import _efi_torch

    return _efi_torch.exact(members, climate, **options)


def _ecmwf(members: Array, climate: Array, epsilon: float | None, skip: bool) -> Array:
    from ens10.metrics.extremes import _kernels

    tables = operational_tables(climate.shape[0])
    least = np.nan if epsilon is None else float(epsilon)
    return _filled(_kernels.operational, members, climate, tables, least, skip)


def _filled(kernel: Callable[..., Any], members: Array, climate: Array, *options: Any) -> Array:
    def on_points(x: Array, q: Array) -> Array:
        out = np.empty(x.shape[1])
        refuse(*kernel(x, q, *options, out))
        return out.astype(x.dtype)

    return over_points(on_points, members, climate)


def operational_tables(count: int) -> Levels:
    """The parts of the operational index that depend on a member's place alone.

    The index is linear in F, so a sum over members. From p_k to p_(k+1) the integral of
    (p - F) / sqrt(p (1 - p)), with F linear between them, is
    (2 F_k - 1) A_k + B_k (K - 1) (F_(k+1) - F_k) - C_k, where A_k and C_k are the differences of
    arccos(sqrt(p)) and sqrt(p (1 - p)), and B_k = (1 - 2 p_k) A_k + C_k.

    Args:
        count: K, the number of levels.

    Returns:
        (3, K + 1): what a member gives by the number j of quantiles below it; what it gives if
        it lies below all intervals from k on; and the most that the intervals from k on can give.
    """
    p = np.linspace(0.0, 1.0, count)
    a, c = np.diff(np.arccos(np.sqrt(p))), np.diff(np.sqrt(p * (1 - p)))
    b = (1 - 2 * p[:-1]) * a + c
    beyond = np.zeros((3, count + 1))
    beyond[1, : count - 1] = 2 * a[::-1].cumsum()[::-1]
    beyond[2, : count - 1] = -(a + c)[::-1].cumsum()[::-1]
    beyond[0] = beyond[1]
    beyond[0, 1:count] += (count - 1) * b
    return beyond


def _paper(members: Array, climate: Array, skip: bool) -> Array:
    return over_points(partial(_paper_points, skip=skip), members, climate)


def _paper_points(x: Array, q: Array, skip: bool) -> Array:
    from ens10.metrics.extremes import _kernels

    check_climate(q)
    ordered, there = sorted_members(x)
    # stored in the members' precision, as the authors' were, before they are compared
    own = member_quantiles(ordered, there, np.linspace(0.0, 1.0, q.shape[0])).astype(x.dtype)
    index = np.empty(x.shape[1])
    _kernels.staircase(read_only(own), q, index)
    known = (there > 0 if skip else there == x.shape[0]) & ~np.isnan(q[0])
    return np.where(known, index, np.nan).astype(x.dtype)
