"""The files that a source is made of."""

from pathlib import Path

import xarray as xr

Source = Path | str | xr.Dataset
_IGNORED_SUFFIXES = {".idx", ".txt", ".md", ".json", ".yaml", ".yml"}  # as `open_source` does
_ZARR = ("zarr.json", ".zgroup", ".zmetadata")


def files(path: Path) -> list[Path]:
    """A file, or the files of a folder, in the order in which the manifest numbers them."""
    if not path.is_dir():
        return [path] if path.exists() else []
    found = (f for f in sorted(path.iterdir()) if f.is_file() and not f.name.startswith("."))
    return [f for f in found if f.suffix not in _IGNORED_SUFFIXES]


def is_zarr(path: Path) -> bool:
    """Whether a folder is a Zarr store."""
    return any((path / mark).exists() for mark in _ZARR)
