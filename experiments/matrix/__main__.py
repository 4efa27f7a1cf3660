"""The command: every model with every seed, each cell once, then the table of all."""

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ens10.errors import Ens10Error, listing
from ens10.experiments.demo import config_path
from ens10.experiments.finished import SCORES
from ens10.experiments.matrix.cells import Cell, find_cells, keep_optimum
from ens10.experiments.matrix.claims import claim, holder
from ens10.experiments.matrix.running import start_cell
from ens10.experiments.matrix.summary import write_summary
from ens10.experiments.matrix.worlds import WorldSize, store_of
from ens10.experiments.optimum import score_optimum
from ens10.synthetic import World

MODELS = ("raw", "emos_global", "emos_local", "mlp", "unet")


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
    _done: int = 0
    _begun: float = field(default_factory=time.perf_counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

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
            begun = time.perf_counter()
            wrong = start_cell(cell, self.threads)
            if wrong is not None:
                self.failed[cell.name] = wrong
                return self._tell(cell, f"FAILED: {wrong.splitlines()[-1]}")
            return self._tell(cell, f"done in {time.perf_counter() - begun:.0f} s")

    def _tell(self, cell: Cell, what: str) -> None:
        with self._lock:
            self._done += 1
            spent = time.perf_counter() - self._begun
            left = spent / self._done * (len(self.cells) - self._done)
            print(f"{cell.name}: {what} ({self._done} of {len(self.cells)}", end="")
            print(f", about {left / 60:.0f} min left)" if left > 60 else ")", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 if a cell failed, or with one line on bad input."""
    options = _parse(arguments)
    seeds = range(options.seeds)
    try:
        configs = config_path("raw").parent
        where = (options.work, options.out, configs)
        cells = find_cells(options.models, seeds, *where, options.budget)
        for seed in seeds:
            store_of(options.work / f"seed{seed}", seed, _size(options))
        work = Work(cells, options.keep_older, options.threads)
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(work.do, cells))
        for seed in seeds:
            _optimum([cell for cell in cells if cell.seed == seed])
        for name, lines in work.failed.items():
            print(f"{name} failed:\n{lines}\n", file=sys.stderr)
        print(write_summary(options.out, options.models, seeds))
    except Ens10Error as error:
        print(f"ens10: {error}", file=sys.stderr)
        return 1
    return 1 if work.failed else 0


def _optimum(cells: list[Cell]) -> None:
    """Scores the best possible forecast on the dates of a seed's first run that was predicted."""
    cell = next((c for c in cells if (c.run / SCORES).exists() and c.kept.exists()), None)
    if cell is None:
        return
    run = cell.run.with_name("optimum")
    if not (run / SCORES).exists():
        score_optimum(World.load(cell.folder / "world"), cell.run, run)
    keep_optimum(run, cell.kept.with_name("optimum"))


def _size(options: argparse.Namespace) -> WorldSize:
    first = WorldSize().years[0]
    years = tuple(range(first, first + options.years))
    return WorldSize(options.grid, years, options.dates)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m ens10.experiments.matrix",
        description="Every model with every seed on synthetic worlds; resumable.",
    )
    parser.add_argument("work", type=Path, help="folder for data and runs (7 GB a seed)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the small results")
    parser.add_argument("--models", nargs="+", default=list(MODELS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", metavar="NAME", help="how long to train, such as five_minutes")
    usual = WorldSize()
    parser.add_argument("--grid", default=usual.grid, help="of the worlds, rows x columns")
    parser.add_argument("--years", type=int, default=len(usual.years), help="of the worlds")
    parser.add_argument("--dates", type=int, default=usual.dates, help="in each year")
    parser.add_argument("--workers", type=int, default=1, help="cells at a time")
    parser.add_argument("--threads", type=int, default=1, help="of each cell")
    parser.add_argument(
        "--keep-older",
        action="store_true",
        help="cells made by other code, data or configurations count as complete",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
