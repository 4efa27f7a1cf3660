"""Local paths and URLs: how they are distinguished and passed to zarr and xarray."""

import os
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
    """Return a store's location for zarr: local ones as Path, since `::` in text chains URLs."""
    return str(path) if is_url(path) else Path(path)


def for_xarray(path: Path | str, *, read_only: bool = True) -> Any:
    """Return a store's location for xarray, which would convert a Path to text."""
    if is_url(path):
        return str(path)
    from zarr.storage import LocalStore

    return LocalStore(Path(path).absolute(), read_only=read_only)


def check_names(arguments: Iterable[str]) -> None:
    """Refuse names that libraries cannot handle, and a missing current folder.

    JSON, YAML, netCDF and GRIB libraries take text, which bytes that are not UTF-8 are not; and the
    netCDF library takes a backslash for a separator of folders.

    Args:
        arguments: of a command.

    Raises:
        ArgumentError: one of them is such a name.
        FileError: the current folder is gone, or has such a name.
    """
    remedy = "Rename it, or use another folder"
    for argument in arguments:
        if fault := _fault(argument):
            raise ArgumentError("arguments", f"{_escape(argument)} {fault}", remedy)
    try:
        current = str(Path.cwd())
    except FileNotFoundError as error:
        raise FileError(".", "the current folder is gone", "Change to another one") from error
    if fault := _fault(current):
        raise FileError(_escape(current), f"the current folder's name {fault}", remedy)


def _fault(name: str) -> str:
    """Return what is wrong with a name; "" for nothing."""
    if any("\ud800" <= character <= "\udfff" for character in name):
        return "is not UTF-8"
    if "\\" in name and os.sep == "/":
        return "has a backslash"
    return ""


def _escape(name: str) -> str:
    """Return a name with bytes that are not UTF-8 as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()
