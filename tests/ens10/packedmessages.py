"""GRIB messages of every packing for the tests, made by ecCodes or octet by octet."""

from collections.abc import Mapping

import eccodes
import numpy as np
import numpy.typing as npt

SHAPE = (5, 8)


def message(
    values: npt.NDArray[np.float64], edition: int = 1, keys: Mapping[str, int | str | float] = {}
) -> bytes:
    """A message of shape `SHAPE`, north to south, with other keys set."""
    handle = eccodes.codes_grib_new_from_samples(f"regular_ll_sfc_grib{edition}")
    grid = {
        "Ni": SHAPE[1],
        "Nj": SHAPE[0],
        "latitudeOfFirstGridPointInDegrees": 60.0,
        "latitudeOfLastGridPointInDegrees": 40.0,
        "longitudeOfFirstGridPointInDegrees": 0.0,
        "longitudeOfLastGridPointInDegrees": 315.0,
        "iDirectionIncrementInDegrees": 45.0,
        "jDirectionIncrementInDegrees": 5.0,
        "centre": "ecmf",
        "paramId": 167,
        "dataDate": 20170101,
        "bitsPerValue": 16,
    }
    gaps = np.isnan(values)
    mask = {"bitmapPresent": 1, "missingValue": 1e30} if gaps.any() else {}
    wanted = {**grid, **keys, **mask}
    packing = wanted.pop("packingType", None)
    for key, value in wanted.items():
        eccodes.codes_set(handle, key, value)
    eccodes.codes_set_values(handle, np.where(gaps, 1e30, values).ravel())
    if packing:  # ecCodes packs again; some packings cannot be set before there are values
        eccodes.codes_set(handle, "packingType", packing)
    made = bytes(eccodes.codes_get_message(handle))
    eccodes.codes_release(handle)
    return made


def scanned(mode: int) -> dict[str, int | float]:
    """The keys of a scan mode: 128 from east to west, 64 from south to north, 32 by column."""
    west, south = mode & 128, mode & 64
    return {
        "iScansNegatively": int(west > 0),
        "jScansPositively": int(south > 0),
        "jPointsAreConsecutive": int(mode & 32 > 0),
        "latitudeOfFirstGridPointInDegrees": 40.0 if south else 60.0,
        "latitudeOfLastGridPointInDegrees": 60.0 if south else 40.0,
        "longitudeOfFirstGridPointInDegrees": 315.0 if west else 0.0,
        "longitudeOfLastGridPointInDegrees": 0.0 if west else 315.0,
    }


def simple(
    codes: npt.NDArray[np.uint16],
    reference: int,
    binary: int,
    decimal: int,
    edition: int,
    mode: int,
    gaps: npt.NDArray[np.bool_] | None = None,
) -> bytes:
    """16-bit simple packing with the given octets: reference as 32 bits, and scale factors.

    `codes` are those of the points that are no gaps; both are in the order of the scan mode.
    """
    values = np.where(np.zeros(40, bool) if gaps is None else gaps, np.nan, np.arange(40.0))
    raw = bytearray(message(values.reshape(SHAPE), edition, scanned(mode)))
    big = codes.astype(">u2").tobytes()
    signed = [(abs(n) | (0x8000 if n < 0 else 0)).to_bytes(2, "big") for n in (binary, decimal)]
    if edition == 1:
        grid = 8 + int.from_bytes(raw[8:11], "big")
        data = grid + int.from_bytes(raw[grid : grid + 3], "big")
        if raw[15] & 64:
            data += int.from_bytes(raw[data : data + 3], "big")
        raw[34:36] = signed[1]
        raw[data + 4 : data + 10] = signed[0] + reference.to_bytes(4, "big")
        place = data + 11
    else:
        starts, start = {}, 16
        while start < len(raw) - 4:
            starts[raw[start + 4]] = start
            start += int.from_bytes(raw[start : start + 4], "big")
        packing = starts[5] + 11
        raw[packing : packing + 8] = reference.to_bytes(4, "big") + b"".join(signed)
        place = starts[7] + 5
    raw[place : place + len(big)] = big
    return bytes(raw)


def eccodes_values(raw: bytes) -> npt.NDArray[np.float64]:
    """What ecCodes reads, in the message's own order, NaN where missing."""
    handle = eccodes.codes_new_from_message(raw)
    eccodes.codes_set(handle, "missingValue", 1e300)
    values = eccodes.codes_get_values(handle)
    eccodes.codes_release(handle)
    return np.where(values == 1e300, np.nan, values)
