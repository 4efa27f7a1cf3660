"""A full disk or a read-only folder: one line, exit status 1, and the same command again works."""

import errno
import os
import shutil

import pytest
from realruns import command
from stops import fit, no_file_above, resume

from ens10 import file_locks
from ens10.durable import replace_folder
from ens10.experiments.scoring import score


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "mlp")


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def one_line(capsys, words):
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert said.startswith("ens10: ")
    assert words in said


def test_a_fit_that_has_no_room_to_begin_leaves_nothing(store, tmp_path, capsys):
    with no_file_above(100):  # bytes: less than a configuration
        fit(store, tmp_path / "mlp", status=1)
    one_line(capsys, "config.yaml: no space is left on the disk")
    assert not list(tmp_path.iterdir())


def test_predictions_and_scores_that_have_no_room_leave_those_of_before(run, capsys):
    with no_file_above(200):
        command("predict", "--run", run, "--quiet", status=1)
    one_line(capsys, "no space is left on the disk")
    command("predict", "--run", run, "--quiet")
    command("score", run)
    before = content(run)
    capsys.readouterr()
    with no_file_above(200):
        command("score", run, "--scores", "crps", status=1)
    one_line(capsys, "scores.nc")
    with no_file_above(200):
        command("predict", "--run", run, "--quiet", status=1)
    one_line(capsys, "no space is left on the disk")
    held = content(run)
    assert {path: held[path] for path in before} == before


def test_a_read_only_folder_is_one_line(run, capsys, monkeypatch):
    command("predict", "--run", run, "--quiet")
    before = content(run)

    def refuse(path, wait):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(file_locks, "_open_locked", refuse)
    for call in (("predict", "--run", run, "--quiet"), ("score", run)):
        command(*call, status=1)
        one_line(capsys, "cannot be written (read-only file system)")
    resume(run, status=1)
    one_line(capsys, "cannot be written (read-only file system)")
    assert content(run) == before


def test_predictions_that_are_replaced_while_they_are_scored_are_refused(run, capsys, monkeypatch):
    """Zarr would read NaN in the place of what has gone."""
    command("predict", "--run", run, "--quiet")
    command("score", run)
    before = content(run)
    paired = score.paired_states

    def replaced(*args, **options):
        found = paired(*args, **options)
        store = run / "predictions.zarr"
        replace_folder(shutil.copytree(store, run / "again"), store)
        return found

    monkeypatch.setattr(score, "paired_states", replaced)
    capsys.readouterr()
    command("score", run, status=1)
    one_line(capsys, "predicted again while it was scored")
    assert content(run) == before
