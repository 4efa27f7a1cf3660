"""Cells are computed in forks of a process that has loaded what they need."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from forkedcells import ForkedCell
from waiting import wait_until

from ens10.experiments.runner.forks import Server
from ens10.experiments.runner.running import Children, start_cell
from ens10.signals import Terminated

STUDY = """
import sys
from pathlib import Path
from forkedcells import ForkedCell
from ens10.experiments.runner.running import Children, start_cell
start_cell(ForkedCell("waits", Path(sys.argv[1])), 1, Children())
"""


@pytest.fixture(scope="module", autouse=True)
def _found_by_processes():
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(folders))
        yield


@pytest.fixture(scope="module")
def children(_found_by_processes):
    """Processes of one thread, as far as tests do not end them."""
    found = Children()
    with found.end_after():
        yield found


def result(cell):
    return (cell.out / "found").read_text().split()


def test_cells_are_forks_of_one_process(children, tmp_path):
    cell, forks = ForkedCell("process", tmp_path), set()
    for _ in range(2):
        assert start_cell(cell, 1, children) is None
        fork, server, *threads = result(cell)
        forks.add(fork)
        assert threads == ["1", "1"]
        assert int(server) not in (os.getpid(), int(fork))
    assert len(forks) == 2
    assert result(cell)[1] == server
    assert cell.log.read_text() == "process begins\n"


@pytest.mark.slow
def test_another_number_of_threads_has_a_process_of_its_own(children, tmp_path):
    cell, servers = ForkedCell("process", tmp_path), []
    for threads in (1, 2, 1):
        assert start_cell(cell, threads, children) is None
        assert result(cell)[2:] == [str(threads)] * 2
        servers.append(result(cell)[1])
    assert servers[0] == servers[2] != servers[1]


def test_what_trainings_need_is_loaded_before(children, tmp_path):
    cell = ForkedCell("loads", tmp_path)
    assert start_cell(cell, 1, children) is None
    assert result(cell) == ["True", "True"]


@pytest.mark.parametrize(("name", "words"), [
    ("refuses", "ens10: colour: 'blue' is no colour. Choose red."),
    ("fails", "ValueError: a fault of the code"),
    ("aborts", "aborts begins"),
    ("exits", "exits begins"),
])  # fmt: skip
def test_a_cell_that_fails_ends_its_fork_alone(children, tmp_path, name, words):
    found = start_cell(ForkedCell(name, tmp_path), 1, children)
    assert found.endswith(words)
    assert not (tmp_path / "found").exists()
    cell = ForkedCell("process", tmp_path)
    assert start_cell(cell, 1, children) is None
    assert cell.log.read_text() == "process begins\n"  # the log is of one cell


def test_statuses_are_those_of_the_forks(children, tmp_path):
    for name, status in (("aborts", -signal.SIGSEGV), ("exits", 7), ("process", 0)):
        cell = ForkedCell(name, tmp_path)
        cell.log.parent.mkdir(exist_ok=True)
        cell.log.touch()
        assert children.run(cell, 1) == status


@dataclass(frozen=True)
class Elsewhere(ForkedCell):
    """Of a module that the process cannot import."""


def test_a_cell_of_an_unknown_module_is_an_error_in_its_log(children, tmp_path, monkeypatch):
    monkeypatch.setattr(Elsewhere, "__module__", "nowhere")
    module = type(sys)("nowhere")
    module.Elsewhere = Elsewhere
    monkeypatch.setitem(sys.modules, "nowhere", module)
    error = start_cell(Elsewhere("process", tmp_path), 1, children)
    assert error.endswith("No module named 'nowhere'")


@pytest.mark.slow
def test_a_process_that_was_killed_is_replaced(tmp_path):
    children, cell = Children(), ForkedCell("process", tmp_path)
    with children.end_after():
        assert start_cell(cell, 1, children) is None
        server = int(result(cell)[1])
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: not children._servers[0].is_running)
        assert start_cell(cell, 1, children) is None
        assert int(result(cell)[1]) != server


def test_a_process_that_cannot_begin_is_an_exit_status(tmp_path, monkeypatch):
    monkeypatch.setattr("ens10.experiments.runner.forks._SERVE", "raise SystemExit(5)")
    children = Children()
    with children.end_after():
        assert start_cell(ForkedCell("process", tmp_path), 1, children) == "exit status 5"


def test_the_processes_of_cells_are_asked_to_end_and_no_other_starts(tmp_path):
    children, found, cell = Children(), [], ForkedCell("waits", tmp_path)

    def run():
        found.append(start_cell(cell, 1, children))

    thread = threading.Thread(target=run)

    def work():
        with children.end_after():
            thread.start()
            wait_until(lambda: cell.log.exists() and cell.log.read_text().endswith("waits\n"))
            raise Terminated

    with pytest.raises(Terminated):
        work()
    thread.join()
    assert found == ["waits begins\nwaits\nens10: terminated"]
    assert children.run(cell, 1) == 143
    assert not any(server.is_running for server in children._servers)


@pytest.mark.slow
def test_a_fork_that_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("ens10.experiments.runner.running._PATIENCE", 0.1)
    children, found, cell = Children(), [], ForkedCell("ignores", tmp_path)
    thread = threading.Thread(target=lambda: found.append(children.run(cell, 1)))
    cell.log.parent.mkdir()
    cell.log.touch()

    def work():
        with children.end_after():
            thread.start()
            wait_until(lambda: cell.log.read_text().endswith("waits\n"))
            raise Terminated

    with pytest.raises(Terminated):
        work()
    thread.join()
    assert found == [-signal.SIGKILL]


@pytest.mark.slow
def test_a_request_to_stop_reaches_a_process_that_still_loads(tmp_path):
    server, cell = Server(1), ForkedCell("waits", tmp_path)
    thread = threading.Thread(target=server.run, args=(cell,))
    thread.start()
    server.stop()
    thread.join()
    server.end(60)
    assert not server.is_running
    assert not cell.log.exists()


@pytest.mark.slow
def test_a_fork_ends_with_the_process_of_the_study(tmp_path):
    cell = ForkedCell("waits", tmp_path)
    with subprocess.Popen([sys.executable, "-c", STUDY, str(tmp_path)]) as study:
        wait_until(lambda: cell.log.exists() and cell.log.read_text().endswith("waits\n"))
        with (tmp_path / "held").open() as held:
            with pytest.raises(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            study.kill()
            fcntl.flock(held, fcntl.LOCK_EX)  # the fork has ended
