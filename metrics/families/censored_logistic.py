"""The logistic distribution censored at one or two bounds."""

from ens10.metrics.families import _logistic_shape
from ens10.metrics.families._censored import censored
from ens10.metrics.families._logistic_moments import variance_censored

FAMILY = censored("censored_logistic", _logistic_shape, variance=variance_censored)
