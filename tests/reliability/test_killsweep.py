"""Kills at file operations leave nothing that the same command does not mend.

The ordinary test kills at a few operations; `killsweep.py` at each of them, with counts in
`kills.json`.
"""

import json
from pathlib import Path

import pytest
from killstudies import STUDIES
from killsweep import FileOperations, in_child, sweep

EVERY = {"prepare": 200, "fit": 8, "predict": 40, "score": 3, "reproduce": 25, "export": 2}
EVERY["download"] = 5
COUNTS = json.loads(Path(__file__).with_name("kills.json").read_text())


def test_a_chosen_operation_ends_the_process(tmp_path):
    def write():
        (tmp_path / "folder").mkdir()
        with (tmp_path / "folder" / "file").open("wb") as file:
            file.write(b"0123456789")
        (tmp_path / "folder" / "file").rename(tmp_path / "file")
        return 0

    def left(kill_at, half=False):
        def work():
            FileOperations(tmp_path, kill_at, half=half).install()
            return write()

        assert in_child(work) == -9
        found = {p.name: p.read_bytes() for p in tmp_path.rglob("file")}
        for path in sorted(tmp_path.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        return found

    assert left(1) == left(2) == {}  # making the folder; opening the file
    assert left(3) == {"file": b""}  # its first write
    assert left(3, half=True) == {"file": b"01234"}
    assert left(4) == {"file": b"0123456789"}  # renaming it


@pytest.mark.parametrize("name", ["download", "export"])
def test_a_few_kills(name, tmp_path):
    assert sweep(STUDIES[name], tmp_path / name, 7)["differences"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*STUDIES])
def test_kills_all_over_a_command(name, tmp_path):
    assert sweep(STUDIES[name], tmp_path / name, EVERY[name], offset=2)["differences"] == []


def test_the_counts_are_tell_no_difference():
    assert set(COUNTS) <= set(STUDIES)
    for counts in COUNTS.values():
        assert counts["trials"] > 0
        assert counts["differences"] == []
