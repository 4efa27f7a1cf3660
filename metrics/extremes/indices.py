"""Indices of extremes: extreme forecast index (EFI), shift of tails (SOT), crossing point (CPF)."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, Score, apply, import_later
from ens10.metrics._dispatch import Array
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics.extremes._input import (
    Levels,
    as_read_only,
    check_even,
    check_quantiles_ascend,
    checked_levels,
    drop_coords,
    member_quantiles,
    over_points,
    place_of,
    refuse,
    sort_members,
)

__all__ = ["EFIMethod", "cpf", "efi", "sot"]

EFIMethod = Literal["exact", "ecmwf", "ens10-paper"]
_COUNTS = {"ecmwf": 101, "ens10-paper": 21}
_LONG_NAME = "extreme forecast index"
_TORCH = "ens10.metrics.extremes._efi_torch"


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
    """Return the extreme forecast index: -1 if all members lie below the model climate, 1 above.

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
      reaches the climate's. It lies between -0.7914 and 0.7914.

    Tensors are differentiable in the members with "exact". The gradient is that of the interval
    below at a quantile, grows as 1 / sqrt(u (1 - u)) towards the ends of the climate, and is 0
    from there on (u = 0 and 1), where the index does not change.

    Args:
        members: the ensemble, two or more.
        climate: quantiles of the model climate, ascending, in the unit of the members. Its other
            axes broadcast to those of the members: one climate may serve many dates. For that of
            each date see `ens10.quantiles.stored_climate` and `model_climate`. A point where all
            are NaN (sea temperature over land) has no index.
        method: "exact", "ecmwf" or "ens10-paper".
        member_dim: the member axis: a number for arrays, a name for DataArrays.
        quantile_dim: the quantile axis of the climate.
        levels: levels of the quantiles, in [0, 1]; None for the coordinate `quantile_dim`.
        epsilon: threshold of "ecmwf" in the unit of the members, above 0.
        check: True to refuse tensors of quantiles that do not ascend, which synchronises with the
            GPU. Other arrays are always checked.
        dim: dimensions of a weighted mean; None for the indices of the points.
        weights: weights of the mean.
        nan: "propagate" makes a point with a missing member NaN, "omit" leaves it out of the
            mean, "skip-members" uses the members present.

    Returns:
        The indices, without unit, as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import efi
        >>> levels = np.linspace(0, 1, 101)
        >>> climate = 270 + 20 * levels  # its quantiles, in K
        >>> members = np.array([285.0, 285.0])  # all at its upper quartile
        >>> round(float(efi(members, climate, member_dim=0, quantile_dim=0, levels=levels)), 4)
        0.3333

    Raises:
        UnknownNameError: an unknown method or policy.
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
    checked = checked_levels(members, climate, member_dim, quantile_dim, levels)
    if method in _COUNTS:
        check_even(checked, _COUNTS[method], f'"{method}"')
    score, options = _score(method, checked, epsilon)
    options |= {"skip": nan == "skip-members"} | ({"check": check} if score.torch else {})
    index = apply(
        score,
        {"members": members, "climate": drop_coords(climate)},
        {"members": [member_dim], "climate": [quantile_dim]},
        options=options,
        attrs={"method": method},
    )
    return mean_over(index, dim, weights, nan, policies=EnsembleNan)


def _score(method: str, levels: Levels, epsilon: float | None) -> tuple[Score, dict[str, Any]]:
    if method == "exact":
        return Score("efi", _LONG_NAME, _exact, import_later(_TORCH, "exact"), False), {
            "levels": levels
        }
    if method == "ecmwf":
        return Score("efi", _LONG_NAME, _ecmwf, None, False), {"epsilon": epsilon}
    return Score("efi", _LONG_NAME, _paper, None, False), {}


def _exact(members: Array, climate: Array, levels: Levels, skip: bool, check: bool) -> Array:  # noqa: ARG001
    from ens10.metrics.extremes import _kernels

    return _call_kernel(_kernels.exact, members, climate, levels, 1 - levels, skip)


def _ecmwf(members: Array, climate: Array, epsilon: float | None, skip: bool) -> Array:
    from ens10.metrics.extremes import _kernels

    tables = operational_tables(climate.shape[0])
    least = np.nan if epsilon is None else float(epsilon)
    return _call_kernel(_kernels.operational, members, climate, tables, least, skip)


def _call_kernel(
    kernel: Callable[..., Any], members: Array, climate: Array, *options: Any
) -> Array:
    def on_points(x: Array, q: Array) -> Array:
        out = np.empty(x.shape[1])
        refuse(*kernel(x, q, *options, out))
        return out.astype(x.dtype)

    return over_points(on_points, members, climate)


