"""The signature of a netCDF file, and whether it has the length that its header implies.

The netCDF library reads the missing end of a truncated file of the classic formats as zeros, so the
file size is compared with the header first (NetCDF Classic Format Specification, CDF-1, 2 and 5;
HDF5 File Format Specification, superblock).
"""

import io
from math import prod
from pathlib import Path
from typing import BinaryIO

from ens10.errors import DamagedFileError

_HDF5 = b"\x89HDF\r\n\x1a\n"
_CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
SIGNATURES = (_HDF5[:4], *_CLASSIC)  # the first four bytes
_TYPE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}  # bytes
_UNKNOWN_RECORDS = (2**32 - 1, 2**64 - 1)  # record count of a file that was not closed


def check_length(path: Path) -> None:
    """Refuse a truncated netCDF file; files of other formats pass.

    Raises:
        DamagedFileError: bytes are missing at the end, or the header is truncated or invalid.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            expected = _expected_size(file)
        except (EOFError, KeyError, IndexError) as error:
            reason = f"the netCDF header makes no sense ({error})"
            raise DamagedFileError(path, min(file.tell(), size), reason) from error
    if expected is not None and size < expected:
        raise DamagedFileError(path, size, f"the netCDF file lacks {expected - size} bytes")


def _expected_size(file: BinaryIO) -> int | None:
    """Return the size in bytes that the header implies; None for formats that do not store it."""
    magic = file.read(8)
    if magic == _HDF5:
        return _end_of_hdf5(file)
    if magic[:4] not in _CLASSIC:
        return None
    file.seek(4)
    return _end_of_classic(_Header(file, magic[3]))


def _end_of_hdf5(file: BinaryIO) -> int | None:
    head = _read_exactly(file, 8)  # from byte 8 on: the version of the superblock first
    version = head[0]
    if version > 3:
        return None
    width = head[5] if version < 2 else head[1]
    addresses = {0: 24, 1: 28}.get(version, 12)
    file.seek(addresses + 2 * width)  # after base address, and free space or extension
    return int.from_bytes(_read_exactly(file, width), "little")


class _Header:
    """Reader of the header of a classic netCDF file.

    Args:
        file: positioned after the magic number.
        version: 1, 2 or 5.
    """

    def __init__(self, file: BinaryIO, version: int) -> None:
        self._file = file
        self._count_width = 8 if version == 5 else 4
        self.address_width = 4 if version == 1 else 8

    def read_number(self, width: int = 0) -> int:
        """Read a big-endian number of `width` bytes, by default of the 4 or 8 of a count."""
        return int.from_bytes(_read_exactly(self._file, width or self._count_width), "big")

    def skip_padded(self, size: int) -> None:
        """Skip `size` bytes and their padding to a multiple of four."""
        self._file.seek(-(-size // 4) * 4, io.SEEK_CUR)

    def skip_name(self) -> None:
        """Skip a name."""
        self.skip_padded(self.read_number())

    def read_count(self) -> int:
        """Skip the tag of a list of the header, and return the list's length."""
        self.read_number(4)  # its tag
        return self.read_number()

    def skip_attributes(self) -> None:
        """Skip a list of attributes."""
        for _ in range(self.read_count()):
            self.skip_name()
            size = _TYPE_SIZES[self.read_number(4)]
            self.skip_padded(size * self.read_number())


def _end_of_classic(header: _Header) -> int | None:
    records = header.read_number()
    if records in _UNKNOWN_RECORDS:
        return None
    dimensions = []
    for _ in range(header.read_count()):
        header.skip_name()
        dimensions.append(header.read_number())
    header.skip_attributes()
    variables = [_read_variable(header, dimensions) for _ in range(header.read_count())]
    steps = [size for _, size, is_record in variables if is_record]
    record = steps[0] if len(steps) == 1 else sum(-(-size // 4) * 4 for size in steps)
    later = (records - 1) * record  # bytes from the first to the last record
    ends = [
        begin + size + later * is_record
        for begin, size, is_record in variables
        if records or not is_record
    ]
    return max(ends, default=0)


def _read_variable(header: _Header, dimensions: list[int]) -> tuple[int, int, bool]:
    """Return the first byte of a variable, its size (of one record), and if it has records."""
    header.skip_name()
    sizes = [dimensions[header.read_number()] for _ in range(header.read_number())]
    header.skip_attributes()
    item = _TYPE_SIZES[header.read_number(4)]
    header.read_number()  # its size, which large variables cannot tell
    by_record = bool(sizes) and sizes[0] == 0
    return header.read_number(header.address_width), item * prod(sizes[by_record:]), by_record


def _read_exactly(file: BinaryIO, size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise EOFError(f"it ends at byte {file.tell()}")
    return content
