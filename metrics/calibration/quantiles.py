"""Scores of quantile forecasts: the quantile (pinball) score, its decomposition, and the CRPS."""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import xarray as xr

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import Dim, Score, apply, checked_axes, import_later, loop_shape
from ens10.metrics._dispatch import Array, backend_of
from ens10.metrics._labels import checked_core
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics.calibration.level_weights import (
    above_observation,
    check_emphasis,
    slopes_of_quantiles,
)
from ens10.metrics.statistic import (
    Floats,
    StateVariable,
    Statistic,
    checked_edges,
    checked_sums,
    edges_of,
    edges_to_text,
    present_and_missing,
    sums_by_bin,
)

__all__ = [
    "crps_quantiles",
    "quantile_score",
    "quantile_score_decomposition",
    "quantile_score_sums",
]

Levels = npt.NDArray[np.float64]
_QUANTILE = "quantile"
_TORCH = "ens10.metrics.calibration._torch"


def _ascending_levels(levels: Sequence[float] | npt.NDArray[Any] | float) -> Levels:
    """Return levels of quantiles as float64, shape (K,).

    Raises:
        ArgumentError: no level, a level outside (0, 1), or levels that do not ascend.
    """
    checked = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    if checked.ndim != 1 or not checked.size:
        raise ArgumentError("levels", f"expected one for each quantile, got shape {checked.shape}")
    outside = checked[~((checked > 0) & (checked < 1))]
    if outside.size:
        raise ArgumentError("levels", f"{outside[0]:g} is not between 0 and 1")
    if (np.diff(checked) <= 0).any():
        raise ArgumentError(
            "levels", f"they do not rise: {checked.tolist()}", "Sort levels and quantiles alike"
        )
    return checked


def check_levels(values: Any, levels: Any, quantile_dim: Dim) -> Levels:
    """Check that levels match the number of quantiles and their coordinate, and return them.

    Returns:
        Levels as float64, shape (K,).

    Raises:
        ArgumentError: no such dimension; levels that do not ascend inside (0, 1), or that differ
            from the coordinate of the dimension or in number from the quantiles.
    """
    checked = _ascending_levels(levels)
    if isinstance(values, xr.DataArray):
        checked_core({"values": values}, {"values": [quantile_dim]})
        size, index = values.sizes[quantile_dim], values.indexes.get(quantile_dim)
    else:
        axis = checked_axes("values", values, [quantile_dim])[0]
        size, index = values.shape[axis], None
    if size != checked.size:
        raise ArgumentError("levels", f"{checked.size} levels for {size} quantiles")
    # a coordinate stored as float32 differs from the level in float64
    if index is not None and not np.allclose(index.to_numpy().astype(float), checked, atol=1e-6):
        raise ArgumentError(
            "levels",
            f"{checked.tolist()}, but {quantile_dim} has {index.tolist()}",
            "Pass the same",
        )
    return checked


def _broadcast_inputs(values: Any, y: Any, levels: Levels, quantile_dim: Dim) -> tuple[Any, Any]:
    """Return observations and levels in shapes that broadcast to the quantiles.

    Raises:
        ArgumentError: observations that do not fit, or with a quantile dimension of their own.
    """
    if isinstance(values, xr.DataArray):
        checked_core({"values": values, "y": y}, {"values": [quantile_dim]})
        dtype = values.dtype if values.dtype.kind == "f" else np.float64
        return y, xr.DataArray(levels.astype(dtype), dims=[quantile_dim])
    axis = checked_axes("values", values, [quantile_dim])[0]
    shape_of_levels = (1,) * axis + (-1,) + (1,) * (values.ndim - 1 - axis)
    points = tuple(n for i, n in enumerate(values.shape) if i != axis)
    observations = y if hasattr(y, "shape") else np.asarray(y)
    loop_shape({"values": points, "y": tuple(observations.shape)}, {"values": (axis,)})
    if observations.ndim:  # a new axis of length 1 in the position of the quantile axis
        shape = (1,) * (len(points) - observations.ndim) + tuple(observations.shape)
        y = observations.reshape((*shape[:axis], 1, *shape[axis:]))
    if backend_of({"values": values}) == "torch":
        floating = values if values.dtype.is_floating_point else values.double()
        return y, floating.new_tensor(levels.tolist()).reshape(shape_of_levels)
    dtype = values.dtype if values.dtype.kind == "f" else np.float64
    return y, levels.astype(dtype).reshape(shape_of_levels)


