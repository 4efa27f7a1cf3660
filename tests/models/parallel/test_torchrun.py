"""Processes that torchrun starts, by the command of docs/many_devices.md."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from torch.distributed.run import parse_args

ROOT = Path(__file__).parents[3]


def command_of_the_page():
    """The words after torchrun."""
    page = (ROOT / "docs" / "many_devices.md").read_text().replace("\\\n", " ")
    (line,) = [line for line in page.splitlines() if line.startswith("    torchrun ")]
    return shlex.split(line)[1:]


def test_torchrun_leaves_the_options_of_ens10_alone():
    words = command_of_the_page()
    found = parse_args(words)
    assert (found.nnodes, found.nproc_per_node, found.no_python) == ("2", "4", True)
    assert found.training_script == "ens10"
    assert found.training_script_args == words[words.index("ens10") + 1 :]


@pytest.mark.slow
def test_a_run_under_torchrun(store, tmp_path):
    words = command_of_the_page()
    own, theirs = words[: words.index("--no-python")], words[words.index("ens10") + 1 :]
    changed = {"--nnodes": "1", "--nproc-per-node": "2", "--rdzv-endpoint": "localhost:0"}
    changed |= {"--data.store": str(store), "--run": str(tmp_path / "run")}
    changed |= {"--trainer.num_nodes": "1", "--trainer.devices": "2", "--trainer.strategy.lat": "2"}
    own, theirs = ([changed.get(before, word) for before, word in pairs(x)] for x in (own, theirs))
    command = ["-m", "torch.distributed.run", *own, "--no-python", "--", sys.executable, "-m"]
    command += ["ens10", *theirs, "--trainer.accelerator", "cpu", "--trainer.max_epochs", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command, "--quiet"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert len(facts["bytes_read"]) == 2
    assert (tmp_path / "run" / "checkpoints" / "best.ckpt").is_file()


def pairs(words):
    """Each word with the one before it."""
    return zip(["", *words], words, strict=False)
