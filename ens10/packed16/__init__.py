"""Chunks of fields that are stored as GRIB's 16-bit integers and read as float32."""

from ens10.packed16.layout import Packed, encode, parse
from ens10.packed16.unpack import unpack

__all__ = ["Packed", "encode", "parse", "unpack"]
