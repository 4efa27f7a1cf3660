"""The partial folder of a command: who writes, what is resumed, what may be removed."""

import os
import threading

import pytest

from ens10 import partial as module
from ens10.errors import FileError
from ens10.partial import (
    Partial,
    changed_inputs,
    check_target,
    fingerprints,
    write_folder,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_one_process_writes_and_leaves_nothing(tmp_path):
    target = tmp_path / "out[1].nc"
    (tmp_path / ".out[1].nc.0011aabb.tmp").write_text("half of an output")
    (tmp_path / ".other.nc.0011aabb.tmp").write_text("of another command")
    with Partial(target).lock("ens10 apply"):
        owner = f"in use by ens10 apply, process {os.getpid()} on"
        with pytest.raises(FileError, match=owner), Partial(target).lock("ens10 couple"):
            raise AssertionError
        assert names(tmp_path) == [".other.nc.0011aabb.tmp", "out[1].nc.partial"]
    assert names(tmp_path) == [".other.nc.0011aabb.tmp"]


def test_what_is_to_be_resumed_stays(tmp_path):
    partial = Partial(tmp_path / "a", "data")
    with partial.lock("ens10 apply"):
        (partial.path / "data").mkdir()
        partial.write_plan({"dates": [1, 2]})
    assert names(partial.path) == ["data", "plan.json"]
    with partial.lock("ens10 apply"):
        assert partial.read_plan() == {"dates": [1, 2]}
        partial.discard()
    assert names(tmp_path) == []


@pytest.mark.parametrize("notes", ["a.partial", "a.partial/notes.txt"])
def test_what_another_wrote_is_refused_and_kept(tmp_path, notes):
    partial = Partial(tmp_path / "a", "data")
    path = tmp_path / notes
    path.parent.mkdir(exist_ok=True)
    path.write_text("precious")
    for call in (lambda: partial.lock("ens10 apply").__enter__(), partial.clear):
        with pytest.raises(FileError, match=rf"a\.partial: .*holds {path.name}\. Move it away"):
            call()
    if path.parent != tmp_path:
        (path.parent / "data").touch()
        partial.discard()
        assert names(path.parent) == ["notes.txt"]
    assert path.read_text() == "precious"


def test_the_plan_goes_first(tmp_path, monkeypatch):
    """A kill while files are removed leaves nothing that looks as if it could be resumed."""
    partial, removed = Partial(tmp_path / "a", "data", "zz"), []
    partial.path.mkdir()
    for name in ("data", "plan.json", "zz"):
        (partial.path / name).touch()
    monkeypatch.setattr(module, "remove", lambda path: removed.append(path.name))
    partial.clear()
    assert removed == ["plan.json", "data", "zz"]


def test_a_folder_is_made_once_however_many_ask_for_it(tmp_path):
    begun, go_on = threading.Event(), threading.Event()

    def slowly(path):
        path.mkdir()
        begun.set()
        go_on.wait(60)
        (path / "mine").touch()

    threads = [
        threading.Thread(target=write_folder, args=(tmp_path / "world", slowly)) for _ in "ab"
    ]
    threads[0].start()
    begun.wait(60)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert names(tmp_path) == ["world"]
    assert names(tmp_path / "world") == ["mine"]


def test_a_folder_that_fails_leaves_nothing(tmp_path):
    def fails(path):
        path.mkdir()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "world", fails)
    assert names(tmp_path) == []


def test_only_what_is_recognised_is_replaced(tmp_path):
    def check(path, force):
        check_target(path, force, lambda path: (path / "ours").exists(), "a store")

    check(tmp_path / "none", force=False)
    for name in ("empty", "ours", "theirs"):
        (tmp_path / name).mkdir()
    (tmp_path / "ours/ours").touch()
    (tmp_path / "theirs/thesis.txt").touch()
    for name in ("empty", "ours", "theirs"):
        with pytest.raises(FileError, match=r"exists already.*--force"):
            check(tmp_path / name, force=False)
    check(tmp_path / "empty", force=True)
    check(tmp_path / "ours", force=True)
    with pytest.raises(FileError, match="not a store of ens10, so --force does not replace it"):
        check(tmp_path / "theirs", force=True)


def later(path):
    """Another time of change, as a copy or `touch` gives."""
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))


def test_a_changed_time_alone_is_no_change(tmp_path, monkeypatch):
    path = tmp_path / "a.grib"
    path.write_bytes(b"123456789")
    inputs = {"forecast": [path], "history": []}
    recorded = fingerprints(inputs)
    assert list(recorded) == ["forecast"]
    assert recorded["forecast"]["content"] == 0xE3069283  # the check value of CRC-32C
    with monkeypatch.context() as patch:
        patch.setattr(module, "_content", lambda files: pytest.fail("read"))
        assert changed_inputs(recorded, inputs) == []
    later(path)
    assert changed_inputs(recorded, inputs) == []
    path.write_bytes(b"123456780")
    later(path)
    assert changed_inputs(recorded, inputs) == ["forecast: its files have changed"]
    path.write_bytes(b"1234567890")
    assert changed_inputs(recorded, inputs) == ["forecast: its files have changed"]
    assert changed_inputs(recorded, {"forecast": []}) == ["forecast: its files have changed"]
    assert changed_inputs({}, {"history": [path]}) == ["history: its files have changed"]


def test_of_large_inputs_blocks_all_over_them_are_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 4)
    monkeypatch.setattr(module, "_COMPARED_BYTES", 24)  # 3 blocks of each of two files
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_bytes(bytes(100))
    inputs = {"source": files}
    recorded = fingerprints(inputs)
    for place, is_seen in ((0, True), (49, True), (99, True), (20, False)):
        files[1].write_bytes(bytes(place) + b"x" + bytes(99 - place))
        later(files[1])
        assert bool(changed_inputs(recorded, inputs)) == is_seen
