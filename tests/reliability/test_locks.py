"""One process writes a run, and an error removes only what its own call made."""

import os
import shutil

import pytest
import yaml
from realruns import command
from stops import arguments, fit, resume

from ens10.errors import FileError
from ens10.experiments import locks
from ens10.experiments.locks import locked


def content(run):
    return {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def refused(capfd, *words):
    said = capfd.readouterr().err
    assert said.count("\n") == 1, said
    assert all(word in said for word in words), said


def test_two_fits_do_not_train_in_one_folder(store, tmp_path, whole, capfd):
    run = shutil.copytree(whole, tmp_path / "mlp")
    before = content(run)
    with locked(run / "run.lock", "ens10 fit"):
        resume(run, status=1)
        refused(capfd, f"in use by ens10 fit, process {os.getpid()} on")
        command("predict", "--run", run, "--quiet")  # the best so far
    shutil.rmtree(run / "predictions.zarr")
    assert content(run) == before
    new = tmp_path / "new"
    new.mkdir()
    with locked(new / "run.lock", "ens10 fit"):  # which has made nothing else yet
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


def test_a_lock_outlives_neither_its_process_nor_a_kill(tmp_path):
    path = tmp_path / "run.lock"
    path.write_text("ens10 fit, process 1 on elsewhere\n")  # left by a kill
    with locked(path, "ens10 fit"):
        assert f"process {os.getpid()} on" in path.read_text()
        with pytest.raises(FileError, match=f"in use by ens10 fit, process {os.getpid()}"):
            locked(path, "ens10 fit").__enter__()
    assert not path.exists()


def test_without_locks_of_the_file_system_a_file_stands_for_one(tmp_path, monkeypatch):
    def none(file, kind):
        raise OSError(locks.errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    path = tmp_path / "run.lock"
    with locked(path, "ens10 fit"):
        with pytest.raises(FileError, match="in use by"):
            locked(path, "ens10 fit").__enter__()
        assert [p.name for p in tmp_path.iterdir()] == ["run.lock.claim"]
    assert not list(tmp_path.iterdir())
