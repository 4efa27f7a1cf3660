"""One-line errors for limits of the machine: disk space, permissions, memory, files, threads."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ens10.errors import Ens10Error, FileError, ResourceError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_FILES = (errno.EMFILE, errno.ENFILE)
# Compiled libraries report a lack of memory as errors of any type, in these words.
_NO_MEMORY = (
    "bad_alloc", "cannot allocate memory", "can't allocate memory", "can't start new thread",
    "defaultcpuallocator", "failed to map segment", "not enough memory", "out of memory",
    "unable to allocate",
)  # fmt: skip
_DATA = ("synth", "download", "inspect", "prepare", "verify", "export", "score", "report", "case")
_TRAINING = ("fit", "validate", "test", "predict", "plan", "demo", "reproduce")
# MB of address space that the libraries of a command take at least, on Linux with one thread,
# compilation of the loops included.
_MIN_MEMORY_MB = {**dict.fromkeys(_DATA, 800), **dict.fromkeys(_TRAINING, 2400)}
_NO_FILES = ("too many open files",)
_NO_SPACE = ("no space left on device", "disk quota exceeded", "file too large")


def machine_error(error: BaseException) -> Ens10Error | None:
    """Return the error to report where the machine, or a limit of the process, is the cause.

    Libraries wrap the system's errors in other types: all causes are searched.

    Args:
        error: any error.

    Returns:
        None where there is another cause.
    """
    for cause, handled in _causes(error):
        if isinstance(cause, OSError) and not handled and (refusal := _access_error(cause)):
            return refusal
        if shortage := _shortage_error(cause):
            return shortage
    return None


def read_failure(path: Path, error: OSError) -> FileError:
    """Return a FileError for one file that cannot be read, for callers that go on to other files.

    Args:
        path: the file.
        error: what the system raised on reading it.

    Raises:
        ResourceError: memory or open files do not suffice, so that other files would fail too.
    """
    failure = machine_error(error)
    if isinstance(failure, ResourceError):
        raise failure from error
    reason = f"cannot be read ({error.strerror or error})"
    return FileError(path, reason, "Check its permissions and the disk, or fetch the file again")


@contextmanager
def writing_netcdf(path: Path) -> Iterator[None]:
    """Report a failed netCDF write in one line: its library does not always say why.

    Args:
        path: the file, for the message.

    Raises:
        FileError: it could not be written.
        OSError: it could not be written, and the system gives the cause (no space, no permission).
        RuntimeError: the same, where the library raised this type.
    """
    try:
        yield
    except Ens10Error:
        raise
    except (TypeError, ValueError) as error:
        reason = f"cannot be written: netCDF cannot hold its attributes ({error})"
        raise FileError(path, reason, "Make the forecast and the truth anew") from error
    except (OSError, RuntimeError) as error:
        if machine_error(error) is not None:
            raise
        reason = f"cannot be written as netCDF ({error})"
        raise FileError(path, reason, "Look whether the disk is full") from error


def check_memory_limit(command: str) -> None:
    """Refuse a `ulimit -v` that is too low to load the libraries of a command.

    Below it they end the process without a message, by a segmentation fault or an abort.

    Args:
        command: of `ens10`.

    Raises:
        ResourceError: the limit is too low.
    """
    minimum = _MIN_MEMORY_MB.get(command, 0)
    limit = _soft_limit("RLIMIT_AS")
    if limit is not None and limit >> 20 < minimum:
        raise _no_memory(f"; `ens10 {command}` needs {minimum} MB or more")


def _no_memory(detail: str = "") -> ResourceError:
    return ResourceError(
        f"not enough memory{_limit('RLIMIT_AS', 1 << 20, ' MB')}{detail}",
        "Use a smaller batch (--data.batch_size), fewer --workers or OMP_NUM_THREADS=1, or "
        "raise the limit (`ulimit -v`); then run the same command again",
    )


def _causes(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """Yield an error and its causes, each with True if it was only being handled.

    An error that was being handled when another was raised need not be its cause.
    """
    ids: set[int] = set()
    cause: BaseException | None = error
    handled = False
    while cause is not None and id(cause) not in ids:
        ids.add(id(cause))
        yield cause, handled
        handled = handled or cause.__cause__ is None
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _access_error(error: OSError) -> Ens10Error | None:
    """Return the error of a file or folder that the system refused to access, or None."""
    filename = error.filename  # a number where a file was opened by its descriptor
    path = os.fsdecode(filename) if isinstance(filename, str | bytes | os.PathLike) else ""
    if error.errno in FULL:
        return _full(path)
    if error.errno == errno.ENOTDIR:
        remedy = "Choose another place"
        return FileError(path or "a path", "a part of it is a file, not a folder", remedy)
    if error.errno not in REFUSED:
        return None
    reason = os.strerror(error.errno).lower()
    if error.errno == errno.EACCES and os.access(path, os.F_OK) and not os.access(path, os.R_OK):
        return FileError(path, f"cannot be read ({reason})", "Ask its owner to let you read it")
    remedy = "Make its folder writable, or choose another one"
    return FileError(path or "a file", f"cannot be written ({reason})", remedy)


def _full(path: str) -> FileError:
    remedy = "Free some space, then run the same command again"
    return FileError(path or "a file", "no space is left on the disk", remedy)


def _shortage_error(error: BaseException) -> Ens10Error | None:
    """Return the error of a lack of memory, files or threads, or None."""
    number = error.errno if isinstance(error, OSError) else None
    words = str(error).lower() if isinstance(error, OSError | RuntimeError | ImportError) else ""
    if isinstance(error, RuntimeError) and any(word in words for word in _NO_SPACE):
        return _full("")
    if number in _FILES or any(word in words for word in _NO_FILES):
        remedy = "Raise the limit (`ulimit -n`), or use fewer --workers or --jobs"
        reason = f"too many open files{_limit('RLIMIT_NOFILE', 1, '')}"
        return ResourceError(reason, f"{remedy}; then run the same command again")
    short = isinstance(error, MemoryError) or number == errno.ENOMEM
    if short or any(word in words for word in _NO_MEMORY):
        return _no_memory()
    return None


def _limit(name: str, unit: int, suffix: str) -> str:
    """Format a limit of this process in brackets; "" if it has none."""
    soft = _soft_limit(name)
    return "" if soft is None else f" (the limit is {soft // unit}{suffix})"


def _soft_limit(name: str) -> int | None:
    """Return a limit of this process; None if it has none."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    soft, _ = resource.getrlimit(getattr(resource, name))
    return None if soft == resource.RLIM_INFINITY else soft
