"""Kill a command at each of its file operations, run it again, and compare what it leaves.

    python tests/reliability/killsweep.py prepare fit --out tests/reliability/kills.json

File operations are the calls that change files: open for writing, write, rename, link, remove, make
or remove a folder; syncs are counted, but no kill is at them. Python makes them through a layer
that counts them; at a chosen number the process sends itself SIGKILL, before the operation or, for
a write, after half of its bytes. What C libraries write by themselves (HDF5 into a temporary file)
is counted where the file is synced and renamed.

Each trial is a forked process, so that the packages are imported once. The command is then run
again as its user would, and the files are compared with those of a run that nothing interrupted.

With `--random N`, the processes of the command are killed N times from outside as well, at moments
that are spread evenly over the time that it takes.
"""

import argparse
import builtins
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

_EVENTS = {
    "rename": 0,
    "remove": 0,
    "mkdir": 0,
    "rmdir": 0,
    "link": 1,
    "symlink": 1,
}  # where the path is
_SYNCS = ("fsync", "fdatasync")  # a kill before one leaves what a kill before the next call does
_CHANGES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_FAILED, _PASSED = 1, 0
_LONGEST = 900.0  # seconds of a trial


class FileOperations:
    """Counts this process's file operations under a folder, and ends it at one of them.

    Args:
        root: operations elsewhere, such as in a compiler's cache, do not count.
        kill_at: number of the operation, from 1; 0 for none.
        half: after half the bytes of a write, rather than before it.
    """

    def __init__(self, root: Path, kill_at: int = 0, *, half: bool = False) -> None:
        self.root, self.kill_at, self.half = str(root), kill_at, half
        self.pid, self.names = os.getpid(), list[str]()
        self._lock = threading.Lock()

    def count(self, name: str, path: Any, tear: Callable[[], object] | None = None) -> None:
        """Count one operation; end the process if it is the chosen one."""
        if isinstance(path, int):
            try:
                path = str(Path(f"/proc/self/fd/{path}").readlink())
            except OSError:
                return
        place = str(Path(os.fsdecode(path)).absolute())
        if os.getpid() != self.pid or not place.startswith(self.root):
            return
        with self._lock:
            self.names.append(name)
            if len(self.names) != self.kill_at:
                return
            if self.half:
                if tear is None:
                    os._exit(_PASSED)  # nothing to tear: this trial says nothing
                tear()
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Interpose the layer, for the rest of this process."""
        sys.addaudithook(self._audit)
        for name in ("fsync", "fdatasync", "ftruncate"):
            self._wrap(name)
        for name in ("write", "pwrite"):
            self._wrap(name, tears=True)
        builtin, counted = io.open, self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                counted.count("write", self.fileno(), lambda: io.FileIO.write(self, _part(data)))
                return super().write(data) or 0

        @wraps(builtin)
        def opened(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **more: Any) -> Any:
            if not set(mode) & set("wxa") or "+" in mode or buffering == 0 or isinstance(file, int):
                return builtin(file, mode, buffering, *rest, **more)
            if "b" in mode:
                return io.BufferedWriter(Raw(file, mode.replace("b", "")))
            raw = Raw(file, mode.replace("t", ""))
            names = ("encoding", "errors", "newline")
            text = {name: more[name] for name in names if name in more}
            text |= dict(zip(names, rest, strict=False))
            return io.TextIOWrapper(io.BufferedWriter(raw), **text)

        io.open = opened  # type: ignore[assignment]
        builtins.open = opened  # type: ignore[assignment]

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, (str, bytes, os.PathLike)) and flags & _CHANGES:
                self.count("open", os.fsdecode(path))
        elif event.removeprefix("os.") in _EVENTS and event.startswith("os."):
            path, folder = arguments[_EVENTS[event[3:]]], arguments[-1]
            if isinstance(path, (str, bytes)) and isinstance(folder, int) and folder >= 0:
                path = str(Path(f"/proc/self/fd/{folder}").readlink() / os.fsdecode(path))
            if event != "os.mkdir" or not Path(os.fsdecode(path)).exists():
                self.count(event[3:], path)

    def _wrap(self, name: str, *, tears: bool = False) -> None:
        real = getattr(os, name)

        @wraps(real)
        def call(handle: int, *rest: Any) -> Any:
            def tear() -> object:
                return real(handle, _part(rest[0]), *rest[1:])

            self.count(name, handle, tear if tears else None)
            return real(handle, *rest)

        setattr(os, name, call)


def _part(data: Any) -> memoryview:
    view = memoryview(data).cast("B")
    return view[: len(view) // 2]


def in_child(
    work: Callable[[], int], log: Path | None = None, *, seconds: float | None = None
) -> int:
    """Run a function in a forked process.

    Args:
        work: the function.
        log: file that its output is added to.
        seconds: if given, the process gets a group of its own, which is killed after this time; it
            is killed at its end in any case, as by the end of a machine.

    Returns:
        Its exit status; minus the signal's number if a signal ended it.
    """
    pid = os.fork()
    if pid == 0:
        status = _FAILED
        try:
            if seconds is not None:
                os.setpgid(0, 0)
            with (
                (log or Path(os.devnull)).open("a") as said,
                redirect_stdout(said),
                redirect_stderr(said),
            ):
                status = work()
        except BaseException as error:  # the child must not return into its parent's code
            if log:
                with log.open("a") as said:
                    said.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(status if isinstance(status, int) else _FAILED)
    if seconds is not None:
        _kill_group(pid, seconds)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _kill_group(pid: int, seconds: float) -> None:
    """Kill a process and those that it started, after a time or at its end."""
    with suppress(OSError):
        os.setpgid(pid, pid)  # the process does it, too: one of both is first
    latest = time.monotonic() + seconds
    while time.monotonic() < latest:
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            break
        time.sleep(min(0.005, seconds))
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


@dataclass(frozen=True)
class Study:
    """A command to kill.

    Attributes:
        prepare: fills a folder with what the command starts from; called once, in a child.
        run: the command, in that folder; returns its exit status.
        again: what a user runs after a kill.
        result: what the command leaves, by file; equal for equal results.
    """

    prepare: Callable[[Path], None]
    run: Callable[[Path], int]
    again: Callable[[Path], int]
    result: Callable[[Path], dict[str, Any]]


def sweep(
    study: Study,
    folder: Path,
    every: int = 1,
    *,
    offset: int = 0,
    at_random: int = 0,
    note: Callable[..., None] = print,
) -> dict[str, Any]:
    """Kill a study's command at its file operations.

    Args:
        study: the command.
        folder: to work in; empty.
        every: at each operation, or at each so many-th.
        offset: of the first.
        at_random: number of kills at other moments.
        note: called with each difference.

    Returns:
        Operations of the whole command by name, trials, those at other moments, and differences.
    """
    trials = Trials(study, folder, note)
    names = trials.operations
    places = [n for n, name in enumerate(names, 1) if name not in _SYNCS]
    for place in places[offset::every]:
        for half in (False, True) if names[place - 1] in ("write", "pwrite") else (False,):
            trials.kill_at(place, half=half)
    if at_random:
        trials.kill_at_moments(at_random)
    counts = {name: names.count(name) for name in sorted(set(names))}
    return {
        "operations": counts, "trials": trials.count, "at_random": at_random,
        "differences": trials.differences,
    }  # fmt: skip


class Trials:
    """Kills of a command, each followed by a second call and a comparison.

    Args:
        study: the command.
        folder: to work in; empty.
        note: called with each difference.

    Attributes:
        operations: names of the file operations of a call that nothing interrupts.
        count: number of kills.
        differences: what the kills have left, in words.
    """

    def __init__(self, study: Study, folder: Path, note: Callable[..., None]) -> None:
        self._study, self._folder, self._note = study, folder, note
        self._start, self._trial = folder / "start", folder / "trial"
        self._log = folder / "log.txt"
        self.count, self.differences = 0, list[str]()
        self._start.mkdir(parents=True)
        self._run(lambda: study.prepare(self._start) or _PASSED)
        self._copy()
        self._run(self._uninterrupted)
        self._wanted = study.result(self._trial)
        _import(json.loads((folder / "modules.json").read_text()))
        self.operations: list[str] = json.loads((folder / "operations.json").read_text())

    def _run(self, work: Callable[[], int]) -> None:
        if in_child(work, self._log) != _PASSED:
            raise RuntimeError(f"the study cannot run:\n{self._log.read_text()}")

    def _uninterrupted(self) -> int:
        operations = FileOperations(self._trial)
        operations.install()
        status = self._study.run(self._trial)
        (self._folder / "operations.json").write_text(json.dumps(operations.names))
        (self._folder / "modules.json").write_text(json.dumps(sorted(sys.modules)))
        return status

    def _copy(self) -> None:
        shutil.rmtree(self._trial, ignore_errors=True)
        shutil.copytree(self._start, self._trial, symlinks=True)
        self._log.unlink(missing_ok=True)

    def kill_at(self, place: int, *, half: bool = False) -> None:
        """Kill the command at an operation, or, if `half`, after half of its bytes."""

        def killed() -> int:
            FileOperations(self._trial, place, half=half).install()
            return self._study.run(self._trial)

        self._copy()
        in_child(killed, seconds=_LONGEST)  # where threads differ in order, it may end by itself
        name = self.operations[place - 1]
        self._check(f"operation {place} ({name}{', half' if half else ''})")

    def kill_at_moments(self, count: int) -> None:
        """Kill the command from outside at moments that are spread evenly over its time."""
        self._copy()
        begun = time.monotonic()
        self._run(lambda: self._study.run(self._trial))
        longest = time.monotonic() - begun
        for n in range(count):
            seconds = longest * (n + 0.5) / count
            self._copy()
            in_child(lambda: self._study.run(self._trial), seconds=seconds)
            self._check(f"after {seconds:.2f} of {longest:.2f} s")

    def _check(self, where: str) -> None:
        """Call the command again, and compare what it leaves."""
        self.count += 1
        again = self._study.again
        status = in_child(lambda: again(self._trial), self._log, seconds=_LONGEST)
        if status == _PASSED:
            result = self._study.result(self._trial)
            lines = [f"{where}: {name}" for name in _unlike(result, self._wanted)]
        else:
            said = self._log.read_text().strip().splitlines() if self._log.exists() else []
            self._note("\n".join(said))
            lines = [f"{where}: exit {status}: {said[-1] if said else ''}"]
        self.differences += lines
        for line in lines[-1:]:
            self._note(line)


def _import(names: Iterable[str]) -> None:
    """Import what the command imports while it works, so that no trial has to."""
    for name in names:
        with suppress(ImportError):
            import_module(name)


def _unlike(mine: dict[str, Any], wanted: dict[str, Any]) -> Iterable[str]:
    for name in sorted({*mine, *wanted}):
        if name not in mine:
            yield f"{name} is missing"
        elif name not in wanted:
            yield f"{name} is left over"
        elif mine[name] != wanted[name]:
            yield f"{name} differs"


def main() -> int:
    """Sweep the chosen commands and write their counts; exit status 1 after a difference."""
    sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("experiments", "ens10")]
    from killstudies import STUDIES

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("commands", nargs="*", default=[], choices=[*STUDIES, []])
    parser.add_argument(
        "--every", type=int, nargs="+", default=[1],
        help="operations from kill to kill: one number, or that of each command",
    )  # fmt: skip
    parser.add_argument("--offset", type=int, default=0, help="operations before the first kill")
    parser.add_argument("--out", type=Path, help="JSON; commands of earlier calls stay in it")
    parser.add_argument("--random", type=int, default=0, help="kills at other moments as well")
    options = parser.parse_args()
    wrong, names = 0, options.commands or list(STUDIES)
    steps = options.every if len(options.every) > 1 else options.every * len(names)
    for name, every in zip(names, steps, strict=True):
        with tempfile.TemporaryDirectory() as folder:
            counts = sweep(
                STUDIES[name], Path(folder) / name, every, offset=options.offset,
                at_random=options.random,
            )  # fmt: skip
        wrong += len(counts["differences"])
        print(name, json.dumps({**counts, "differences": len(counts["differences"])}), flush=True)
        if options.out:
            held = json.loads(options.out.read_text()) if options.out.exists() else {}
            held[name] = {"every": every, **counts}
            options.out.write_text(json.dumps(dict(sorted(held.items())), indent=1) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
