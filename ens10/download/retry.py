"""Asking again, ever more slowly, for as long as that may help."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ens10.download.remote import TransientError

T = TypeVar("T")
Sleep = Callable[[float], object]
_NOTICED = 4.0  # seconds


@dataclass(frozen=True)
class Patience:
    """How often and how slowly to ask again.

    Attributes:
        tries: attempts in a row without any progress.
        first: seconds before the second attempt; doubled with every further one.
        longest: seconds between attempts at most.
        asked: seconds that a server may ask us to wait (`Retry-After`) before we give up instead.
        sleep: waits for some seconds.
        say: is told of pauses long enough to be noticed.
    """

    tries: int = 8
    first: float = 1.0
    longest: float = 60.0
    asked: float = 900.0
    sleep: Sleep = time.sleep
    say: Callable[[str], object] = lambda _: None

    def wait(self, failures: int, error: TransientError) -> None:
        """Waits after the given number of failures in a row.

        Raises:
            TransientError: that was the last attempt, or the server asks for too long a pause.
        """
        if failures >= self.tries:
            raise TransientError(
                f"{error}; given up after {failures} attempts", unreachable=error.unreachable
            ) from error
        if error.wait is not None and error.wait > self.asked:
            raise TransientError(
                f"{error}; the server asks to come back in {error.wait:.0f} s"
            ) from error
        backoff = min(self.longest, self.first * 2.0 ** (failures - 1))
        pause = backoff if error.wait is None else error.wait
        if pause >= _NOTICED:
            self.say(f"{error}: again in {pause:.0f} s ({failures} of {self.tries} tries)")
        self.sleep(pause)

    def call(self, action: Callable[[], T]) -> T:
        """The result of an action that may raise `TransientError` a few times.

        Raises:
            TransientError: it did to the end.
        """
        failures = 0
        while True:
            try:
                return action()
            except TransientError as error:
                failures += 1
                self.wait(failures, error)
