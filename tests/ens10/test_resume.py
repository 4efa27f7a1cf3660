"""Interruptions of every kind: the store is the same, byte for byte, and little is done again."""

import errno
import os
import random
import signal
import time

import numpy as np
import pytest
from gribfiles import cube
from storetools import (
    assert_same,
    children,
    contents,
    start,
    units_done,
    wait_for_end,
    wait_for_units,
)

from ens10 import prepare
from ens10.convert import files, verify, workers
from ens10.convert.preparation import StoreBuilder
from ens10.convert.work_units import ForecastUnit
from ens10.errors import FileError
from ens10.store.manifest import read_manifest


@pytest.fixture
def begun(monkeypatch):
    """Names of the units that are begun."""
    names, real = [], ForecastUnit.write

    def counted(unit, writer):
        names.append(unit.name)
        real(unit, writer)

    monkeypatch.setattr(ForecastUnit, "write", counted)
    return names


def killed_and_resumed(small, folder, moments, pause, **options):
    """Kills a run when so many more units are done, goes on, and compares with `small`'s store."""
    source, store = small / "w", folder / "s.zarr"
    options["truth"] = str(source / "truth")
    for more in moments:
        process = start(source, store, pause, **options)
        wait_for_units(store, units_done(store) + more, process)
        time.sleep(random.random() * pause)
        workers = children(process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        wait_for_end(workers)
    process = start(source, store, **options)
    assert process.communicate()[1] == ""
    assert process.returncode == 0
    assert_same(store, small / "s.zarr")
    assert sorted(p.name for p in folder.iterdir()) == ["prepare.py", "s.zarr"]


def test_killed_and_resumed(small, tmp_path):
    killed_and_resumed(small, tmp_path, (7,), 0.005)


@pytest.mark.parametrize(
    "times", [pytest.param(6, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.long)]
)
def test_killed_many_times(small, tmp_path, times):
    killed_and_resumed(small, tmp_path, [random.randrange(5) for _ in range(times)], 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("moments", [(3,), pytest.param((1, 20), marks=pytest.mark.long)])
def test_killed_with_workers_that_end_too(small, tmp_path, moments):
    killed_and_resumed(small, tmp_path, moments, 0.01, workers=2)


@pytest.mark.parametrize("together", [0, 1 << 24])
def test_a_resumed_run_does_the_rest_alone(write, tmp_path, begun, capsys, monkeypatch, together):
    source, store = write(cube()), tmp_path / "s"
    real = ForecastUnit.write
    monkeypatch.setattr("ens10.convert.workers.GROUP_BYTES", together)

    def stops(unit, writer):
        real(unit, writer)
        if unit.name == "forecast-000001-001":
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForecastUnit, "write", stops)
        with pytest.raises(KeyboardInterrupt):
            prepare(source, store)
    assert begun.pop() == "forecast-000001-001"
    prepare(source, store, progress=True)
    assert len(begun) == len(set(begun)) == 6
    assert "resuming: 3 of 6 units are there" in capsys.readouterr().err
    prepare(source, tmp_path / "other")
    assert_same(store, tmp_path / "other")


def test_small_units_go_together_and_large_ones_alone():
    units = [(5, "a"), (6, "b"), (7, "c"), (100, "d"), (2, "e")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "GROUP_BYTES", 12)
        assert list(workers.group_units(units)) == [("a", "b"), ("c",), ("d",), ("e",)]
        patch.setattr(workers, "GROUP_BYTES", 0)
        assert list(workers.group_units(units)) == [(name,) for name in "abcde"]
        assert list(workers.group_units([])) == []


@pytest.mark.parametrize("limit", [0, pytest.param(1 << 20, marks=pytest.mark.slow)])
def test_large_chunks_and_grids_give_the_same_store(small, tmp_path, monkeypatch, limit):
    """Whose files and moments other threads look after, and whose units are alone."""
    monkeypatch.setattr("ens10.convert.work_units._MIN_THREADED_POINTS", limit)
    monkeypatch.setattr("ens10.convert.work_units._SLAB", 7 + limit)
    monkeypatch.setattr(files, "_SMALL_CHUNK", limit)
    monkeypatch.setattr(workers, "GROUP_BYTES", limit)
    prepare(small / "w", tmp_path / "s", truth=small / "w" / "truth")
    assert_same(tmp_path / "s", small / "s.zarr")


def test_a_complete_store_is_left_as_it_is(write, tmp_path, begun, monkeypatch, capsys):
    source, store = write(cube()), tmp_path / "s"
    prepare(source, store, members=2, dates=["2016"])
    before = contents(store)
    begun.clear()
    monkeypatch.setattr("ens10.convert.sources.scan", lambda path: pytest.fail("scanned"))
    capsys.readouterr()
    prepare(source, store, members=2, dates=["2016"])
    assert capsys.readouterr().err == ""
    prepare(source, store, members=2, dates=["2016"], progress=True)
    assert capsys.readouterr().err == f"{store} is complete: nothing to do\n"
    assert not begun
    assert contents(store) == before
    with source.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(FileError, match=r"a.grib of \d+ bytes, not \d+"):
        prepare(source, store, members=2, dates=["2016"])


def test_another_plan_is_refused_and_says_why(write, tmp_path, begun):
    source, store = write(cube()), tmp_path / "s"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "write_files", fails_after(9, OSError("broken")))
        with pytest.raises(OSError, match="broken"):
            prepare(source, store)
    with pytest.raises(FileError, match=r"members: none given, now 2.*--force"):
        prepare(source, store, members=2)
    prepare(source, store, members=2, force=True)
    prepare(source, tmp_path / "other", members=2)
    assert_same(store, tmp_path / "other")


