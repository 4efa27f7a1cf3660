"""Whether a netCDF file is as long as its header says.

The netCDF library reads what lacks at the end of a file of the classic formats as zeros, without a
word. The header tells where each variable lies (NetCDF Classic Format Specification, CDF-1, 2 and
5); that of an HDF5 file tells where the file ends (HDF5 File Format Specification, superblock).
"""

import io
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

from ens10.errors import DamagedFileError

_HDF5 = b"\x89HDF\r\n\x1a\n"
_CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}  # of the types
_STREAMING = (2**32 - 1, 2**64 - 1)  # number of records of a file that was not closed


def check_length(path: Path) -> None:
    """Refuses a netCDF file that lacks its end; files of other formats pass.

    Raises:
        DamagedFileError: bytes lack at the end, or the header itself is cut short.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            wanted = _wanted(file)
        except (EOFError, KeyError, IndexError) as error:
            reason = f"the netCDF header makes no sense ({error})"
            raise DamagedFileError(path, min(file.tell(), size), reason) from error
    if wanted is not None and size < wanted:
        raise DamagedFileError(path, size, f"the netCDF file lacks {wanted - size} bytes")


def _wanted(file: BinaryIO) -> int | None:
    """Bytes that the file should have, None where its format does not tell."""
    magic = file.read(8)
    if magic == _HDF5:
        return _end_of_hdf5(file)
    if magic[:4] not in _CLASSIC:
        return None
    file.seek(4)
    return _end_of_classic(_Header(file, magic[3]))


def _end_of_hdf5(file: BinaryIO) -> int | None:
    head = _exactly(file, 8)  # from byte 8 on: the version of the superblock first
    version = head[0]
    if version > 3:
        return None
    width = head[5] if version < 2 else head[1]
    addresses = {0: 24, 1: 28}.get(version, 12)
    file.seek(addresses + 2 * width)  # after base address, and free space or extension
    return int.from_bytes(_exactly(file, width), "little")


@dataclass(frozen=True)
class _Variable:
    begin: int
    size: int
    by_record: bool


class _Header:
    """The header of a classic file, read from its fourth byte on."""

    def __init__(self, file: BinaryIO, version: int) -> None:
        self._file = file
        self._wide = 8 if version == 5 else 4
        self._address = 4 if version == 1 else 8

    def number(self, width: int = 0) -> int:
        """A big-endian number, of the width of counts unless told."""
        return int.from_bytes(_exactly(self._file, width or self._wide), "big")

    def address(self) -> int:
        """Where a variable begins."""
        return self.number(self._address)

    def skip(self, size: int) -> None:
        """Passes over bytes that are filled up to four."""
        self._file.seek(-(-size // 4) * 4, io.SEEK_CUR)

    def name(self) -> None:
        """Passes over a name."""
        self.skip(self.number())

    def count(self) -> int:
        """Elements of the list that begins here."""
        self.number(4)  # its tag
        return self.number()

    def attributes(self) -> None:
        """Passes over a list of attributes."""
        for _ in range(self.count()):
            self.name()
            size = _SIZES[self.number(4)]
            self.skip(size * self.number())


def _end_of_classic(header: _Header) -> int | None:
    records = header.number()
    if records in _STREAMING:
        return None
    dimensions = []
    for _ in range(header.count()):
        header.name()
        dimensions.append(header.number())
    header.attributes()
    variables = [_variable(header, dimensions) for _ in range(header.count())]
    steps = [v.size for v in variables if v.by_record]
    record = steps[0] if len(steps) == 1 else sum(-(-size // 4) * 4 for size in steps)
    ends = [v.begin + v.size for v in variables if not v.by_record]
    if records:
        ends += [v.begin + (records - 1) * record + v.size for v in variables if v.by_record]
    return max(ends, default=0)


def _variable(header: _Header, dimensions: list[int]) -> _Variable:
    header.name()
    sizes = [dimensions[header.number()] for _ in range(header.number())]
    header.attributes()
    item = _SIZES[header.number(4)]
    header.number()  # its size, which large variables cannot tell
    by_record = bool(sizes) and sizes[0] == 0
    return _Variable(header.address(), item * prod(sizes[by_record:]), by_record)


def _exactly(file: BinaryIO, size: int) -> bytes:
    found = file.read(size)
    if len(found) < size:
        raise EOFError(f"it ends at byte {file.tell()}")
    return found
