"""The logistic distribution censored at one or two bounds; its variance needs a dilogarithm."""

from ens10.metrics.families import _logistic_shape
from ens10.metrics.families._censored import censored

FAMILY = censored("censored_logistic", _logistic_shape)