def operational_tables(count: int) -> Levels:
    """Return the parts of the operational index that depend only on a member's rank.

    The index is linear in F, and so a sum over members. From p_k to p_(k+1) the integral of
    (p - F) / sqrt(p (1 - p)), with F linear between them, is
    (2 F_k - 1) A_k + B_k (K - 1) (F_(k+1) - F_k) - C_k, where A_k and C_k are the differences of
    arccos(sqrt(p)) and sqrt(p (1 - p)), and B_k = (1 - 2 p_k) A_k + C_k.

    Args:
        count: K, the number of levels.

    Returns:
        (3, K + 1): the contribution of a member by the number j of quantiles below it; its
        contribution if it lies below all intervals from k on; and the largest possible
        contribution of the intervals from k on.
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

    check_quantiles_ascend(q)
    sorted_x, count = sort_members(x)
    # stored in the members' precision, as the authors' were, before they are compared
    quantiles = member_quantiles(sorted_x, count, np.linspace(0.0, 1.0, q.shape[0])).astype(x.dtype)
    index = np.empty(x.shape[1])
    _kernels.staircase(as_read_only(quantiles), q, index)
    valid = (count > 0 if skip else count == x.shape[0]) & ~np.isnan(q[0])
    return np.where(valid, index, np.nan).astype(x.dtype)


MAX_SHIFT = 10.0  # shifts beyond are cut, as in ECMWF's products


def sot(
    members: Any,
    climate: Any,
    *,
    level: int,
    tail: int | None = None,
    member_dim: Dim,
    quantile_dim: Dim,
    levels: Any = None,
    epsilon: float | None = None,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the shift of tails: above 0 if a tenth of the members is beyond the climate's tail.

    (Qf90 - Qc99) / (Qc99 - Qc90) for `level` 90 and (Qf10 - Qc1) / (Qc1 - Qc10) for 10, with the
    quantiles of the forecast (linear between its members) and of the climate; -1 where both have
    the same quantile at `level` (Zsoter 2006, ECMWF Newsletter 107). Values beyond -10 and 10 are
    cut to these. Where the denominator is 0 (a climate that does not vary in its tail, such as a
    dry one) there is no shift: NaN.
    Tensors are computed on the host, without gradient.

    Args:
        members: the ensemble, two or more.
        climate: quantiles of the model climate, ascending, in the unit of the members; see `efi`.
        level: in percent, such as 90 or 10; not 50.
        tail: in percent, further out than `level`; None for 99 or 1.
        member_dim: the member axis: a number for arrays, a name for DataArrays.
        quantile_dim: the quantile axis of the climate.
        levels: levels of the quantiles, in [0, 1]; None for the coordinate `quantile_dim`.
        epsilon: for precipitation, above 0: members, and the climate at `level`, that are less
            count as 0, and a denominator that is not larger as 0.
        dim: dimensions of a weighted mean; None for the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        The shifts, without unit, as an array of the input's type.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import sot
        >>> levels = np.linspace(0, 1, 101)
        >>> climate, members = 270 + 20 * levels, np.full(10, 292.0)
        >>> options = dict(level=90, member_dim=0, quantile_dim=0, levels=levels)
        >>> round(float(sot(members, climate, **options)), 2)
        1.22

    Raises:
        ArgumentError: one member; levels that the climate lacks; other units or coordinates;
            quantiles that do not ascend or are NaN in part (lazy arrays: when computed).
    """
    far = (99 if level > 50 else 1) if tail is None else tail
    if not (50 < level < far <= 100 or 0 <= far < level < 50):
        raise ArgumentError(
            "level",
            f"{level} with tail {far}, in percent",
            "Pass 90 with 99, or 10 with 1, for example",
        )
    if epsilon is not None and not 0 < epsilon < np.inf:
        raise ArgumentError("epsilon", f"{epsilon} is not above 0")
    checked = checked_levels(members, climate, member_dim, quantile_dim, levels)
    places = place_of(checked, level / 100), place_of(checked, far / 100)
    shift = apply(
        Score("sot", "shift of tails", _sot, units=False),
        {"members": members, "climate": drop_coords(climate)},
        {"members": [member_dim], "climate": [quantile_dim]},
        options={"level": level / 100, "places": places, "epsilon": epsilon or 0.0},
        attrs={"level": level, "tail": far},
    )
    return mean_over(shift, dim, weights, nan)


def _sot(members: Array, climate: Array, **options: Any) -> Array:
    return over_points(partial(_sot_points, **options), members, climate)


