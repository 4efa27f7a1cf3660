"""SIGTERM and SIGINT: end with one line and the exit status of the signal.

Python's default behaviour loses work in two ways: SIGTERM ends a process without a signal to its
children, and Ctrl-C raises `KeyboardInterrupt` between any two instructions, also where a training
step has changed half of the parameters. Work that can only end at certain places, such as after a
batch, checks `Stop.signal` there. A second signal ends it at once.

Python prints and ignores an exception where it frees an object, for example while it closes a
generator that nobody refers to. An ignored exception of a signal is raised again shortly after.
"""

import _thread
import atexit
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from ens10.errors import Ens10Error
from ens10.machine_errors import machine_error

_REPEAT_SECONDS = 1.0  # seconds within which signals are one request
_RETRY_SECONDS = 0.02  # until an exception that Python ignored is raised again
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Terminated(SystemExit):
    """The process was asked to end by SIGTERM; its exit status is 143.

    Args:
        line: what to report on stderr; "" for nothing.
    """

    def __init__(self, line: str = "terminated") -> None:
        super().__init__(128 + signal.SIGTERM)
        self.line = line


class Interrupted(KeyboardInterrupt):
    """The user asked the process to end by Ctrl-C; its exit status is 130.

    Args:
        line: what to report on stderr; "" for nothing.
    """

    def __init__(self, line: str = "interrupted") -> None:
        super().__init__(line)
        self.line = line


def ending(number: int, line: str = "") -> Terminated | Interrupted:
    """Return the exception that ends a process as a signal asks.

    Args:
        number: of the signal, SIGTERM or SIGINT.
        line: to report after the word "terminated" or "interrupted".
    """
    word = "interrupted" if number == signal.SIGINT else "terminated"
    text = f"{word}; {line}" if line else word
    return Interrupted(text) if number == signal.SIGINT else Terminated(text)


def report_interruption(error: BaseException) -> int | None:
    """Print the error or signal that ended a command, in one line on stderr.

    Args:
        error: an error of ens10 or of the machine (`ens10.machine_errors`), Ctrl-C or SIGTERM.

    Returns:
        The exit status: 1, 130 after Ctrl-C, 143 after SIGTERM; None for any other error, which is
        not reported.
    """
    if isinstance(error, Exception):
        ens10_error = error if isinstance(error, Ens10Error) else machine_error(error)
        if ens10_error is None:
            return None
        print(f"ens10: {ens10_error}", file=sys.stderr)
        return 1
    if not isinstance(error, KeyboardInterrupt | Terminated):
        return None
    line = getattr(error, "line", "interrupted")
    if line:
        print(f"ens10: {line}", file=sys.stderr)
    return 130 if isinstance(error, KeyboardInterrupt) else 143


def end_process(status: int) -> NoReturn:
    """End this process at once, after the end of its command was reported.

    Exit functions are run and streams are flushed. The interpreter does not finalise its modules:
    that takes seconds where many libraries are loaded, which may print errors if memory is short.
    A further signal leaves out the rest.

    Args:
        status: of the process.
    """
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, lambda *_: os._exit(status))
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


class Stop:
    """Handler of SIGTERM and SIGINT, which raises an exception at once or defers the signal.

    Attributes:
        signal: the first signal; 0 for none so far.
        deferred: True to record the first signal in `signal`; False to raise its exception where it
            arrives. It may be changed at any time.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.deferred = False
        self._arrival_time = -math.inf

    def handle(self, number: int, frame: FrameType | None = None) -> None:  # noqa: ARG002
        """Defer a signal or raise its exception; ignore one that follows at once.

        Ctrl-C reaches all processes of a terminal, and those that started others pass it on.
        """
        is_repeated = self.signal and time.monotonic() - self._arrival_time < _REPEAT_SECONDS
        is_recorded = self.deferred and not self.signal
        self.signal, self._arrival_time = self.signal or number, time.monotonic()
        if not (is_repeated or is_recorded):
            raise ending(number)

    def end(self, number: int) -> NoReturn:
        """Raise the exception of a signal that another process received and may pass on."""
        self.signal, self._arrival_time = number, time.monotonic()
        raise ending(number)

    def handle_ignored(self, error: BaseException | None) -> bool:
        """Return True if Python ignored the exception of a signal, which is then raised again.

        Args:
            error: that Python ignored.
        """
        if not (self.signal and isinstance(error, Terminated | Interrupted)):
            return False
        self._arrival_time = -math.inf  # or the signal would be ignored as a repeated one
        with suppress(RuntimeError):  # the interpreter ends: no thread can be started
            _thread.start_new_thread(self._repeat, ())
        return True

    def _repeat(self) -> None:
        time.sleep(_RETRY_SECONDS)
        if signal.getsignal(self.signal) == self.handle:
            signal.pthread_kill(threading.main_thread().ident or 0, self.signal)

    def install(self) -> dict[int, Any]:
        """Make this the handler of both signals, and return the previous handlers.

        In threads other than the main thread nothing changes. A signal that is ignored,
        as for commands started by `nohup` or in the background, stays so.
        """
        if threading.current_thread() is not threading.main_thread():
            return {}
        handlers: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
        handlers = {n: handler for n, handler in handlers.items() if handler != signal.SIG_IGN}
        for number in handlers:
            signal.signal(number, self.handle)
        return handlers


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Raise `Terminated` or `Interrupted` on SIGTERM or SIGINT in the block, or defer them.

    A signal that has not ended the block is raised after its last line. A block inside another one
    has the same `Stop`.
    """
    handler = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    stop = handler if isinstance(handler, Stop) else Stop()
    previous_handlers, previous_hook = stop.install(), sys.unraisablehook

    def report_ignored(unraisable: Any) -> None:
        if not stop.handle_ignored(unraisable.exc_value):
            previous_hook(unraisable)

    sys.unraisablehook = report_ignored
    try:
        yield stop
        if stop.signal:
            raise ending(stop.signal)
    finally:
        sys.unraisablehook = previous_hook
        for number, previous in previous_handlers.items():
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)