def fails_after(count, error):
    """A `write_files` that raises from its count-th file on."""
    real, calls = files.write_files, []

    def place(scratch, root, content):
        calls.extend(content)
        if len(calls) > count:
            raise error
        real(scratch, root, content)

    return place


def test_a_full_disk_is_one_clear_error_and_resumes(write, tmp_path, monkeypatch):
    source, store = write(cube()), tmp_path / "s"
    real, written = os.write, []

    def full(file, data):
        written.append(len(data))
        if len(written) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data)

    monkeypatch.setattr(files.os, "write", full)
    monkeypatch.setattr(workers, "GROUP_BYTES", 0)
    with pytest.raises(FileError, match=r"no space is left.*MB are needed.*it resumes") as caught:
        prepare(source, store)
    assert str(caught.value.path).startswith(str(tmp_path / "s.partial"))
    monkeypatch.undo()
    assert not store.exists()
    assert not (tmp_path / "s.partial/.tmp").exists()
    assert units_done(store)
    prepare(source, store)
    prepare(source, tmp_path / "other")
    assert_same(store, tmp_path / "other")


@pytest.mark.parametrize(
    "where",
    [".", *(pytest.param(n, marks=pytest.mark.slow) for n in ("manifest", "manifest/json"))],
)
def test_metadata_that_zarr_had_begun_is_removed(write, tmp_path, monkeypatch, where):
    source, store = write(cube()), tmp_path / "s"

    def killed(folder, plan):
        place = folder.store / where
        place.mkdir(parents=True, exist_ok=True)
        (place / "zarr.0123.partial").write_text("{")
        raise FileError(place, "killed")

    monkeypatch.setattr("ens10.convert.preparation.write_manifest", killed)
    with pytest.raises(FileError, match="killed"):
        prepare(source, store)
    monkeypatch.undo()
    prepare(source, store)
    prepare(source, tmp_path / "other")
    assert_same(store, tmp_path / "other")


def test_a_disk_that_is_too_small_is_told_first(write, tmp_path, monkeypatch, begun):
    class Usage:
        free = 10_000

    monkeypatch.setattr("ens10.convert.preparation.shutil.disk_usage", lambda path: Usage)
    with pytest.raises(FileError, match=r"it needs 0.0\d+ MB, and 0.01 MB are free"):
        prepare(write(cube()), tmp_path / "s")
    assert not begun


def test_the_size_is_known_before(write, tmp_path, monkeypatch):
    told, real = [], StoreBuilder._check_space

    def noted(engine, needed):
        told.append(needed)
        real(engine, needed)

    monkeypatch.setattr(StoreBuilder, "_check_space", noted)
    source = write(cube())
    truth = write([f for f in cube() if f[4] == 1], "truth.grib", data_type="an", members=0)
    store = prepare(source, tmp_path / "s", truth=truth, ensembles=[2])
    units = {name: rows for name, rows in read_manifest(store).units.items() if name != "metadata"}
    written = sum(row[1] for rows in units.values() for row in rows)
    assert written <= sum(told) < 1.03 * written


def test_two_runs_into_one_store(write, tmp_path):
    source, store = write(cube()), tmp_path / "s"
    process = start(source, store, most=1)
    wait_for_units(store, 1, process)
    owner = f"{store}.partial: in use by ens10 prepare, process {process.pid} on"
    with pytest.raises(FileError, match=owner):
        prepare(source, store)
    with pytest.raises(FileError, match=owner):
        prepare(source, store, force=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    prepare(source, store)
    assert verify(store, source=source).ok


def test_a_folder_that_has_gone_is_not_made_anew(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(FileNotFoundError):
        files.write_files(scratch, tmp_path / "gone", [("a/b/c", np.zeros(3, np.uint8))])
    assert [p.name for p in tmp_path.rglob("*")] == ["scratch"]


def test_nothing_is_left_of_a_file_that_does_not_fit(tmp_path, monkeypatch):
    def full(file, data):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(files.DiskFullError, match="no space is left"):
        files.write_files(tmp_path, tmp_path, [(name, np.zeros(3, np.uint8)) for name in "ab"])
    assert not list(tmp_path.iterdir())
