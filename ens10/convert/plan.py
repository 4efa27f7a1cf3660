"""The plan of a store: its options and sources, by which a later call recognises it."""

import json
import os
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import xarray as xr
from dask.base import tokenize

from ens10.errors import FileError, listing
from ens10.places import is_url
from ens10.source.opening import files_in, is_zarr
from ens10.untrusted import files_below

Source = Path | str | xr.Dataset


def find_source(store: Path, about: dict[str, Any] | None, given: Path | str | None) -> Path | None:
    """Find the source of a store: the path given, or the recorded name beside the store.

    Raises:
        FileError: what is given is another source.
    """
    if given is not None:
        path = Path(given)
        if about is None or "files" not in about:
            return path if path.exists() else None
        if _names_and_sizes(path) != about["files"]:
            raise FileError(
                path, "not the source of the store: its files have other names or sizes",
                "Pass the files that the store was made from",
            )  # fmt: skip
        return path
    if about is None or "name" not in about:
        return None
    around = [store.absolute().parent, *store.absolute().parents[1:3], Path.cwd()]
    for folder in around:
        path = folder / str(about["name"])
        if path.exists() and ("files" not in about or _names_and_sizes(path) == about["files"]):
            return path
    return None


def _names_and_sizes(path: Path) -> list[list[Any]]:
    return [[f.name, f.stat().st_size] for f in files_in(path)]


Plan = dict[str, Any]
_NO_CHOICE = ("places",)  # keys that tell what a version of this package writes, not what is asked


def source_identity(source: Source | None) -> Plan | None:
    """Return what identifies a source without reading it: names and sizes of its files.

    The folder's own name is kept too, so that the source can be found beside the store, but two
    sources may differ in it.
    """
    if source is None:
        return None
    if isinstance(source, xr.Dataset):
        return {"dataset": tokenize(source)}
    if is_url(source):
        return {"url": str(source)}
    path = Path(source)
    if is_zarr(path):
        found = files_below(path)
        size = sum(f.stat().st_size for f in found)
        return {"name": _name(path), "zarr": [len(found), size]}
    return {
        "name": _name(path),
        "files": [[f.name, f.stat().st_size] for f in files_in(path)],
    }


def _name(path: Path) -> str:
    """Return the name of a path's target; for a loop of links the path's own name."""
    return Path(os.path.realpath(path)).name


def size_of(source: Source) -> int:
    """Return the bytes of a source, 0 if it does not consist of local files."""
    about = source_identity(source) if not isinstance(source, xr.Dataset) else {}
    if not about or "files" not in about:
        return about["zarr"][1] if about and "zarr" in about else 0
    return sum(size for _, size in about["files"])


def plain(value: Any) -> Any:
    """Return options as JSON stores them."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return json.loads(json.dumps(value, default=_jsonable, sort_keys=True))


def _jsonable(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def differences(old: Plan, new: Plan) -> list[str]:
    """List the differences of two plans in words; empty if they describe the same store."""
    found = []
    for key in sorted({*old, *new}):
        before, now = old.get(key), new.get(key)
        if before == now or key in _NO_CHOICE:
            continue
        if key in ("source", "truth") and isinstance(before, dict) and isinstance(now, dict):
            found += _sources(key, before, now)
        elif key in ("source", "truth", "climate") and (before is None or now is None):
            found.append(f"made {_describe_option(key, before)}, now {_describe_option(key, now)}")
        elif isinstance(before, dict) and isinstance(now, dict):
            found += differences(before, now)
        else:
            found.append(f"{key}: {_format_value(before)}, now {_format_value(now)}")
    return found


def _describe_option(key: str, value: Any) -> str:
    """Describe truth or climate of a plan in words."""
    if value is None:
        return f"without --{key}"
    if key != "climate":
        return f"with --{key} {value.get('name') or value.get('url') or 'in memory'}"
    steps = ",".join(map(str, value["steps"]))
    return "with --climate " + " ".join(f"{channel}@{steps}" for channel in value["channels"])


def _sources(key: str, old: Plan, new: Plan) -> list[str]:
    before = {k: v for k, v in old.items() if k != "name"}
    now = {k: v for k, v in new.items() if k != "name"}
    if before == now:
        return []
    if "files" not in before or "files" not in now:
        return [f"{key}: other data"]
    had, has = dict(before["files"]), dict(now["files"])
    found = [f"{n} of {has[n]} bytes, not {had[n]}" for n in had if n in has and had[n] != has[n]]
    found += [f"{n} is missing" for n in had if n not in has]
    found += [f"{n} is new" for n in has if n not in had]
    return [f"{key}: {listing(found)}"]


def _format_value(value: Any) -> str:
    if value is None:
        return "none given"
    if isinstance(value, list):
        return listing([str(v) for v in value]) or "none"
    return str(value)
