"""The files that a source is made of."""

from pathlib import Path
from typing import Any

import xarray as xr

from ens10.errors import FileError

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


def located(store: Path, about: dict[str, Any] | None, given: Path | str | None) -> Path | None:
    """Where the source of a store is: as given, or of the recorded name beside the store.

    Raises:
        FileError: what is given is another source.
    """
    if given is not None:
        path = Path(given)
        if about is None or "files" not in about:
            return path if path.exists() else None
        if _listed(path) != about["files"]:
            raise FileError(
                path, "not the source of the store: its files have other names or sizes",
                "Give the files that the store was made from",
            )  # fmt: skip
        return path
    if about is None or "name" not in about:
        return None
    around = [store.absolute().parent, *store.absolute().parents[1:3], Path.cwd()]
    for folder in around:
        path = folder / str(about["name"])
        if path.exists() and ("files" not in about or _listed(path) == about["files"]):
            return path
    return None


def _listed(path: Path) -> list[list[Any]]:
    return [[f.name, f.stat().st_size] for f in files(path)]
