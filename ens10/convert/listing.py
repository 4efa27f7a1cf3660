"""The files that a source is made of."""

from pathlib import Path
from typing import Any

import xarray as xr

from ens10.errors import FileError
from ens10.source.opening import files_in

Source = Path | str | xr.Dataset


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
    return [[f.name, f.stat().st_size] for f in files_in(path)]
