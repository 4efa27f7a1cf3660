"""Index, decode and encode GRIB messages, editions 1 and 2, on regular latitude-longitude grids."""

from ens10.grib.codec import Encoder, decode
from ens10.grib.grid import LatLonGrid
from ens10.grib.index import is_grib, scan
from ens10.grib.message import Message

__all__ = ["Encoder", "LatLonGrid", "Message", "decode", "is_grib", "scan"]
