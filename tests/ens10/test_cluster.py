"""The same store from one process, from several, and from a cluster that loses a worker."""

import os
import signal
import threading
import time

import pytest
from gribfiles import cube
from storetools import assert_same, units_done
from waiting import wait_until

from ens10 import extras, prepare
from ens10.convert import workers
from ens10.convert.workers import work
from ens10.errors import ArgumentError, FileError


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", pytest.param("lz4", marks=pytest.mark.long)])
def test_processes_make_the_same_store(tiny, tmp_path, codec):
    source = tiny / "w"
    for name, count in (("one", 1), ("two", 2)):
        prepare(source, tmp_path / name, truth=source / "truth", codec=codec, workers=count)
    assert_same(tmp_path / "one", tmp_path / "two")
    if codec == "none":
        assert_same(tmp_path / "one", tiny / "s.zarr")


def killed(partial):
    """The file that says that a worker was killed."""
    return partial.with_name("killed")


def slow_work(folder, group):
    """`work` of which little is done until a worker was killed."""
    while len(list((folder.path / "units").iterdir())) >= 10 and not killed(folder.path).exists():
        time.sleep(0.01)
    return work(folder, group)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_whose_worker_is_killed(tiny, tmp_path, monkeypatch):
    from distributed import LocalCluster

    source, store = tiny / "w", tmp_path / "s.zarr"
    monkeypatch.setattr(workers, "work", slow_work)
    monkeypatch.setattr(workers, "GROUP_BYTES", 0)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        victim = next(iter(cluster.workers.values())).process.process.pid
        done = []

        def kill():
            wait_until(lambda: units_done(store) >= 10)
            os.kill(victim, signal.SIGKILL)
            done.append(units_done(store))
            killed(store).touch()

        thread = threading.Thread(target=kill)
        thread.start()
        address = cluster.scheduler_address
        prepare(source, store, truth=source / "truth", scheduler=address)
        thread.join()
    killed(store).unlink()
    assert 10 <= done[0] < 54
    assert_same(store, tiny / "s.zarr")
    assert [p.name for p in tmp_path.iterdir()] == ["s.zarr"]


def test_no_scheduler_there(write, tmp_path):
    with pytest.raises(ArgumentError, match="scheduler: no scheduler answers at nonsense"):
        prepare(write(cube()), tmp_path / "s", scheduler="nonsense")


def test_without_distributed(write, tmp_path, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(ArgumentError, match=r"cannot be imported.*pip install .distributed"):
        prepare(write(cube()), tmp_path / "s", scheduler="tcp://127.0.0.1:1")
    assert not list(tmp_path.glob("s*"))
    prepare(write(cube()), tmp_path / "s", workers=1)
    prepare(write(cube()), tmp_path / "s", scheduler="tcp://127.0.0.1:1")  # nothing to do


def test_how_many_workers():
    assert workers.workers_for(10, None) == 1
    assert workers.workers_for(1 << 40, None) == len(os.sched_getaffinity(0))
    assert workers.workers_for(10, 3) == 3
    with pytest.raises(ArgumentError, match="at least 1"):
        workers.workers_for(10, 0)


@pytest.mark.slow
def test_processes_start_once_for_many_batches(write, tmp_path, monkeypatch):
    started, real = [], workers.processes

    def counted(count):
        started.append(count)
        return real(count)

    source = write(cube())
    prepare(source, tmp_path / "other")
    monkeypatch.setattr(workers, "GROUP_BYTES", 0)  # a unit each
    monkeypatch.setattr(workers, "_BATCH", 1)
    monkeypatch.setattr(workers, "processes", counted)
    prepare(source, tmp_path / "s", workers=2)
    assert started == [2, 2]  # for the units, then for their sums
    assert_same(tmp_path / "s", tmp_path / "other")


def is_fatal(group):
    return any(unit.name == "forecast-000001-001" for unit in group)


def dies(folder, group):
    """A worker that the system kills at one unit, each time."""
    if is_fatal(group):
        os.kill(os.getpid(), signal.SIGKILL)
    return work(folder, group)


def dies_once(folder, group):
    """A worker that the system kills, once."""
    mark = folder.path / ".tmp" / "died"
    if is_fatal(group) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return work(folder, group)


@pytest.mark.slow
@pytest.mark.parametrize("together", [0, pytest.param(1 << 24, marks=pytest.mark.long)])
def test_a_process_that_dies_is_replaced(together, write, tmp_path, monkeypatch):
    source, store = write(cube()), tmp_path / "s"
    prepare(source, tmp_path / "other")
    monkeypatch.setattr(workers, "GROUP_BYTES", together)
    monkeypatch.setattr(workers, "work", dies)
    with pytest.raises(FileError, match=r"ended without a word.*fewer --workers"):
        prepare(source, store, workers=2)
    monkeypatch.setattr(workers, "work", dies_once)
    prepare(source, store, workers=2)
    assert_same(store, tmp_path / "other")