def _sot_points(
    x: Array, q: Array, level: float, places: tuple[int, int], epsilon: float
) -> Array:  # fmt: skip
    check_quantiles_ascend(q)
    if epsilon > 0:
        x = np.where(x < epsilon, x.dtype.type(0), x)
    sorted_x, count = sort_members(x)
    quantile = member_quantiles(sorted_x, count, np.array([level]))[0]
    inner, tail = (q[n].astype(np.float64) for n in places)
    if epsilon > 0:
        inner = np.where(inner < epsilon, 0.0, inner)
    width = tail - inner
    valid = (count == x.shape[0]) & (np.abs(width) > epsilon)
    shift = np.full(x.shape[1], np.nan)
    np.divide(quantile - tail, width, out=shift, where=valid)
    clipped: Array = np.clip(shift, -MAX_SHIFT, MAX_SHIFT).astype(x.dtype)
    return clipped


_FEWEST = 4


def cpf(
    members: Any,
    climate: Any,
    *,
    member_dim: Dim,
    quantile_dim: Dim,
    levels: Any = None,
    epsilon: float | None = None,
    symmetric: bool = False,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the crossing-point forecast: the level where forecast and climate cdfs cross.

    Below it the forecast's quantiles exceed the climate's, from it on they do not: the rarest
    event that the forecast makes more likely than usual, as a level of the climate (Ben Bouallegue
    2021, doi:10.1080/16000870.2021.1913007). It is computed as in earthkit-meteo: the members of
    the upper half, at levels (i + 1/2) / M, are compared with the climate's quantiles of the next
    lower level, and the crossing has the level of its member. If all of them exceed the climate,
    the result is the climate's cdf at the largest member, linear between the quantiles beyond the
    last member's level; a forecast that nowhere exceeds the climate there has 0.
    Tensors are computed on the host, without gradient.

    Args:
        members: the ensemble, four or more.
        climate: quantiles of the model climate at evenly spaced levels from 0 to 1, ascending, in
            the unit of the members; see `efi`.
        member_dim: the member axis: a number for arrays, a name for DataArrays.
        quantile_dim: the quantile axis of the climate.
        levels: levels of the quantiles; None for the coordinate `quantile_dim`.
        epsilon: forecasts with all members below this value have a CPF of 0 (precipitation).
        symmetric: True to replace values below 1/2 by 1 less the CPF of the negated forecast and
            climate, so that both tails are covered.
        dim: dimensions of a weighted mean; None for the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        Levels in [0, 1], as an array of the input's type.

    Raises:
        ArgumentError: fewer than four members; other levels; other units or coordinates;
            quantiles that do not ascend or are NaN in part (lazy arrays: when computed); both
            `epsilon` and `symmetric`.
    """
    if epsilon is not None and symmetric:
        raise ArgumentError(
            "epsilon", "it is not defined for a symmetric CPF", "Pass one of the two"
        )
    checked = checked_levels(members, climate, member_dim, quantile_dim, levels)
    check_even(checked, None, "a CPF")
    level = apply(
        Score("cpf", "crossing-point forecast", _cpf, units=False),
        {"members": members, "climate": drop_coords(climate)},
        {"members": [member_dim], "climate": [quantile_dim]},
        options={"epsilon": epsilon, "symmetric": symmetric},
    )
    return mean_over(level, dim, weights, nan)


def _cpf(members: Array, climate: Array, epsilon: float | None, symmetric: bool) -> Array:
    if members.shape[0] < _FEWEST:
        raise ArgumentError(
            "members", f"{members.shape[0]} members have no upper half", "Pass four or more"
        )
    return over_points(partial(_cpf_points, epsilon=epsilon, symmetric=symmetric), members, climate)


def _cpf_points(x: Array, q: Array, epsilon: float | None, symmetric: bool) -> Array:
    check_quantiles_ascend(q)
    sorted_x = np.sort(x, axis=0)  # NaN goes last
    level = _crossing(sorted_x, q)
    if symmetric:
        complete = ~np.isnan(sorted_x[-1])
        other = 1 - _crossing(-sorted_x[::-1], -q[::-1])
        level = np.where(complete & (level < 0.5), other, level)
    if epsilon is not None:
        level = np.where(sorted_x[-1] < epsilon, 0.0, level)
    return level.astype(x.dtype)


def _crossing(sorted_x: Array, q: Array) -> Array:
    from ens10.metrics.extremes import _kernels

    M, K = sorted_x.shape[0], q.shape[0]
    levels = (np.arange(M) + 0.5) / M
    # the first member of the upper half whose level is not below the quantile's
    partners = np.maximum(np.searchsorted(levels, np.arange(K) / (K - 1)), M // 2)
    level = np.empty(sorted_x.shape[1])
    _kernels.crossing(as_read_only(sorted_x), as_read_only(q), partners, level)
    return level
