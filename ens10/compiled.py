"""Options of numba: interpreter lock released, cache on disk, numpy's rules for division."""

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache

_config: Any = numba.config


def cache_works() -> bool:
    """Return True if numba finds a folder for compiled loops; if need be, give it one.

    It looks for one beside the source and in the home folder. Where neither can be written, as in
    a container without a home, compiled loops are kept in a folder of this user's own among the
    temporary files, or not at all: then each process compiles them again.
    """
    beside = os.access(Path(__file__).parent, os.W_OK)
    if (_config.CACHE_DIR or beside or _has_home()) and _found():
        return True
    folder = _own_temporary_folder()
    if folder is None:
        return False
    _config.CACHE_DIR = str(folder)
    return _found()


def _has_home() -> bool:
    """Return False where numba would make a folder that is called `~`."""
    try:
        return bool(Path.home())
    except RuntimeError:
        return False


def _found() -> bool:
    try:
        FunctionCache(_found)
    except RuntimeError:
        return False
    return True


def _own_temporary_folder() -> Path | None:
    """Return a folder that only this user can write, since its content is executed; or None."""
    if os.name != "posix":
        return None
    with suppress(OSError):
        folder = Path(tempfile.gettempdir()) / f"ens10-compiled-{os.getuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        about = folder.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
            folder.chmod(0o700)
            return folder
    return None


OPTIONS: dict[str, Any] = {"nogil": True, "cache": cache_works(), "error_model": "numpy"}
