"""The folder that is written into: nothing leaves it, and it must hold what is to come."""

import shutil
from pathlib import Path

from ens10.errors import ArgumentError, FileError

_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
# Everything that is ever written beside a file.
_SUFFIXES = ("", ".part", ".part.json", ".damaged")


def inside(folder: Path, name: str) -> Path:
    """The path of a file in a folder.

    Args:
        folder: may itself be reached through links; that is the user's own choice.
        name: a bare file name.

    Raises:
        ArgumentError: the name is no bare name, or leads out of the folder through a link.
    """
    if name in ("", ".", "..") or any(c in name for c in "/\\\0:"):
        raise ArgumentError(
            "name", f"{name!r} is no name of a file in {folder}", "Give a bare name"
        )
    home = folder.resolve()
    for suffix in _SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.is_symlink() and not path.resolve().is_relative_to(home):
            raise ArgumentError("folder", f"{path} is a link out of the folder", "Remove the link")
    return folder / name


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there.

    Raises:
        FileError: something that is no folder is in the way.
    """
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise FileError(place, "not a folder", "Give another folder")
    return place


def free_space(folder: Path) -> int:
    """Bytes that can be written there."""
    return shutil.disk_usage(existing(folder)).free


def check_space(folder: Path, needed: int) -> None:
    """Refuses what does not fit.

    Raises:
        FileError: less space is free than needed.
    """
    free = free_space(folder)
    if needed > free:
        raise FileError(
            folder,
            f"{size_text(needed)} are to be written and {size_text(free)} are free",
            "Choose fewer dates, make room, or give a folder on a larger disk",
        )


def size_text(size: int) -> str:
    """Bytes in words, in decimal units."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
