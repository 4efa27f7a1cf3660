"""Small files that are complete or absent, whatever ends the process that writes them."""

import contextlib
import os
import secrets
from pathlib import Path

_SUFFIX = ".tmp"


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a small file in one step: written beside its target, synced, renamed.

    Args:
        path: the file; its folder exists.
        content: text is written as UTF-8.

    Raises:
        OSError: it cannot be written (no space, no permission); what was there before stays.
    """
    data = memoryview(content.encode() if isinstance(content, str) else content)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            while data:
                data = data[os.write(file, data) :]
            os.fsync(file)
        finally:
            os.close(file)
        aside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    sync_folder(path.parent)


def clear_leftovers(folder: Path) -> None:
    """Remove what writers that were killed left in a folder; the caller holds its lock."""
    for left in folder.glob(f".*{_SUFFIX}"):
        left.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a loss of power, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
