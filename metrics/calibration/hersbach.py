"""The decomposition of the mean CRPS into reliability and potential CRPS (Hersbach 2000).

An observation that equals the lowest member is not below the ensemble, and one that equals the
highest is not above it, so that the terms add up to the CRPS with ties too. R's
`verification::crpsDecomposition` counts the first as below all members, and loses the intervals
beside a member that the observation equals: its CRPS is then too small.

Alpha and beta are summed over points; sums of blocks add, and only the total is decomposed. The
mean of decompositions is not the decomposition of the mean.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from ens10.metrics._call import Dim
from ens10.metrics._dispatch import Array, compilable
from ens10.metrics._reduce import Over
from ens10.metrics.statistic import (
    MEMBER,
    Floats,
    StateVariable,
    Statistic,
    checked_edges,
    checked_sums,
    core_size,
    edges_of,
    edges_to_text,
    present_and_missing,
    sums_by_bin,
)

__all__ = ["hersbach_decomposition", "hersbach_sums"]

_SUMS = ("alpha", "beta", "below", "above", "weight")


def hersbach_sums(
    members: Any,
    y: Any,
    *,
    member_dim: Dim,
    dim: Over = "all",
    weights: Any = None,
    nan: str = "propagate",
    edges: Sequence[float] | None = None,
) -> xr.Dataset:
    """Return the additive sums over points that `hersbach_decomposition` needs.

    Args:
        members: the ensemble of M members.
        y: observations: the members' shape, or dimensions, without the member axis.
        member_dim: the member axis: a number for arrays, a dimension name for DataArrays.
        dim: dimensions that are summed over; the others are kept.
        weights: weights of the points, such as area weights.
        nan: "propagate" returns NaN sums if a point is NaN; "omit" leaves such points out.
        edges: edges of bins of the observations, in their unit, from below the lowest to above
            the highest; needed for the uncertainty. A hundred bins are enough.

    Returns:
        `alpha` and `beta` over `bin` = 0 .. M (between members bin and bin + 1), the weights
        `below` and `above` of observations outside the ensemble, `weight`, `count` and `missing`;
        with edges also `observed_weight` and `observed_sum` over `observed_bin`. Lazy if an array
        is.

    Raises:
        ArgumentError: observations with a member axis, arrays that do not match, edges that do not
            rise.
        UnknownNameError: an unknown policy for NaN.
    """
    of_bins = np.zeros(0) if edges is None else checked_edges(edges, 2)
    M = core_size("members", members, member_dim)
    units = {"units": y.attrs["units"]} if "units" in getattr(y, "attrs", {}) else {}
    between = {"bin": np.arange(M + 1)}
    parts = [StateVariable("alpha", between, units), StateVariable("beta", between, units)]
    parts += [StateVariable(name, attrs={"units": "1"}) for name in ("below", "above", "weight")]
    if of_bins.size:
        observed = {"observed_bin": np.arange(of_bins.size + 1)}
        parts += [
            StateVariable("observed_weight", observed),
            StateVariable("observed_sum", observed),
        ]
    statistic = Statistic("hersbach_sums", partial(_kernel, edges=of_bins), tuple(parts))
    arrays, core = {"members": members, "y": y}, {"members": {MEMBER: member_dim}}
    sums = statistic.sums(arrays, core, dim=dim, weights=weights, nan=nan)
    return sums.assign_attrs({"edges": edges_to_text(of_bins)} if of_bins.size else {})


def _kernel(x: Array, y: Array, w: Any, *, edges: Floats) -> Floats:
    from ens10.metrics.calibration._compiled import add_alpha_beta

    M, K, _points = x.shape
    centred = x - y
    valid = ~np.isnan(centred.sum(axis=0)) & ~np.isnan(w)
    weights = np.where(valid, w, 0.0)
    alpha, beta = np.zeros((K, M + 1)), np.zeros((K, M + 1))
    outside = np.zeros((2, K))
    add_alpha_beta(compilable(centred), weights, alpha, beta, *outside)
    parts = [alpha, beta, outside.T, weights.sum(axis=1)[:, None]]
    if edges.size:
        index = np.searchsorted(edges, y, side="right")
        distance = np.where(valid, y.astype(np.float64) - edges.mean(), 0.0)
        parts.append(sums_by_bin(index, edges.size + 1, weights, weights * distance))
    return np.concatenate([*parts, present_and_missing(valid)], axis=1)


def hersbach_decomposition(sums: xr.Dataset) -> xr.Dataset:
    """Decompose the mean CRPS into reliability and potential CRPS.

    With the means a_i of alpha and b_i of beta over points, p_i = i / M, g_i = a_i + b_i and o_i =
    b_i / g_i inside the ensemble; outside o_0 is the frequency of observations below all members,
    o_M that of those not above all, g_0 = b_0 / o_0 and g_M = a_M / (1 - o_M). Then reliability =
    sum g_i (o_i - p_i)^2 and potential = sum g_i o_i (1 - o_i), whose sum is the mean plain CRPS
    (Hersbach 2000, doi:10.1175/1520-0434(2000)015<0559:DOTCRP>2.0.CO;2, eqs. 31 to 37).
    Observations that equal the lowest member are not below it. Uncertainty is the CRPS of the
    observations' own climate, half of their mean absolute difference; resolution = uncertainty -
    potential.

    Args:
        sums: result of `hersbach_sums`, or several of them added.

    Returns:
        `crps`, `reliability`, `potential`, over `bin` the `spread` g and the `frequency` o;
        `uncertainty` and `resolution` if the sums have edges: exact between bins, and with
        observations evenly spread inside each; NaN if some lie outside the edges. NaN where there
        is no weight.

    Raises:
        ArgumentError: `sums` lacks variables of that function.
    """
    checked_sums(sums, _SUMS, "hersbach_sums")
    weight = sums["weight"].where(sums["weight"] > 0)
    alpha, beta = sums["alpha"] / weight, sums["beta"] / weight
    M = sums.sizes["bin"] - 1
    place = sums["bin"]
    p = place / M
    g, o = alpha + beta, beta / (alpha + beta).where(alpha + beta > 0)
    o_0, o_M = sums["below"] / weight, 1 - sums["above"] / weight
    o = o.where(place != 0, o_0).where(place != M, o_M)
    g = g.where(place != 0, beta / o_0.where(o_0 > 0))
    g = g.where(place != M, alpha / (1 - o_M).where(o_M < 1))
    empty = (alpha + beta) == 0
    reliability = (g * (o - p) ** 2).where(~empty, 0.0).sum("bin", skipna=False)
    potential = (g * o * (1 - o)).where(~empty, 0.0).sum("bin", skipna=False)
    unit = {k: v for k, v in sums["alpha"].attrs.items() if k == "units"}
    terms = {
        "crps": (reliability + potential, "mean continuous ranked probability score", unit),
        "reliability": (reliability, "reliability part of the CRPS", unit),
        "potential": (potential, "CRPS if the ensemble were reliable", unit),
        "spread": (g, "mean width of the bin", unit),
        "frequency": (o, "frequency of observations below the middle of the bin", {"units": "1"}),
    }
    if "observed_weight" in sums:
        uncertainty = _uncertainty(sums)
        terms["uncertainty"] = (uncertainty, "CRPS of the climate of the observations", unit)
        terms["resolution"] = (uncertainty - potential, "uncertainty less potential", unit)
    return xr.Dataset(
        {name: v.assign_attrs(long_name=text, **attrs) for name, (v, text, attrs) in terms.items()}
    )


def _uncertainty(sums: xr.Dataset) -> xr.DataArray:
    """Return half of the mean absolute difference of two observations."""
    edges = edges_of(sums)
    n, total = sums["observed_weight"], sums["observed_sum"]
    inside = n.isel(observed_bin=0) + n.isel(observed_bin=-1) == 0
    before_n, before = n.cumsum("observed_bin") - n, total.cumsum("observed_bin") - total
    between = (before_n * total - before * n).sum("observed_bin", skipna=False)
    widths = xr.DataArray(np.r_[0.0, np.diff(edges), 0.0], dims="observed_bin")
    within = (n**2 * widths).sum("observed_bin", skipna=False) / 6
    total_weight = n.sum("observed_bin", skipna=False)
    return ((between + within) / total_weight.where(total_weight > 0) ** 2).where(inside)
