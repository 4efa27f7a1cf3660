"""CRPS, log score, PIT and moments of a family of distributions that is chosen by name.

`crps`, `twcrps`, `log_score`, `conditional_log_score`, `censored_log_score`, `pit`,
`pit_interval`, `mean` and `variance` take the name of a family, a
mapping of its parameters and (except the moments) the observation. `FAMILIES` maps names to the
classes of `ens10.metrics.distributions`, whose `parameters` lists the parameters.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError, listing
from ens10.metrics._call import Score, apply
from ens10.metrics._labels import check_alike
from ens10.metrics._ops import ops_of
from ens10.metrics._reduce import Over, mean_over
from ens10.metrics._thresholds import checked_thresholds
from ens10.metrics.distributions.base import ClosedForm
from ens10.metrics.distributions.formula import Formula
from ens10.metrics.distributions.registry import FAMILIES

__all__ = [
    "FAMILIES",
    "censored_log_score",
    "conditional_log_score",
    "crps",
    "log_score",
    "mean",
    "pit",
    "pit_interval",
    "twcrps",
    "variance",
]


def family_of(name: str) -> type[ClosedForm]:
    """Return the class of a family.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if name not in FAMILIES:
        raise UnknownNameError("family", name, FAMILIES)
    return FAMILIES[name]


