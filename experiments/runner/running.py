"""Cells in processes of their own, one after the other or several at a time.

A crash ends only the process of its cell, which computes it and keeps its files in the study's
results.
"""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from ens10.errors import FileError, listing, printable
from ens10.experiments.runner.cell import Cell
from ens10.experiments.runner.forks import Server
from ens10.experiments.runner.results import KEY
from ens10.experiments.runs.claims import claim, holder
from ens10.signals import Interrupted, Terminated, stoppable

_LAST_LINES = 20
_PATIENCE = 60.0  # seconds for a process to save its work before it is killed


class Children:
    """The processes that compute cells, which end before the process that started them.

    Attributes:
        is_stopping: True once the processes are being terminated; no cell begins then.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        self._servers: list[Server] = []
        self._idle: list[Server] = []
        self._lock = threading.Lock()

    def run(self, cell: Cell, threads: int) -> int:
        """Compute a cell in a process of its own.

        Args:
            cell: to compute.
            threads: of the process.

        Returns:
            The exit status; negative for the signal that killed it.
        """
        with self._lock:
            if self.is_stopping:
                return 128 + signal.SIGTERM
            server = self._take(threads)
        try:
            return server.run(cell)
        finally:
            with self._lock:
                self._idle.append(server)

    def _take(self, threads: int) -> Server:
        for server in self._idle:
            if server.threads == threads and server.is_running:
                self._idle.remove(server)
                return server
        self._servers.append(Server(threads))
        return self._servers[-1]

    @contextmanager
    def end_after(self) -> Iterator[None]:
        """End the processes after the block; they save their work if it raises."""
        try:
            yield
        except BaseException:
            self._stop()
            raise
        finally:
            latest = time.monotonic() + _PATIENCE
            for server in self._servers:
                server.end(max(0.0, latest - time.monotonic()))

    def _stop(self) -> None:
        with self._lock:
            self.is_stopping = True
            servers = list(self._servers)
        for server in servers:
            server.stop()


def start_cell(cell: Cell, threads: int, children: Children) -> str | None:
    """Compute a cell in a process of its own.

    Args:
        cell: to compute.
        threads: of the process.
        children: which the process belongs to.

    Returns:
        None, or the last lines that it printed if it failed.
    """
    cell.log.parent.mkdir(parents=True, exist_ok=True)
    cell.log.write_bytes(b"")
    status = children.run(cell, threads)
    if status == 0:
        return None
    lines = cell.log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
    return "\n".join(lines) or f"exit status {status}"


@dataclass
class Work:
    """The cells of one call and their outcome.

    Attributes:
        cells: in the order in which they are computed.
        older: whether cells of older code, data or configurations count as complete.
        threads: of each cell's process.
        errors: the last lines that a failed cell printed, by its name.
        owners: the other process that computes a cell, by the cell's name.
    """

    cells: Sequence[Cell]
    older: bool = False
    threads: int = 1
    errors: dict[str, str] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    _children: Children = field(default_factory=Children)
    _report_count: int = 0
    _computed_count: int = 0
    _start_time: float = field(default_factory=time.perf_counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def do_all(self, workers: int = 1) -> None:
        """Compute the cells, some at a time; one that fails does not stop the others."""
        with ThreadPoolExecutor(workers) as pool, self._children.end_after():
            list(pool.map(self._try, self.cells))

    def _try(self, cell: Cell) -> None:
        try:
            self.do(cell)
        except Exception as error:  # whatever it is, the others are computed
            self._fail(cell, f"{type(error).__name__}: {error}")

    def do(self, cell: Cell) -> None:
        """Compute one cell, unless it is complete or another process computes it."""
        status = cell.status()
        if status == "complete":
            return self._report(cell, "complete")
        if status == "older" and self.older:
            changes = listing(cell.changes() or [])
            return self._report(cell, f"complete, but made before a change of {changes}")
        with claim(cell.claim) as has_claim:
            if not has_claim:
                self.owners[cell.name] = holder(cell.claim) or "somebody"
                return self._report(cell, f"left to {self.owners[cell.name]}")
            if cell.status() == "complete":  # another process computed it before the claim
                return self._report(cell, "complete")
            start = time.perf_counter()
            error_lines = start_cell(cell, self.threads, self._children)
            if error_lines is not None:
                return self._fail(cell, error_lines)
            seconds = time.perf_counter() - start
            return self._report(cell, f"done in {seconds:.0f} s", is_computed=True)

    def _fail(self, cell: Cell, lines: str) -> None:
        self.errors[cell.name] = lines
        self._report(cell, f"FAILED: {_last_line(lines)}", is_computed=True)

    def _report(self, cell: Cell, message: str, *, is_computed: bool = False) -> None:
        if self._children.is_stopping:  # by a signal to this process
            return
        with self._lock:
            self._report_count += 1
            self._computed_count += is_computed  # complete cells took no time
            elapsed = time.perf_counter() - self._start_time
            remaining = (
                elapsed / max(1, self._computed_count) * (len(self.cells) - self._report_count)
            )
            line = f"{cell.name}: {message} ({self._report_count} of {len(self.cells)}"
            print(printable(line), end="")
            show_remaining = self._computed_count and remaining > 60
            print(f", about {remaining / 60:.0f} min left)" if show_remaining else ")", flush=True)


def _last_line(lines: str) -> str:
    return (lines.splitlines() or [""])[-1]


@dataclass(frozen=True)
class Outcome:
    """Outcome of the cells of one call.

    Attributes:
        places: places of the cells with a valid result; None for all kept cells.
        missing: reason why a cell has no result, by its name.
        owners: the other process that computes a cell, by the cell's name.
        failed: whether a cell failed.
    """

    places: frozenset[str] | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    failed: bool = False


def run_cells(
    cells: Sequence[Cell],
    refusals: Mapping[str, str] | None = None,
    *,
    workers: int = 1,
    threads: int = 1,
    older: bool = False,
) -> Outcome:
    """Compute the cells that are missing, and print what fails.

    Args:
        cells: of a study.
        refusals: reason why another cell cannot be computed, by its name.
        workers: number of cells computed at a time.
        threads: of each cell's process.
        older: whether cells of older code, data or configurations count as complete.

    Raises:
        FileError: cells that an earlier version kept in folders.
        Terminated, Interrupted: a signal ended it, and the processes of its cells; the same call
            resumes.
    """
    _refuse_folders(cells)
    for name, reason in (refusals or {}).items():
        print(printable(f"{name}: left out: {reason}"), file=sys.stderr)
    work = Work(cells, older, threads)
    try:
        with stoppable():
            work.do_all(workers)
    except (Terminated, Interrupted) as error:
        error.line += "; the same command resumes"
        raise
    for name, lines in work.errors.items():
        print(f"{printable(name)} failed:\n{printable(lines, keep=chr(10))}\n", file=sys.stderr)
    errors = {
        **(refusals or {}),
        **{name: _last_line(lines) for name, lines in work.errors.items()},
    }
    missing = {**errors, **{name: f"left to {owner}" for name, owner in work.owners.items()}}
    valid_statuses = ("complete", "older") if older else ("complete",)
    places = frozenset(cell.place for cell in cells if cell.status() in valid_statuses)
    return Outcome(places, missing, work.owners, bool(errors))


def _refuse_folders(cells: Sequence[Cell]) -> None:
    """Raise a FileError for cells that an earlier version kept in folders."""
    for cell in cells:
        if (cell.out / cell.place / KEY).exists():
            command = f"python -m ens10.experiments.runner.results {cell.out} --pack"
            problem = "a cell that an earlier version kept in a folder"
            raise FileError(cell.out / cell.place, problem, f"Run `{command}`")
