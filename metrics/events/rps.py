"""The ranked probability score (RPS): the Brier scores of all thresholds between categories."""

from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from ens10.metrics._call import Score, apply
from ens10.metrics._dispatch import backend_of, common_dtype
from ens10.metrics._reduce import EnsembleNan, Over, mean_over
from ens10.metrics.events import _kernels
from ens10.metrics.events._checks import check_members, check_units
from ens10.metrics.events.probability import on_tensors


def rps(
    probabilities: Any,
    category: Any,
    *,
    category_dim: int | str,
    normalised: bool = False,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Ranked probability score of probabilities of K ordered categories; 0 is best.

    The sum over k of (P_k - O_k)^2, with P_k and O_k the forecast and the observed (0 or 1)
    probability that the category is k or lower (Epstein 1969,
    doi:10.1175/1520-0450(1969)008<0985:ASSFPF>2.0.CO;2; Murphy 1971).

    Args:
        probabilities: of the categories, with sum 1; any shape with an axis of categories.
            Tensors are differentiable in them.
        category: number of the observed category, from 0 to K - 1.
        category_dim: the axis of categories: a number, or a dimension name for DataArrays.
        normalised: whether the sum is divided by K - 1, so that the worst score is 1.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: whether values are looked at; a training loss passes False.

    Returns:
        Scores as the kind of array that was given.

    Raises:
        ArgumentError: probabilities outside [0, 1] or with another sum than 1, categories that
            are not there (on lazy arrays when computed); shapes or coordinates that do not fit.
    """
    arrays, core = {"probabilities": probabilities, "category": category}, [category_dim]
    options = {"normalised": normalised, "check": check}
    score = apply(_RPS, arrays, {"probabilities": core}, options=options)
    return mean_over(score, dim, weights, nan)


def rps_ensemble(
    members: Any,
    y: Any,
    *,
    thresholds: Any,
    estimator: str,
    member_dim: int | str,
    threshold_dim: int | str | None = None,
    strict: bool = True,
    normalised: bool = False,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Ranked probability score of an ensemble: the sum of the Brier scores of the thresholds.

    Args:
        members: the ensemble; any shape with a member axis.
        y: observations: the members' shape without the member axis, or what broadcasts to it.
        thresholds: between the categories, rising; numbers, or an array with an axis of
            thresholds whose other axes fit `y` (such as terciles of each place).
        estimator: "plain" or "fair" (see `brier_ensemble`); there is no default.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        threshold_dim: the axis of thresholds of an array, the first if None; a dimension name
            for DataArrays.
        strict: whether a value on a threshold belongs to the category below it.
        normalised: whether the sum is divided by the number of thresholds.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate", "omit" or "skip-members", as for `brier_ensemble`.

    Returns:
        Scores as the kind of array that was given; no gradient (shares have steps).

    Raises:
        UnknownNameError: another estimator or policy.
        ArgumentError: thresholds that fall (on lazy arrays when computed); fair with one member;
            no such axis; shapes, coordinates or units that do not fit.
    """
    backend_of({"members": members, "y": y})
    labelled = isinstance(members, xr.DataArray)
    if not hasattr(thresholds, "ndim"):
        thresholds = np.asarray(thresholds, dtype=_dtype(members, y))
        thresholds = xr.DataArray(thresholds, dims="threshold") if labelled else thresholds
        threshold_dim = "threshold" if labelled else 0
    if threshold_dim is None:
        threshold_dim = "threshold" if labelled else 0
    arrays = {"members": members, "y": y, "thresholds": _like(thresholds, members)}
    check_units(arrays)
    check_members(members, member_dim, estimator, nan)
    core = {"members": [member_dim], "thresholds": [threshold_dim]}
    options = {"estimator": estimator, "strict": strict, "nan": nan, "normalised": normalised}
    attrs = {"estimator": estimator}
    score = apply(_RPS_OF_MEMBERS, arrays, core, options=options, attrs=attrs)
    return mean_over(score, dim, weights, nan, policies=EnsembleNan)


def _dtype(*arrays: Any) -> Any:
    """That of the arrays, so that a list of numbers does not widen float32."""
    return np.float64 if backend_of({"a": arrays[0]}) == "torch" else common_dtype(*arrays)


def _like(thresholds: Any, members: Any) -> Any:
    """A list of thresholds as a tensor where the members are one."""
    if backend_of({"members": members}) == "torch" and isinstance(thresholds, np.ndarray):
        torch: Any = import_module("torch")  # integer members would cut the numbers off
        dtype = members.dtype if members.dtype.is_floating_point else None
        return torch.as_tensor(thresholds.tolist(), dtype=dtype, device=members.device)
    return thresholds


_RPS = Score("rps", "ranked probability score", _kernels.rps, on_tensors("rps"), units=False)
_RPS_OF_MEMBERS = Score(
    "rps",
    "ranked probability score",
    _kernels.rps_of_members,
    on_tensors("rps_of_members"),
    units=False,
)
