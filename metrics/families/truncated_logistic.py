"""The logistic distribution truncated to an interval."""

from ens10.metrics.families import _logistic_shape
from ens10.metrics.families._logistic_moments import variance_truncated
from ens10.metrics.families._truncated import truncated

FAMILY = truncated("truncated_logistic", _logistic_shape, variance=variance_truncated)
