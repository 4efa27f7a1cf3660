"""Claims of work by files that processes and machines share."""

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BEAT = 20.0  # seconds between signs of life
LOST = 300.0  # without a sign of life, after which a claim is taken over
_PROCESS = "process"


@contextmanager
def claim(path: Path, beat: float = BEAT, lost: float = LOST) -> Iterator[bool]:
    """Claim a piece of work for as long as the block runs.

    Args:
        path: the file that stands for the claim; its folder is made.
        beat: seconds between touches of the file.
        lost: seconds without a touch after which another process's claim is stale.

    Yields:
        True if the claim is ours; False if another process holds it.
    """
    token = secrets.token_hex(8)
    if not _take(path, lost, token):
        yield False
        return
    stop_event = threading.Event()
    thread = threading.Thread(target=_touch, args=(path, token, beat, stop_event), daemon=True)
    thread.start()
    try:
        yield True
    finally:
        stop_event.set()
        thread.join()
        with suppress(OSError):
            if _has(path, token):  # not if it was stale and another process took it over
                path.unlink()


def make_once(path: Path, make: Callable[[], object]) -> None:
    """Make a file or folder unless it is there; wait while another process makes it.

    Args:
        path: that is made, whole or not at all.
        make: makes it.
    """
    while not path.exists():
        with claim(path.with_suffix(".claim")) as has_claim:
            if has_claim and not path.exists():
                make()
        if not path.exists():
            time.sleep(BEAT)


def end_with(parent: int | None, beat: float = 1.0) -> None:
    """End this process soon after the one that started it, whose claim is stale then.

    Args:
        parent: number of the process that started this one; None, or its own, for no watcher.
        beat: seconds between looks.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(beat)
        os._exit(1)

    if parent not in (None, os.getpid()):
        threading.Thread(target=watch, daemon=True).start()


def holder(path: Path) -> str | None:
    """Return who holds a claim, for messages; None if nobody does."""
    try:
        return path.read_text().partition("\n")[0].strip() or "somebody"
    except FileNotFoundError:
        return None


def _take(path: Path, timeout: float, token: str) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    if _create(path, token):
        return True
    if not _is_stale(path, timeout):
        return False
    # one alone takes it over, and looks again: it may be a new claim by now
    lock = path.with_name(f"{path.name}.taking")
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


def _create(path: Path, token: str) -> bool:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{_PROCESS} {os.getpid()} on {socket.gethostname()}\n{token}\n")
    return True


def _has(path: Path, token: str) -> bool:
    """Return True if the file of a claim was written with the token."""
    return path.read_text().splitlines()[1:] == [token]


def _has_ended(path: Path) -> bool:
    """Return True if a process of this machine claimed it and has ended."""
    words = (holder(path) or "").split()
    if len(words) != 4 or words[0] != _PROCESS or words[3] != socket.gethostname():
        return False
    try:
        os.kill(int(words[1]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, ValueError):
        return False
    return False


def _touch(path: Path, token: str, beat: float, stop_event: threading.Event) -> None:
    while not stop_event.wait(beat):
        try:
            if not _has(path, token):
                return
            os.utime(path)
        except FileNotFoundError:
            return
        except OSError:  # a network that fails once may answer at the next beat
            continue
