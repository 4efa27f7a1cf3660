"""Signals to real processes: a fit in a shell, a split run, the cells of a table."""

import os
import signal
import subprocess
import sys

import pytest
from stops import arguments, assert_same_run, resume
from waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow
LONG = 5000  # epochs
SPLIT = ["--trainer.accelerator", "cpu", "--trainer.devices", 2, "--trainer.strategy"]
SPLIT += ["ddp_spatial", "--trainer.strategy.lat", 2]


def start(*words):
    command = [sys.executable, "-m", "ens10", *map(str, words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def wait_for(found, process):
    wait_until(lambda: found() or process.poll() is not None, 0.2)
    assert found(), process.communicate()


def children_of(pid):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def is_running(pid):
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(found.stdout.strip()) and not found.stdout.startswith("Z")


def ended(process, number):
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_shell_does_not_go_on_after_a_fit_that_was_ended(store, tmp_path, number):
    run = tmp_path / "mlp"
    process = start(*arguments(store, run, "--trainer.max_epochs", LONG))
    wait_for((run / "checkpoints" / "previous.ckpt").is_file, process)
    status, said = ended(process, number)
    word = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupted"}[number]
    assert status == 128 + number
    assert said == f"ens10: {word}; resume with `ens10 fit --run {run} --resume`\n"


def test_a_fit_that_was_killed_resumes(store, whole, tmp_path):
    run = tmp_path / "mlp"
    process = start(*arguments(store, run))
    wait_for((run / "checkpoints" / "last.ckpt").is_file, process)
    process.kill()
    process.communicate()
    resume(run)
    assert_same_run(run, whole)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_process_of_a_split_run_ends_all(prepared, tmp_path, rank):
    store = prepared("17x24", range(2000, 2006), 4, seed=0, steps=(48,)) / "store.zarr"
    run = tmp_path / "unet"
    words = arguments(store, run, "--trainer.max_epochs", LONG, *SPLIT)
    words[words.index("--config") + 1] = str(words[2]).replace("mlp", "unet")
    process = start(*words)
    wait_for((run / "checkpoints" / "last.ckpt").is_file, process)
    (child,) = children_of(process.pid)
    os.kill(process.pid if rank == 0 else child, signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143
    assert said.count("ens10: ") == 1
    assert f"ens10: terminated; resume with `ens10 fit --run {run} --resume`" in said
    assert "Traceback" not in said
    wait_until(lambda: not is_running(child), 0.2)  # it tears down by itself


@pytest.mark.long
def test_a_table_that_was_ended_goes_on(tmp_path):
    words = ["reproduce", "--targets", "t2m", "--members", 10, "--models", "mlp", "--seeds", 1]
    words += ["--grid", "8x16", "--years", 6, "--dates", 4, "--out", tmp_path / "out"]
    process = start(*words)
    run = tmp_path / "out" / "work" / "seed0" / "plain" / "runs" / "mlp"
    wait_for((run / "checkpoints" / "last.ckpt").is_file, process)
    children = children_of(process.pid)  # that of the cell, and that which reads GRIB
    assert children
    status, said = ended(process, signal.SIGTERM)
    assert status == 143
    assert said.splitlines()[-1] == "ens10: terminated; the same command resumes"
    wait_until(lambda: not any(is_running(child) for child in children), 0.2)
    again = start(*words)
    out, said = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, said
    assert "mlp, seed 0 (clean, t2m, 10 members): done" in out
