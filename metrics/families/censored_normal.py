"""The normal distribution censored at one or two bounds."""

from functools import partial

from ens10.metrics.families import _normal_shape
from ens10.metrics.families._censored import censored, variance_normal

FAMILY = censored(
    "censored_normal", _normal_shape, variance=partial(variance_normal, _normal_shape)
)
