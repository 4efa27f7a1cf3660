"""What a family of distributions is to the rest of the package."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ens10.metrics.families._formula import Domain, Formula

Function = Callable[..., Any]
LOCATION_SCALE: Mapping[str, Domain] = {"mu": "real", "sigma": "nonnegative"}
BOUNDED: Mapping[str, Domain] = {**LOCATION_SCALE, "lower": "real", "upper": "real"}


@dataclass(frozen=True)
class Family:
    """A family of distributions.

    Args:
        name: as users write it.
        parameters: the domain of each parameter, in the order that the functions take them.
        crps: the CRPS; a `Formula`, or, like all the following, a function called like one.
        log_score: minus the logarithm of the density (of the probability on point masses); None
            where it has no closed form.
        cdf: P(Y <= y).
        cdf_below: P(Y < y), of families that have point masses; None for continuous ones.
        mean: of the parameters alone; None where it has no closed form.
        variance: likewise.
        defaults: values of parameters that need not be given.
    """

    name: str
    parameters: Mapping[str, Domain]
    crps: Function
    log_score: Function | None
    cdf: Function
    cdf_below: Function | None = None
    mean: Function | None = None
    variance: Function | None = None
    defaults: Mapping[str, float] = field(default_factory=dict)


# What a score is called and whether it has a unit; the rest is each family's own.
crps_formula = partial(Formula, "crps", "continuous ranked probability score")
log_score_formula = partial(Formula, "log_score", "logarithmic score", units=False)
cdf_formula = partial(Formula, "pit", "probability integral transform", units=False)
mean_formula = partial(Formula, "mean", "mean", of_y=False)
variance_formula = partial(Formula, "variance", "variance", of_y=False, units=False, squared=True)


def bounded_family(
    name: str,
    *,
    crps: tuple[Function, Function],
    log_score: tuple[Function, Function],
    cdf: Function,
    mean: Function,
    variance: Function,
    cdf_below: Function | None = None,
) -> Family:
    """A family of mu, sigma and two bounds, computed in float64.

    Args:
        name: of the family.
        crps: value and partials, as in `Formula`.
        log_score: likewise.
        cdf: P(Y <= y).
        mean: of the parameters.
        variance: of the parameters.
        cdf_below: P(Y < y), if there are point masses.
    """

    def made(formula: Callable[..., Formula], *functions: Function) -> Formula:
        return formula(BOUNDED, *functions, double=True, ascending=("lower", "upper"))

    positive: Mapping[str, Domain] = {**BOUNDED, "sigma": "positive"}
    return Family(
        name,
        BOUNDED,
        crps=made(crps_formula, *crps),
        log_score=log_score_formula(
            positive, *log_score, double=True, ascending=("lower", "upper")
        ),
        cdf=made(cdf_formula, cdf),
        cdf_below=None if cdf_below is None else made(cdf_formula, cdf_below),
        mean=made(mean_formula, mean),
        variance=made(variance_formula, variance),
        defaults={"lower": -float("inf"), "upper": float("inf")},
    )
