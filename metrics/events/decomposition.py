"""The Brier score taken apart: reliability, resolution, uncertainty."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError
from ens10.metrics.events.sums import PARTS


def brier_decomposition(sums: xr.Dataset, *, bias_corrected: bool = False) -> xr.Dataset:
    """Murphy's decomposition of the Brier score, with the terms of forecasts that differ in a bin.

    brier = reliability - resolution + uncertainty + within_bin_variance - within_bin_covariance
    holds for every choice of bins (Murphy 1973; Stephenson et al. 2008,
    doi:10.1175/2007WAF2006116.1). The last two terms are 0 where all probabilities of a bin are
    equal, as with `members`, `digits` or "unique" bins.

    The corrected terms (Ferro and Fricker 2012, doi:10.1002/qj.1924; Broecker 2012,
    doi:10.1007/s00382-011-1191-1) take out what the scatter of the observed frequencies of n_k
    points adds to reliability and resolution: the sum over the bins of their estimated variance
    o_k (1 - o_k) / (n_k - 1). Bins of one point have no such estimate and are left as they are.
    With weights n_k is the effective number (sum w)^2 / sum w^2. Points are taken to be
    independent: neighbours on a grid are not, so there the correction is too small.

    Args:
        sums: of `event_sums`, merged at will.
        bias_corrected: whether the corrected terms are given; the identity holds all the same.

    Returns:
        A Dataset of `brier`, the five terms, and `generalised_resolution` (resolution -
        within_bin_variance + within_bin_covariance), over the dimensions of `sums` without `bin`.

    Raises:
        ArgumentError: not the sums of `event_sums`.
    """
    check_sums(sums)
    w = sums["weight"]
    there, total = w.where(w > 0), whole(w)
    mean, rate = sums["probability"] / there, sums["event"] / there
    base = whole(sums["event"]) / total
    terms = {
        "brier": brier_of_sums(sums),
        "reliability": _sum(w * (mean - rate) ** 2) / total,
        "resolution": _sum(w * (rate - base) ** 2) / total,
        "uncertainty": base * (1 - base),
    }
    if bias_corrected:
        scatter = _sum(w * _variance_of_rate(rate, w, sums["weight_square"])) / total
        of_base = _variance_of_rate(base, whole(w), whole(sums["weight_square"]))
        terms["reliability"] = terms["reliability"] - scatter
        terms["resolution"] = terms["resolution"] - scatter + of_base
        terms["uncertainty"] = terms["uncertainty"] + of_base
    variance = _sum(sums["probability_square"] - sums["probability"] * mean) / total
    covariance = 2 * _sum(sums["product"] - sums["probability"] * rate) / total
    terms["within_bin_variance"], terms["within_bin_covariance"] = variance, covariance
    terms["generalised_resolution"] = terms["resolution"] - variance + covariance
    attrs = {"bins": sums.attrs["bins"], "bias_corrected": int(bias_corrected)}
    lost = whole(w).isnull()  # a sum over bins leaves out NaN, which empty bins have too
    return table({k: v.where(~lost) for k, v in terms.items()}, attrs)


def brier_of_sums(sums: xr.Dataset) -> xr.DataArray:
    """The Brier score of all points."""
    squares = sums["probability_square"] - 2 * sums["product"] + sums["event"]
    return whole(squares) / whole(sums["weight"])


def check_sums(sums: Any) -> None:
    """Refuse what `event_sums` has not made.

    Raises:
        ArgumentError: parts or the dimension of bins are missing.
    """
    missing = sorted(set(PARTS) - set(map(str, getattr(sums, "data_vars", {}))))
    if missing or "bin" not in sums.dims or "bins" not in sums.attrs:
        told = ", ".join(missing) or "bins"
        raise ArgumentError("sums", f"no sums of events, without {told}", "Make with event_sums")


def check_pooled(sums: xr.Dataset) -> None:
    """Refuse sums of bins that hold different probabilities.

    Raises:
        ArgumentError: such bins.
    """
    check_sums(sums)
    if not np.array_equal(sums["bin"], sums["bin_upper"]):
        raise ArgumentError(
            "sums",
            f"their bins ({sums.attrs['bins']}) hold different probabilities",
            'Sum with members, digits or bins="unique"',
        )


def table(found: Mapping[str, xr.DataArray], attrs: Mapping[str, Any]) -> xr.Dataset:
    """What was found, each said by its name and without the attributes of sums."""
    named = {
        name: values.drop_attrs().assign_attrs(long_name=name.replace("_", " "), units="1")
        for name, values in found.items()
    }
    return xr.Dataset(named, attrs=attrs)


def whole(part: xr.DataArray) -> xr.DataArray:
    """The sum over all bins; NaN where one is missing."""
    return part.sum("bin", skipna=False)


def _sum(part: xr.DataArray) -> xr.DataArray:
    return part.sum("bin")


def _variance_of_rate(rate: xr.DataArray, w: xr.DataArray, squares: xr.DataArray) -> xr.DataArray:
    """Estimated variance of an observed frequency; 0 where there is but one point."""
    share = squares / (w * w).where(w > 0)  # 1 / n of equal weights
    several = share < 1 - 1e-9
    return (rate * (1 - rate) * share / (1 - share).where(several)).where(several, 0.0)
