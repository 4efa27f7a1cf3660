"""Scores against a truth that has errors itself, such as an analysis or an observation."""

import math
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics.distributions.normal import crps_normal
from ens10.metrics.distributions.registry import kind_of

TRUTH_ERROR = "truth_error"  # attribute of a forecast of the truth with its error


def with_truth_error(forecast: xr.Dataset, error: float | xr.DataArray) -> xr.Dataset:
    """Return the forecast of the truth with its error: the distribution convolved with the error's.

    A proper score of it against the truth with errors is least, on average, for the distribution of
    the true state, if the errors are independent of the forecast's (Ferro 2017,
    doi:10.1002/qj.3115, section 2). Members become a mixture of normals with this deviation.

    Args:
        forecast: of kind "normal", "ensemble" or "normal_mixture", as for `score_states`.
        error: standard deviation of normal, unbiased errors, target units, or a map of it, whose
            root mean square the attribute of the result holds; with 0, or if it was done before
            with the same error, the forecast is unchanged.

    Raises:
        ArgumentError: a negative error, another kind of forecast, or one that has another error.
        MissingDataError: variables that the forecast lacks.
        ValueError: a map of other places.
    """
    size = _size_of(error)
    if isinstance(error, xr.DataArray):
        xr.align(forecast, error, join="exact")  # arithmetic would drop other places
    if size == 0 or forecast.attrs.get(TRUTH_ERROR) == size:
        return forecast
    if TRUTH_ERROR in forecast.attrs:
        reason = f"the forecast has an error of {forecast.attrs[TRUTH_ERROR]} already"
        raise ArgumentError(TRUTH_ERROR, f"{reason}, not {size}", "Pass the forecast without")
    found = kind_of(forecast)
    kind, names = found.kind, found.stored_variables(forecast)
    if kind not in ("normal", "normal_mixture", "ensemble"):
        reason = f"unknown for a forecast of kind {kind}"
        raise ArgumentError(TRUTH_ERROR, reason, "Score a normal, a mixture of normals or members")
    if absent := [name for name in names if name not in forecast]:
        raise MissingDataError(f"{kind} forecast", absent)
    attributes = {**forecast.attrs, TRUTH_ERROR: size}
    if kind != "ensemble":
        old = forecast["sigma"]
        wide = ((old**2 + error**2) ** 0.5).astype(old.dtype)
        sigma: xr.DataArray = old.where(old < 0, wide)  # scoring refuses negative ones
        return forecast.assign(sigma=sigma).assign_attrs(attributes)
    mu = forecast["members"].rename(number="component")
    shares = xr.full_like(mu, 1 / mu.sizes["component"]).assign_attrs(units="1")
    sigma = (xr.zeros_like(mu) + error).astype(mu.dtype).assign_attrs(mu.attrs)
    fields = {"mu": mu, "sigma": sigma, "component_weights": shares}
    others = forecast.drop_dims("number").drop_vars("members", errors="ignore")
    return others.assign(fields).assign_attrs({**attributes, "forecast_kind": "normal_mixture"})


def _size_of(error: Any) -> float:
    """Return a standard deviation, or the root mean square of a map of it, after a check."""
    is_map = isinstance(error, xr.DataArray)
    if is_map and bool(((error >= 0) & (error < math.inf)).all()):
        return math.sqrt(float((error**2).mean()))
    if is_map or not (isinstance(error, Real) and 0 <= float(error) < math.inf):
        text = "a map with values below 0 or without a value" if is_map else error
        raise ArgumentError(TRUTH_ERROR, f"{text} is no standard deviation", "Pass 0 or more")
    return float(error)


def corrected_crps_normal(mu: Any, sigma: Any, y: Any, error: float) -> Any:
    """Return a score of normals whose expectation over errors of the truth is the CRPS without.

    E|X - y| of X ~ N(mu, s^2) is |mu - y| smoothed by N(0, s^2), and the error smooths by another
    N(0, error^2). So with t^2 = sigma^2 - error^2, CRPS(N(mu, t^2), y) + (t - sigma) / sqrt(pi)
    has the expectation CRPS(N(mu, sigma^2), true value): an error-corrected score (Ferro 2017,
    doi:10.1002/qj.3115). It may be negative. None exists for a forecast sharper than the error.

    Args:
        mu: means, numbers or arrays of any library.
        sigma: standard deviations.
        y: truth with normal, unbiased errors.
        error: their standard deviation.

    Returns:
        The scores of the points, in the unit of `mu`; NaN where sigma < error.

    Examples:
        >>> import numpy as np
        >>> from ens10.metrics.verification.truth_error import corrected_crps_normal
        >>> corrected_crps_normal(np.zeros(2), np.array([1.0, 0.4]), np.zeros(2), 0.6).round(3)
        array([0.074,   nan])
    """
    sigma = np.float64(sigma) if isinstance(sigma, float | int) else sigma  # NaN, not complex
    with np.errstate(invalid="ignore"):
        sharper = (sigma**2 - error**2) ** 0.5
    return crps_normal(mu, sharper, y) + (sharper - sigma) / math.sqrt(math.pi)
