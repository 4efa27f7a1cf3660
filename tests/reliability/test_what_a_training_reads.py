"""Damage to data, and numbers that are not finite, end a fit with one line; checkpoints stay."""

import shutil

import pytest
import pytorch_lightning as pl
import torch
from stops import fit, resume, saved


class Spoil(pl.Callback):
    """In batch 1 of epoch 1, a feature or a gradient is NaN.

    Args:
        gradient: whether it is the gradient, in the last batch.
    """

    def __init__(self, gradient: bool = False) -> None:
        self.gradient = gradient

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if not self.gradient and (trainer.current_epoch, batch_idx) == (1, 1):
            batch["features"][-1, 3, 3, 4] = torch.nan

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        if self.gradient and trainer.current_epoch == 1 and trainer.is_last_batch:
            next(pl_module.parameters()).grad[0] = torch.inf - torch.inf


@pytest.fixture
def copy(store, tmp_path):
    """A store that a test may damage: other processes read the shared one."""
    return shutil.copytree(store, tmp_path / "store.zarr")


def said(capsys):
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    return text


def all_finite(run):
    state = saved(run)["state_dict"]
    return all(v.isfinite().all() for v in state.values() if v.is_floating_point())


def test_one_bit_in_the_ensemble_mean_ends_a_fit(copy, tmp_path, capsys):
    """The attack: a bit of the exponent, so that the loss was 4e32 and the status 0."""
    path = copy / "statistics/ensemble_mean/c/1/0/0/0/0"
    content = bytearray(path.read_bytes())
    content[3] ^= 0x20
    path.write_bytes(content)
    fit(copy, tmp_path / "run", status=1)
    line = said(capsys)
    assert str(path) in line
    assert "does not match its checksum in the manifest" in line
    assert "ens10 verify STORE --repair" in line


def test_damage_after_a_first_epoch_leaves_the_last_checkpoint(copy, tmp_path, capsys):
    run = fit(copy, tmp_path / "run")
    before = (run / "checkpoints" / "last.ckpt").read_bytes()
    one, other = (copy / f"truth/t2m/c/{date}/0/0/0" for date in (0, 1))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    resume(run, "--trainer.max_epochs", 4, status=1)
    assert "truth/t2m/c/" in said(capsys)
    assert (run / "checkpoints" / "last.ckpt").read_bytes() == before


def test_a_loss_that_is_not_finite_names_date_and_variable(store, tmp_path, capsys):
    spoil = ("--trainer.callbacks+", f"{__name__}.Spoil")
    run = fit(store, tmp_path / "run", *spoil, status=1)
    line = said(capsys)
    assert "train_loss: not finite for valid date 200" in line
    assert "NaN or infinite: " in line
    assert ":mean" in line or ":std" in line
    assert saved(run)["epoch"] == 0
    assert all_finite(run)


@pytest.mark.parametrize("validated", [True, False])
def test_weights_that_became_nan_are_not_saved(store, tmp_path, capsys, validated):
    """By a gradient of the epoch's last batch: no loss of the epoch has seen it."""
    spoil = ("--trainer.callbacks+", f"{__name__}.Spoil", "--trainer.callbacks.gradient", "true")
    few = () if validated else ("--trainer.limit_val_batches", 0)
    run = fit(store, tmp_path / "run", *spoil, *few, status=1)
    assert ("val_loss: not finite" if validated else "weights: not finite") in said(capsys)
    assert saved(run)["epoch"] == 0
    assert all_finite(run)
