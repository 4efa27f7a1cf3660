"""What the benchmarks share: data of the real size, interleaved timing, one way to report.

A benchmark checks that its subjects give equal results, then times them in turns (one round
after the other, so that what else the machine does falls on all alike) and reports ratios of
medians.
"""

import argparse
import ast
import contextlib
import hashlib
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

GRID = "361x720"
DATES = 16
VARIABLES = ("sst", "tcw", "tcwv", "cp", "msl", "tcc", "u10", "v10", "t2m", "tp", "skt")
# what reads batches from a store, for the list of what a benchmark measures
LOADER = (
    "store/chunks", "store/file_bytes", "loader/batches", "loader/batch_layouts", "loader/buffers",
    "loader/content", "loader/order", "loader/samples", "loader/store_samples", "loader/tensors",
)  # fmt: skip
_ROOT = Path(__file__).resolve().parents[1]
_SCRIPTS = "benchmarks"
_PACKAGES = ("ens10", "numpy", "numba", "zarr", "xarray", "dask", "eccodes", "torch", "cfgrib")


@dataclass(frozen=True)
class Line:
    """One line of a benchmark's result.

    Attributes:
        what: in words, with the unit.
        value: as measured.
        target: what it should be.
        at_least: whether the value should be at least the target (True) or at most (False).
    """

    what: str
    value: float
    target: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.value >= self.target if self.at_least else self.value <= self.target


def interleave(
    subjects: Mapping[str, Callable[[], Any]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Median seconds of each subject, timed in turns after one round that does not count."""
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for n in range(rounds + 1):
        for name, run in subjects.items():
            start = clock()
            run()
            if n:
                times[name].append(clock() - start)
    return {name: median(values) for name, values in times.items()}


def run(
    claim: str,
    measure: Callable[[argparse.Namespace], tuple[Sequence[Line], Mapping[str, Any]]],
    *,
    code: Sequence[str] = (),
    rounds: int = 15,
    options: Callable[[argparse.ArgumentParser], None] | None = None,
) -> int:
    """Measures, prints JSON, and with --check returns 1 if a target is missed.

    Args:
        claim: what the benchmark shows, in a sentence.
        measure: gives the lines and whatever else is worth keeping.
        code: modules and packages of ens10 that are measured, such as "store/chunks".
        rounds: how often each subject is timed.
        options: adds options of its own to the command line.
    """
    parser = argparse.ArgumentParser(description=claim)
    parser.add_argument("--data", type=Path, default=Path("benchmark-data"), help="made if needed")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    if options:
        options(parser)
    given = parser.parse_args()
    code = [*code, f"{_SCRIPTS}/{Path(sys.argv[0]).stem}"] if code else []
    lines, details = measure(given)
    result = {
        "claim": claim,
        "lines": [
            {
                "what": line.what,
                "value": round(line.value, 4),
                "target": f"{'>=' if line.at_least else '<='} {line.target:g}",
                "met": bool(line.met),
            }
            for line in lines
        ],
        "rounds": given.rounds,
        **details,
        **({"code": {"commit": _commit(code), "digests": digests(code)}} if code else {}),
        "machine": machine(),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(text + "\n")
    return int(given.check and not all(line.met for line in lines))


def digests(code: Sequence[str]) -> dict[str, str]:
    """A digest of each module or package of ens10, or script, of its syntax without docstrings."""
    found = {}
    for name in code:
        place = _ROOT / ("" if name.startswith(_SCRIPTS) else "ens10") / name
        paths = sorted(place.rglob("*.py")) or [place.with_suffix(".py")]
        trees = [ast.dump(_what_counts(ast.parse(path.read_text()))) for path in paths]
        found[name] = hashlib.sha256("".join(trees).encode()).hexdigest()[:16]
    return found


def _what_counts(tree: ast.Module) -> ast.Module:
    """The code without docstrings, and without the list of what a script measures."""
    tree.body = [node for node in tree.body if not _names_code(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return tree


def _names_code(node: ast.stmt) -> bool:
    """Whether a line of a script says what it measures, or imports from this module."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "common"
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CODE"


def _commit(code: Sequence[str]) -> str:
    """The commit of the code, and whether it was changed since."""

    def git(*command: str) -> str:
        return subprocess.run(
            ["git", *command], cwd=_ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()

    changed = git("status", "--porcelain", *(f"ens10/{name}*" for name in code))
    return git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")


def import_elsewhere(name: str) -> None:
    """Imports another project's package, if there is one, that a script here has the name of.

    NVIDIA's package `cuda` would else be this folder's script for torch and numba.
    """
    here = str(Path(__file__).resolve().parent)
    kept = list(sys.path)
    sys.path[:] = [path for path in kept if str(Path(path).resolve()) != here]
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    finally:
        sys.path[:] = kept


def machine() -> dict[str, Any]:
    """Processor, cores, system and versions."""
    from ens10.experiments.runs.provenance import processor

    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def world(data: Path, dates: int = DATES, *, one_year: bool = False) -> Path:
    """A synthetic world of the real size: 11 surface variables, 10 members, 48 h.

    Args:
        data: folder for the data of all benchmarks.
        dates: start dates.
        one_year: all of them in one year, in a file each; else one a year, in one file.
    """
    from ens10.synthetic import World

    folder = data / f"world-{dates}{'-of-1998' if one_year else ''}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        if partial.exists():
            sys.exit(f"{partial} is of a run that was interrupted: remove it")
        years = range(1998, 1999 if one_year else 1998 + dates)
        days = dates if one_year else 1
        World(GRID, years, days, VARIABLES, seed=0, steps=(48,)).write(partial, progress=True)
        partial.rename(folder)
    return folder


def store(data: Path, dates: int = DATES, codec: str = "none") -> Path:
    """The store of the world."""
    from ens10 import prepare

    path = data / f"store-{dates}-{codec}.zarr"
    source = world(data, dates)
    if not path.exists():
        prepare(source, path, truth=source / "truth", codec=codec, workers=1, progress=True)  # type: ignore[arg-type]
    return path


def mapped_copy(
    values: npt.NDArray[Any], path: Path
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Callable[[], None]]:
    """The bound of all reading: a copy from a memory-mapped file into a buffer that is kept.

    Args:
        values: what the file holds.
        path: of the file, written anew.

    Returns:
        The mapped file, the kept buffer, and a function that copies the one into the other.
    """
    values.tofile(path)
    mapped = np.memmap(path, dtype=values.dtype, mode="r", shape=values.shape)
    buffer = np.empty_like(values)

    def copy() -> None:
        np.copyto(buffer, mapped)

    copy()
    return mapped, buffer, copy
