"""A Zarr store that says so where a chunk is missing or damaged.

To Zarr a chunk that is not there is full of fill values, and so to xarray: what was lost would be
read as NaN. Every chunk of a store of ens10 is written, so one that is not there is an error.
"""

import asyncio
import re
from typing import Any, Self

import numpy as np
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import WrapperStore

from ens10.errors import DamagedFileError, FileError
from ens10.packed16.layout import DamagedChunkError
from ens10.store.chunks import MEND
from ens10.store.form import Form, check, plain_frame

_CHUNK_KEY = re.compile(r"(.*)/c(?:/\d+)*")
_METADATA = "/zarr.json"
_BESIDE = 1 << 16  # bytes from which a chunk is checked in a thread of its own


class StrictStore(WrapperStore[Store]):
    """The chunks of another store, each checked as it is read.

    Args:
        store: the store.
        path: its path or URL, for messages.
    """

    def __init__(self, store: Store, path: str) -> None:
        super().__init__(store)
        self.path = path.rstrip("/")
        self._forms: dict[str, Form] = {}

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
        chunk = np.asarray(value.as_numpy_array()).view(np.uint8)
        try:
            whole = check(chunk, form)
        except DamagedChunkError as error:
            path = f"{self.path}/{key}"
            raise DamagedFileError(path, error.offset, error.reason, MEND) from error
        return prototype.buffer.from_bytes(plain_frame(whole)) if form.compressed else value

    def _with_store(self, store: Store) -> Self:
        return type(self)(store, self.path)

    def __dask_tokenize__(self) -> Any:
        """Stores of one path are one to dask."""
        return type(self).__name__, self.path


def _array_of(key: str) -> str | None:
    """The array that a chunk belongs to, None where the key is no chunk's."""
    found = _CHUNK_KEY.fullmatch(key)
    return found[1] if found else None
