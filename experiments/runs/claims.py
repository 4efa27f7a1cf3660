"""Claims of work by files that processes and machines share."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ens10.durable import clear_leftovers, temporary_path
from ens10.errors import FileError

HEARTBEAT = 20.0  # seconds between signs of life
TIMEOUT = 300.0  # without a sign of life, after which a claim is taken over
_WRITING = 1.0  # seconds in which a process writes its name into the claim that it created
_PROCESS = "process"
_TAKING = ".taking"  # of the lock under which a stale claim is replaced


@contextmanager
def claim(path: Path, heartbeat: float = HEARTBEAT, timeout: float = TIMEOUT) -> Iterator[bool]:
    """Claim a piece of work for as long as the block runs.

    Args:
        path: the claim file; its folder is created if needed.
        heartbeat: seconds between touches of the file.
        timeout: seconds without a touch after which another process's claim is stale.

    Yields:
        True if this process holds the claim; False if another process does.
    """
    token = secrets.token_hex(8)
    if not _acquire(path, heartbeat, timeout, token):
        yield False
        return
    clear_leftovers(path.parent, path.name, f"{path.name}{_TAKING}")
    stop_event = threading.Event()
    thread = threading.Thread(target=_touch, args=(path, token, heartbeat, stop_event), daemon=True)
    thread.start()
    try:
        yield True
    finally:
        stop_event.set()
        thread.join()
        with suppress(OSError):
            if _has_token(path, token):  # not if it was stale and another process took it over
                path.unlink()


def make_once(path: Path, make: Callable[[], object], *, wait: bool = True) -> None:
    """Make a file or folder unless it exists.

    Args:
        path: of the file or folder, which appears only when it is complete.
        make: function that makes it.
        wait: whether to wait where another process is making it.

    Raises:
        FileError: another process is making it, and we do not wait.
    """
    mark = path.with_suffix(".claim")
    while not path.exists():
        with claim(mark) as has_claim:
            if not (has_claim or wait):
                raise FileError(path, f"is being made by {holder(mark)}", "Try again later")
            if has_claim and not path.exists():
                make()
        if not path.exists():
            time.sleep(HEARTBEAT)


def holder(path: Path) -> str | None:
    """Return the process that holds a claim, in words; None if there is no claim."""
    try:
        return _text(path).partition("\n")[0].strip() or "somebody"
    except FileNotFoundError:
        return None


def _acquire(path: Path, heartbeat: float, timeout: float, token: str) -> bool:
    """Create the claim file, or replace a stale one; return False if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if _create(path, token):
        return True
    if not _is_stale(path, timeout) or not _is_dead(path, heartbeat):
        return False
    # only one process replaces a stale claim, and checks again: it may be a new claim by now
    lock = path.with_name(f"{path.name}{_TAKING}")
    if not _create(lock, token):
        if _is_stale(lock, timeout):
            lock.unlink(missing_ok=True)
        return False
    try:
        if not _is_stale(path, timeout):
            return False
        path.unlink(missing_ok=True)
        return _create(path, token)
    finally:
        lock.unlink(missing_ok=True)


def _is_stale(path: Path, timeout: float) -> bool:
    """Return True if the claim is stale: its process ended or its timestamp expired."""
    try:
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    return age >= timeout or _has_ended(path)


def _is_dead(path: Path, heartbeat: float) -> bool:
    """Return True if nothing touches a stale claim for two heartbeats.

    The age of a claim compares clocks. Its owner's clock may have been set back, or that of this
    machine forward, while the owner works. A claim that names no process is watched for a second,
    in which a process without hard links (see `_create`) would write its name.
    """
    if _owner(path) is None:
        heartbeat = min(heartbeat, _WRITING / 2)
    elif _has_ended(path):
        return True
    latest = time.monotonic() + 2 * heartbeat
    with suppress(FileNotFoundError):
        first = path.stat()
        while time.monotonic() < latest:
            time.sleep(heartbeat / 4)
            last = path.stat()
            if (last.st_ino, last.st_mtime_ns) != (first.st_ino, first.st_mtime_ns):
                return False
    return True


def _create(path: Path, token: str) -> bool:
    """Create a claim with its content in one step; return False if it exists.

    On file systems without hard links the content follows, so that a kill may leave an empty file.
    """
    content = f"{_PROCESS} {os.getpid()} on {socket.gethostname()}\n{token}\n"
    partial = temporary_path(path)
    try:
        partial.write_text(content)
        os.link(partial, path)
    except FileExistsError:
        return False
    except OSError:
        return _create_without_link(path, content) and _has_token(path, token)
    finally:
        partial.unlink(missing_ok=True)
    return True


def _create_without_link(path: Path, content: str) -> bool:
    try:
        with path.open("x") as file:
            file.write(content)
    except FileExistsError:
        return False
    return True


def _text(path: Path) -> str:
    return path.read_text(errors="replace")


def _has_token(path: Path, token: str) -> bool:
    """Return True if the file of a claim was written with the token."""
    with suppress(FileNotFoundError):
        return _text(path).splitlines()[1:] == [token]
    return False


def _owner(path: Path) -> tuple[str, str] | None:
    """Return identifier and machine of the process that a claim names; None if it names none."""
    words = (holder(path) or "").split()
    is_named = len(words) == 4 and words[0] == _PROCESS and words[1].isdecimal()
    return (words[1], words[3]) if is_named else None


def _has_ended(path: Path) -> bool:
    """Return True if a claim names no process, or one of this machine that has ended."""
    owner = _owner(path)
    if owner is None:
        return path.exists()
    if owner[1] != socket.gethostname():
        return False
    try:
        os.kill(int(owner[0]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


def _touch(path: Path, token: str, heartbeat: float, stop_event: threading.Event) -> None:
    while not stop_event.wait(heartbeat):
        try:
            if not _has_token(path, token):
                return
            os.utime(path)
        except FileNotFoundError:
            return
        except OSError:  # a network that fails once may answer at the next heartbeat
            continue
