"""CRPS, log score, PIT and moments of a family of distributions that is chosen by name.

`crps`, `log_score`, `pit`, `pit_interval`, `mean` and `variance` take the name of a family, a
mapping of its parameters and (except the moments) the observation. `FAMILIES` maps names to the
classes of `ens10.metrics.distributions`, whose `parameters` lists the parameters.
"""

from collections.abc import Mapping
from typing import Any

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.metrics._reduce import Over
from ens10.metrics.distributions.base import ClosedForm
from ens10.metrics.distributions.registry import FAMILIES

__all__ = ["FAMILIES", "crps", "log_score", "mean", "pit", "pit_interval", "variance"]


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
    """Return the expectation of distributions of a family, in their unit; no gradient.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: missing parameters.
        ArgumentError: a family without closed form of the mean; invalid parameters.
    """
    cls = family_of(family)
    return cls.formula("mean")(*_in_order(cls, parameters), check=check)


def variance(family: str, parameters: Mapping[str, Any], *, check: bool = True) -> Any:
    """Return the variance of distributions of a family, in their squared unit; no gradient.

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
