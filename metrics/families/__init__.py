"""Distributions in closed form: CRPS, cdf and log score, with gradients written out.

`crps`, `log_score`, `pit`, `pit_interval`, `mean` and `variance` take the name of a family, a
mapping of its parameters and, but for the moments, the observation; `FAMILIES` maps names to
families, whose `parameters` names what they need.

To add a family:

1. Write a module here with its name, such as `student_t.py`. Its functions take (ops, *parameters,
   y), arrays of one shape and dtype, and are written on `Ops` alone (numpy and scipy, or torch);
   what is missing there is added to both. `partials` gives the derivatives by each parameter and
   by y, finite at every valid parameter.
2. Make `Formula`s of them with `crps_formula`, `log_score_formula`, `cdf_formula`,
   `mean_formula` and `variance_formula` (moments have neither y nor partials), and of those
   `FAMILY = Family("student_t", parameters, ...)`. Options of `Formula`: `double` for what
   cancels in float32, `on_host` for functions that torch lacks, `ascending` for bounds,
   `unitless` for shapes.
3. Add its name to `_NAMES` in `registry.py`, and to `NAMES` in tests/metrics/test_families.py,
   which holds it to integrals, gradients and the four libraries.

`logistic.py` is the shortest one; the bounded ones are made by `truncated` and `censored` of what
`_shapes.Shape` asks of a standard distribution.
"""

from ens10.metrics.families._family import Family
from ens10.metrics.families.registry import (
    FAMILIES,
    crps,
    log_score,
    mean,
    pit,
    pit_interval,
    variance,
)

__all__ = ["FAMILIES", "Family", "crps", "log_score", "mean", "pit", "pit_interval", "variance"]
