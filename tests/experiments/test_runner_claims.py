"""Claims on cells, shared through files."""

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from waiting import PATIENCE, wait_until

from ens10.experiments.runs import claims
from ens10.experiments.runs.claims import claim, holder


def test_one_of_many_gets_it(tmp_path):
    path, barrier = tmp_path / "claims" / "unet", threading.Barrier(8, timeout=PATIENCE)

    def attempt(_):
        barrier.wait()
        with claim(path) as ours:
            barrier.wait()  # it is held until all have tried
            return ours

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1
    assert not path.exists()


def test_it_is_given_back_after_an_error(tmp_path):
    path = tmp_path / "unet"
    try:
        with claim(path) as ours:
            assert ours
            assert f"process {os.getpid()}" in holder(path)
            raise RuntimeError
    except RuntimeError:
        pass
    assert holder(path) is None


def test_a_lost_one_is_taken_over_by_one(tmp_path):
    path, barrier = tmp_path / "unet", threading.Barrier(8, timeout=PATIENCE)
    path.write_text("process 1 on another\n")
    os.utime(path, (0, 0))

    def attempt(_):
        barrier.wait()
        with claim(path, heartbeat=0.02, timeout=60) as ours:
            barrier.wait()  # it is held until all have tried
            return ours

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1


def test_a_living_one_is_not_taken(tmp_path):
    path = tmp_path / "unet"
    with claim(path, heartbeat=0.05):
        os.utime(path, (0, 0))
        wait_until(lambda: path.stat().st_mtime > 0)
        with claim(path, timeout=1e6) as ours:
            assert not ours


@pytest.mark.parametrize("change", ["the owner's back", "the other's forward"])
def test_one_is_not_taken_because_a_clock_was_set(tmp_path, monkeypatch, change):
    """The owner works and touches its claim, but the age of the claim is more than the limit."""
    path, touch = tmp_path / "unet", os.utime
    if change == "the owner's back":  # by an hour
        monkeypatch.setattr(os, "utime", lambda place: touch(place, (t := time.time() - 3600, t)))
    with claim(path, heartbeat=0.05) as first:
        assert first
        if change == "the owner's back":
            wait_until(lambda: time.time() - path.stat().st_mtime > 1800)
        else:
            clock = SimpleNamespace(**vars(time))
            clock.time = lambda: time.time() + 3600
            monkeypatch.setattr(claims, "time", clock)
        with claim(path, heartbeat=1.0) as second:
            assert not second
    with claim(path, heartbeat=0.05) as third:
        assert third


def test_one_that_was_taken_over_stays_with_the_other(tmp_path):
    """A process that slept too long neither touches nor removes the claim of its successor."""
    path, threads = tmp_path / "unet", set(threading.enumerate())
    with claim(path, heartbeat=0.02) as ours:
        assert ours
        (touching,) = set(threading.enumerate()) - threads
        path.write_text("process 1 on another\nits token\n")
        os.utime(path, (0, 0))
        wait_until(lambda: not touching.is_alive())
        assert path.stat().st_mtime == 0
    assert holder(path) == "process 1 on another"


def test_a_failure_to_touch_does_not_end_the_signs_of_life(tmp_path, monkeypatch):
    path, calls, touch = tmp_path / "unet", [], os.utime

    def fail_once(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError("the network is away")
        touch(*arguments)

    with claim(path, heartbeat=0.02):
        monkeypatch.setattr(os, "utime", fail_once)
        wait_until(lambda: len(calls) >= 3)
        monkeypatch.undo()


def test_one_of_a_process_that_has_ended_is_taken_over(tmp_path):
    path = tmp_path / "unet"
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    path.write_text(f"process {int(ended.stdout)} on {socket.gethostname()}\n")
    with claim(path) as ours:
        assert ours
    path.write_text(f"process {int(ended.stdout)} on another\n")  # of which nothing is known
    with claim(path) as ours:
        assert not ours


@pytest.mark.parametrize("content", [b"", b"proc", b"\xff\xfe\x00"])
def test_one_without_a_name_is_taken_over_at_once_by_one(tmp_path, content):
    """A claim has its name from the start, so that no process that works has one without."""
    path, barrier = tmp_path / "unet", threading.Barrier(8, timeout=PATIENCE)
    path.write_bytes(content)

    def attempt(_):
        barrier.wait()
        with claim(path, timeout=1e6) as ours:
            barrier.wait()  # it is held until all have tried
            return ours

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(8))) == 1
    assert list(tmp_path.iterdir()) == []


def test_one_whose_name_is_written_late_is_not_taken(tmp_path, monkeypatch):
    """Without hard links a process creates its claim before it writes its name into it."""
    path = tmp_path / "unet"
    path.touch()
    monkeypatch.setattr(claims, "_WRITING", 60.0)
    seconds = []

    def write_late(pause):
        seconds.append(pause)
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")

    clock = SimpleNamespace(**vars(time) | {"sleep": write_late})
    monkeypatch.setattr(claims, "time", clock)
    with claim(path) as ours:
        assert not ours
    assert len(seconds) == 1


def test_a_file_system_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "unet"
    with claim(path) as ours, claim(path) as other:
        assert (ours, other) == (True, False)
        assert holder(path) == f"process {os.getpid()} on {socket.gethostname()}"
    assert list(tmp_path.iterdir()) == []


def test_a_kill_leaves_no_claim_without_a_name(tmp_path, monkeypatch):
    """At each file operation of a claim its file is absent or names its process."""
    path, contents, link = tmp_path / "unet", [], os.link

    def see(*places):
        contents.append(path.exists())
        link(*places)
        contents.append(path.read_text().split()[:2])

    monkeypatch.setattr(os, "link", see)
    with claim(path):
        assert contents == [False, ["process", str(os.getpid())]]
    for name in (".unet.0123abcd.tmp", ".unet.taking.0123abcd.tmp"):  # as a kill leaves them
        (tmp_path / name).touch()
    with claim(path):
        assert [file.name for file in tmp_path.iterdir()] == ["unet"]
