"""The logistic distribution truncated to an interval; its variance needs a dilogarithm."""

from ens10.metrics.families import _logistic_shape
from ens10.metrics.families._truncated import truncated

FAMILY = truncated("truncated_logistic", _logistic_shape, has_variance=False)
