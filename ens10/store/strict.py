"""A Zarr store that says so where a chunk is missing, damaged or at the place of another one.

To Zarr a chunk that is not there is full of fill values, and so to xarray: what was lost would be
read as NaN. Every chunk of a store of ens10 is written, so one that is not there is an error.
"""

import asyncio
import re
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import WrapperStore

from ens10.errors import DamagedFileError, FileError
from ens10.packed16.layout import DamagedChunkError
from ens10.places import for_zarr
from ens10.store.bytes import MemoryBytes
from ens10.store.chunks import MEND
from ens10.store.form import Form, check, plain_frame
from ens10.store.record import Record, compare

_CHUNK_KEY = re.compile(r"(.*)/c(?:/\d+)*")
STRICT_SINCE = 2  # before this format, chunks without any value were left out
_METADATA = "/zarr.json"
_BESIDE = 1 << 16  # bytes from which a chunk is checked in a thread of its own


def open_strictly(store: Path | str, record: Record | None = None) -> zarr.Group:
    """A store's hierarchy as zarr has it, without consolidated metadata, read strictly.

    Args:
        store: path or URL; one of a format before `STRICT_SINCE` is read as zarr does it.
        record: its manifest; see `StrictStore`.
    """
    root = zarr.open_group(for_zarr(store), mode="r", use_consolidated=False)
    if int(str(root.attrs.get("ens10_format", 0))) < STRICT_SINCE:
        return root
    strict = StrictStore(root.store, str(store), record)
    return zarr.open_group(strict, mode="r", use_consolidated=False)


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
        self._compared: set[str] = set()

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        """The bytes of a key, None if it is no chunk's and not there.

        Raises:
            FileError: a chunk, or the metadata of what has chunks, is missing.
            DamagedFileError: a chunk is damaged.
        """
        prototype = prototype or default_buffer_prototype()
        value = await self._store.get(key, prototype, byte_range)
        array = _array_of(key)
        if array is None:
            if value is None and key.endswith(_METADATA):
                await self._check_absent(key)
            if value is not None and byte_range is None:
                self._compare(key, _bytes_of(value))
            return value
        if value is None:
            raise FileError(f"{self.path}/{key}", "the chunk is missing", MEND)
        form = await self._form(array, prototype)
        if byte_range is not None:
            return value
        if len(value) < _BESIDE:
            return self._checked(key, value, form, prototype)
        return await asyncio.to_thread(self._checked, key, value, form, prototype)

    async def _check_absent(self, key: str) -> None:
        """Refuses a folder that lost its description, which Zarr would leave out."""
        if not await self._store.is_empty(key.removesuffix(_METADATA)):
            raise FileError(f"{self.path}/{key}", "the metadata is missing", MEND)

    async def _form(self, array: str, prototype: BufferPrototype) -> Form:
        if array not in self._forms:
            metadata = await self._store.get(f"{array}{_METADATA}", prototype)
            if metadata is None:
                raise FileError(f"{self.path}/{array}", "the array lacks its zarr.json", MEND)
            self._forms[array] = Form.read(metadata.to_bytes())
        return self._forms[array]

    def _checked(self, key: str, value: Buffer, form: Form, prototype: BufferPrototype) -> Buffer:
        chunk = _bytes_of(value)
        try:
            whole = check(chunk, form, key)
        except DamagedChunkError as error:
            raise self._damaged(key, error) from error
        self._compare(key, chunk)
        return prototype.buffer.from_bytes(plain_frame(whole)) if form.compressed else value

    def _compare(self, key: str, content: npt.NDArray[np.uint8]) -> None:
        """Compares a file that is read for the first time with the manifest, if it lists it."""
        if self._record is None or key in self._compared:
            return
        sums = self._record.row(key)
        if sums is None and _array_of(key) is None:
            return  # metadata at the top that Zarr looks for
        try:
            compare(sums, MemoryBytes(content))
        except DamagedChunkError as error:
            raise self._damaged(key, error) from error
        self._compared.add(key)

    def _damaged(self, key: str, error: DamagedChunkError) -> DamagedFileError:
        return DamagedFileError(f"{self.path}/{key}", error.offset, error.reason, MEND)

    def _with_store(self, store: Store) -> Self:
        return type(self)(store, self.path, self._record)

    def __dask_tokenize__(self) -> Any:
        """Stores of one path are one to dask."""
        return type(self).__name__, self.path


def _bytes_of(value: Buffer) -> npt.NDArray[np.uint8]:
    return np.asarray(value.as_numpy_array()).view(np.uint8)


def _array_of(key: str) -> str | None:
    """The array that a chunk belongs to, None where the key is no chunk's."""
    found = _CHUNK_KEY.fullmatch(key)
    return found[1] if found else None
