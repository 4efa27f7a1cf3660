"""SIGTERM and SIGINT: end with one line and the exit status of the signal.

Python's default behaviour loses work in two ways: SIGTERM ends a process without a signal to its
children, and Ctrl-C raises `KeyboardInterrupt` between any two instructions, also where a training
step has changed half of the parameters. Work that can only end at certain places, such as after a
batch, checks `Stop.signal` there. A second signal ends it at once.

Python prints and ignores an exception in a finaliser, such as the closing of a generator that is no
longer referenced. A signal that arrives in a finaliser is therefore delivered again after it.
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
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Any, NoReturn

from ens10.errors import Ens10Error
from ens10.machine_errors import machine_error

_REPEAT_SECONDS = 1.0  # seconds within which signals are one request
_RETRY_SECONDS = 0.02  # seconds until a signal that must wait is delivered again
SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Python prints and ignores an exception in these functions and modules: they are called when an
# object is freed (`cb` and `weakref_cb` are those of importlib and concurrent.futures).
_FINALISERS, _FINALISER_MODULES = {"__del__", "cb", "weakref_cb"}, {"weakref", "_weakrefset"}
# After an exception in these, another thread would wait for a lock, or this one for a thread.
_INDIVISIBLE = {
    function.__code__
    for function in (
        threading.Condition.__enter__,
        threading.Condition.__exit__,
        threading.Thread.start,
    )
}


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
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # in an exit function it would be printed
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def must_wait(frame: FrameType | None) -> bool:
    """Return True if a signal must not raise its exception in a frame, but later.

    Args:
        frame: that the signal interrupts; None for no frame.
    """
    frames = [one for one, _ in walk_stack(frame)] if frame else []
    for one in frames:
        is_finaliser = one.f_code.co_name in _FINALISERS or one.f_code in _INDIVISIBLE
        if is_finaliser or one.f_globals.get("__name__") in _FINALISER_MODULES:
            return True
    error = sys.exception()
    while error is not None:  # a generator handles GeneratorExit while it is being closed
        places = walk_tb(error.__traceback__)
        if isinstance(error, GeneratorExit) and any(place in frames for place, _ in places):
            return True
        error = error.__context__
    return False


class Stop:
    """Handler of SIGTERM and SIGINT, which raises an exception at once or defers the signal.

    Attributes:
        signal: the first signal; 0 for none so far.
        deferred: True to record the first signal in `signal`; False to raise its exception where it
            arrives, or after a finaliser. It may be changed at any time.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.deferred = False
        self._arrival_time = -math.inf
        self._late_signal = 0  # it arrived where it must wait

    def handle(self, number: int, frame: FrameType | None = None) -> None:
        """Defer a signal or raise its exception; ignore one that follows at once.

        Ctrl-C reaches all processes of a terminal, and those that started others pass it on.
        """
        self._late_signal = 0
        is_recorded = self.deferred and not self.signal
        is_repeated = self.signal and time.monotonic() - self._arrival_time < _REPEAT_SECONDS
        if is_recorded or is_repeated:
            self.signal, self._arrival_time = self.signal or number, time.monotonic()
        elif must_wait(frame):
            self._late_signal = number
            with suppress(RuntimeError):  # the interpreter ends: no thread can be started
                # `threading` would wait for its own locks, which the interrupted code may hold
                _thread.start_new_thread(self._deliver_again, (number,))
        else:
            self.end(number)

    def _deliver_again(self, number: int) -> None:
        time.sleep(_RETRY_SECONDS)
        if self._late_signal:
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    def end(self, number: int) -> NoReturn:
        """Raise the exception of a signal, which another process may have received.

        One that follows at once is ignored: the other process passes it on.
        """
        self.signal, self._arrival_time = number, time.monotonic()
        raise ending(number)

    def check(self) -> None:
        """Raise the exception of a signal that arrived and has not raised it."""
        number, self._late_signal = self.signal or self._late_signal, 0
        if number:
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
    """Raise `Terminated` or `Interrupted` on SIGTERM or SIGINT in the block, or defer them.

    A signal that has not ended the block is raised after its last line. A block inside another one
    has the same `Stop`.
    """
    handler = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    stop = handler if isinstance(handler, Stop) else Stop()
    previous_handlers = stop.install()
    try:
        yield stop
        stop.check()
    finally:
        for number, previous in previous_handlers.items():
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)
