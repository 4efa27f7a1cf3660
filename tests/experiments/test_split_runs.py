"""Runs whose samples are split between processes, through the real command line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from realruns import config_path, subprocess_of

from ens10.errors import LostProcessError
from ens10.experiments.runs.reading import open_predictions
from ens10.experiments.training import train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # six commands, maybe on a busy machine
CPU = ["--trainer.accelerator", "cpu", "--quiet"]
# Adam must not amplify the rounding of sums, whose order depends on processes and processor
EXACT = ["--trainer.precision", "64-true", "--model.init_args.optimizer.init_args.eps", 1e-4]
SPLIT = ["--trainer.devices", 2, "--trainer.strategy", "ddp_spatial"]


@pytest.fixture(scope="module")
def store(prepared):
    return prepared("17x24", range(2000, 2006), 4, seed=0, steps=(48,)) / "store.zarr"


def fit(store, run, *options, epochs=2):
    given = ["--config", config_path("unet"), "--data.store", store, "--run", run, *CPU]
    return subprocess_of("fit", *given, "--trainer.max_epochs", epochs, *options)


def test_two_parts_give_the_run_and_the_predictions_of_one_process(store, tmp_path):
    logs, forecasts = [], []
    for name, options in (("one", []), ("two", [*SPLIT, "--trainer.strategy.lat", 2])):
        run = tmp_path / name
        done = fit(store, run, *EXACT, *options)
        assert done.returncode == 0, done.stderr
        log = pd.read_csv(run / "log" / "metrics.csv").groupby("epoch").first()
        logs.append(log[["train_loss", "val_loss"]])
    np.testing.assert_allclose(*logs, rtol=1e-9)
    for options in (["--trainer.devices", 1, "--trainer.strategy.lat", 1], []):
        done = subprocess_of("predict", "--run", run, "--quiet", *options)
        assert done.returncode == 0, done.stderr
        forecast, truth = open_predictions(run)
        forecasts.append((forecast.load(), truth.load()))
    (whole, truth), (parts, same) = forecasts
    np.testing.assert_array_equal(truth, same)
    np.testing.assert_allclose(parts.mu, whole.mu, rtol=1e-6)
    np.testing.assert_allclose(parts.sigma, whole.sigma, rtol=1e-6)
    read = json.loads((run / "provenance.json").read_text())["bytes_read"]
    assert len(read) == 2
    assert max(read) < 0.56 * sum(read)


def test_a_killed_process_ends_the_run_with_one_line(store, tmp_path):
    run = tmp_path / "killed"
    options = [*SPLIT, "--trainer.strategy.lat", 2, "--trainer.strategy.timeout", 300]
    command = [sys.executable, "-m", "ens10", "fit", "--config", config_path("unet")]
    command += ["--data.store", store, "--run", run, *CPU, *options, "--trainer.max_epochs", 5000]
    process = subprocess.Popen([str(c) for c in command], stderr=subprocess.PIPE, text=True)
    log, began = run / "log" / "metrics.csv", time.monotonic()
    while not log.is_file() and time.monotonic() - began < 400:
        time.sleep(0.5)
    (child,) = children_of(process.pid)
    os.kill(child, signal.SIGKILL)
    _, said = process.communicate(timeout=400)
    assert process.returncode == 1
    assert "another process has ended or is late" in said
    assert "Traceback" not in said
    assert not children_of(process.pid)


def children_of(pid):
    """Its processes that run the command too."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def test_statistical_methods_are_refused_before_training(store, tmp_path):
    method = ["--config", config_path("emos_global"), "--data.store", store]
    done = subprocess_of("fit", *method, "--run", tmp_path / "method", *CPU, *SPLIT)
    assert done.returncode == 1
    assert "EMOS is fitted in one process, not 2" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_process_lost_outside_a_step_is_one_line_too():
    """Such as in the sums of metrics at the end of an epoch, which no strategy runs."""
    message = "[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]"

    def lost(*_, **__):
        raise RuntimeError(message)

    for processes, error in ((2, LostProcessError), (1, RuntimeError)):
        trainer = SimpleNamespace(world_size=processes, global_rank=0, fit=lost)
        with pytest.raises(error, match="Connection closed by peer"):
            train._run_stage("fit", trainer, None, None, train.RunWork(Path("run")))
