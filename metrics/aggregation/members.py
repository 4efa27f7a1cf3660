"""Shares of points in groups, and sums over each group."""

from collections.abc import Sequence
from functools import reduce
from operator import mul

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError

By = xr.DataArray | Sequence[xr.DataArray] | None


def combined(by: By, score: xr.DataArray | None) -> xr.DataArray | None:
    """The shares of points in all combinations of groups; `attrs["groups"]` counts their dims.

    Args:
        by: one or several arrays of shares in [0, 1], each with its groups as first dimension.
        score: what is grouped, to check that they fit; None to leave that to the caller.

    Raises:
        ArgumentError: two groupings of one name, one named like a dimension of the score, without
            a coordinate, with shares outside [0, 1], or on other coordinates than the score's.
    """
    given = [] if by is None else [by] if isinstance(by, xr.DataArray) else list(by)
    if not given:
        return None
    names = [_name(groups) for groups in given]
    if len(set(names)) < len(names):
        raise ArgumentError("by", f"one grouping is given twice: {names}")
    for name, groups in zip(names, given, strict=True):
        _check(name, groups, score)
    try:
        # dimensions of groups first, in the order given
        aligned = xr.align(*given, join="exact")
    except ValueError as error:
        raise ArgumentError("by", f"groups on different coordinates ({error})") from error
    share: xr.DataArray = reduce(mul, [a.astype(np.float64).drop_attrs() for a in aligned])
    return share.transpose(*names, ...).assign_attrs(groups=len(names))


def _name(groups: xr.DataArray) -> str:
    if not groups.dims:
        raise ArgumentError("by", "groups without a dimension", "Make them with `group_masks`")
    return str(groups.dims[0])


def _check(name: str, groups: xr.DataArray, score: xr.DataArray | None) -> None:
    if name not in groups.coords:
        raise ArgumentError("by", f"the groups of {name!r} have no names (no coordinate)")
    if not bool(((groups >= 0) & (groups <= 1)).all()):
        raise ArgumentError("by", f"shares in {name!r} are missing or outside [0, 1]")
    if score is None:
        return
    if name in score.dims:
        raise ArgumentError("by", f"{name!r} is a dimension of the score", "Rename the groups")
    for dim in groups.dims[1:]:
        ours, other = score.indexes.get(dim), groups.indexes.get(dim)
        known = dim in score.dims and groups.sizes[dim] == score.sizes[dim]
        if not known or (ours is not None and other is not None and not ours.equals(other)):
            raise ArgumentError(
                "by",
                f"{name!r} is on another {dim} than the score",
                "Make the groups for the score's own coordinates, in their order",
            )


def summed(values: xr.DataArray, share: xr.DataArray, dims: Sequence[str]) -> xr.DataArray:
    """Sums of values times shares over `dims`, for each group.

    A missing or infinite value shows only in the groups that it has a share in. What the groups do
    not depend on is summed first, so that bands of latitude cost little more than one mean.
    """
    first = [d for d in dims if d not in share.dims]
    rest = [d for d in dims if d in share.dims]
    share = share.astype(np.float64).drop_attrs()
    values = values.sum(first, skipna=False) if first else values
    finite = np.isfinite(values)
    total: xr.DataArray = xr.dot(values.where(finite, 0.0), share, dim=rest, optimize=True)
    if values.chunks is None and bool(finite.all()):
        return total
    has = (share > 0).astype(np.float64)

    def hit(there: xr.DataArray) -> xr.DataArray:
        touched: xr.DataArray = xr.dot(there.astype(np.float64), has, dim=rest, optimize=True) > 0
        return touched

    above, below = hit(values == np.inf), hit(values == -np.inf)
    missing = hit(values.isnull()) | (above & below)
    return total.where(~above, np.inf).where(~below, -np.inf).where(~missing)
