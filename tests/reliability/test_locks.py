"""One process writes a run, and an error removes only what its own call made."""

import errno
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
import yaml
from realruns import command
from stops import arguments, fit, resume
from test_integrity import make_run
from waiting import PATIENCE

from ens10 import file_locks
from ens10.errors import FileError
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.scoring import score
from ens10.experiments.scoring.score import read_states, score_run
from ens10.experiments.training.folder import run_folder
from ens10.export import api, export


def content(run):
    return {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def refused(capfd, *words):
    said = capfd.readouterr().err
    assert said.count("\n") == 1, said
    assert all(word in said for word in words), said


def test_two_fits_do_not_train_in_one_folder(store, tmp_path, whole, capfd):
    run = shutil.copytree(whole, tmp_path / "mlp")
    before = content(run)
    with hold_lock(run / "run.lock", "ens10 fit"):
        resume(run, status=1)
        refused(capfd, f"in use by ens10 fit, process {os.getpid()} on")
        command("predict", "--run", run, "--quiet")  # the best so far
    shutil.rmtree(run / "predictions.zarr")
    assert content(run) == before
    new = tmp_path / "new"
    new.mkdir()
    with hold_lock(new / "run.lock", "ens10 fit"):  # which has made nothing else yet
        fit(store, new, status=1)
        refused(capfd, "in use by ens10 fit")
        assert new.is_dir()


def test_a_mistyped_fit_leaves_a_finished_run_alone(store, tmp_path, whole, capfd):
    run = shutil.copytree(whole, tmp_path / "mlp")
    before = content(run)
    fit(store, run, "--trainer.max_epochs", "many", status=1)
    refused(capfd, "holds files already")
    other = tmp_path / "other"
    command(*arguments(store, other), "--run", run, status=1)
    refused(capfd, "--run: several folders")
    config = yaml.safe_load((run / "config.yaml").read_text()) | {"run": str(run)}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    command("fit", "--run", other, "--config", tmp_path / "run.yaml", status=1)
    refused(capfd, "on the command line")
    assert content(run) == before
    assert not other.exists()


@pytest.mark.slow
def test_a_fit_that_cannot_begin_leaves_a_users_files_and_folders(store, tmp_path, capfd):
    wrong = ["--model.init_args.network.init_args.in_channels", "7"]
    there = tmp_path / "there"
    there.mkdir()
    fit(store, there, *wrong, status=1)
    fit(store, tmp_path / "new", *wrong, status=1)
    assert list(tmp_path.iterdir()) == [there]
    assert not list(there.iterdir())
    with pytest.raises(SystemExit):
        fit(store, there, "--trainer.max_epochs", "many")
    assert not list(there.iterdir())


def test_a_fit_that_was_killed_before_it_began_is_begun_again(store, tmp_path):
    run = tmp_path / "mlp"
    run.mkdir()
    (run / "run.lock").write_text("ens10 fit, process 1 on somewhere\n")
    (run / ".config.yaml.0123abcd.tmp").write_text("half of a configur")
    fit(store, run)
    assert not [*run.glob(".*.tmp")]


def test_a_users_own_temporary_file_is_neither_removed_nor_overlooked(store, tmp_path, capsys):
    own = tmp_path / "mlp" / ".notes.tmp"
    own.parent.mkdir()
    own.write_text("mine")
    fit(store, own.parent, status=1)
    assert "holds files already" in capsys.readouterr().err
    assert own.read_text() == "mine"


def test_a_lock_outlives_neither_its_process_nor_a_kill(tmp_path):
    path = tmp_path / "run.lock"
    path.write_text("ens10 fit, process 1 on elsewhere\n")  # left by a kill
    with hold_lock(path, "ens10 fit"):
        assert f"process {os.getpid()} on" in path.read_text()
        with pytest.raises(FileError, match=f"in use by ens10 fit, process {os.getpid()}"):
            hold_lock(path, "ens10 fit").__enter__()
    assert not path.exists()


def test_without_locks_of_the_file_system_a_file_stands_for_one(tmp_path, monkeypatch):
    def none(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file_locks.fcntl, "flock", none)
    path = tmp_path / "run.lock"
    with hold_lock(path, "ens10 fit"):
        with pytest.raises(FileError, match="in use by"):
            hold_lock(path, "ens10 fit").__enter__()
        assert [p.name for p in tmp_path.iterdir()] == ["run.lock.claim"]
    assert not list(tmp_path.iterdir())


def test_without_locks_of_the_file_system_one_waits_if_asked_to(tmp_path, monkeypatch):
    def none(file, kind):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(file_locks.fcntl, "flock", none)
    order = []

    def second():
        with hold_lock(tmp_path / "results.lock", "cells", wait=True):
            order.append("second")

    with hold_lock(tmp_path / "results.lock", "cells"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.5)  # in which a wrong lock would let it in
        order.append("first")
    thread.join(PATIENCE)
    assert order == ["first", "second"]


def test_a_second_prediction_is_refused(tmp_path, whole, capfd):
    run = shutil.copytree(whole, tmp_path / "mlp")
    with hold_lock(run / "predict.lock", "ens10 predict"):
        before = content(run)
        command("predict", "--run", run, "--quiet", status=1)
        refused(capfd, f"in use by ens10 predict, process {os.getpid()} on")
        assert content(run) == before


def test_two_scores_at_once_both_end_and_the_files_are_whole(tmp_path, store, monkeypatch):
    run = make_run(tmp_path / "raw", store)
    alone = score_run(run)
    summaries = score.paired_states

    def meanwhile(*given, **options):
        monkeypatch.setattr(score, "paired_states", summaries)
        score_run(run)  # another one, from its beginning to its end
        return summaries(*given, **options)

    monkeypatch.setattr(score, "paired_states", meanwhile)
    score_run(run)
    assert read_states(run).identical(alone)
    assert {path.name for path in run.iterdir()} == {
        "predictions.zarr", "provenance.json", "scores.csv", "scores.nc",
    }  # fmt: skip


def test_a_fit_that_resumes_leaves_the_files_that_a_score_is_writing(tmp_path, store, monkeypatch):
    run = make_run(tmp_path / "raw", store)
    save = score.save_states

    def meanwhile(states, path):
        save(states, path)
        (run / ".config.yaml.0011aabb.tmp").write_text("left by a kill")
        (run / "config.yaml").write_text("model: {}")
        with run_folder(run, "fit"):  # as `ens10 fit --resume` begins
            pass
        assert not (run / ".config.yaml.0011aabb.tmp").exists()

    monkeypatch.setattr(score, "save_states", meanwhile)
    score_run(run)
    assert (run / "scores.nc").exists()


def test_a_second_export_of_a_file_is_refused(tmp_path, store, monkeypatch):
    alone = export(store, tmp_path / "alone.nc", variables=["t2m"]).read_bytes()
    write = api.write_netcdf

    def meanwhile(path, *given):
        monkeypatch.setattr(api, "write_netcdf", write)
        write(path, *given)
        with pytest.raises(FileError, match=r"a\.nc\.partial: in use by ens10 export, process"):
            export(store, tmp_path / "a.nc", variables=["t2m"])

    monkeypatch.setattr(api, "write_netcdf", meanwhile)
    assert export(store, tmp_path / "a.nc", variables=["t2m"]).read_bytes() == alone
    assert {path.name for path in tmp_path.iterdir()} == {"a.nc", "alone.nc"}


@pytest.mark.parametrize("name", ["a.nc", "a.grib"])
def test_an_export_removes_the_temporary_file_of_a_killed_one(tmp_path, store, name):
    left, other = tmp_path / f".{name}.0011aabb.tmp", tmp_path / ".b.nc.0011aabb.tmp"
    left.write_bytes(b"half"), other.write_bytes(b"of another file")
    (tmp_path / f"{name}.partial").mkdir()
    (tmp_path / f"{name}.partial" / "write.lock").write_text("ens10 export, process 1 on x\n")
    export(store, tmp_path / name, kind="sfc", variables=["t2m"])
    assert {path.name for path in tmp_path.iterdir()} == {name, other.name}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["score", "export", "predict"])
def test_processes_at_once_do_not_fail_with_tracebacks(tmp_path, store, whole, what):
    run = shutil.copytree(whole, tmp_path / "mlp")
    command("predict", "--run", run, "--quiet")
    words = {
        "score": ["score", run],
        "export": ["export", store, "--to", tmp_path / "a.nc", "--force"],
        "predict": ["predict", "--run", run, "--quiet"],
    }[what]
    words = [sys.executable, "-m", "ens10", *map(str, words)]
    started = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in started:
        said = process.communicate()[1]
        assert "Traceback" not in said
        assert process.returncode == 0 or f"in use by ens10 {what}" in said
    assert 0 in {process.returncode for process in started}
    score_run(run)
