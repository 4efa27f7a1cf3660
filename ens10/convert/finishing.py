"""The end of a store's making: metadata, manifest, and its name in one step."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from ens10.convert.files import Folder, locked, place
from ens10.convert.identity import Plan
from ens10.errors import FileError
from ens10.store.manifest import COPY, NAME, assembled, files_of


def complete(folder: Folder, plan: Plan) -> None:
    """Writes the manifest, and the metadata at the top."""
    for where in (".", "climate", "climate/*"):
        for left in folder.store.glob(f"{where}/zarr.*.partial"):
            left.unlink()  # of a run that was killed while zarr wrote
    write_manifest(folder, plan)


def publish(folder: Folder, store: Path) -> None:
    """Gives a store that is complete its name, in the place of an older one if there is any."""
    replaced = store.with_name(store.name + ".replaced")
    if store.exists() and any(store.iterdir()):
        store.rename(replaced)
    folder.store.rename(store)
    shutil.rmtree(replaced, ignore_errors=True)
    shutil.rmtree(folder.path, ignore_errors=True)


def sweep(store: Path) -> None:
    """Removes what is left of a run that was killed after the store had got its name."""
    shutil.rmtree(store.with_name(store.name + ".replaced"), ignore_errors=True)
    partial = store.with_name(store.name + ".partial")
    if not partial.is_dir():
        return
    with suppress(FileError), locked(partial, store):  # unless another process is at work there
        # `store` has its final name; a kill while the rest is removed leaves any part of the rest
        if {path.name for path in partial.iterdir()} <= {"plan.json", "units", ".tmp"}:
            clear(partial)
            partial.rmdir()


def clear(path: Path) -> None:
    """Empties a folder, which stays and stays locked."""
    for inside in path.iterdir():
        if inside.is_dir() and not inside.is_symlink():
            shutil.rmtree(inside)
        else:
            inside.unlink()


def write_manifest(folder: Folder, plan: dict[str, Any]) -> None:
    """Puts the entries of all units together, with those of all other files of the store."""
    units = sorted(folder.done())
    lines = [f'"{unit}":'.encode() + folder.entry(unit).read_bytes() for unit in units]
    known = {row[0] for unit in units for row in folder.rows(unit)}
    arrays = {path.rpartition("/c/")[0] for path in known}
    rest = [path for path in files_of(folder.store, arrays) if path not in known]
    content = assembled(folder.store, plan, lines, [], rest)
    place(folder.scratch, folder.store, [(COPY, content)])
    place(folder.scratch, folder.store, [(NAME, content)])  # last: a store that has it is complete
