"""The cells of one call, done one after the other or several at a time."""

import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ens10.errors import FileError, listing
from ens10.experiments.finished import SCORES
from ens10.experiments.matrix.cells import Cell, keep_optimum
from ens10.experiments.matrix.claims import claim, holder
from ens10.experiments.matrix.running import CHILDREN, lacks_extremes, start_cell
from ens10.experiments.optimum import score_optimum
from ens10.experiments.statefile import load_states
from ens10.synthetic import World


@dataclass
class Work:
    """The cells of one call, and what became of them.

    Args:
        cells: in the order that they are done.
        older: whether cells of older code count as complete.
        threads: of each cell's process.
    """

    cells: list[Cell]
    older: bool = False
    threads: int = 1
    failed: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, str] = field(default_factory=dict)
    _told: int = 0
    _worked: int = 0
    _begun: float = field(default_factory=time.perf_counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def do_all(self, workers: int = 1) -> None:
        """Does the cells, some at a time; one that fails does not stop the others."""
        with ThreadPoolExecutor(workers) as pool, CHILDREN.ended_on_error():
            list(pool.map(self._try, self.cells))

    def add_extremes(self, cells: Iterable[Cell], workers: int = 1) -> None:
        """Gives kept cells the EECRPS that they lack, where their predictions are still there."""

        def add(cell: Cell) -> None:
            with claim(cell.claim) as ours:
                if ours and lacks_extremes(cell):
                    wrong = start_cell(cell, self.threads, extremes=True)
                    told = f"not added: {_last_line(wrong)}" if wrong else "added"
                    print(f"{cell.name}: EECRPS {told}", flush=True)

        with ThreadPoolExecutor(workers) as pool, CHILDREN.ended_on_error():
            list(pool.map(add, [cell for cell in cells if lacks_extremes(cell)]))

    def _try(self, cell: Cell) -> None:
        try:
            self.do(cell)
        except Exception as error:  # whatever it is, the others go on
            self._fail(cell, f"{type(error).__name__}: {error}")

    def do(self, cell: Cell) -> None:
        """Does one cell, unless it is complete or somebody else is at it."""
        status = cell.status()
        if status == "complete":
            return self._tell(cell, "complete")
        if status == "older" and self.older:
            changed = listing(cell.changed() or [])
            return self._tell(cell, f"complete, but made before a change of {changed}")
        with claim(cell.claim) as ours:
            if not ours:
                self.elsewhere[cell.name] = holder(cell.claim) or "somebody"
                return self._tell(cell, f"left to {self.elsewhere[cell.name]}")
            if cell.status() == "complete":  # somebody did it between the look and the claim
                return self._tell(cell, "complete")
            begun = time.perf_counter()
            wrong = start_cell(cell, self.threads)
            if wrong is not None:
                return self._fail(cell, wrong)
            took = time.perf_counter() - begun
            return self._tell(cell, f"done in {took:.0f} s", worked=True)

    def _fail(self, cell: Cell, lines: str) -> None:
        self.failed[cell.name] = lines
        self._tell(cell, f"FAILED: {_last_line(lines)}", worked=True)

    def _tell(self, cell: Cell, what: str, *, worked: bool = False) -> None:
        if CHILDREN.ended:  # by a signal to this process
            return
        with self._lock:
            self._told += 1
            self._worked += worked  # what was complete before says nothing of the time that is left
            spent = time.perf_counter() - self._begun
            left = spent / max(1, self._worked) * (len(self.cells) - self._told)
            print(f"{cell.name}: {what} ({self._told} of {len(self.cells)}", end="")
            known = self._worked and left > 60
            print(f", about {left / 60:.0f} min left)" if known else ")", flush=True)


def _last_line(lines: str) -> str:
    return (lines.splitlines() or [""])[-1]


def add_optimum(cells: list[Cell]) -> None:
    """Scores the best possible forecast on the dates of the first of some cells that was predicted.

    Args:
        cells: of one seed and task, on that seed's world.
    """
    cell = next((c for c in cells if (c.run / SCORES).exists() and c.kept.exists()), None)
    if cell is None:
        return
    run = cell.run.with_name("optimum")
    world = cell.folder / "world"
    with claim(cell.claim.with_name("optimum")) as ours:
        if not ours:
            return
        if not _scored_alike(run, cell.run):
            if not world.exists():  # deleted: it is large, and nothing else needs it any more
                return
            score_optimum(World.load(world), cell.run, run)
        keep_optimum(run, cell.kept.with_name("optimum"))


def _scored_alike(optimum: Path, run: Path) -> bool:
    """Whether an optimum is there, and of the dates, points and weights of a run."""
    if not (optimum / SCORES).exists():
        return False
    try:
        mine, its = (load_states(folder / SCORES)["crps_weight"] for folder in (optimum, run))
    except FileError:
        return False
    return bool(mine.equals(its))
