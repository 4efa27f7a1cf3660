"""Convert codes to float32, with the interpreter lock released.

The value of a code is defined in double precision. Where the decimal factor is 1 (as in ECMWF's
files) and the reference is a float32 number, single precision gives the same bits: code * scale is
exact, and the rounding of one sum of two float32 numbers through double precision is innocuous,
since 53 >= 2 * 24 + 2 (Figueroa, 1995, "When is double rounding innocuous?").
"""

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.packed16.layout import CONSTANT, FLOAT, MISSING
from ens10.past_caches import LINE, MIN_POINTS, finish, points_before_line, write_line

_TINY = float(np.finfo(np.float32).tiny)
_HUGE = float(np.finfo(np.float32).max)
_BLOCK = 512  # values that are computed in the nearest cache, before they are written past it


@numba.njit(**OPTIONS)
def unpack_single(codes, scale, reference, out):  # type: ignore[no-untyped-def]
    """Write values without gaps for which `fits_single`, in single precision."""
    for i in range(out.size):
        out[i] = np.float32(codes[i]) * scale + reference


@numba.njit(**OPTIONS)
def _single_past_caches(codes, scale, reference, out):  # type: ignore[no-untyped-def]
    block, first = np.empty(_BLOCK, np.float32), points_before_line(out)
    last = first + (out.size - first) // _BLOCK * _BLOCK
    unpack_single(codes[:first], scale, reference, out[:first])
    for begin in range(first, last, _BLOCK):
        part = codes[begin : begin + _BLOCK]
        for k in range(_BLOCK):  # written here, since a call takes as long as the block
            block[k] = np.float32(part[k]) * scale + reference
        for k in range(0, _BLOCK, LINE):
            write_line(block, k, out, begin + k)
    unpack_single(codes[last:], scale, reference, out[last:])
    finish()


@numba.njit(**OPTIONS)
def _single_with_gaps(codes, gap, scale, reference, out):  # type: ignore[no-untyped-def]
    missing = np.float32(np.nan)
    for i in range(out.size):
        value = np.float32(codes[i]) * scale + reference
        out[i] = missing if codes[i] == gap else value


@numba.njit(**OPTIONS)
def unpack_double(codes, gap, scale, reference, decimal, out):  # type: ignore[no-untyped-def]
    """Write values in double precision, NaN where the code is `gap`."""
    missing = np.float32(np.nan)
    for i in range(out.size):
        value = np.float32((np.float64(codes[i]) * scale + reference) * decimal)
        out[i] = missing if codes[i] == gap else value


def unpack(
    record: Any,
    values: npt.NDArray[np.uint8],
    out: npt.NDArray[np.float32],
    *,
    read_soon: bool = True,
) -> None:
    """Write the values of a field, or of a part of it, as float32.

    Args:
        record: of the field, from `ens10.packed16.parse`.
        values: the bytes of the part's values, aligned to their size; ignored if the field is
            missing or constant.
        out: shape (points,), contiguous.
        read_soon: False to write a large field past the processor's caches.
    """
    kind, scale, reference, decimal, gap = (
        record[name].item() for name in ("kind", "scale", "reference", "decimal", "gap")
    )
    if kind == MISSING:
        out.fill(np.nan)
    elif kind == CONSTANT:
        with np.errstate(over="ignore"):  # damaged constants beyond float32 become infinite
            out.fill(np.float32(reference * decimal))
    elif kind == FLOAT:
        np.copyto(out, values.view("<f4"))
    elif fits_single(scale, reference, decimal):
        single = (np.float32(scale), np.float32(reference))
        if gap < 0 and (read_soon or out.size < MIN_POINTS):
            unpack_single(values.view(np.uint16), *single, out)
        elif gap < 0:
            _single_past_caches(values.view(np.uint16), *single, out)
        else:
            _single_with_gaps(values.view(np.uint16), np.uint16(gap), *single, out)
    else:  # no code equals a gap of -1
        unpack_double(values.view(np.uint16), gap, scale, reference, decimal, out)


def fits_single(scale: float, reference: float, decimal: float) -> bool:
    """Return True if single and double precision give the same bits; the module says why."""
    if decimal != 1.0 or not _TINY <= scale <= _HUGE / 131072.0 or abs(reference) > _HUGE / 2:
        return False
    return float(np.float32(reference)) == reference and math.frexp(scale)[0] == 0.5
