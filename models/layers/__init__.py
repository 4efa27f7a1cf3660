"""Layers for fields on a regular latitude-longitude grid."""

from ens10.models.layers.padding import SameConv2d, upsample_twice

__all__ = ["SameConv2d", "upsample_twice"]
