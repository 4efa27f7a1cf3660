"""Fits that are stopped at a chosen place by a signal, an error or a full disk."""

import os
import resource
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pytorch_lightning as pl
import torch
from realruns import command, config_path

EPOCHS, BATCHES = 3, 4
# each epoch is worse than the one before, so that the first stays the best
WORSE = ("--model.init_args.optimizer.init_args.maximize", "true")


def arguments(store, run, *options):
    """Options of a fit of a small network."""
    config = ["--config", config_path("mlp"), "--data.store", store, "--run", run, "--quiet"]
    limits = ["--trainer.max_epochs", EPOCHS, "--data.batch_size", 3]
    return ["fit", *config, *limits, "--trainer.num_sanity_val_steps", 0, *options]


def fit(store, run, *options, status=0):
    command(*arguments(store, run, *options), status=status)
    return Path(run)


def resume(run, *options, status=0):
    command("fit", "--run", run, "--resume", "--quiet", *options, status=status)
    return Path(run)


def saved(run, which="last"):
    return torch.load(run / "checkpoints" / f"{which}.ckpt", weights_only=True)


def log(run):
    return (run / "log" / "metrics.csv").read_text()


def assert_same_run(run, whole):
    """Same weights, same log, same best epoch: bit by bit."""
    for which in ("last", "best"):
        mine, its = saved(run, which), saved(whole, which)
        assert mine["epoch"] == its["epoch"]
        assert mine["state_dict"].keys() == its["state_dict"].keys()
        for key, value in its["state_dict"].items():
            torch.testing.assert_close(mine["state_dict"][key], value, rtol=0, atol=0)
    assert log(run) == log(whole)
    assert saved(run)["lr_schedulers"] == saved(whole)["lr_schedulers"]


class StopAt(pl.Callback):
    """Sends this process a signal, or raises an error, the first time that a place is reached.

    Args:
        hook: name of the callback's hook.
        epoch: of the place.
        batch: of the place, for hooks of batches.
        number: the signal; 0 to raise `KeyboardInterrupt` on the spot, as a kill would end it.
    """

    armed = True

    def __init__(self, hook: str, epoch: int, batch: int = 0, number: int = 0) -> None:
        self.place, self.number = (hook, epoch, batch), number

    def reached(self, hook, trainer, batch=None):
        place = (hook, trainer.current_epoch, self.place[2] if batch is None else batch)
        if StopAt.armed and place == self.place:
            StopAt.armed = False
            if not self.number:
                raise KeyboardInterrupt
            os.kill(os.getpid(), self.number)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.reached("on_train_batch_end", trainer, batch_idx)

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, loader=0):
        self.reached("on_validation_batch_end", trainer, batch_idx)

    def on_validation_start(self, trainer, pl_module):
        self.reached("on_validation_start", trainer)

    def on_train_epoch_start(self, trainer, pl_module):
        self.reached("on_train_epoch_start", trainer)

    def on_train_epoch_end(self, trainer, pl_module):
        self.reached("on_train_epoch_end", trainer)


def stop_at(hook, epoch, batch=0, number=0):
    """Options of a fit that is stopped once."""
    StopAt.armed = True
    values = {"hook": hook, "epoch": epoch, "batch": batch, "number": int(number)}
    options = [part for k, v in values.items() for part in (f"--trainer.callbacks.{k}", v)]
    return ["--trainer.callbacks+", "stops.StopAt", *options]


@contextmanager
def no_file_above(size):
    """Within it, the kernel refuses to write files of more than so many bytes.

    Python would keep the cut start of a module that it compiles, so it keeps none.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    keeps_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = keeps_none
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
