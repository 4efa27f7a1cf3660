"""The plan of a store: its options and sources, with which a later call is compared."""

import os
from pathlib import Path
from typing import Any

import xarray as xr
from dask.base import tokenize

from ens10.errors import FileError, listing
from ens10.places import is_url
from ens10.source.folders import files_in
from ens10.source.stores import is_zarr
from ens10.store.manifest import NAME
from ens10.untrusted import files_below

Source = Path | str | xr.Dataset


def find_source(
    store: Path, identity: dict[str, Any] | None, source: Path | str | None
) -> Path | None:
    """Return the path of a store's source; None if it is not found.

    Args:
        store: the store.
        identity: names and sizes of the source's files from the store's plan, see
            `source_identity`; None if there was no such source.
        source: path of the source; if None, the recorded name is searched for in the store's
            parent folders and in the working directory.

    Raises:
        FileError: the files at `source` have other names or sizes than the recorded ones, or a
            Zarr store there has another number or size of files.
    """
    if source is not None:
        path = Path(source)
        if identity is None or not identity.keys() & {"files", "zarr"}:
            return path if path.exists() else None
        if not _has_recorded_files(path, identity):
            reason = "not the source of the store: its files have other names or sizes"
            raise FileError(path, reason, "Pass the files that the store was made from")
        return path
    if identity is None or "name" not in identity:
        return None
    folders = [store.absolute().parent, *store.absolute().parents[1:3], Path.cwd()]
    for folder in folders:
        path = folder / str(identity["name"])
        if path.exists() and _has_recorded_files(path, identity):
            return path
    return None


def _has_recorded_files(path: Path, identity: dict[str, Any]) -> bool:
    """Return True if names and sizes of the files, or number and bytes of a Zarr store, match."""
    found = source_identity(path) or {}
    return all(found.get(key) == identity[key] for key in ("files", "zarr") if key in identity)


Plan = dict[str, Any]
_FORMAT_KEYS = ("places", "chunk_dates")  # of the format of a version of this package, no options


def source_identity(source: Source | None) -> Plan | None:
    """Return names and sizes of a source's files, to recognise it without reading it.

    The name of the folder is recorded too, so that the source can be found beside the store, but
    `differences` ignores it.
    """
    if source is None:
        return None
    if isinstance(source, xr.Dataset):
        return {"dataset": tokenize(source)}
    if is_url(source):
        return {"url": str(source)}
    path = Path(source)
    if is_zarr(path):
        files = files_below(path)
        size = sum(f.stat().st_size for f in files)
        return {"name": _target_name(path), "zarr": [len(files), size]}
    sizes = [[f.name, f.stat().st_size] for f in files_in(path)]
    return {"name": _target_name(path), "files": sizes}


def files_of_source(source: Source | None) -> list[Path]:
    """Return the local files of a source, whose changes matter to a call that is resumed.

    The manifest of a store has the checksums of all its files, and stands for them.
    """
    if source is None or isinstance(source, xr.Dataset) or is_url(source):
        return []
    path = Path(source)
    if (path / NAME).is_file():
        return [path / NAME]
    return files_below(path) if is_zarr(path) else files_in(path)


def _target_name(path: Path) -> str:
    """Return the name of a path's target; for a loop of links the path's own name."""
    return Path(os.path.realpath(path)).name


def size_of(source: Source) -> int:
    """Return the bytes of a source, 0 if it does not consist of local files."""
    identity = source_identity(source) if not isinstance(source, xr.Dataset) else {}
    if not identity or "files" not in identity:
        return identity["zarr"][1] if identity and "zarr" in identity else 0
    return sum(size for _, size in identity["files"])


def differences(old: Plan, new: Plan) -> list[str]:
    """List the differences of two plans in words; empty if they describe the same store."""
    changes = []
    for key in sorted({*old, *new}):
        previous, current = old.get(key), new.get(key)
        if previous == current or key in _FORMAT_KEYS:
            continue
        if key in ("source", "truth") and isinstance(previous, dict) and isinstance(current, dict):
            changes += _source_differences(key, previous, current)
        elif key in ("source", "truth", "climate") and (previous is None or current is None):
            before, now = (_describe_option(key, value) for value in (previous, current))
            changes.append(f"made {before}, now {now}")
        elif isinstance(previous, dict) and isinstance(current, dict):
            changes += differences(previous, current)
        else:
            changes.append(f"{key}: {_format_value(previous)}, now {_format_value(current)}")
    return changes


def _describe_option(key: str, value: Any) -> str:
    """Describe truth or climate of a plan in words."""
    if value is None:
        return f"without --{key}"
    if key != "climate":
        return f"with --{key} {value.get('name') or value.get('url') or 'in memory'}"
    steps = ",".join(map(str, value["steps"]))
    return "with --climate " + " ".join(f"{channel}@{steps}" for channel in value["channels"])


def _source_differences(key: str, old: Plan, new: Plan) -> list[str]:
    previous = {k: v for k, v in old.items() if k != "name"}
    current = {k: v for k, v in new.items() if k != "name"}
    if previous == current:
        return []
    if "files" not in previous or "files" not in current:
        return [f"{key}: other data"]
    old_sizes, new_sizes = dict(previous["files"]), dict(current["files"])
    both = [n for n in old_sizes if n in new_sizes and old_sizes[n] != new_sizes[n]]
    changes = [f"{n} of {new_sizes[n]} bytes, not {old_sizes[n]}" for n in both]
    changes += [f"{n} is missing" for n in old_sizes if n not in new_sizes]
    changes += [f"{n} is new" for n in new_sizes if n not in old_sizes]
    return [f"{key}: {listing(changes)}"]


def _format_value(value: Any) -> str:
    if value is None:
        return "none given"
    if isinstance(value, list):
        return listing([str(v) for v in value]) or "none"
    return str(value)
