"""Zarr stores whose files are compared with checksums as they are read.

To Zarr a missing chunk is full of fill values, and so to xarray: lost data would be read as NaN.
`StrictStore` reads a store of `ens10 prepare`, whose chunks are all written, and raises an error
for a chunk that is missing, damaged or at another chunk's place. `CheckedStore` reads predictions
through their manifest: opening compares the names and sizes of all files with it, reading compares
the bytes with their checksums. Only what is read is checked: `ens10 verify` reads everything.
"""

import asyncio
import os
import re
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import LocalStore, WrapperStore

from ens10.errors import DamagedFileError, FileError, listing
from ens10.packed16.layout import DamagedChunkError
from ens10.places import for_zarr
from ens10.store.chunks import MEND, Form, check, plain_frame
from ens10.store.file_bytes import MemoryBytes
from ens10.store.manifest import FileSums, Record, compare, compare_size, read_manifest

_CHUNK_KEY = re.compile(r"(.*)/c(?:/\d+)*")
STRICT_SINCE = 2  # before this format, chunks without any value were left out
_T = TypeVar("_T")
_MIN_THREAD_BYTES = 1 << 16  # bytes from which a chunk is checked in a thread of its own


def open_strictly(store: Path | str, record: Record | None = None) -> zarr.Group:
    """Open a store's hierarchy with zarr, strictly and without consolidated metadata.

    Args:
        store: path or URL; one of a format before `STRICT_SINCE` is read as zarr does it.
        record: its manifest; see `StrictStore`.
    """
    root = zarr.open_group(for_zarr(store), mode="r", use_consolidated=False)
    if int(str(root.attrs.get("ens10_format", 0))) < STRICT_SINCE:
        return root
    strict_store = StrictStore(root.store, str(store), record)
    return zarr.open_group(strict_store, mode="r", use_consolidated=False)


class StrictStore(WrapperStore[Store]):
    """The chunks of another store, each checked as it is read.

    Args:
        store: the store.
        path: its path or URL, for messages.
        record: its manifest, with which every file is compared when it is first read; None to
            compare none.
    """

    def __init__(self, store: Store, path: str, record: Record | None = None) -> None:
        super().__init__(store)
        self.path = path.rstrip("/")
        self._forms: dict[str, Form] = {}
        self._record = record
        self._compared_keys: set[str] = set()

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """Return the bytes of a key; None if it does not exist and is not the key of a chunk.

        Raises:
            FileError: a chunk, or the metadata of a group or array, is missing.
            DamagedFileError: a chunk is damaged, or a file differs from the manifest.
        """
        prototype = prototype or default_buffer_prototype()
        value = await self._store.get(key, prototype, byte_range)
        array = _array_of(key)
        if array is None:
            if value is None and key.endswith("/zarr.json"):
                await self._check_absent(key)
            if value is not None and byte_range is None:
                self._compare(key, _bytes_of(value))
            return value
        if value is None:
            raise FileError(f"{self.path}/{key}", "the chunk is missing", MEND)
        form = await self._read_form(array, prototype)
        if byte_range is not None:
            return value
        return await _in_thread(value, self._check_chunk, key, value, form, prototype)

    async def _check_absent(self, key: str) -> None:
        """Raise an error if a folder exists without its `zarr.json`, which Zarr would skip."""
        if not await self._store.is_empty(key.removesuffix("/zarr.json")):
            raise FileError(f"{self.path}/{key}", "the metadata is missing", MEND)

    async def _read_form(self, array: str, prototype: BufferPrototype) -> Form:
        if array not in self._forms:
            metadata = await self._store.get(f"{array}/zarr.json", prototype)
            if metadata is None:
                raise FileError(f"{self.path}/{array}", "the array lacks its zarr.json", MEND)
            self._forms[array] = Form.read(metadata.to_bytes())
        return self._forms[array]

    def _check_chunk(
        self, key: str, value: Buffer, form: Form, prototype: BufferPrototype
    ) -> Buffer:
        chunk = _bytes_of(value)
        try:
            plain_bytes = check(chunk, form, key)
        except DamagedChunkError as error:
            raise self._damage_error(key, error) from error
        self._compare(key, chunk)
        return prototype.buffer.from_bytes(plain_frame(plain_bytes)) if form.compressed else value

    def _compare(self, key: str, content: npt.NDArray[np.uint8]) -> None:
        """Compare a file with the manifest, if it lists it, when it is first read."""
        if self._record is None or key in self._compared_keys:
            return
        sums = self._record.row(key)
        if sums is None and _array_of(key) is None:
            return  # metadata at the top that Zarr looks for
        try:
            compare(sums, MemoryBytes(content))
        except DamagedChunkError as error:
            raise self._damage_error(key, error) from error
        self._compared_keys.add(key)

    def _damage_error(self, key: str, error: DamagedChunkError) -> DamagedFileError:
        return DamagedFileError(f"{self.path}/{key}", error.offset, error.reason, MEND)

    def _with_store(self, store: Store) -> Self:
        return type(self)(store, self.path, self._record)

    def __dask_tokenize__(self) -> Any:
        """Return a token for dask: equal for stores of one path."""
        return type(self).__name__, self.path


