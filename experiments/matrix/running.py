"""One cell: fit, predict, score, keep. In a process of its own, so that a crash stops only it.

python -m ens10.experiments.matrix.running --model unet --seed 0 --work WORK --out OUT
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ens10.durable import write_whole
from ens10.errors import Ens10Error
from ens10.experiments import provenance
from ens10.experiments.commands import tells_errors
from ens10.experiments.demo import config_path
from ens10.experiments.finished import SIZES
from ens10.experiments.matrix.cells import CONFIG, EXTREMES, KEY, Cell, find_cells, keep, write_key
from ens10.experiments.matrix.claims import end_with
from ens10.experiments.matrix.extremes import score_extremes
from ens10.experiments.matrix.tasks import Task
from ens10.experiments.reading import PREDICTIONS
from ens10.experiments.run import run_stage
from ens10.experiments.score import score_run
from ens10.experiments.sizes import score_sizes, takes_members
from ens10.experiments.trust import write_config
from ens10.untrusted import read_mapping

_LAST_LINES = 20
_PATIENCE = 60.0  # seconds for a process to save its work before it is killed


def run_cell(cell: Cell) -> None:
    """Does a cell; goes on where an earlier call was interrupted, if nothing changed since.

    Where the data give no model climate, there is no EECRPS; the cell counts nevertheless.

    Raises:
        Ens10Error: as `ens10 fit`, `predict` and `score`.
    """
    fit_cell(cell)
    finish_cell(cell)


def fit_cell(cell: Cell) -> None:
    """Trains a cell, or goes on with it; nothing if it is trained already.

    Raises:
        Ens10Error: as `ens10 fit`.
    """
    if cell.changed_since_begun() or not (cell.run / CONFIG).exists():
        shutil.rmtree(cell.run, ignore_errors=True)
        write_key(cell.begun, cell.identity)
        options = ["--data.store", str(cell.store), "--seed_everything", str(cell.seed)]
        config = ["--config", str(cell.config), *cell.overrides]
        run_stage("fit", [*config, *options, "--run", str(cell.run), "--quiet"])
        return
    _name_store(cell)
    if "seconds" not in provenance.read(cell.run):
        run_stage("fit", ["--run", str(cell.run), "--resume", "--quiet"])


def _name_store(cell: Cell) -> None:
    """Lets the configuration of a run that was begun name its data where they are now."""
    path = cell.run / CONFIG
    config = read_mapping(path)
    if config["data"]["store"] != str(cell.store):  # the folder was moved
        config["data"]["store"] = str(cell.store)
        write_config(path, config, derived_from=path)


def finish_cell(cell: Cell) -> None:
    """Predicts, scores and keeps a trained cell.

    Raises:
        Ens10Error: as `ens10 predict` and `score`.
    """
    run_stage("predict", ["--run", str(cell.run), "--quiet"])
    score_run(cell.run)
    if takes_members(cell.run) and not (cell.run / SIZES).exists():
        score_sizes(cell.run)
    try:
        score_extremes(cell)
    except Ens10Error as error:  # such as years too few for a climate
        print(f"no EECRPS: {error}", file=sys.stderr)
    keep(cell)


def lacks_extremes(cell: Cell) -> bool:
    """Whether a cell is kept without its EECRPS while the predictions that it is of are there."""
    key, begun = cell.kept / KEY, cell.begun
    same = key.is_file() and begun.is_file() and key.read_bytes() == begun.read_bytes()
    return same and not (cell.kept / EXTREMES).exists() and (cell.run / PREDICTIONS).exists()


def add_extremes(cell: Cell) -> None:
    """Gives a kept cell the EECRPS that it lacks.

    Raises:
        Ens10Error: as `score_extremes`.
    """
    score_extremes(cell)
    write_whole(cell.kept / EXTREMES, (cell.run / EXTREMES).read_bytes())


class Children:
    """The processes of cells, which end before the process that started them.

    Attributes:
        ended: whether they were asked to end, so that no other is started.
    """

    def __init__(self) -> None:
        self.ended = False
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def run(self, command: Sequence[str], environment: Mapping[str, str], output: IO[str]) -> int:
        """Run a command to its end.

        Args:
            command: program and arguments.
            environment: of the process.
            output: file of what it writes.

        Returns:
            The exit status; negative for the signal that killed it.
        """
        with self._lock:
            if self.ended:
                return 128 + signal.SIGTERM
            process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
            self._running.add(process)
        try:
            return process.wait()
        finally:
            with self._lock:
                self._running.discard(process)

    @contextmanager
    def ended_on_error(self) -> Iterator[None]:
        """Within it, an exception such as a signal's ends the processes, which save their work."""
        self.ended = False
        try:
            yield
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        with self._lock:
            self.ended = True
            running = set(self._running)
        for process in running:
            process.terminate()
        latest = time.monotonic() + _PATIENCE
        for process in running:
            try:
                process.wait(max(0.0, latest - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


CHILDREN = Children()


def start_cell(cell: Cell, threads: int = 1, *, extremes: bool = False) -> str | None:
    """Does a cell in a process of its own.

    Args:
        cell: to do.
        threads: of the process.
        extremes: whether only to do `add_extremes`.

    Returns:
        None, or the last lines that it wrote if it failed.
    """
    command = [sys.executable, "-m", *cell.process, "--parent", str(os.getpid())]
    command += ["--only-extremes"] if extremes else []
    count = str(threads)
    environment = {**os.environ, "OMP_NUM_THREADS": count, "NUMBA_NUM_THREADS": count}
    cell.log.parent.mkdir(parents=True, exist_ok=True)
    with cell.log.open("w") as file:
        status = CHILDREN.run(command, environment, file)
    if status == 0:
        return None
    lines = cell.log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
    return "\n".join(lines) or f"exit status {status}"


def add_parent(parser: argparse.ArgumentParser) -> None:
    """The option by which `start_cell` tells a cell's process whose it is."""
    parser.add_argument("--parent", type=int, metavar="PID", help="end when this process does")


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 with one line on bad input."""
    parser = argparse.ArgumentParser(prog="python -m ens10.experiments.matrix.running")
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--protocol", help="with target and members; else as configured")
    parser.add_argument("--target")
    parser.add_argument("--members", type=int)
    parser.add_argument("--only-extremes", action="store_true", help="of a kept cell's predictions")
    add_parent(parser)
    given = parser.parse_args(arguments)
    end_with(given.parent)
    configs = config_path("raw").parent
    task = Task(given.protocol, given.target, given.members) if given.protocol else None
    where = (given.work, given.out, configs, given.budget, task, given.store)
    (cell,) = find_cells([given.model], [given.seed], *where)
    add_extremes(cell) if given.only_extremes else run_cell(cell)
    return 0


if __name__ == "__main__":
    sys.exit(main())
