"""The 16-bit codes of a field with gaps, spread over its points as the message's bitmap says."""

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS

_CODES = 65536


def spread(
    bitmap: npt.NDArray[np.uint8], data: npt.NDArray[np.uint8], points: int
) -> tuple[npt.NDArray[np.uint16], int | None] | None:
    """Codes of all points of a field.

    Args:
        bitmap: a bit for each point, 1 where it has a value, the highest bit of an octet first.
        data: two octets for each value, the higher first.
        points: of the field.

    Returns:
        Codes, shape (points,), in the message's order; and the highest code that no value has,
        which stands for the gaps, or None if there are no gaps. None if all codes are in use, or
        if there are not as many values as the bitmap says.
    """
    if 8 * bitmap.size < points:
        return None
    codes = np.empty(points, np.uint16)
    values = data.size // 2
    gap = _spread(bitmap, data, values, codes)
    if gap < 0:
        return None
    return codes, gap if values < points else None


@numba.njit(**OPTIONS)
def _spread(bitmap, data, values, out):  # type: ignore[no-untyped-def]
    used = np.zeros(_CODES, np.bool_)
    for n in range(values):
        used[np.uint16(data[2 * n]) << 8 | data[2 * n + 1]] = True
    gap = _CODES - 1
    while gap >= 0 and used[gap]:
        gap -= 1
    if gap < 0 and values < out.size:
        return -1
    n = 0
    for i in range(out.size):
        if bitmap[i >> 3] & (128 >> (i & 7)):
            if n == values:
                return -1
            out[i] = np.uint16(data[2 * n]) << 8 | data[2 * n + 1]
            n += 1
        else:
            out[i] = gap
    return max(gap, 0) if n == values else -1
