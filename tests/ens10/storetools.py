"""Stores as bytes, and runs of `prepare` in processes that can be killed."""

import subprocess
import sys
from pathlib import Path

from waiting import wait_until

SCRIPT = """
import sys, time
from ens10.convert import prepare
from ens10.convert import workers

def slowly(folder, group, real=workers.work):
    time.sleep({pause})
    while {most} is not None and len(list((folder.path / "units").iterdir())) >= {most}:
        time.sleep(0.01)  # until it is killed
    return real(folder, group)

if __name__ == "__main__":
    import ens10.convert.workers
    ens10.convert.workers.work = slowly
    ens10.convert.workers.GROUP_BYTES = {together}
    prepare({source!r}, {store!r}, **{options!r})
"""


def contents(store):
    """Every file of a store with its bytes."""
    files = sorted(p for p in Path(store).rglob("*") if p.is_file())
    return {p.relative_to(store).as_posix(): p.read_bytes() for p in files}


def assert_same(store, other):
    """The two stores hold the same files with the same bytes."""
    ours, theirs = contents(store), contents(other)
    assert sorted(ours) == sorted(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []


def start(source, store, pause=0.0, together=0, most=None, **options):
    """A process that prepares; each unit, or group of so many bytes, begins after a pause.

    With `most` none begins after so many.
    """
    given = {"source": str(source), "store": str(store), "options": options}
    script = SCRIPT.format(pause=pause, together=together, most=most, **given)
    path = Path(store).with_name("prepare.py")
    path.write_text(script)
    return subprocess.Popen([sys.executable, path], stderr=subprocess.PIPE, text=True)


def units_done(store):
    """How many units of a store in the making are done."""
    try:
        return sum(1 for _ in (Path(f"{store}.partial") / "units").iterdir())
    except FileNotFoundError:
        return 0


def wait_for_units(store, count, process):
    """Waits until so many units are done, or the process has ended."""
    wait_until(lambda: units_done(store) >= count or process.poll() is not None, 0.002)


def children(process):
    """Process ids of the processes that a process has started."""
    try:
        return Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    except FileNotFoundError:
        return []


def wait_for_end(pids):
    """Waits until processes have ended by themselves."""
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
