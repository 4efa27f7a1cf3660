"""Ensemble mean and deviation, ranges and sums over dates, from the bytes of a chunk.

The kernels read a packed16 chunk as it will be stored: their results are those of every reader.
They release the interpreter lock.
"""

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from ens10.compiled import OPTIONS
from ens10.packed16.layout import CONSTANT, FLOAT, MISSING, PACKED, parse
from ens10.packed16.unpack import fits_single, unpack_double, unpack_single

_BLOCK = 2048  # points at a time: ten members of them stay in the processor's cache
_PACKED_SINGLE = 4  # a kind of the kernels: packed, and single precision gives the same bits


def ensemble_moments(
    members: npt.NDArray[np.float32], axis: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return mean and standard deviation (n - 1) over members, NaN where any member is NaN.

    A single member has deviation 0.
    """
    wide = members.astype(np.float64)
    # bit for bit numpy's mean and std, whose checks take longer than a small field
    count = members.shape[axis]
    mean = wide.sum(axis=axis, keepdims=True) / count
    wide -= mean
    variance = np.multiply(wide, wide, out=wide).sum(axis=axis) / max(count - 1, 1)
    return mean.squeeze(axis).astype(np.float32), np.sqrt(variance).astype(np.float32)


@dataclass(frozen=True)
class Range:
    """Minimum and maximum of one field (NaN if it has no values), and number of gaps."""

    minimum: float
    maximum: float
    gaps: int


class Chunk:
    """The fields of an encoded packed16 chunk.

    Args:
        data: the chunk's bytes.
        fields: number of fields.
        rows: rows of a field.
        columns: columns of a field.
    """

    def __init__(self, data: bytearray, fields: int, rows: int, columns: int) -> None:
        self.points = rows * columns
        raw_bytes = np.frombuffer(data, np.uint8)
        self.records = parse(memoryview(data), fields, rows, columns, raw_bytes.size)
        size = raw_bytes.size // 8 * 8
        self._codes, self._floats = raw_bytes[:size].view("<u2"), raw_bytes[:size].view("<f4")
        numbers = [self.records[name].astype(np.float64) for name in _NUMBERS]
        self._numbers = np.stack(numbers, axis=1)
        self._begins = self.records["offset"].astype(np.int64)
        self._gaps = self.records["gap"].astype(np.int64)
        self._kinds = self.records["kind"].astype(np.int64)
        for n in np.flatnonzero(self._kinds == PACKED):
            if self._gaps[n] < 0 and fits_single(*self._numbers[n].tolist()):
                self._kinds[n] = _PACKED_SINGLE

    def ranges(self) -> list[Range]:
        """Return the range of each field."""
        return [self._range(n) for n in range(len(self.records))]

    def _range(self, n: int) -> Range:
        scale, reference, decimal = self._numbers[n].tolist()
        if self._kinds[n] == MISSING:
            return Range(np.nan, np.nan, self.points)
        if self._kinds[n] == CONSTANT:
            value = float(np.float32(reference * decimal))
            return Range(value, value, 0)
        if self._kinds[n] == FLOAT:
            first = self._begins[n] // 4
            return Range(*_float_range(self._floats[first : first + self.points]))
        first = self._begins[n] // 2
        low, high, gaps = _code_range(self._codes[first : first + self.points], self._gaps[n])
        if gaps == self.points:
            return Range(np.nan, np.nan, self.points)
        ends = [float(np.float32((code * scale + reference) * decimal)) for code in (low, high)]
        return Range(min(ends), max(ends), gaps)

    @staticmethod
    def of_floats(values: npt.NDArray[np.float32]) -> Range:
        """Return the range of a field of plain numbers."""
        return Range(*_float_range(values.reshape(-1)))

    def moments(
        self, mean: npt.NDArray[np.float32], spread: npt.NDArray[np.float32], members: int
    ) -> None:
        """Write mean and deviation of the first members, bit for bit as `ensemble_moments`.

        Args:
            mean: shape (points,).
            spread: shape (points,).
            members: number of first fields to use.
        """
        field_records = (self._kinds, self._begins, self._gaps, self._numbers)
        _moments(self._codes, self._floats, *field_records, members, self.points, mean, spread)


_NUMBERS = ("scale", "reference", "decimal")


@numba.njit(**OPTIONS)
def _code_range(codes, gap):  # type: ignore[no-untyped-def]
    low, high, gaps = np.uint16(65535), np.uint16(0), 0
    if gap < 0:
        for i in range(codes.size):
            low, high = min(low, codes[i]), max(high, codes[i])
        return int(low), int(high), 0
    for i in range(codes.size):
        if codes[i] == gap:
            gaps += 1
        else:
            low, high = min(low, codes[i]), max(high, codes[i])
    return int(low), int(high), gaps


@numba.njit(**OPTIONS)
def _float_range(values):  # type: ignore[no-untyped-def]
    low, high, gaps = np.float32(np.inf), np.float32(-np.inf), 0
    for i in range(values.size):
        if np.isnan(values[i]):
            gaps += 1
        else:
            low, high = min(low, values[i]), max(high, values[i])
    if gaps == values.size:
        return np.nan, np.nan, gaps
    return float(low), float(high), gaps


@numba.njit(**OPTIONS)
def _moments(  # type: ignore[no-untyped-def]
    codes, floats, kinds, begins, gaps, numbers, members, points, mean, spread
):
    values = np.empty((members, _BLOCK), np.float32)
    total, square = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, points, _BLOCK):
        size = min(_BLOCK, points - start)
        total[:size] = 0.0
        square[:size] = 0.0
        for m in range(members):
            block = values[m, :size]
            _unpack(codes, floats, kinds[m], begins[m], gaps[m], numbers[m], start, block)
            _add(block, total[:size])
        for i in range(size):
            total[i] /= members
        for m in range(members):
            _add_square(values[m, :size], total[:size], square[:size])
        for i in range(size):
            mean[start + i] = total[i]
            spread[start + i] = np.sqrt(square[i] / max(members - 1, 1))


# Slices of one dimension let the compiler use vector instructions.
@numba.njit(**OPTIONS)
def _add(values, total):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        total[i] += np.float64(values[i])


@numba.njit(**OPTIONS)
def _add_square(values, mean, square):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        deviation = np.float64(values[i]) - mean[i]
        square[i] += deviation * deviation


@numba.njit(**OPTIONS)
def _unpack(codes, floats, kind, begin, gap, numbers, start, out):  # type: ignore[no-untyped-def]
    scale, reference, decimal = numbers
    part = codes[begin // 2 + start : begin // 2 + start + out.size]
    if kind == _PACKED_SINGLE:
        unpack_single(part, np.float32(scale), np.float32(reference), out)
    elif kind == PACKED:
        unpack_double(part, gap, scale, reference, decimal, out)
    elif kind == FLOAT:
        out[:] = floats[begin // 4 + start : begin // 4 + start + out.size]
    else:
        out[:] = np.float32(np.nan) if kind == MISSING else np.float32(reference * decimal)


@numba.njit(**OPTIONS)
def add_date(values, count, total, square):  # type: ignore[no-untyped-def]
    """Add one date's values to count, sum and sum of squares, all flat; NaN is skipped."""
    for i in range(values.size):
        if np.isfinite(values[i]):
            value = np.float64(values[i])
            count[i] += 1
            total[i] += value
            square[i] += value * value
