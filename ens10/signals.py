"""SIGTERM and SIGINT: end with one line and the exit status of the signal.

Python's default behaviour loses work in two ways: SIGTERM ends a process without a signal to its
children, and Ctrl-C raises `KeyboardInterrupt` between any two instructions, also where a training
step has changed half of the parameters. Work that can only end at certain places, such as after a
batch, checks `Stop.signal` there. A second signal ends it at once.
"""

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

    Args:
        status: of the process.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


class Stop:
    """Handler of SIGTERM and SIGINT, which raises an exception at once or defers the signal.

    Attributes:
        signal: the signal that arrived while `deferred`; 0 for none.
        deferred: True to record a signal in `signal`; False to raise its exception where it
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
        is_repeated = time.monotonic() - self._arrival_time < _REPEAT_SECONDS
        self._arrival_time = time.monotonic()
        if self.signal and is_repeated:
            return
        if self.deferred and not self.signal:
            self.signal = number
            return
        raise ending(number)

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
    """Raise `Terminated` or `Interrupted` on SIGTERM or SIGINT in the block, or defer them."""
    stop = Stop()
    previous_handlers = stop.install()
    try:
        yield stop
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