Rule = Literal["linear", "mean"]


def quantile_score(
    values: Any,
    y: Any,
    *,
    levels: Sequence[float],
    quantile_dim: Dim,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the quantile (pinball) score of each level p: (p - 1{y < q}) (y - q).

    It is proper for the quantile (Gneiting 2011, doi:10.1198/jasa.2011.r10138). For the median
    it is half of the absolute error.

    Args:
        values: quantiles q.
        y: observations, without the quantile axis.
        levels: probabilities of the quantiles, ascending, inside (0, 1).
        quantile_dim: their axis: a number for arrays, a dimension name for DataArrays.
        dim: dimensions of the mean: axes of `values` or names; "all" for all but `quantile_dim`;
            None for the scores of the points.
        weights: weights of the mean, which broadcast to `values`.
        nan: "propagate" or "omit", in the mean.

    Returns:
        Scores in the unit of the quantiles, with the axes of `values` that were not averaged, as
        an array of the input's type; tensors are differentiable.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import quantile_score
        >>> q, levels = np.array([1.0, 2.0, 4.0]), [0.1, 0.5, 0.9]
        >>> quantile_score(q, 3.0, levels=levels, quantile_dim=0).round(6)
        array([0.2, 0.5, 0.1])

    Raises:
        ArgumentError: levels that do not ascend, lie outside (0, 1) or differ in number or value
            from the quantiles' coordinate; observations with a quantile axis; arrays that do
            not match.
    """
    checked = check_levels(values, levels, quantile_dim)
    observations, level_array = _broadcast_inputs(values, y, checked, quantile_dim)
    score = Score("quantile_score", "quantile score", _pinball, _pinball_torch)
    arrays = {"values": values, "y": observations, "levels": level_array}
    scores = apply(score, arrays, unlike=["levels"])
    if isinstance(scores, xr.DataArray):
        dims = [*values.dims, *(d for d in scores.dims if d not in values.dims)]
        scores = scores.transpose(*dims)
    return mean_over(scores, _mean_dims(scores, dim, quantile_dim), weights, nan)


def _mean_dims(scores: Any, dim: Over, quantile_dim: Dim) -> Over:
    """Return the dimensions of the mean, with "all" replaced by all but the quantile dimension."""
    if dim != "all":
        return dim
    if isinstance(scores, xr.DataArray):
        return [str(d) for d in scores.dims if d != quantile_dim]
    axis = checked_axes("values", scores, [quantile_dim])[0]
    return [i for i in range(scores.ndim) if i != axis]


def _pinball(values: Any, y: Any, levels: Any) -> Any:
    d = y - values
    return np.maximum(levels * d, (levels - 1) * d)  # the larger one is that of the sign of d


def _pinball_torch(values: Any, y: Any, levels: Any) -> Any:
    d = y - values
    # the same value; where d is 0 its gradient is p - 1, and that of `maximum` p - 1/2
    return levels * d + (-d).clamp(min=0)


def crps_quantiles(
    values: Any,
    y: Any,
    *,
    levels: Sequence[float],
    quantile_dim: Dim,
    rule: str,
    emphasis: str | None = None,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
) -> Any:
    """Return the CRPS of a quantile forecast, 2 int_0^1 QS_p(q(p), y) dp (QS: quantile score).

    Args:
        values: quantiles q_1 .. q_K. Where they cross, the integral is returned, but it is not
            the CRPS of a distribution.
        y: observations, without the quantile axis.
        levels: p_1 .. p_K of the quantiles, rising, inside (0, 1).
        quantile_dim: their axis: a number for arrays, a dimension name for DataArrays.
        rule: approximation of the integral; there is no default. "linear": exact for the quantile
            function that is linear between the levels and constant beyond them (point masses
            p_1 at q_1 and 1 - p_K at q_K). "mean": twice the plain
            mean of the K quantile scores, whatever the levels; with p_k = (k - 1/2) / K it is the
            plain CRPS of the ensemble of the quantiles (Brocker 2012, doi:10.1002/qj.1891).
        emphasis: weight v(p) of the levels in the integral: "centre" p (1 - p), "tails"
            (2 p - 1)^2, "left" (1 - p)^2 or "right" p^2 (Gneiting and Ranjan 2011,
            doi:10.1198/jbes.2010.08110); None for the CRPS. Proper for each; the scores of
            different weights are not comparable.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.

    Returns:
        Scores in the unit of the quantiles, as an array of the input's type; tensors are
        differentiable, with finite gradients also where quantiles are equal.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics import crps_quantiles
        >>> options = {"levels": [0.25, 0.75], "quantile_dim": 0, "rule": "mean"}
        >>> float(crps_quantiles(np.array([1.0, 3.0]), 2.0, **options))
        0.5

    Raises:
        ArgumentError: levels that do not ascend or do not fit the quantiles; arrays that do not
            match.
        UnknownNameError: an unknown rule or emphasis.
    """
    if emphasis is not None:
        check_emphasis(emphasis)
    if rule not in get_args(Rule):
        raise UnknownNameError("rule", rule, get_args(Rule))
    checked = tuple(check_levels(values, levels, quantile_dim).tolist())
    score = Score(
        "crps",
        "continuous ranked probability score of quantiles",
        partial(_crps, levels=checked, rule=rule, emphasis=emphasis),
        import_later(_TORCH, "crps_of_quantiles", levels=checked, rule=rule, emphasis=emphasis),
    )
    arrays = {"values": values, "y": y}
    attrs = {"rule": rule} | ({} if emphasis is None else {"emphasis": emphasis})
    scores = apply(score, arrays, {"values": [quantile_dim]}, attrs=attrs)
    return mean_over(scores, dim, weights, nan)


def _crps(values: Any, y: Any, levels: Sequence[float], rule: str, emphasis: str | None) -> Any:
    x = values - y
    total = np.zeros_like(x[0])
    slopes = crps_weights(np, x, levels, rule, emphasis)
    for weight, quantile in zip(slopes, x, strict=True):
        total += weight * quantile
    return total


def crps_weights(
    xp: Any, x: Any, levels: Sequence[float], rule: str, emphasis: str | None = None
) -> list[Any]:
    """Return the derivatives of the CRPS by each quantile.

    The interpolated quantile function less the observation is sum_k h_k(p) x_k, where h_k(p) is
    the weight of quantile k at level p. The CRPS 2 int (1{q(p) > y} - p) (q(p) - y) dp is therefore
    sum_k w_k x_k with w_k = 2 int (1{q(p) > y} - p) h_k(p) dp. The w_k are also the derivatives,
    since the CRPS is homogeneous of degree 1 in x.

    Args:
        xp: numpy or torch.
        x: quantiles less the observation, (K, ...).
        levels: K levels of the quantiles.
        rule: "linear" or "mean".
        emphasis: weight of the levels, one of `EMPHASES`; None for none.

    Returns:
        K arrays of the shape of x[0].
    """
    if emphasis is not None:
        return slopes_of_quantiles(xp, x, emphasis, levels, rule)
    K = len(levels)
    if rule == "mean":
        return [(2 / K) * (above_observation(xp, q) - p) for q, p in zip(x, levels, strict=True)]
    first, last = levels[0], 1 - levels[-1]
    weights: list[Any] = [0.0] * K
    # below the first and above the last level q is constant: h = 1
    weights[0] = 2 * first * above_observation(xp, x[0]) - first**2
    weights[-1] = weights[-1] + 2 * last * above_observation(xp, x[-1]) - (1 - levels[-1] ** 2)
    # between two levels p = level + s width with h = 1 - s and s; in 2 int (1{q > y} - p) h ds the
    # first term is 2 left and 2 right, the second one a polynomial
    for j, (level, next_level) in enumerate(itertools.pairwise(levels)):
        width = next_level - level
        left, right = _integrals_above(xp, x[j], x[j + 1])
        weights[j] = weights[j] + width * (2 * left - level - width / 3)
        weights[j + 1] = weights[j + 1] + width * (2 * right - level - 2 * width / 3)
    return weights


def _integrals_above(xp: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Integrate 1{x(s) > 0} (1 - s) and 1{x(s) > 0} s over s in [0, 1], x(s) = a + s (b - a).

    Where x rises, the integrals start at its zero; where it falls, they end there. Where a = b
    there is no zero, and the integrals are 1/2 or 0.
    """
    differ = a != b
    zero = xp.clip(-a / xp.where(differ, b - a, xp.ones_like(a)), 0, 1)
    to_zero = zero - zero**2 / 2, zero**2 / 2
    from_zero = (1 - zero) ** 2 / 2, (1 - zero**2) / 2
    constant = above_observation(xp, a) / 2
    left, right = (
        xp.where(differ, xp.where(b > a, rising, falling), constant)
        for rising, falling in zip(from_zero, to_zero, strict=True)
    )
    return left, right


_SUMS = ("observed_weight", "observed_sum", "score_sum")


def quantile_score_sums(
    values: Any,
    y: Any,
    *,
    levels: Sequence[float],
    quantile_dim: Dim,
    edges: Sequence[float] | Floats,
    constants: Sequence[float] | Floats | None = None,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
) -> xr.Dataset:
    """Return the additive sums over points that `quantile_score_decomposition` needs.

    Args:
        values: quantiles.
        y: observations, without the quantile axis.
        levels: probabilities of the quantiles, ascending, inside (0, 1).
        quantile_dim: their axis: a number for arrays, a dimension name for DataArrays.
        edges: n edges between n + 1 bins of the forecast quantiles (open at both ends), in their
            unit. About ten bins of similar numbers of points are usual: in many bins of few
            points the best constants follow the noise, and resolution and reliability grow.
        constants: candidates for the best constant quantiles, ascending. All different
            observations (`numpy.unique(y)`) are exact, because one of them is optimal; 20 to 100
            values are nearly so. None for the `edges`.
        dim: dimensions that are summed over (axes of `y`, or names); the others are kept.
        weights: weights of the points, such as area weights.
        nan: "propagate" returns NaN sums if a point is NaN; "omit" leaves such points out.

    Returns:
        `observed_weight` and `observed_sum` (of observations less the middle of the constants)
        over `quantile`, `forecast_bin` and `observed_bin` (between constants); `score_sum`,
        `count` and `missing` over `quantile`. Lazy if an array is.

    Raises:
        ArgumentError: levels that do not ascend or do not fit the quantiles, edges or constants
            that do not ascend, arrays that do not match.
        UnknownNameError: an unknown policy for NaN.
    """
    checked, bin_edges = check_levels(values, levels, quantile_dim), checked_edges(edges)
    candidates = bin_edges if constants is None else checked_edges(constants, name="constants")
    both = {
        "forecast_bin": np.arange(bin_edges.size + 1),
        "observed_bin": np.arange(candidates.size + 1),
    }
    units = {"units": y.attrs["units"]} if "units" in getattr(y, "attrs", {}) else {}
    statistic = Statistic(
        "quantile_score_sums",
        partial(_sums_by_bins, edges=bin_edges, constants=candidates),
        (
            StateVariable("observed_weight", both, {"units": "1"}),
            StateVariable("observed_sum", both, units),
            StateVariable("score_sum", attrs=units),
        ),
    )
    arrays, core = {"values": values, "y": y}, {"values": {_QUANTILE: quantile_dim}}
    level = xr.DataArray(checked, dims=[_QUANTILE])
    sums = statistic.sums(arrays, core, dim=dim, weights=weights, nan=nan, constants=[level])
    attrs = {"edges": edges_to_text(bin_edges), "constants": edges_to_text(candidates)}
    return sums.assign_attrs(attrs).assign_coords({_QUANTILE: checked})


def _sums_by_bins(
    q: Array, y: Array, w: Array, level: Array, *, edges: Floats, constants: Floats
) -> Floats:
    """Return the sums of `quantile_score_sums` for each row of points (rows, points)."""
    columns = constants.size + 1
    valid = ~np.isnan(q) & ~np.isnan(y) & ~np.isnan(w)
    weight = np.where(valid, w, 0.0)
    d = np.where(valid, (y - q).astype(np.float64), 0.0)
    # sums of y itself (some 300 K) would lose digits when a constant's multiple is subtracted
    from_middle = np.where(valid, y.astype(np.float64) - _middle(constants), 0.0)
    index = np.searchsorted(edges, q, side="right") * columns
    index += np.searchsorted(constants, y, side="right")
    score = (weight * np.maximum(level * d, (level - 1) * d)).sum(axis=1)
    tables = sums_by_bin(index, (edges.size + 1) * columns, weight, weight * from_middle)
    return np.concatenate([tables, score[:, None], present_and_missing(valid)], axis=1)


def _middle(constants: Floats) -> float:
    return float(constants[0] / 2 + constants[-1] / 2)  # halved first: the sum could overflow


def quantile_score_decomposition(sums: xr.Dataset) -> xr.Dataset:
    """Decompose the quantile score of each level: reliability - resolution + uncertainty.

    Uncertainty is the score of the best constant quantile. Resolution is the improvement by the
    best constant of each forecast bin, reliability the loss of the forecast against those
    (Bentzien and Friederichs 2014, doi:10.1002/qj.2284; here the spread of forecasts within a bin
    counts as reliability, so that the identity is exact). The best constants are searched among
    the `constants` of the sums.

    Args:
        sums: result of `quantile_score_sums`, or several of them added.

    Returns:
        `quantile_score`, `reliability`, `resolution` and `uncertainty` over `quantile`; over
        `forecast_bin` also the `conditional_quantile` of the observations and `weight`;
        NaN in empty bins.

    Raises:
        ArgumentError: `sums` lacks variables of that function.
    """
    checked_sums(sums, _SUMS, "quantile_score_sums")
    values = edges_of(sums, "constants")
    # scores (quantile, forecast_bin, constant) of each constant as the forecast of a bin
    scores = _scores_of_constants(
        sums["observed_weight"], sums["observed_sum"], values - _middle(values)
    )
    weight = sums["observed_weight"].sum("observed_bin", skipna=False)
    total = weight.sum("forecast_bin", skipna=False)
    total = total.where(total > 0)
    score = sums["score_sum"] / total
    best_of_bins = scores.min("constant", skipna=False).sum("forecast_bin", skipna=False) / total
    uncertainty = scores.sum("forecast_bin", skipna=False).min("constant", skipna=False) / total
    best_constant = scores.fillna(0.0).argmin("constant")
    conditional = xr.apply_ufunc(
        partial(np.take, values), best_constant, dask="parallelized", output_dtypes=[np.float64]
    ).where(weight > 0)
    unit = {k: v for k, v in sums["score_sum"].attrs.items() if k == "units"}
    terms = {
        "quantile_score": (score, "mean quantile score"),
        "reliability": (score - best_of_bins, "reliability part of the quantile score"),
        "resolution": (uncertainty - best_of_bins, "resolution part of the quantile score"),
        "uncertainty": (uncertainty, "score of the best constant quantile"),
        "conditional_quantile": (conditional, "best constant quantile of the bin"),
    }
    variables = {name: v.assign_attrs(long_name=text, **unit) for name, (v, text) in terms.items()}
    return xr.Dataset(variables | {"weight": weight.assign_attrs(units="1")})


def _scores_of_constants(
    weight: xr.DataArray, total: xr.DataArray, constants: Floats
) -> xr.DataArray:
    """Return the summed scores of each constant c as a quantile of level p, over `constant`.

    They are (1 - p) sum(c - y) over the observations below c plus p sum(y - c) over those above.

    Args:
        weight: sums of the weights by bin of the observations.
        total: sums of the observations times their weights, likewise.
        constants: less the value that was subtracted from the observations.
    """
    level = weight[_QUANTILE]
    constant = xr.DataArray(constants, dims="constant")
    all_but_last = {"observed_bin": slice(None, -1)}  # bins up to number k lie below constant k
    weight_below, total_below = (
        a.cumsum("observed_bin")
        .isel(all_but_last)
        .rename(observed_bin="constant")
        .drop_vars("constant", errors="ignore")
        for a in (weight, total)
    )
    weight_above = weight.sum("observed_bin", skipna=False) - weight_below
    total_above = total.sum("observed_bin", skipna=False) - total_below
    below = weight_below * constant - total_below
    above = total_above - weight_above * constant
    return (1 - level) * below + level * above
