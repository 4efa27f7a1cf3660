"""Families of distributions by name: CRPS, log score, PIT and moments of arrays of any library.

`crps`, `log_score`, `pit`, `pit_interval`, `mean` and `variance` take the name of a family, a
mapping of its parameters and, but for the moments, the observation. `FAMILIES` maps names to the
classes of `ens10.metrics.distributions`, whose `parameters` names what they need.
"""

from collections.abc import Mapping
from typing import Any

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.metrics._reduce import Over
from ens10.metrics.distributions.base import ClosedForm
from ens10.metrics.distributions.registry import FAMILIES

__all__ = ["FAMILIES", "crps", "log_score", "mean", "pit", "pit_interval", "variance"]


def family_of(name: str) -> type[ClosedForm]:
    """The class of a family.

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
    """CRPS of forecasts that are distributions of a family.

    The same as the family's own function, such as `crps_truncated_normal`.

    Args:
        family: one of `FAMILIES`, such as "normal".
        parameters: arrays or numbers by name, such as {"mu": mu, "sigma": sigma}; bounds that
            are left out are infinite. Arrays broadcast by position, DataArrays by name.
        y: observations, in the unit of the parameters.
        dim: dimensions of a weighted mean (numbers of axes, or names for DataArrays; "all");
            None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse parameters that define no distribution. A training loss whose head
            guarantees the domain passes False: looking waits for the device.

    Returns:
        The scores, in the unit of `y`, as an array of the input's type.

    Raises:
        UnknownNameError: an unknown family, parameter or NaN policy.
        MissingDataError: parameters that are not given.
        ArgumentError: parameters outside their domain (on lazy arrays when computed), arrays
            that do not fit each other.
    """
    cls = family_of(family)
    arguments = _ordered(cls, parameters)
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
    """Logarithmic score -log f(y) of forecasts that are distributions of a family.

    (Good 1952, doi:10.1111/j.2517-6161.1952.tb00104.x.) It is inf where y lies outside the
    support, with gradient 0. At a point mass, such as a bound of a censored distribution, f is
    the probability of that point; elsewhere a density in the inverse unit of y, so that a mean of
    both depends on the unit. Scales must be above 0.

    Args:
        family: one of `FAMILIES`.
        parameters: arrays or numbers by name; bounds that are left out are infinite.
        y: observations, in the unit of the parameters.
        dim: dimensions of a weighted mean; None for the scores of the points.
        weights: of the mean.
        nan: "propagate" or "omit", in the mean.
        check: refuse parameters that define no density.

    Returns:
        The scores in nats, as an array of the input's type.

    Raises:
        UnknownNameError: an unknown family, parameter or NaN policy.
        MissingDataError: parameters that are not given.
        ArgumentError: parameters outside their domain (a scale of 0 is), arrays that do not
            fit each other, a family whose density has no closed form.
    """
    cls = family_of(family)
    formula = cls.formula("log_score")
    arguments = _ordered(cls, parameters)
    return formula(*arguments, y, check=check, dim=dim, weights=weights, nan=nan)


def pit(
    family: str,
    parameters: Mapping[str, Any],
    y: Any,
    *,
    seed: int | None = None,
    check: bool = True,
) -> Any:
    """Probability integral transform F(y), uniform for a calibrated forecast.

    Where F jumps at y (a bound of a censored distribution) it is drawn between P(Y < y) and
    P(Y <= y), evenly (Czado et al. 2009, doi:10.1111/j.1541-0420.2009.01191.x); each point has a
    draw of its own, whatever the chunks. `pit_interval` gives both ends instead. Continuous
    distributions with a scale of 0 have 0, 1/2 or 1.

    Args:
        family: one of `FAMILIES`.
        parameters: arrays or numbers by name; bounds that are left out are infinite.
        y: observations, in the unit of the parameters.
        seed: of the draws, needed by the families with point masses; the others have none.
        check: refuse parameters that define no distribution.

    Returns:
        Values in [0, 1], as an array of the input's type.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: parameters that are not given.
        ArgumentError: no seed where one is needed; parameters outside their domain.
    """
    cls = family_of(family)
    if "cdf_below" not in cls.formulas:
        return cls.formula("cdf")(*_ordered(cls, parameters), y, check=check)
    if seed is None:
        raise ArgumentError(
            "seed",
            f"{family} has point masses, at which the value is drawn",
            "Pass a whole number, or use pit_interval",
        )
    from ens10.metrics._point_random import draws

    below, upto = pit_interval(family, parameters, y, check=check)
    drawn = below + draws({"pit": upto}, {}, seed) * (upto - below)
    return drawn.assign_attrs(upto.attrs).rename(upto.name) if hasattr(drawn, "attrs") else drawn


def pit_interval(
    family: str, parameters: Mapping[str, Any], y: Any, *, check: bool = True
) -> tuple[Any, Any]:
    """P(Y < y) and P(Y <= y), which differ where the distribution has a point mass.

    Args:
        family: one of `FAMILIES`.
        parameters: arrays or numbers by name; bounds that are left out are infinite.
        y: observations, in the unit of the parameters.
        check: refuse parameters that define no distribution.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: parameters that are not given.
        ArgumentError: parameters outside their domain.
    """
    cls = family_of(family)
    arguments = _ordered(cls, parameters)
    upto = cls.formula("cdf")(*arguments, y, check=check)
    if "cdf_below" not in cls.formulas:
        return upto, upto
    return cls.formula("cdf_below")(*arguments, y, check=check), upto


def mean(family: str, parameters: Mapping[str, Any], *, check: bool = True) -> Any:
    """Expectation of distributions of a family, in their unit; no gradient.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: parameters that are not given.
        ArgumentError: the family has none in closed form; parameters outside their domain.
    """
    cls = family_of(family)
    return cls.formula("mean")(*_ordered(cls, parameters), check=check)


def variance(family: str, parameters: Mapping[str, Any], *, check: bool = True) -> Any:
    """Variance of distributions of a family, in the square of their unit; no gradient.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: parameters that are not given.
        ArgumentError: the family has none in closed form; parameters outside their domain.
    """
    cls = family_of(family)
    return cls.formula("variance")(*_ordered(cls, parameters), check=check)


def _ordered(family: type[ClosedForm], parameters: Mapping[str, Any]) -> list[Any]:
    """The parameters in the order of the family's formulas, defaults filled in.

    Raises:
        UnknownNameError: one that the family does not have.
        MissingDataError: one without a default that is left out.
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
