"""Weighted means of scores over dimensions, for arrays of any library."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, checked_axes
from ens10.metrics._dispatch import backend_of, fill_masked, library_of
from ens10.metrics._sums import leave_out_missing, ratio, weighted_sums

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
    weights = fill_masked(weights)
    kind = backend_of({"score": score} if weights is None else {"score": score, "weights": weights})
    prepare: Callable[..., tuple[Any, Any, Any]] = _with_labels if kind == "xarray" else _with_axes
    values, w, axes = prepare(score, dim, weights)
    if nan != "propagate":
        values, w = leave_out_missing(values, w)
    mean = ratio(*weighted_sums(values, w, axes))
    return mean.assign_attrs(score.attrs).rename(score.name) if kind == "xarray" else mean


def _with_axes(score: Any, dim: Over, weights: Any) -> tuple[Any, Any, tuple[int, ...]]:
    """Return scores and weights of one shape, those of numpy in float64, and axis numbers."""
    axes, xp = _axes(score, dim), library_of(score)
    if hasattr(score, "new_tensor"):
        w = score.new_ones(()) if weights is None else weights
        w = w.to(score) if hasattr(w, "to") else score.new_tensor(w)
    else:
        score = xp.asarray(score).astype(np.float64)
        w = xp.asarray(1.0 if weights is None else weights).astype(np.float64)
    _check_weights(tuple(score.shape), tuple(w.shape))
    return score, xp.broadcast_to(w, score.shape), axes


def _with_labels(score: xr.DataArray, dim: Over, weights: Any) -> tuple[Any, Any, list[Any]]:
    """Return scores and weights over the same dimensions in float64, and names of dimensions."""
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
    return score.astype(np.float64), w, names


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
