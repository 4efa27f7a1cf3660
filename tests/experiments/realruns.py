"""Runs through the real command line, and callbacks that stop them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytorch_lightning as pl

from ens10.cli import main
from ens10.errors import Ens10Error
from ens10.experiments.demo import config_path
from ens10.experiments.runner.forks import compute_cell
from ens10.experiments.runner.trainings import read_cell

EPOCHS = 2
NAMES = ("raw", "emos_global", "emos_local", "mlp", "unet")


def command(*arguments, status=0):
    """Runs one command in this process, and checks its exit status."""
    assert main([str(a) for a in arguments]) == status


def subprocess_of(*arguments, code=None):
    """Run one command in a fresh process of one thread; warnings are errors of ours alone.

    Sums of floats depend on the number of threads: one, as in the processes of the tests, so that
    results can be compared to the last bit.
    """
    program = [sys.executable, *(["-c", code] if code else ["-m", "ens10"])]
    return subprocess.run(
        [*program, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )


def fit(name, store, run, *options, epochs=EPOCHS):
    limit = ["--trainer.max_epochs", epochs] if name in ("mlp", "unet") else []
    config = ["--config", config_path(name)]
    command("fit", *config, "--data.store", store, "--run", run, "--quiet", *limit, *options)
    return Path(run)


def finish(run):
    command("predict", "--run", run, "--quiet")
    command("score", run)
    return Path(run)


def without_manifest(run):
    """A run whose predictions are those of an earlier version, which tests may change."""
    store = Path(run) / "predictions.zarr"
    shutil.rmtree(store / "manifest")
    about = json.loads((store / "zarr.json").read_text())
    del about["attributes"]["ens10_predictions"]
    del about["consolidated_metadata"]
    (store / "zarr.json").write_text(json.dumps(about))
    return Path(run)


class StopAt(pl.Callback):
    """Stops the first fit that reaches a batch of an epoch, once."""

    stopped = False

    def __init__(self, epoch: int, batch: int) -> None:
        self.epoch, self.batch = epoch, batch

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if not StopAt.stopped and (trainer.current_epoch, batch_idx) == (self.epoch, self.batch):
            StopAt.stopped = True
            raise KeyboardInterrupt


def compute_here(cell, threads=1, children=None):
    """Stands for `start_cell`: the cell in this process; an error's words if it fails."""
    assert threads == 1
    try:
        compute_cell(cell)
    except Ens10Error as error:
        return f"a long way\nens10: {error}"
    return None


def kept_run(cell):
    """The run of a kept cell."""
    with cell.results.temporary_folder([cell.place]) as folder:
        return read_cell(folder / cell.place)
