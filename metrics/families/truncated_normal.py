"""The normal distribution truncated to an interval."""

from functools import partial

from ens10.metrics.families import _normal_shape
from ens10.metrics.families._truncated import truncated, variance_normal

FAMILY = truncated(
    "truncated_normal", _normal_shape, variance=partial(variance_normal, _normal_shape)
)
