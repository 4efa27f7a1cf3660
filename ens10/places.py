"""Local paths and URLs, told apart in one way, and as the libraries that open stores take them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ens10.errors import ArgumentError, FileError


def is_url(path: Path | str) -> bool:
    """Return True for a URL that fsspec opens, False for a local path.

    Examples:
        >>> from ens10.places import is_url
        >>> is_url("gs://bucket/store.zarr"), is_url("runs/a::b")
        (True, False)
    """
    return "://" in str(path)


def for_zarr(path: Path | str) -> Path | str:
    """A store's place for zarr: a local one as a Path, since `::` in a text chains URLs."""
    return str(path) if is_url(path) else Path(path)


def for_xarray(path: Path | str, *, read_only: bool = True) -> Any:
    """A store's place for xarray, which makes text of a Path: a local one is opened by zarr."""
    if is_url(path):
        return str(path)
    from zarr.storage import LocalStore

    return LocalStore(Path(path).absolute(), read_only=read_only)


def check_names(arguments: Iterable[str]) -> None:
    """Refuse names whose bytes are not UTF-8 before anything is written, and a folder that is gone.

    JSON, YAML, netCDF and GRIB libraries take text, which such names are not.

    Args:
        arguments: of a command.

    Raises:
        ArgumentError: one of them is not UTF-8.
        FileError: the current folder is gone, or its name is not UTF-8.
    """
    remedy = "Rename it, for example with `convmv`, or use a folder with another name"
    for argument in arguments:
        if not _is_text(argument):
            raise ArgumentError("arguments", f"{_shown(argument)} is not UTF-8", remedy)
    try:
        current = str(Path.cwd())
    except FileNotFoundError as error:
        raise FileError(".", "the current folder is gone", "Change to another one") from error
    if not _is_text(current):
        raise FileError(_shown(current), "the current folder's name is not UTF-8", remedy)


def _is_text(name: str) -> bool:
    """Return False for a name with bytes that Python could not decode."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _shown(name: str) -> str:
    """A name in which bytes that are not UTF-8 are written out."""
    return name.encode("utf-8", "backslashreplace").decode()
