"""Predictions as a Zarr store that is read through its manifest.

Opening compares the names and sizes of all files with the manifest, so that none is missing and
none is there besides; reading compares the bytes with their checksums. Only what is read is
checked: `ens10 verify` reads everything.
"""

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import xarray as xr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore, WrapperStore

from ens10.errors import DamagedFileError, FileError, listing
from ens10.packed16.layout import crc32c
from ens10.places import for_xarray
from ens10.store.manifest import NAME, Row, files_of, read_manifest
from ens10.store.opening import in_order
from ens10.untrusted import check_regular, parse_json, readable

RECORDED = "ens10_predictions"  # attribute of predictions that have a manifest: their format
FORMAT = 1
PREDICTED: dict[str, Any] = {"source": None, "truth": None, "options": {}, "kind": "predictions"}
_METADATA = "zarr.json"
_REMEDY = "Predict again with `ens10 predict --run RUN`"
_LONGEST_AXIS = 1 << 24  # values of a coordinate, all of which are read
_BESIDE = 1 << 16  # bytes from which a checksum is computed in a thread of its own


class CheckedStore(WrapperStore[Store]):
    """The files of a local Zarr store, each compared with its checksum as it is read.

    Args:
        store: the store.
        root: its folder.
        rows: of its manifest, by path.
        remedy: what to do about damage, for errors.
    """

    def __init__(self, store: Store, root: Path, rows: Mapping[str, Row], remedy: str) -> None:
        super().__init__(store)
        self.root, self._rows, self._remedy = root, rows, remedy
        self._folder = root.stat()

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the bytes of a file in the store, or None if the manifest does not list it.

        Raises:
            FileError: the file is missing, or the store was replaced since it was opened.
            DamagedFileError: it does not match its checksum.
        """
        prototype = prototype or default_buffer_prototype()
        row = self._rows.get(key)
        if row is None:
            return None
        value = await self._store.get(key, prototype)
        if value is None:
            raise self._error(key, None)
        if len(value) < _BESIDE:
            whole = _matches(value, row)
        else:
            whole = await asyncio.to_thread(_matches, value, row)
        if not whole:
            raise self._error(key, value)
        return value if byte_range is None else await self._store.get(key, prototype, byte_range)

    def _error(self, key: str, value: Buffer | None) -> FileError:
        try:
            same = os.path.samestat(self._folder, self.root.stat())
        except FileNotFoundError:
            same = False
        if not same:
            return FileError(
                self.root, "was replaced while it was read", "Run the same command again"
            )
        if value is None:
            return FileError(self.root / key, "the file is missing", self._remedy)
        reason = "it does not match its checksum"
        return DamagedFileError(self.root / key, 0, reason, self._remedy)

    def _with_store(self, store: Store) -> Self:
        return type(self)(store, self.root, self._rows, self._remedy)

    def __dask_tokenize__(self) -> Any:
        """A store that was replaced is another one to dask."""
        return type(self).__name__, str(self.root), self._folder.st_ino, self._folder.st_mtime_ns


def open_checked(root: Path, remedy: str) -> CheckedStore:
    """Open a store that has a manifest, to be read by Zarr or xarray.

    Args:
        root: its folder.
        remedy: what to do about damage, for errors.

    Raises:
        FileError: files are missing, of another size, or not named by the manifest; or there is
            no manifest.
        DamagedFileError: the manifest is damaged, and so is its copy.
    """
    rows = {row[0]: row for _, row in read_manifest(root, remedy).rows()}
    _check_names(root, rows, remedy)
    _check_sizes(root, rows, remedy)
    return CheckedStore(LocalStore(root, read_only=True), root, rows, remedy)


def root_attributes(root: Path) -> dict[str, Any]:
    """The attributes of a local Zarr hierarchy, which no checksum has confirmed yet.

    Raises:
        FileError: they cannot be read.
    """
    with readable(root, "its metadata cannot be read", _REMEDY):
        found = parse_json((root / _METADATA).read_bytes()).get("attributes", {})
        if not isinstance(found, dict):
            raise ValueError("its attributes are no object of names and values")
        return found


def has_manifest(root: Path) -> bool:
    """Return True if predictions have a manifest, or should have one."""
    return (root / NAME.partition("/")[0]).exists() or RECORDED in root_attributes(root)


def _check_arrays(root: Path) -> None:
    """Refuse metadata that are no JSON, of which Zarr prints tracebacks, and endless coordinates.

    Raises:
        FileError: the metadata of an array are damaged, or an axis is longer than any forecast's.
    """
    for path in sorted(root.glob(f"*/{_METADATA}")):
        check_regular(path)
        with readable(path, "the metadata of an array cannot be read", _REMEDY):
            shape = parse_json(path.read_bytes()).get("shape", [])
            if len(shape) == 1 and shape[0] > _LONGEST_AXIS:
                raise ValueError(f"{shape[0]} values along one axis")


def open_predictions(root: Path, *, dask: bool = False, **options: Any) -> xr.Dataset:
    """Forecast and truth in a Zarr store, lazily; through its manifest if it has one.

    Args:
        root: the store.
        dask: as dask arrays; False for xarray's own lazy ones.
        options: of `xarray.open_zarr`.

    Raises:
        FileError: the metadata cannot be read, or are of a newer version; or, by the manifest, a
            file is missing, too much, or of another size. When values are read: a file is missing.
        DamagedFileError: a file does not match the manifest, at once or when values are read.
    """
    _check_arrays(root)
    checked = has_manifest(root)
    source: Any = open_checked(root, _REMEDY) if checked else for_xarray(root)
    chunks: dict[str, int] | None = {} if dask else None
    with readable(root, "its metadata cannot be read", _REMEDY):
        found = in_order(xr.open_zarr(source, consolidated=False, chunks=chunks, **options))
        found = found.assign_coords({name: found[name].load() for name in found.coords})
        version = found.attrs.pop(RECORDED, FORMAT)
        if not checked:  # metadata that no value can be read with
            for variable in found.data_vars.values():
                variable[tuple(slice(1) for _ in variable.dims)].load()
    if isinstance(version, int) and version > FORMAT:
        reason = f"predictions of format {version}, newer than {FORMAT}"
        raise FileError(root, reason, "Update ens10 to read them")
    return found


def _check_names(root: Path, rows: Mapping[str, Row], remedy: str) -> None:
    there = set(files_of(root))
    missing, extra = sorted(rows.keys() - there), sorted(there - rows.keys())
    if missing:
        told = f"{len(missing)} of its {len(rows)} files are missing: {listing(missing)}"
        raise FileError(root, told, remedy)
    if extra:
        told = f"holds files that its manifest does not name: {listing(extra)}"
        raise FileError(root, told, "Remove them")


def _check_sizes(root: Path, rows: Mapping[str, Row], remedy: str) -> None:
    for path, row in rows.items():
        about = (root / path).stat()  # a pipe would block, if it were opened
        if not stat.S_ISREG(about.st_mode):
            raise FileError(root / path, "not a regular file", remedy)
        if about.st_size != row[1]:
            reason = f"{about.st_size} bytes instead of {row[1]}"
            raise DamagedFileError(root / path, min(about.st_size, row[1]), reason, remedy)


def _matches(value: Buffer, row: Row) -> bool:
    content = np.asarray(value.as_numpy_array()).view(np.uint8)
    return bool(content.size == row[1] and crc32c(content) == row[2])
