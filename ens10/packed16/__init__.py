"""Chunks of fields that keep GRIB's 16-bit integers, and are float32 to every reader."""

from ens10.packed16.layout import Packed, encode, parse
from ens10.packed16.unpack import unpack

__all__ = ["Packed", "encode", "parse", "unpack"]
