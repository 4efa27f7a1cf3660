"""Small files are complete or absent."""

import os

import pytest

from ens10.durable import clear_leftovers, write_whole


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_with_ordinary_permissions(tmp_path):
    path = tmp_path / "a.json"
    write_whole(path, "één\n")
    write_whole(path, b"two\n")
    assert path.read_bytes() == b"two\n"
    other = tmp_path / "b"
    other.touch()
    assert path.stat().st_mode == other.stat().st_mode
    assert names(tmp_path) == ["a.json", "b"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_failure_keeps_what_was_there(tmp_path, monkeypatch, call):
    path = tmp_path / "a.json"
    write_whole(path, "before")

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "after")
    assert path.read_text() == "before"
    assert names(tmp_path) == ["a.json"]


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:1]))
    write_whole(tmp_path / "a", "three")
    assert (tmp_path / "a").read_text() == "three"


def test_leftovers_of_killed_writers_are_removed(tmp_path):
    (tmp_path / ".a.json.0011aabb.tmp").write_text("hal")
    (tmp_path / "b.tmp").write_text("mine")
    (tmp_path / ".c.notes.tmp").write_text("mine too")
    clear_leftovers(tmp_path)
    assert sorted(names(tmp_path)) == [".c.notes.tmp", "b.tmp"]
