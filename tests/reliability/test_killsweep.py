"""Kills at file operations leave nothing that the same command does not mend.

The tests kill at some operations, in `make test-all` at few of some commands; `killsweep.py` at
each of them, with counts in `kills.json`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from reliabilitytables import COMMANDS
from waiting import wait_until

SCRIPT = Path(__file__).with_name("killsweep.py")
EVERY = {"prepare": 120, "fit": 8, "fit-python": 12, "predict": 30, "score": 3, "reproduce": 12,
         "export": 2, "download": 5, "demo": 300, "apply": 40, "apply-netcdf": 60, "bundle": 8,
         "submit": 20, "report": 8, "download-flaky": 12, "runner": 12, "prepare-zarr": 150,
         "prepare-csv": 60, "prepare-regrid": 150}  # fmt: skip
# in make test-all: a few operations of the commands that write most
SELDOM = {"prepare": 400, "fit": 30, "predict": 120, "score": 12, "apply": 150, "runner": 60,
          "bundle": 30, "export": 8}  # fmt: skip
COUNTS = json.loads(Path(__file__).with_name("kills.json").read_text())


WRITE = """
import sys
from pathlib import Path
from killsweep import FileOperations

folder = Path(sys.argv[1])
FileOperations(folder, int(sys.argv[2]), half=len(sys.argv) > 3).install()
(folder / "folder").mkdir()
with (folder / "folder" / "file").open("wb") as file:
    file.write(b"0123456789")
(folder / "folder" / "file").rename(folder / "file")
"""


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("1", {}),  # making the folder
        ("2", {}),  # opening the file
        ("3", {"file": b""}),  # its first write
        ("3 half", {"file": b"01234"}),
        ("4", {"file": b"0123456789"}),  # renaming it
    ],
)
def test_a_chosen_operation_ends_the_process(tmp_path, words, left):
    command = [sys.executable, "-c", WRITE, str(tmp_path), *words.split()]
    assert subprocess.run(command, cwd=SCRIPT.parent, check=False).returncode == -9
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("file")} == left


def kills(commands):
    """Sweep in a fresh process: one with threads, as that of tests may be, must not be forked."""
    words = [*commands, "--every", *map(str, commands.values()), "--offset", "2"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *words], capture_output=True, text=True, check=False, timeout=1700
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if "trials" in line] == [*commands]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_few_kills_of_the_commands_that_write_most():
    kills(SELDOM)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", EVERY)
def test_kills_all_over_a_command(name):
    kills({name: EVERY[name]})


def test_a_process_is_killed_with_its_group(tmp_path):
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from killsweep import in_child\n"
        + (
            "import subprocess\n"
            "def work():\n"
            "    child = subprocess.Popen(['sleep', '1000'])\n"
            "    open(sys.argv[2], 'w').write(str(child.pid))\n"
            "    time.sleep(1000)\n"
            "print(in_child(work, seconds=3.0))\n"
        )
    )
    mark = tmp_path / "pid"
    command = [sys.executable, "-c", script, str(SCRIPT.parent), str(mark)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "-9\n"
    wait_until(lambda: not Path(f"/proc/{mark.read_text()}").exists())


def test_the_counts_tell_no_difference():
    assert {*COUNTS} <= {*EVERY} == {*COMMANDS}
    for name, counts in COUNTS.items():
        is_old_sample = "at_random" not in counts
        assert counts["every"] == 1 or is_old_sample or counts["trials"] >= 30, name
        assert counts["differences"] == []
