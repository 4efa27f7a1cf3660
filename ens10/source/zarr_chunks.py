"""Zarr stores of other people: a chunk that cannot be read is an error with array and dates."""

import asyncio
import re
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from pathlib import PurePosixPath
from typing import Any

import xarray as xr
import zarr
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.registry import register_pipeline
from zarr.storage import LocalStore, StorePath

from ens10.errors import FileError, ResourceError
from ens10.machine_errors import machine_error
from ens10.untrusted import error_text, is_regular

# True while dates are read for an error; that they are damaged, too, is not described in turn
_DESCRIBES_DAMAGE = ContextVar("_DESCRIBES_DAMAGE", default=False)
_DESCRIBER = ThreadPoolExecutor(max_workers=1)


class RegularFiles(LocalStore):
    """A local store that refuses pipes and devices, reading which could block or never end."""

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        """Return the content of a file.

        Raises:
            OSError: it is a pipe, a socket or a device.
        """
        with suppress(FileNotFoundError, NotADirectoryError):
            if not is_regular(self.root / key):
                raise OSError("neither a regular file nor a folder")
        return await super().get(key, *args, **options)


class CheckedChunks(BatchedCodecPipeline):
    """The codecs of zarr, whose errors name the chunk, its array and its dates."""

    async def read_batch(self, batch_info: Iterable[Any], *args: Any, **options: Any) -> Any:
        """Read and decode some chunks.

        Raises:
            FileError: a chunk cannot be read.
            ResourceError: memory or open files do not suffice.
        """
        batch = tuple(batch_info)
        try:
            return await super().read_batch(batch, *args, **options)
        except Exception as error:
            if isinstance(shortage := machine_error(error), ResourceError):
                raise shortage from error
            if _DESCRIBES_DAMAGE.get():
                raise
            # A store is not opened in the thread of zarr's event loop, nor in those that decode
            # chunks: several damaged ones would leave none to decode the dates.
            loop = asyncio.get_running_loop()
            raise await loop.run_in_executor(_DESCRIBER, _damage, batch[0][0], error) from error

    async def decode_batch(self, chunk_bytes_and_specs: Iterable[tuple[Any, Any]]) -> Any:
        """Decode some chunks, after a check of the size of those that Blosc compressed.

        Raises:
            ValueError: a chunk is not as long as its header says. The library of Blosc reads beyond
                the end of a chunk that is cut by some bytes.
        """
        chunks = list(chunk_bytes_and_specs)
        outermost = list(self)[-1]
        compressor = getattr(outermost, "compressor", outermost)  # of version 2, or of version 3
        if type(compressor).__name__ in ("Blosc", "BloscCodec"):
            for content, _ in chunks:
                if content is not None and len(content) != (size := _blosc_size(content)):
                    raise ValueError(f"{len(content)} bytes instead of {size}")
        return await super().decode_batch(chunks)


def _blosc_size(content: Any) -> int:
    """Return the size of a chunk by its header (Blosc 1, bytes 12 to 15)."""
    return int.from_bytes(content.as_numpy_array()[12:16].tobytes(), "little")


register_pipeline(CheckedChunks)


def open_zarr(store: Any, group: str, **options: Any) -> xr.Dataset:
    """Open a group of a Zarr store; errors of reading its chunks name array, chunk and dates.

    Args:
        store: what xarray opens.
        group: "" for the root.
        options: of `xarray.open_zarr`.
    """
    path = f"{CheckedChunks.__module__}.{CheckedChunks.__qualname__}"
    with warnings.catch_warnings(), zarr.config.set({"codec_pipeline.path": path}):
        warnings.filterwarnings("ignore", "Failed to open Zarr store with consolidated")
        dataset: xr.Dataset = xr.open_zarr(store, group=group or None, **options)
    return dataset


def _damage(chunk: StorePath, error: Exception) -> FileError:
    store = chunk.store
    path = store.root / chunk.path if isinstance(store, LocalStore) else str(chunk)
    reason = f"damaged chunk{_contents(chunk)} ({error_text(error)})"
    return FileError(path, reason, "Fetch or write the store again")


def _contents(chunk: StorePath) -> str:
    """Return array and dates of a chunk in words; "" if the metadata cannot be read."""
    for array_path in reversed(PurePosixPath(chunk.path).parents):
        try:
            array = zarr.open_array(chunk.store, path=str(array_path), mode="r")
        except Exception:  # no array, or one of several kinds of errors
            continue
        return f" of {array_path}{_dates(chunk, array, array_path)}"
    return ""


def _dates(chunk: StorePath, array: Any, path: PurePosixPath) -> str:
    """Return the first and the last date of a chunk in words; "" if they cannot be read."""
    group = str(path.parent) if path.parent.name else ""
    places = map(int, re.findall(r"\d+", chunk.path.removeprefix(str(path))))
    words = ""
    token = _DESCRIBES_DAMAGE.set(True)
    with suppress(Exception):  # the dates may be damaged, too
        field = open_zarr(chunk.store, group, chunks=None)[path.name]
        sizes = array.shards or array.chunks
        for dim, place, size in zip(field.dims, places, sizes, strict=True):
            dates = field[dim].to_numpy()[place * size : (place + 1) * size]
            if dates.dtype.kind == "M":
                ends = dict.fromkeys(str(date)[:13] for date in dates[[0, -1]])
                words += f", {dim} {' to '.join(ends)}"
    _DESCRIBES_DAMAGE.reset(token)
    return words
