"""Weighted means of scores over dimensions, for arrays of any library."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, checked_axes
from ens10.metrics._dispatch import backend_of, dask_array, fill_masked

Nan = Literal["propagate", "omit"]
EnsembleNan = Literal["propagate", "omit", "skip-members"]
Over = Dim | Sequence[Dim] | None


def mean_over(
    score: Any, dim: Over, weights: Any = None, nan: str = "propagate", *, policies: Any = Nan
) -> Any:
    """Return the weighted mean sum(w s) / sum(w) of scores over some of their dimensions.

    Sums of numpy and xarray are in float64, those of tensors in the tensors' dtype.

    Args:
        score: the scores of points.
        dim: dimensions of the mean: axis numbers, or names for DataArrays; "all"; None to return
            the scores unchanged.
        weights: weights that broadcast to the scores, such as area weights; 1 if None.
        nan: "propagate" returns NaN if a point is NaN; "omit" leaves such points and their
            weights out; "skip-members" (of ensembles) leaves out points without any member.
        policies: the `Literal` of the policies that the caller accepts.

    Returns:
        The mean as an array of the input's type; NaN where the weights sum to 0.

    Raises:
        UnknownNameError: an unknown policy for NaN.
        ArgumentError: weights or "omit" without `dim`; no such dimension; weights that do not
            broadcast to the scores.
    """
    if nan not in get_args(policies):
        raise UnknownNameError("nan", nan, get_args(policies))
    if dim is None:
        for name, is_set in (("weights", weights is not None), ("nan", nan == "omit")):
            if is_set:
                raise ArgumentError(
                    name, "it applies to a mean, and dim is None", 'Pass dim, such as dim="all"'
                )
        return score
    omit, weights = nan != "propagate", fill_masked(weights)
    kind = backend_of({"score": score} if weights is None else {"score": score, "weights": weights})
    if kind == "xarray":
        return _mean_xarray(score, dim, weights, omit)
    if kind == "torch":
        return _mean_torch(score, dim, weights, omit)
    return _mean_array(score, _axes(score, dim), 1.0 if weights is None else weights, omit, kind)


def _mean_array(score: Any, axes: tuple[int, ...], weights: Any, omit: bool, kind: str) -> Any:
    """Return the mean of numpy or dask arrays, whose functions have the same names."""
    xp: Any = dask_array() if kind == "dask" else np
    w = xp.asarray(weights)
    _check_weights(score.shape, w.shape)
    w = xp.broadcast_to(w, score.shape)
    values = xp.asarray(score).astype(np.float64)
    if omit:
        present = ~(xp.isnan(values) | xp.isnan(w))
        values, w = xp.where(present, values, 0.0), xp.where(present, w, 0.0)
    weight_sum = w.sum(axis=axes, dtype=np.float64)
    return (values * w).sum(axis=axes) / xp.where(weight_sum == 0, np.nan, weight_sum)


def _mean_xarray(score: xr.DataArray, dim: Over, weights: Any, omit: bool) -> xr.DataArray:
    names = list(score.dims) if dim == "all" else list_dimensions(dim)
    check_unique(names)
    for name in names:
        if name not in score.dims:
            raise ArgumentError("dim", f"the scores have no dimension {name!r}, only {score.dims}")
    w = xr.ones_like(score, dtype=np.float64)
    if weights is not None:
        extra = set(getattr(weights, "dims", ())) - set(score.dims)
        if extra:
            raise ArgumentError(
                "weights", f"dimensions {sorted(map(str, extra))} that the scores lack"
            )
        try:
            w = xr.apply_ufunc(np.multiply, w, weights, join="exact", dask="allowed")
        except ValueError as error:
            raise ArgumentError(
                "weights", f"its coordinates differ from those of the scores ({error})"
            ) from error
    if omit:
        present = score.notnull() & w.notnull()
        score, w = score.where(present, 0.0).assign_attrs(score.attrs), w.where(present, 0.0)
    total = (score.astype(np.float64) * w).sum(names, skipna=False)
    weight_sum = w.sum(names, skipna=False)
    return (total / weight_sum.where(weight_sum != 0)).assign_attrs(score.attrs).rename(score.name)


def _mean_torch(score: Any, dim: Over, weights: Any, omit: bool) -> Any:
    axes = _axes(score, dim)
    w = score.new_ones(())
    if weights is not None:
        w = weights.to(score) if hasattr(weights, "to") else score.new_tensor(weights)
        _check_weights(tuple(score.shape), tuple(w.shape))
    w = w.expand(score.shape)
    if omit:
        missing = score.isnan() | w.isnan()
        # a product with 0 would keep the NaN, and its gradient
        score, w = score.masked_fill(missing, 0.0), w.masked_fill(missing, 0.0)
    return (score * w).sum(dim=axes) / w.sum(dim=axes)


def _axes(score: Any, dim: Over) -> tuple[int, ...]:
    if dim == "all":
        return tuple(range(score.ndim))
    return checked_axes("scores", score, list_dimensions(dim))


def list_dimensions(dim: Over) -> list[Dim]:
    """Return one or several dimensions as a list; an empty list for None."""
    return [] if dim is None else [dim] if isinstance(dim, int | str | np.integer) else list(dim)


def check_unique(names: Sequence[Any]) -> None:
    """Refuse dimensions that are named twice.

    Raises:
        ArgumentError: there is one.
    """
    if len(set(names)) < len(names):
        raise ArgumentError("dim", f"one dimension is named twice: {tuple(names)}")


def refuse_negative(*weights: Any) -> None:
    """Refuse weights below 0.

    Raises:
        ArgumentError: there are some.
    """
    if any(bool((w < 0).any()) for w in weights):
        raise ArgumentError("weight", "returns negative weights", "Return 0 or more")


def _check_weights(shape: tuple[int, ...], weights: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(shape, weights) == tuple(shape)
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError("weights", f"shape {weights} does not broadcast to scores {shape}")
