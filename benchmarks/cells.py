"""Claim: cells of a study take at most half of the processor time that a new process each takes.

    python benchmarks/cells.py [--data DIR] [--check] [--out FILE]

Four statistical methods on 48 dates of 12 x 24 points, one after the other: in forks of a process
that has loaded torch and the models, and in a new process each. What they keep is compared first.
"""

import argparse
import os
import pickle
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr
from common import Line, interleave, run

from ens10 import prepare
from ens10.experiments.demo import config_path
from ens10.experiments.runner.running import Children, start_cell
from ens10.experiments.runner.trainings import ModelCell, find_cells, read_cell
from ens10.synthetic import World

CODE = ("experiments/runner",)

MODELS = ("raw", "raw_normal", "climatology", "emos_local")
ALONE = """
import pickle, sys
from ens10.experiments.runner.forks import compute_cell
compute_cell(pickle.load(sys.stdin.buffer))
"""


def cells(folder: Path, name: str) -> list[ModelCell]:
    """The cells of a study of its own, without runs and results of before."""
    for part in (folder / name, folder / "work" / "seed0" / "runs"):
        shutil.rmtree(part, ignore_errors=True)
    return find_cells(MODELS, [0], folder / "work", folder / name, config_path("raw").parent)


def in_forks(folder: Path) -> list[ModelCell]:
    """The cells, each in a fork of one process."""
    children, found = Children(), cells(folder, "forks")
    with children.end_after():
        for cell in found:
            if error := start_cell(cell, 1, children):
                raise SystemExit(error)
    return found


def in_processes(folder: Path) -> list[ModelCell]:
    """The cells, each in a new process."""
    found = cells(folder, "processes")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    for cell in found:
        cell.log.parent.mkdir(parents=True, exist_ok=True)
        with cell.log.open("w") as log:
            command = [sys.executable, "-c", ALONE]
            content = pickle.dumps(cell)
            subprocess.run(command, input=content, check=True, stdout=log, env=environment)
    return found


def states(cell: ModelCell) -> xr.Dataset:
    """What the scores of a cell are computed from."""
    with cell.results.temporary_folder([cell.place]) as folder:
        return read_cell(folder / cell.place).states.load().drop_attrs()


def processor_time() -> float:
    """Seconds of the processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Processor time in forks to that in new processes."""
    folder = options.data / "cells"
    store = folder / "work" / "seed0" / "store.zarr"
    if not store.exists():
        world, size = store.parent / "world", ("12x24", range(2000, 2008), 6, ("t2m", "u10", "v10"))
        World(*size, seed=0, steps=(48,)).write_once(world)
        prepare(world, store, truth=world / "truth")
    kept = [[states(cell) for cell in compute(folder)] for compute in (in_forks, in_processes)]
    if not all(one.identical(other) for one, other in zip(*kept, strict=True)):
        raise SystemExit("the cells differ")
    subjects = {"forks": lambda: in_forks(folder), "processes": lambda: in_processes(folder)}
    times = interleave(subjects, options.rounds, processor_time)
    ratio = times["forks"] / times["processes"]
    seconds = {name: round(value, 1) for name, value in times.items()}
    what = f"processor time of {len(MODELS)} cells in forks to that in new processes"
    return [Line(what, ratio, 0.5, at_least=False)], {"processor_seconds": seconds}


if __name__ == "__main__":
    sys.exit(run(__doc__.splitlines()[0].removeprefix("Claim: "), measure, code=CODE, rounds=3))
