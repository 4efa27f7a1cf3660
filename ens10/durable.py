"""Atomic writing: files are complete or absent, however the writing process ends.

A file is written under a temporary name in its own folder, synced and renamed: a rename between
file systems would be a copy over the old file.
"""

import contextlib
import glob
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ens10.machine_errors import FULL, REFUSED

_SUFFIX = ".tmp"
_BYTES = 4  # of the random part of a temporary name


def temporary_path(path: Path) -> Path:
    """Return a unique temporary path beside `path`; `clear_leftovers` removes unused ones."""
    return path.with_name(f".{path.name}.{secrets.token_hex(_BYTES)}{_SUFFIX}")


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a small file in one step: written beside its target, synced, renamed.

    Args:
        path: the file; its folder exists.
        content: text is written as UTF-8.

    Raises:
        OSError: it cannot be written (no space, no permission); what was there before stays.
    """
    data = memoryview(content.encode() if isinstance(content, str) else content)
    with whole_path(path) as partial:
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)


@contextlib.contextmanager
def whole_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write, such as by a library; at the block's end it replaces `path`.

    Args:
        path: the file; its folder exists.

    Yields:
        The temporary path to write.

    Raises:
        OSError: it cannot be written (no space, no permission); what was there before stays.
    """
    partial = temporary_path(path)
    try:
        yield partial
        _sync(partial)
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        _raise_cause(error, path)
        raise
    sync_folder(path.parent)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` when the block ends without error.

    Raises:
        OSError: it cannot be written (no space, no permission); what was there before stays.
    """
    with whole_path(path) as partial, partial.open("wb") as file:
        yield file


def replace_folder(new: Path, path: Path) -> None:
    """Rename a complete folder to `path`, and remove the folder that was there before.

    Between the two renames `path` is absent; both folders are then whole, the former one under a
    temporary name.

    Args:
        new: the folder, on the same file system.
        path: its final name.
    """
    old = temporary_path(path)
    if path.exists():
        path.rename(old)
    new.rename(path)
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def leftovers(folder: Path, *names: str) -> list[Path]:
    """List the temporary files and folders that writers left when they were killed.

    Args:
        folder: to look into.
        names: of the files that were written; all if none are given.
    """
    digits = "[0-9a-f]" * 2 * _BYTES
    patterns = [glob.escape(name) for name in names] or ["*"]
    return [path for name in patterns for path in folder.glob(f".{name}.{digits}{_SUFFIX}")]


def clear_leftovers(folder: Path, *names: str) -> None:
    """Remove the temporary files and folders that writers left when they were killed.

    Args:
        folder: to look into.
        names: of the files whose lock the caller holds; all if none are given.
    """
    for leftover in leftovers(folder, *names):
        with contextlib.suppress(OSError):
            remove(leftover)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a loss of power, where the system can."""
    if os.name == "posix":
        _sync(folder)


def sync_files(root: Path, paths: Iterable[str]) -> None:
    """Make sure that files in a folder are on the disk."""
    for path in paths:
        _sync(root / path)


def _raise_cause(error: BaseException, path: Path) -> None:
    """Raise the full disk or refusal that a library wrapped in `error`, if there is one.

    It, or `error` if it is one itself, names `path`: the user knows no temporary file.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in FULL + REFUSED:
            cause.filename = str(path)
            if cause is not error:
                raise cause
        cause = cause.__cause__ or cause.__context__


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