def _bytes_of(value: Buffer) -> npt.NDArray[np.uint8]:
    return np.asarray(value.as_numpy_array()).view(np.uint8)


async def _in_thread(value: Buffer, check: Callable[..., _T], *arguments: Any) -> _T:
    """Return the result of a check, which runs in a thread of its own if the value is large."""
    if len(value) < _MIN_THREAD_BYTES:
        return check(*arguments)
    return await asyncio.to_thread(check, *arguments)


def _array_of(key: str) -> str | None:
    """Return the array of a chunk's key, None for other keys."""
    match = _CHUNK_KEY.fullmatch(key)
    return match[1] if match else None


class CheckedStore(WrapperStore[Store]):
    """The files of a local Zarr store, each compared with its checksum as it is read.

    Args:
        store: the store.
        root: its folder.
        files: sizes and checksums in its manifest, by path.
        remedy: what to do about damage, for errors.
    """

    def __init__(
        self, store: Store, root: Path, files: Mapping[str, FileSums], remedy: str
    ) -> None:
        super().__init__(store)
        self.root, self._files, self._remedy = root, files, remedy
        self._folder_status = root.stat()

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
        sums = self._files.get(key)
        if sums is None:
            return None
        value = await self._store.get(key, prototype)
        if value is None:
            raise self._error(FileError(self.root / key, "the file is missing", self._remedy))
        try:
            await _in_thread(value, compare, sums, MemoryBytes(_bytes_of(value)))
        except DamagedChunkError as error:
            damage = DamagedFileError(self.root / key, error.offset, error.reason, self._remedy)
            raise self._error(damage) from error
        return value if byte_range is None else await self._store.get(key, prototype, byte_range)

    def _error(self, damage: FileError) -> FileError:
        """Return the error of a damaged file; another one if the store was replaced meanwhile."""
        with suppress(FileNotFoundError):
            if os.path.samestat(self._folder_status, self.root.stat()):
                return damage
        return FileError(self.root, "was replaced while it was read", "Run the same command again")

    def _with_store(self, store: Store) -> Self:
        return type(self)(store, self.root, self._files, self._remedy)

    def __dask_tokenize__(self) -> Any:
        """Return a token for dask: a replaced store has another one."""
        status = self._folder_status
        return type(self).__name__, str(self.root), status.st_ino, status.st_mtime_ns


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
    manifest = read_manifest(root, remedy)
    files = manifest.sums()
    missing, extra = manifest.differing_names(root)
    if missing:
        reason = f"{len(missing)} of its {len(files)} files are missing: {listing(missing)}"
        raise FileError(root, reason, remedy)
    if extra:
        reason = f"holds files that its manifest does not name: {listing(extra)}"
        raise FileError(root, reason, "Remove them")
    for path, sums in files.items():
        status = (root / path).stat()  # a pipe would block, if it were opened
        if not stat.S_ISREG(status.st_mode):
            raise FileError(root / path, "not a regular file", remedy)
        try:
            compare_size(sums.size, status.st_size)
        except DamagedChunkError as error:
            raise DamagedFileError(root / path, error.offset, error.reason, remedy) from error
    return CheckedStore(LocalStore(root, read_only=True), root, files, remedy)
