"""The normal distribution truncated to an interval (Thorarinsdottir & Gneiting 2010)."""

from ens10.metrics.families import _normal_shape
from ens10.metrics.families._truncated import truncated

FAMILY = truncated("truncated_normal", _normal_shape, has_variance=True)
