"""Zarr in other containers: icechunk repositories, kerchunk references and groups."""

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import xarray as xr

from ens10.errors import ArgumentError, FileError, listing
from ens10.extras import MissingExtraError, telling_extras
from ens10.machine_errors import machine_error
from ens10.places import is_url
from ens10.source.zarr_chunks import RegularFiles
from ens10.untrusted import error_text

GROUP_OPTION = "--group"
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zmetadata")


def is_zarr(path: Path) -> bool:
    """Return True for a folder with a Zarr store, an icechunk repository or kerchunk references."""
    return any((path / mark).exists() for mark in _ZARR_MARKS) or is_icechunk(path)


def is_icechunk(path: Path) -> bool:
    """Return True for the folder of an icechunk repository (its format, versions 1 and 2)."""
    has_branches = (path / "refs").is_dir() or (path / "repo").is_file()
    return has_branches and (path / "snapshots").is_dir()


def is_reference(path: Path) -> bool:
    """Return True for kerchunk references: a JSON file, or a folder of Parquet files."""
    if path.suffix == ".json" and path.is_file():
        with path.open("rb") as file:
            return b'.zgroup"' in file.read(4096)
    metadata = path / ".zmetadata"
    return metadata.is_file() and b'"record_size"' in metadata.read_bytes()


def store_of(path: Path | str) -> Any:
    """Return what xarray opens as Zarr: a store, or the address of one.

    Raises:
        MissingExtraError: a library that the container needs is not installed.
    """
    if is_url(path):
        return str(path)
    path = Path(path)
    if is_icechunk(path):
        with telling_extras("An icechunk repository"):
            icechunk = import_module("icechunk")
        storage = icechunk.local_filesystem_storage(str(path.absolute()))
        return icechunk.Repository.open(storage).readonly_session("main").store
    if is_reference(path):
        return _references(path)
    return RegularFiles(path.absolute(), read_only=True)


def _references(path: Path) -> Any:
    """Return the store of kerchunk references; kerchunk itself is needed for its codecs alone."""
    from fsspec import filesystem
    from zarr.storage import FsspecStore

    with suppress(ImportError):
        import_module("kerchunk.codecs")  # registers those of GRIB and FITS
    options: dict[str, Any] = {}
    if path.is_dir():
        with telling_extras("Kerchunk references in Parquet"):
            import_module("pyarrow")
        options = {"remote_protocol": _protocol(path), "remote_options": {"asynchronous": True}}
    opened = filesystem("reference", fo=str(path.absolute()), asynchronous=True, **options)
    if path.is_dir():
        opened.references.engine = "pyarrow"  # not fastparquet, which pandas has deprecated
    return FsspecStore(opened, read_only=True, path="")


def _protocol(path: Path) -> str:
    """Return the protocol of the first file that Parquet references name, which may be inline."""
    import pandas as pd

    for file in sorted(path.rglob("*.parq")):
        for target in pd.read_parquet(file, columns=["path"], engine="pyarrow")["path"].dropna():
            return str(target).partition("://")[0] if is_url(target) else "file"
    return "file"


def unreadable_store(path: Path | str, error: Exception) -> Exception:
    """Return the error for a Zarr store that cannot be read, such as one of a missing codec."""
    is_codec = "codec not available" in str(error)
    if is_codec and not is_url(path) and is_reference(Path(path)):
        return MissingExtraError("The codec of these references", "kerchunk")
    if (shortage := machine_error(error)) is not None:
        return shortage
    arrays = [] if is_url(path) else _damaged_arrays(Path(path))
    where = f"{listing(arrays)}: " if arrays else ""
    reason = f"no Zarr store that can be read ({where}{error_text(error)})"
    return FileError(path, reason, "Fetch or write it again")


def _damaged_arrays(path: Path) -> list[str]:
    """Return the arrays in the root of a local store whose metadata cannot be read."""
    import zarr

    names = []
    for folder in sorted(path.iterdir()) if path.is_dir() else []:
        if any((folder / mark).exists() for mark in ("zarr.json", ".zarray", ".zgroup")):
            try:
                zarr.open(RegularFiles(folder, read_only=True), mode="r")
            except Exception:  # of a dozen kinds
                names.append(folder.name)
    return names


def check_group(path: Path | str, group: str, dataset: xr.Dataset | None) -> None:
    """Refuse a group that does not exist, and a store whose fields are all in groups.

    Args:
        path: Zarr store or netCDF file.
        group: that was opened; "" for the root.
        dataset: what it holds; None if it could not be opened.

    Raises:
        FileError: the message lists the groups of the store.
    """
    if (dataset is not None) == bool(group) or (dataset is not None and dataset.data_vars):
        return  # the group is there, the root has fields, or the error is not about groups
    if names := _group_names(path):
        reason = f"it has no group {group!r}" if group else "its root holds no fields"
        remedy = f"Choose one of its groups with {GROUP_OPTION}: {listing(names)}"
        raise FileError(path, reason, remedy)


def _group_names(path: Path | str) -> list[str]:
    """Return the groups of a Zarr store or netCDF file; an empty list if they cannot be listed."""
    import zarr
    from netCDF4 import Dataset

    try:
        if not is_url(path) and Path(path).is_file() and not is_reference(Path(path)):
            with Dataset(path) as file:
                return sorted(file.groups)
        return sorted(zarr.open_group(store_of(path), mode="r").group_keys())
    except Exception:  # of damaged metadata, of a dozen kinds
        return []


def dataset_of(data: Any, group: str = "", argument: str = "data") -> Any:
    """Return the Dataset of a group of a DataTree; other data are unchanged.

    Args:
        data: a DataTree, or anything else.
        group: path of a group; "" for the one group that holds fields.
        argument: name of the caller's argument, for errors.

    Examples:
        >>> import xarray as xr
        >>> from ens10.source.stores import dataset_of
        >>> tree = xr.DataTree.from_dict({"/upper": xr.Dataset({"t": ("x", [250.0])})})
        >>> list(dataset_of(tree))
        ['t']

    Raises:
        ArgumentError: no such group, or several groups with fields.
    """
    if not isinstance(data, xr.DataTree):
        return data
    groups = {node.path.strip("/"): node for node in data.subtree if node.data_vars}
    names = sorted(name or "/" for name in groups)
    if not group and len(groups) == 1:
        return next(iter(groups.values())).to_dataset()
    if group.strip("/") not in groups or not group:
        reason = (
            f"the tree has no group {group!r} with fields"
            if group
            else "several groups hold fields"
        )
        raise ArgumentError(argument, reason, f"Pass group=, one of: {listing(names)}")
    return groups[group.strip("/")].to_dataset()