def crps(
    family: str,
    parameters: Mapping[str, Any],
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the CRPS of forecasts that are distributions of a family.

    The result is that of the family's own function, such as `crps_truncated_normal`.

    Args:
        family: one of `FAMILIES`, such as "normal".
        parameters: arrays or numbers by name, such as {"mu": mu, "sigma": sigma}; omitted bounds
            are infinite. Arrays broadcast by position, DataArrays by dimension name.
        y: observations, in the unit of the parameters.
        dim: dimensions of a weighted mean (numbers of axes, or names for DataArrays; "all");
            None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to refuse invalid parameters. A training loss whose head guarantees valid ones
            passes False, because the check synchronises with the GPU.

    Returns:
        The scores, in the unit of `y`, as an array of the input's type.

    Examples:
        >>> from ens10.metrics.families import crps
        >>> round(float(crps("logistic", {"mu": 280.0, "sigma": 1.0}, 281.0)), 4)
        0.6265

    Raises:
        UnknownNameError: an unknown family, parameter or NaN policy.
        MissingDataError: missing parameters.
        ArgumentError: parameters outside their domain (on lazy arrays when computed), arrays
            that do not fit each other.
    """
    cls = family_of(family)
    arguments = _in_order(cls, parameters)
    formula = cls.formula("crps")
    return formula(*arguments, y, check=check, dim=dim, weights=weights, nan=nan)


def log_score(
    family: str,
    parameters: Mapping[str, Any],
    y: Any,
    *,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the logarithmic score -log f(y) of distributions of a family.

    (Good 1952, doi:10.1111/j.2517-6161.1952.tb00104.x.) It is inf where y is outside the
    support, with gradient 0. At a point mass, such as a bound of a censored distribution, f is
    the probability of that point; elsewhere a density in the inverse unit of y, so that a mean of
    both depends on the unit. Scales must be above 0.

    Args:
        family: one of `FAMILIES`.
        parameters: arrays or numbers by name; omitted bounds are infinite.
        y: observations, in the unit of the parameters.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse parameters that define no density.

    Returns:
        The scores in nats, as an array of the input's type.

    Raises:
        UnknownNameError: an unknown family, parameter or NaN policy.
        MissingDataError: missing parameters.
        ArgumentError: parameters outside their domain (a scale of 0 is), arrays that do not
            fit each other, a family whose density has no closed form.
    """
    cls = family_of(family)
    formula = cls.formula("log_score")
    arguments = _in_order(cls, parameters)
    return formula(*arguments, y, check=check, dim=dim, weights=weights, nan=nan)


def twcrps(
    family: str,
    parameters: Mapping[str, Any],
    y: Any,
    *,
    lower: Any = -math.inf,
    upper: Any = math.inf,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the threshold-weighted CRPS of distributions of a family, in closed form.

    The integral of (F(z) - 1{y <= z})^2 over z from `lower` to `upper` (Gneiting and Ranjan 2011,
    doi:10.1198/jbes.2010.08110). It is the CRPS of the distribution censored at both thresholds,
    against the observation clipped to them (Allen, Ginsbourger and Ziegel 2023,
    doi:10.1137/22M1532184). There are closed forms for the normal, logistic and Student's t (with
    more than 1 degree of freedom), for these censored or truncated, and for the gamma, the shifted
    gamma and the extreme value distributions.

    Args:
        family: one of `FAMILIES` that has the closed form.
        parameters: arrays or numbers by name; omitted bounds are infinite.
        y: observations, in the unit of the parameters.
        lower: lower thresholds in the unit of `y`, numbers or arrays; -inf for none.
        upper: upper thresholds, likewise; inf for none.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to refuse invalid parameters, and thresholds in the wrong order.

    Returns:
        The scores, in the unit of `y`, as an array of the input's type. Tensors are
        differentiable for the normal and the logistic.

    Examples:
        >>> from ens10.metrics import twcrps
        >>> round(float(twcrps("logistic", {"mu": 280.0, "sigma": 1.0}, 281.0, lower=280.0)), 4)
        0.4334

    Raises:
        UnknownNameError: an unknown family, parameter or NaN policy.
        MissingDataError: missing parameters.
        ArgumentError: a family without the closed form; parameters outside their domain, or
            thresholds in the wrong order (on lazy arrays when computed).
    """
    cls = family_of(family)
    if not cls.has_twcrps():
        names = listing([name for name, one in FAMILIES.items() if one.has_twcrps()])
        reason = f"the threshold-weighted CRPS of {family} has no closed form here"
        raise ArgumentError("family", reason, f"Those of {names} have, or score its quantiles")
    score = _weighted_score("twcrps", "threshold-weighted CRPS", _twcrps_of_points, cls, units=True)
    values = _between_thresholds(score, cls, parameters, lower, upper, y, check)
    return mean_over(values, dim, weights, nan)


def conditional_log_score(
    family: str,
    parameters: Mapping[str, Any],
    y: Any,
    *,
    lower: Any = -math.inf,
    upper: Any = math.inf,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the conditional likelihood score of distributions of a family.

    -log(f(y) / P(A)) where y lies in A, the interval from `lower` to `upper`, both included, and 0
    elsewhere (Diks, Panchenko and van Dijk 2011, doi:10.1016/j.jeconom.2011.04.001). It compares
    the shape of the forecast inside A only, and is blind to the probability of A: report it with
    `censored_log_score` (Lerch et al. 2017, doi:10.1214/16-STS588).

    Args:
        family: one of `FAMILIES`.
        parameters: arrays or numbers by name; omitted bounds are infinite.
        y: observations, in the unit of the parameters.
        lower: lower ends of A in the unit of `y`, numbers or arrays; -inf for none.
        upper: upper ends, likewise; inf for none.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to refuse invalid parameters, and thresholds in the wrong order.

    Returns:
        The scores in nats, as an array of the input's type; tensors have no gradient.

    Examples:
        >>> from ens10.metrics import conditional_log_score
        >>> score = conditional_log_score("normal", {"mu": 0.0, "sigma": 1.0}, 1.0, lower=0.0)
        >>> round(float(score), 4)  # 0.5 + log(sqrt(2 pi)) - log(2)
        0.7258

    Raises:
        UnknownNameError: an unknown family, parameter or NaN policy.
        MissingDataError: missing parameters.
        ArgumentError: a family without a density; parameters outside their domain, or thresholds
            in the wrong order (on lazy arrays when computed).
    """
    cls = family_of(family)
    cls.formula("log_score")
    function = partial(_likelihood_of_points, censored=False)
    score = _weighted_score("conditional_log_score", "conditional likelihood score", function, cls)
    values = _between_thresholds(score, cls, parameters, lower, upper, y, check)
    return mean_over(values, dim, weights, nan)


def censored_log_score(
    family: str,
    parameters: Mapping[str, Any],
    y: Any,
    *,
    lower: Any = -math.inf,
    upper: Any = math.inf,
    dim: Over = None,
    weights: Any = None,
    nan: str = "propagate",
    check: bool = True,
) -> Any:
    """Return the censored likelihood score of distributions of a family.

    -log f(y) where y lies in A, the interval from `lower` to `upper`, both included, and
    -log(1 - P(A)) elsewhere (Diks, Panchenko and van Dijk 2011,
    doi:10.1016/j.jeconom.2011.04.001). It depends on the forecast inside A and on the probability
    of A, and is the log score if A is everything. For A above a high threshold it judges
    forecasts of extremes (Lerch et al. 2017, doi:10.1214/16-STS588).

    Args:
        family: one of `FAMILIES`.
        parameters: arrays or numbers by name; omitted bounds are infinite.
        y: observations, in the unit of the parameters.
        lower: lower ends of A in the unit of `y`, numbers or arrays; -inf for none.
        upper: upper ends, likewise; inf for none.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: weights of the mean.
        nan: "propagate" or "omit", in the mean.
        check: True to refuse invalid parameters, and thresholds in the wrong order.

    Returns:
        The scores in nats, as an array of the input's type; tensors have no gradient.

    Examples:
        >>> from ens10.metrics import censored_log_score
        >>> score = censored_log_score("normal", {"mu": 0.0, "sigma": 1.0}, -1.0, lower=0.0)
        >>> round(float(score), 4)  # -log(1/2)
        0.6931

    Raises:
        UnknownNameError: an unknown family, parameter or NaN policy.
        MissingDataError: missing parameters.
        ArgumentError: a family without a density; parameters outside their domain, or thresholds
            in the wrong order (on lazy arrays when computed).
    """
    cls = family_of(family)
    cls.formula("log_score")
    function = partial(_likelihood_of_points, censored=True)
    score = _weighted_score("censored_log_score", "censored likelihood score", function, cls)
    values = _between_thresholds(score, cls, parameters, lower, upper, y, check)
    return mean_over(values, dim, weights, nan)


def _weighted_score(
    name: str, long_name: str, function: Any, cls: type[ClosedForm], *, units: bool = False
) -> Score:
    domains = cls.formulas["cdf" if name == "twcrps" else "log_score"]
    kernel = partial(_on_points, function, cls, domains)
    return Score(name, long_name, kernel, kernel if name == "twcrps" else None, units)


def _between_thresholds(
    score: Score,
    cls: type[ClosedForm],
    parameters: Mapping[str, Any],
    lower: Any,
    upper: Any,
    y: Any,
    check: bool,
) -> Any:
    """Apply a score of a distribution, two thresholds and an observation to arrays."""
    upper = checked_thresholds(lower, upper, check)
    arrays = dict(zip(cls.parameters, _in_order(cls, parameters), strict=True))
    # a bounded family has parameters of the same names
    arrays |= {"lower threshold": lower, "upper threshold": upper, "y": y}
    unlike = [name for name, p in cls.parameters.items() if p.unit == "1"]
    check_alike(arrays, [name for name in arrays if name not in unlike])
    attrs = {"family": cls.kind}
    return apply(score, arrays, options={"check": check}, attrs=attrs, unlike=unlike)


def _on_points(
    function: Any, cls: type[ClosedForm], domains: Formula, *arrays: Any, check: bool
) -> Any:
    """Build the distribution of points, and return a function of it, y and thresholds."""
    ops, like = ops_of(*arrays), arrays[-1]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    wide = [ops.broadcast_to(ops.double_like(a, like), shape or (1,)) for a in arrays]
    *parameters, lower, upper, y = wide
    if check:
        domains.check(*(ops.detach(p) for p in parameters))
    build: Any = cls
    forecast = build(*parameters, positive=True)
    with np.errstate(all="ignore"):
        score = function(forecast, y, lower, upper)
    return ops.cast(score, like).reshape(shape)


def _twcrps_of_points(forecast: ClosedForm, y: Any, lower: Any, upper: Any) -> Any:
    return forecast.twcrps(y, lower, upper)


def _likelihood_of_points(
    forecast: ClosedForm, y: Any, lower: Any, upper: Any, *, censored: bool
) -> Any:
    inside = (y >= lower) & (y <= upper)
    density = forecast.log_score(y)
    below, above = forecast.cdf_below(lower), _above(forecast, upper)
    if censored:
        other = -np.log(below + above)
    else:
        # by the tail that is small, in which the difference does not cancel
        upto = forecast.cdf(upper) - below
        beyond = _above(forecast, lower) - above
        continuous = "cdf_below" not in forecast.formulas
        density = density + np.log(np.where((below > 0.5) & continuous, beyond, upto))
        other = np.zeros_like(y)
    missing = np.isnan(density + below + above)
    return np.where(missing, np.nan, np.where(inside, density, other))


def _above(forecast: Any, y: Any) -> Any:
    """Return P(Y > y); where the density is symmetric by the lower tail, which keeps digits."""
    if forecast.symmetric:
        return forecast.cdf(2 * forecast.mu - y)
    return forecast.above(y)


def pit(
    family: str,
    parameters: Mapping[str, Any],
    y: Any,
    *,
    seed: int | None = None,
    check: bool = True,
) -> Any:
    """Return the probability integral transform F(y), uniform for a calibrated forecast.

    Where F jumps at y (a bound of a censored distribution) it is drawn uniformly between P(Y < y)
    and P(Y <= y) (Czado et al. 2009, doi:10.1111/j.1541-0420.2009.01191.x); the draw of a point
    does not depend on chunks. `pit_interval` returns both ends instead. Continuous distributions
    with a scale of 0 have 0, 1/2 or 1.

    Args:
        family: one of `FAMILIES`.
        parameters: arrays or numbers by name; omitted bounds are infinite.
        y: observations, in the unit of the parameters.
        seed: seed of the draws, required for families with point masses and unused for others.
        check: True to refuse invalid parameters.

    Returns:
        Values in [0, 1], as an array of the input's type.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: missing parameters.
        ArgumentError: no seed where one is needed; parameters outside their domain.
    """
    cls = family_of(family)
    if "cdf_below" not in cls.formulas:
        return cls.formula("cdf")(*_in_order(cls, parameters), y, check=check)
    if seed is None:
        raise ArgumentError(
            "seed",
            f"{family} has point masses, at which the value is drawn",
            "Pass a whole number, or use pit_interval",
        )
    from ens10.metrics._point_random import draws

    below, upto = pit_interval(family, parameters, y, check=check)
    values = below + draws({"pit": upto}, {}, seed) * (upto - below)
    return values.assign_attrs(upto.attrs).rename(upto.name) if hasattr(values, "attrs") else values


def pit_interval(
    family: str, parameters: Mapping[str, Any], y: Any, *, check: bool = True
) -> tuple[Any, Any]:
    """Return P(Y < y) and P(Y <= y), which differ where the distribution has a point mass.

    Args:
        family: one of `FAMILIES`.
        parameters: arrays or numbers by name; omitted bounds are infinite.
        y: observations, in the unit of the parameters.
        check: True to refuse invalid parameters.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: missing parameters.
        ArgumentError: parameters outside their domain.
    """
    cls = family_of(family)
    arguments = _in_order(cls, parameters)
    upto = cls.formula("cdf")(*arguments, y, check=check)
    if "cdf_below" not in cls.formulas:
        return upto, upto
    return cls.formula("cdf_below")(*arguments, y, check=check), upto


def mean(family: str, parameters: Mapping[str, Any], *, check: bool = True) -> Any:
    """Return the expectation of distributions of a family, in their unit.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: missing parameters.
        ArgumentError: a family without closed form of the mean; invalid parameters.
    """
    cls = family_of(family)
    return cls.formula("mean")(*_in_order(cls, parameters), check=check)


def variance(family: str, parameters: Mapping[str, Any], *, check: bool = True) -> Any:
    """Return the variance of distributions of a family, in their squared unit.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: missing parameters.
        ArgumentError: a family without closed form of the variance; invalid parameters.
    """
    cls = family_of(family)
    return cls.formula("variance")(*_in_order(cls, parameters), check=check)


def _in_order(family: type[ClosedForm], parameters: Mapping[str, Any]) -> list[Any]:
    """Return the parameters in the order of the family's formulas, with defaults.

    Raises:
        UnknownNameError: a parameter that the family does not have.
        MissingDataError: a missing parameter without a default.
    """
    names = family.parameters
    for name in parameters:
        if name not in names:
            raise UnknownNameError("parameters", name, names)
    missing = [k for k, p in names.items() if k not in parameters and p.default is None]
    if missing:
        raise MissingDataError(
            f"parameters of {family.kind}", missing, f"Pass a mapping with {', '.join(names)}"
        )
    return [parameters.get(k, p.default) for k, p in names.items()]
