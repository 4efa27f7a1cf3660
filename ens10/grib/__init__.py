"""Index, decode and encode GRIB messages, editions 1 and 2, on regular latitude-longitude grids."""

from ens10.grib.codec import MAX_MEMBERS, Encoder, decode
from ens10.grib.grid import LatLonGrid
from ens10.grib.index import is_grib, scan, survey
from ens10.grib.message import Meaning, Message, MessageList
from ens10.grib.packing import pack, to_float32, unpack

__all__ = [
    "MAX_MEMBERS", "Encoder", "LatLonGrid", "Meaning", "Message", "MessageList", "decode",
    "is_grib", "pack", "scan", "survey", "to_float32", "unpack",
]  # fmt: skip
