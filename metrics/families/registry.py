"""The families by name, and what can be asked of each of them in the same way."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.metrics._reduce import Over
from ens10.metrics.families._family import Family, Function

# A family is the FAMILY of a module of its own, which is imported when it is asked for.
_NAMES = (
    "normal",
    "truncated_normal",
    "censored_normal",
    "logistic",
    "truncated_logistic",
    "censored_logistic",
    "lognormal",
    "gamma",
    "csgd",
    "gev",
    "student_t",
)


class _Families(Mapping[str, Family]):
    """Name to family; a family's module is imported when it is looked up."""

    def __getitem__(self, name: str) -> Family:
        if name not in _NAMES:
            raise KeyError(name)
        found: Family = import_module(f"ens10.metrics.families.{name}").FAMILY
        return found

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


FAMILIES: Mapping[str, Family] = _Families()


def family_of(name: str) -> Family:
    """The family of a name.

    Raises:
        UnknownNameError: there is none.
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
        The scores, in the unit of `y`, as the kind of array that was given.

    Raises:
        UnknownNameError: an unknown family, parameter or NaN policy.
        MissingDataError: parameters that are not given.
        ArgumentError: parameters outside their domain (on lazy arrays when computed), arrays
            that do not fit each other.
    """
    found = family_of(family)
    return found.crps(
        *_ordered(found, parameters),
        y,
        check=check,
        dim=dim,
        weights=weights,
        nan=nan,
        attrs={"family": family},
    )


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
        The scores in nats, as the kind of array that was given.

    Raises:
        UnknownNameError: an unknown family, parameter or NaN policy.
        MissingDataError: parameters that are not given.
        ArgumentError: parameters outside their domain (a scale of 0 is), arrays that do not
            fit each other, a family whose density has no closed form.
    """
    found = family_of(family)
    if found.log_score is None:
        raise ArgumentError("family", f"the density of {family} is not in closed form here")
    return found.log_score(
        *_ordered(found, parameters),
        y,
        check=check,
        dim=dim,
        weights=weights,
        nan=nan,
        attrs={"family": family},
    )


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
        Values in [0, 1], as the kind of array that was given.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: parameters that are not given.
        ArgumentError: no seed where one is needed; parameters outside their domain.
    """
    found = family_of(family)
    if found.cdf_below is None:
        arguments = _ordered(found, parameters)
        return found.cdf(*arguments, y, check=check, attrs={"family": family})
    if seed is None:
        raise ArgumentError(
            "seed",
            f"{family} has point masses, at which the value is drawn",
            "Give a whole number, or take pit_interval",
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
    found = family_of(family)
    arguments = _ordered(found, parameters)
    attrs = {"family": family}
    upto = found.cdf(*arguments, y, check=check, attrs=attrs)
    if found.cdf_below is None:
        return upto, upto
    return found.cdf_below(*arguments, y, check=check, attrs=attrs), upto


def mean(family: str, parameters: Mapping[str, Any], *, check: bool = True) -> Any:
    """Expectation of distributions of a family, in their unit; no gradient.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: parameters that are not given.
        ArgumentError: the family has none in closed form; parameters outside their domain.
    """
    found = family_of(family)
    return _moment(found, found.mean, "mean", parameters, check)


def variance(family: str, parameters: Mapping[str, Any], *, check: bool = True) -> Any:
    """Variance of distributions of a family, in the square of their unit; no gradient.

    Raises:
        UnknownNameError: an unknown family or parameter.
        MissingDataError: parameters that are not given.
        ArgumentError: the family has none in closed form; parameters outside their domain.
    """
    found = family_of(family)
    return _moment(found, found.variance, "variance", parameters, check)


def _moment(
    family: Family, formula: Function | None, name: str, parameters: Mapping[str, Any], check: bool
) -> Any:
    if formula is None:
        raise ArgumentError("family", f"the {name} of {family.name} is not in closed form here")
    return formula(*_ordered(family, parameters), check=check, attrs={"family": family.name})


def _ordered(family: Family, parameters: Mapping[str, Any]) -> list[Any]:
    """The parameters in the order of the family's formulas, defaults filled in.

    Raises:
        UnknownNameError: one that the family has not.
        MissingDataError: one that is not given.
    """
    known = family.parameters
    for name in parameters:
        if name not in known:
            raise UnknownNameError("parameters", name, known)
    missing = [name for name in known if name not in parameters and name not in family.defaults]
    if missing:
        raise MissingDataError(
            f"parameters of {family.name}", missing, f"Give a mapping with {', '.join(known)}"
        )
    return [parameters[k] if k in parameters else family.defaults[k] for k in known]
