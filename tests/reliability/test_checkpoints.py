"""Checkpoints: after each epoch and within it, whole or not at all, and not bound to a place."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from stops import (
    WORSE,
    assert_same_run,
    fit,
    log,
    no_file_above,
    resume,
    saved,
    stop_at,
)

from ens10.experiments.runs.checkpoints import is_intact, resumable_checkpoint
from ens10.experiments.runs.saving import _link_previous

KILL = {"number": 0}  # at the very place, without another word


class Epochs(pl.Callback):
    """Notes the epoch of last.ckpt at the start of each later epoch."""

    found: list = []  # noqa: RUF012

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch:
            last = f"{trainer.default_root_dir}/checkpoints/last.ckpt"
            Epochs.found.append(torch.load(last, weights_only=True)["epoch"])


def test_the_last_checkpoint_is_of_the_last_epoch_though_an_earlier_one_was_better(store, tmp_path):
    Epochs.found.clear()
    run = fit(store, tmp_path / "mlp", *WORSE, "--trainer.callbacks+", "test_checkpoints.Epochs")
    assert Epochs.found == [0, 1]
    assert saved(run)["epoch"] == 2
    assert saved(run, "previous")["epoch"] == 1
    assert saved(run, "best")["epoch"] == 0


def test_a_long_epoch_is_saved_within_and_a_kill_loses_minutes(store, whole, tmp_path):
    run = tmp_path / "mlp"
    often = ("--checkpoint_minutes", 1e-9)
    fit(store, run, *often, *stop_at("on_train_batch_end", 1, 2, **KILL), status=130)
    assert saved(run)["global_step"] == 6  # of epoch 1 the batches 0 and 1
    with (run / "log" / "metrics.csv").open("a") as file:
        file.write("1,7,,0.5,0.5\n")  # of after the checkpoint
    (run / "checkpoints" / ".last.ckpt.0123abcd.tmp").write_bytes(b"left by a kill")
    resume(run)
    assert_same_run(run, whole)
    assert not list(run.rglob(".*.tmp"))


def test_a_checkpoint_is_synced_beside_its_target_and_then_renamed(store, tmp_path, monkeypatch):
    """No room is needed elsewhere, such as in TMPDIR."""
    order, sync, rename = [], os.fsync, os.replace

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    def noted_sync(file):
        order.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        sync(file)

    def noted_rename(old, new, **rest):
        order.append(f"{old} -> {new}")
        rename(old, new, **rest)

    for name in ("mkstemp", "NamedTemporaryFile", "TemporaryFile"):
        monkeypatch.setattr(tempfile, name, full)
    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_rename)
    run = fit(store, tmp_path / "mlp", "--trainer.max_epochs", 1)
    last = run / "checkpoints" / "last.ckpt"
    (n,) = (n for n, step in enumerate(order) if step.endswith(f"-> {last}"))
    assert order[n - 1] == order[n].partition(" -> ")[0]
    assert order[n + 1] == str(last.parent)


@pytest.fixture(scope="module")
def stopped(store, tmp_path_factory):
    """A run that was stopped in epoch 2, with checkpoints of epochs 0 and 1."""
    run = tmp_path_factory.mktemp("stopped") / "mlp"
    return fit(store, run, *stop_at("on_train_epoch_start", 2, **KILL), status=130)


@pytest.fixture
def copy(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "elsewhere" / "moved")


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "bit":
        content[len(content) // 2] ^= 1
    path.write_bytes(b"" if how == "empty" else content[: len(content) // 2 * 2])


@pytest.mark.parametrize("how", ["bit", pytest.param("empty", marks=pytest.mark.slow)])
def test_a_damaged_checkpoint_is_replaced_by_the_one_before(copy, whole, capfd, how):
    damage(copy / "checkpoints" / "last.ckpt", how)
    assert not is_intact(copy / "checkpoints" / "last.ckpt")
    if how == "empty":  # one resumes, the other looks only
        resume(copy)
        assert_same_run(copy, whole)
    else:
        assert resumable_checkpoint(copy / "checkpoints", repair=True).name == "last.ckpt"
        assert saved(copy)["epoch"] == 0
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "last.ckpt is damaged; resuming from previous.ckpt, the one before" in said


def test_a_checkpoint_that_has_its_second_name_already_leaves_no_third(tmp_path):
    last, previous = tmp_path / "last.ckpt", tmp_path / "previous.ckpt"
    last.write_text("epoch 1")
    for _ in range(2):  # the second time as after a kill between this and the next checkpoint
        _link_previous(last, previous)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "previous.ckpt"]
        assert previous.read_text() == "epoch 1"


def test_where_all_checkpoints_are_damaged_one_line_says_so(copy, capfd):
    for path in (copy / "checkpoints").iterdir():
        damage(path, "empty")
    resume(copy, status=1)
    assert "damaged, and there is no other checkpoint" in capfd.readouterr().err


@pytest.mark.slow
def test_a_full_disk_ends_a_fit_with_one_line_and_the_checkpoint_of_before(copy, whole, capsys):
    before = saved(copy)["epoch"]
    size = (copy / "checkpoints" / "last.ckpt").stat().st_size
    with no_file_above(size // 2):
        resume(copy, status=1)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "no space is left on the disk" in said
    assert saved(copy)["epoch"] == before
    assert is_intact(copy / "checkpoints" / "previous.ckpt")
    assert not list(copy.rglob(".*.tmp"))
    resume(copy)
    assert_same_run(copy, whole)


@pytest.mark.parametrize(
    "older", [pytest.param(old, marks=pytest.mark.slow) for old in (False, True)]
)
def test_a_moved_run_keeps_its_best_checkpoint(store, tmp_path, older):
    """Also one whose checkpoints are of Lightning's own callback, with paths of before."""
    first, moved = tmp_path / "first" / "mlp", tmp_path / "moved" / "mlp"
    fit(store, first, *WORSE, *stop_at("on_train_epoch_start", 2, **KILL), status=130)
    best, score = saved(first, "best")["epoch"], min(losses(first))
    first.parent.rename(moved.parent)
    if older:
        as_older(moved, score)
    resume(moved)
    assert min(losses(moved)) == score  # or the test shows nothing
    assert saved(moved, "best")["epoch"] == best
    assert {line[:2] for line in log(moved).splitlines()[1:]} == {"0,", "1,", "2,"}


def losses(run):
    rows = (line.split(",") for line in log(run).splitlines())
    column = next(rows).index("val_loss")
    return [float(row[column]) for row in rows if row[column]]


def as_older(run, score):
    """Makes the checkpoints of a run what Lightning's ModelCheckpoint wrote."""
    for path in (run / "checkpoints").iterdir():
        held = torch.load(path, weights_only=True)
        del held["ens10"]
        (key,) = (key for key in held["callbacks"] if key.startswith("ModelCheckpoint"))
        place, value = "/elsewhere/mlp/checkpoints", torch.tensor(score)
        kept = {
            "best_k_models": {f"{place}/best.ckpt": value},
            "dirpath": place,
            "kth_value": value,
        }
        kept |= {"best_model_path": f"{place}/best.ckpt", "best_model_score": value}
        held["callbacks"][key] = kept
        torch.save(held, path)


@pytest.mark.slow
def test_the_log_is_that_of_the_checkpoint(copy, whole):
    """Whatever became of the file: cut off, as by a kill, or gone."""
    path = copy / "log" / "metrics.csv"
    path.write_text(path.read_text()[:-10])
    resume(copy)
    assert log(copy) == log(whole)
