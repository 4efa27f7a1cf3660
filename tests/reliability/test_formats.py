"""Stores, predictions and checkpoints of other versions: read, or refused with what to do."""

import json
import shutil

import pytest
import torch
from realruns import command
from stops import resume

from ens10.errors import FileError
from ens10.store import FORMAT_VERSION, manifest, opening, store_kinds


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (0, r"format 0, older than 1, is not read any more. Rebuild it .* `ens10 prepare`"),
        (FORMAT_VERSION + 1, r"newer than 2. Update ens10 to read it"),
    ],
)
def test_a_store_of_a_format_that_is_not_read_says_what_to_do(store, tmp_path, version, words):
    copy = shutil.copytree(store, tmp_path / "store.zarr")
    about = json.loads((copy / "zarr.json").read_text())
    about["attributes"]["ens10_format"] = version
    (copy / "zarr.json").write_text(json.dumps(about))
    with pytest.raises(FileError, match=words):
        store_kinds(copy)


def test_a_manifest_of_a_newer_format_says_what_to_do(store, monkeypatch):
    monkeypatch.setattr(manifest, "FORMAT", 0)
    with pytest.raises(FileError, match=r"of format 1\. Update ens10 to read it"):
        manifest.read_manifest(store)


def test_predictions_and_checkpoints_of_a_newer_format_say_what_to_do(
    whole, tmp_path, capsys, monkeypatch
):
    run = shutil.copytree(whole, tmp_path / "mlp")
    command("predict", "--run", run, "--quiet")
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(opening, "PREDICTIONS_FORMAT", 0)
        command("score", run, status=1)
    assert "format 1, newer than 0. Update ens10" in capsys.readouterr().err
    command("score", run)

    last = run / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(last, weights_only=True)
    checkpoint["ens10"]["format"] = 2
    torch.save(checkpoint, last)
    capsys.readouterr()
    resume(run, status=1)
    said = capsys.readouterr().err
    assert "last.ckpt: a checkpoint of format 2, newer than 1. Update ens10" in said
    assert said.count("\n") == 1
