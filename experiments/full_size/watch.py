"""The memory and time of a command and of all processes that it starts (Linux)."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGKILL

from ens10.errors import ArgumentError, FileError

_PROC = Path("/proc")
_SESSION = 3  # place in /proc/PID/stat after the name in brackets
_OWN = ("Pss_Anon", "Pss_Shmem")


@dataclass
class Usage:
    """What a command took.

    Attributes:
        seconds: from its start to its end.
        cpu_seconds: of all its processes, in user and system mode.
        resident: most bytes that its processes held together, pages of files that they have
            mapped included; a page that several hold counts once.
        own: the same without pages of files, which the system can take back at any time.
        largest: most bytes that any one of its processes held, as the system recorded it until the
            last look.
        load: mean number of runnable processes on the machine, those of others included.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    resident: int = 0
    own: int = 0
    largest: int = 0
    load: float = 0.0
    _loads: list[float] = field(default_factory=list, repr=False)

    def look(self, session: int) -> None:
        """Takes in what the processes of a session hold now."""
        held = [_memory(process) for process in processes(session)]
        self.resident = max(self.resident, sum(one.get("Pss", 0) for one in held))
        self.own = max(self.own, sum(one.get(name, 0) for one in held for name in _OWN))
        self.largest = max([self.largest, *(one.get("VmHWM", 0) for one in held)])
        self._loads.append(os.getloadavg()[0])
        self.load = sum(self._loads) / len(self._loads)


class TooMuchMemoryError(FileError):
    """A command was stopped since it held more memory than it may."""


def watched(
    command: Sequence[str],
    log: Path,
    most: float,
    environment: Mapping[str, str] | None = None,
    cores: int | None = None,
    every: float = 2.0,
) -> Usage:
    """Runs a command in a session of its own.

    Args:
        command: with its arguments.
        log: file for what it writes.
        most: bytes that it may hold, pages of files included; it is killed if it holds more.
        environment: of the command; None for that of this process.
        cores: how many processors it may use; None for all.
        every: seconds between two looks at its memory.

    Raises:
        TooMuchMemoryError: it held more than it may.
        FileError: it failed; the last lines that it wrote.
    """
    if not _PROC.is_dir():
        raise ArgumentError("full_size", "memory is measured by /proc", "Use Linux")
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    usage, start = Usage(), time.perf_counter()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        child = subprocess.Popen(
            list(command), env=environment, stdout=file, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        os.sched_setaffinity(child.pid, allowed)
        status = _follow(child.pid, usage, most, every)
    child.returncode = os.waitstatus_to_exitcode(status)
    usage.seconds = time.perf_counter() - start
    if usage.resident > most:
        told = f"held {usage.resident / 1e9:.2f} GB, more than {most / 1e9:g} GB"
        raise TooMuchMemoryError(log, told, "It was stopped; its output is in this file")
    if child.returncode:
        last = log.read_text(errors="replace").strip().splitlines()[-5:]
        raise FileError(log, f"exit status {child.returncode}", "\n".join(last))
    return usage


def _follow(pid: int, usage: Usage, most: float, every: float) -> int:
    """Looks at a child until it ends; its wait status."""
    while True:
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            usage.cpu_seconds = used.ru_utime + used.ru_stime
            return status
        usage.look(pid)
        if usage.resident > most:
            os.killpg(pid, SIGKILL)
        time.sleep(every)


def processes(session: int) -> Iterator[Path]:
    """Folders in /proc of the processes of a session."""
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(after_name[_SESSION]) == session:
                yield folder


def _memory(process: Path) -> dict[str, int]:
    """Bytes of a process by kind; shared pages count as the share of one process."""
    try:
        files = [process / "smaps_rollup", process / "status"]
        lines = [line for file in files for line in file.read_text().splitlines()]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines if line.endswith(" kB"))
    return {name: 1024 * int(rest.split()[0]) for name, _, rest in pairs}
