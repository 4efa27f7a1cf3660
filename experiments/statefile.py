"""Files of score states: netCDF with a checksum of all its bytes at the end.

Readers of netCDF and HDF5 leave alone what follows the data, so that any of them opens the files.
A copy keeps the checksum. Files of earlier versions have none and are read as they are.
"""

from pathlib import Path
from typing import Literal

import crc32c
import xarray as xr

from ens10.errors import FileError
from ens10.untrusted import check_regular, readable

_MARK = b"\nens10 crc32c "
_LENGTH = len(_MARK) + 9  # eight hexadecimal digits and the end of the line
_TAIL = 3 * _LENGTH  # bytes at the end in which there is no mark but that one
_PIECE = 1 << 22
_CANNOT = "cannot be read as netCDF"


def save_states(
    states: xr.Dataset, path: Path, form: Literal["NETCDF4", "NETCDF3_64BIT"] = "NETCDF4"
) -> None:
    """Write score states as netCDF with a checksum.

    Args:
        states: of `ens10.metrics.score_states`.
        path: the file, under a temporary name.
        form: of netCDF; the classic form takes a third of the bytes where there is little.

    Raises:
        OSError, RuntimeError: as netCDF's library raises them.
        TypeError, ValueError: attributes that netCDF cannot hold, such as those of damaged
            predictions.
    """
    states.to_netcdf(path, engine="netcdf4", format=form)
    checksum = _checksum(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(_MARK + b"%08x\n" % checksum)


def load_states(file: Path, remedy: str = "Score again") -> xr.Dataset:
    """The states in a file, whole.

    Args:
        file: netCDF, of either form.
        remedy: what to do about a file that cannot be read.

    Raises:
        FileError: it cannot be read, was cut off, or does not match its checksum.
    """
    with readable(file, _CANNOT, remedy):
        check_regular(file)
        classic = _check(file, remedy)
        # netCDF's own library reads zeros where a file of the classic form was cut off
        engine: Literal["scipy", "netcdf4"] = "scipy" if classic else "netcdf4"
        # step is a plain number with units: as a time difference it would lose the months
        return xr.load_dataset(file, engine=engine, decode_timedelta=False)


def _check(path: Path, remedy: str) -> bool:
    """Refuse a file that does not match its checksum; return True if it is of the classic form."""
    size = path.stat().st_size
    with path.open("rb") as file:
        classic = file.read(3) == b"CDF"
        file.seek(max(0, size - _TAIL))
        _, mark, digits = file.read().rpartition(_MARK)
    if mark and digits != b"%08x\n" % _checksum(path, size - _LENGTH):
        raise FileError(path, "does not match its checksum", remedy)
    return classic


def _checksum(path: Path, size: int) -> int:
    """The crc32c of a file's first bytes."""
    found = 0
    with path.open("rb") as file:
        while size > 0 and (piece := file.read(min(size, _PIECE))):
            found = crc32c.crc32c(piece, found)
            size -= len(piece)
    return found
