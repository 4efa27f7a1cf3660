"""The papers' tables by one command: do the cells that are missing, then write the tables."""

import sys
from collections.abc import Sequence
from itertools import groupby

from ens10.experiments.matrix.cells import Cell
from ens10.experiments.matrix.tasks import MEMBERS
from ens10.experiments.matrix.work import Work, add_optimum
from ens10.experiments.reproduce.pages import write_tables
from ens10.experiments.reproduce.plan import Request, find_all
from ens10.experiments.reproduce.skill import OPTIMUM
from ens10.signals import Interrupted, Terminated, stoppable


def reproduce(request: Request, *, workers: int = 1, threads: int = 1, older: bool = False) -> int:
    """Does what is missing and writes the tables of all cells that are there.

    Args:
        request: what is asked for.
        workers: cells at a time.
        threads: of each cell's process.
        older: whether cells of older code, data or configurations count as complete.

    Returns:
        The exit status: 1 if a cell failed or cannot be.

    Raises:
        Ens10Error: as `find_all`; MissingDataError if no cell at all is there.
        Terminated, Interrupted: a signal ended it, and the processes of its cells; the same call
            resumes.
    """
    try:
        with stoppable():
            return _reproduce(request, workers, threads, older)
    except (Terminated, Interrupted) as error:
        error.line += "; the same command resumes"
        raise


def _reproduce(request: Request, workers: int, threads: int, older: bool) -> int:
    cells, refused = find_all(request)
    for name, reason in refused.items():
        print(f"{name}: left out: {reason}", file=sys.stderr)
    print(f"{len(cells)} cells: {len(request.tasks)} tasks, {len(request.rows)} models, ", end="")
    print(f"{request.seeds} seeds", flush=True)
    work = Work(cells, older, threads)
    work.do_all(workers)
    if request.store is None:
        _optima(cells)
    for name, lines in work.failed.items():
        print(f"{name} failed:\n{lines}\n", file=sys.stderr)
    why = {name: lines.splitlines()[-1] for name, lines in work.failed.items()}
    missing = refused | why | {name: f"left to {who}" for name, who in work.elsewhere.items()}
    counts = ("complete", "older") if older else ("complete",)
    counted = [cell for cell in cells if cell.status() in counts]
    work.add_extremes(counted, workers)
    shown = {cell.kept for cell in counted}
    shown |= {kept.with_name(OPTIMUM) for kept in shown}
    print(write_tables(request, missing, shown))
    return int(bool(refused or why))


def _optima(cells: Sequence[Cell]) -> None:
    """The best possible forecast, which is known for ensembles of all members."""
    whole = [cell for cell in cells if cell.task and cell.task.members == MEMBERS]
    for _, group in groupby(whole, lambda cell: (cell.seed, cell.task)):
        add_optimum(list(group))
