"""Processes that have loaded what cells need, and compute one cell at a time in a fork of theirs.

Loading torch, Lightning and the models takes seconds of processor time, which a new process for
each cell would spend again. A crash ends only the fork of its cell.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from importlib import import_module
from typing import IO, NoReturn, cast

from ens10.experiments.runner.cell import Cell
from ens10.signals import SIGNALS, end_process, report_interruption, stoppable

_NEEDED = ("ens10.experiments.runner.trainings", "dask.distributed")  # xarray asks for the second
_SERVE = "from ens10.experiments.runner.forks import serve; serve()"


class Server:
    """A process that computes cells in forks, for the process that started it.

    Args:
        threads: of each fork.
    """

    def __init__(self, threads: int) -> None:
        count = str(threads)
        self.threads = threads
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            env={**os.environ, "OMP_NUM_THREADS": count, "NUMBA_NUM_THREADS": count},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._pipe = cast("IO[bytes]", self._process.stdin)
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._lock = threading.Lock()
        self._fork: int | None = None
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def run(self, cell: Cell) -> int:
        """Compute a cell, and return the exit status; negative for the signal that killed it."""
        self._is_idle.clear()
        try:
            with suppress(BrokenPipeError):  # it has ended, and does not answer
                self._pipe.write(pickle.dumps((cell.log, pickle.dumps(cell))))
                self._pipe.flush()
            self._set_fork(self._answer())
            status = self._answer()
            self._set_fork(None)
            return self._process.wait() or 1 if status is None else status
        finally:
            self._is_idle.set()

    def _answer(self) -> int | None:
        """Return the next number that the process writes; None if it has ended."""
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        return int(line) if line else None

    def _set_fork(self, fork: int | None) -> None:
        """Note the fork that computes a cell, which ends if it came after a request to stop."""
        with self._lock:
            self._fork = fork
            if self._is_stopping:
                self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._fork is not None:
            with suppress(ProcessLookupError):
                os.kill(self._fork, number)

    def stop(self) -> None:
        """Ask the fork to save its work and end; a process without one ends at once."""
        with self._lock:
            self._is_stopping = True
            self._signal(signal.SIGTERM)
            if self._fork is None:
                self._process.kill()

    def end(self, seconds: float) -> None:
        """End the process once its fork has ended, or both after so many seconds."""
        if not self._is_idle.wait(seconds):
            with self._lock:
                self._signal(signal.SIGKILL)
            self._is_idle.wait()
        with suppress(BrokenPipeError):
            self._pipe.close()
        self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]


def compute_cell(cell: Cell) -> None:
    """Compute a cell in this process and keep its files.

    Raises:
        Ens10Error: as the cell's `compute`.
    """
    cell.keep(cell.compute())


def serve() -> None:
    """Compute the cells that come on standard input; write the number and the status of each fork.

    It ends with the process that started it. Signals are left to the forks.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for name in _NEEDED:
        with suppress(ModuleNotFoundError):
            import_module(name)

    with suppress(EOFError):
        while True:
            log, content = pickle.load(sys.stdin.buffer)
            fork = os.fork()
            if not fork:
                _write_to(log)
                _compute(content)
            _answer(fork)
            _answer(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]))


def _answer(number: int) -> None:
    print(number, flush=True)


def _write_to(log: "os.PathLike[str]") -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _compute(content: bytes) -> NoReturn:
    """Compute and keep the pickled cell, report an error in the log, and end this fork."""
    try:
        threading.Thread(target=_end_with_study, daemon=True).start()
        with stoppable():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            compute_cell(pickle.loads(content))
        status = 0
    except BaseException as error:
        reported = report_interruption(error)
        if reported is None:
            traceback.print_exc()
        status = 1 if reported is None else reported
    end_process(status)


def _end_with_study() -> NoReturn:
    """End this fork once nobody can write to the server: the process of the study has ended."""
    os.read(0, 1)
    os._exit(1)
