"""The study of communication: counted bytes, the model of the link, and its command."""

import csv
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ens10.experiments.runner.results import Results
from ens10.experiments.studies import communication, small_unet
from ens10.experiments.studies.communication import WAYS, CountSent, milliseconds
from ens10.experiments.studies.json_cells import read_json_cells

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "communication"

STEPS = 2 * communication.START


@pytest.fixture
def group(tmp_path):
    """A group of this process alone."""
    dist.init_process_group("gloo", f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sent(way, tmp_path):
    """Return bytes of the last step of a layer of 64 x 32 weights and 32 biases."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(64, 32))
    model.register_comm_hook(WAYS[way].state(), WAYS[way].hook)
    for _ in range(STEPS):
        counted = CountSent(tmp_path / "sent.json")
        counted.begin()
        try:
            model(torch.randn(5, 64)).square().sum().backward()
            if way == "lion":
                WAYS[way].optimizer(model.parameters()).step()
        finally:
            counted.end()
    return counted.bytes["reduce"] + counted.bytes["gather"]


def test_bytes_of_a_step(group, tmp_path):
    weights, biases = 64 * 32, 32
    assert sent("float32", tmp_path) == 4 * (weights + biases)
    assert sent("bf16", tmp_path) == 2 * (weights + biases)
    assert sent("powersgd", tmp_path) == 4 * (64 + 32 + biases)
    assert sent("local", tmp_path) == 0  # weights are sent by the optimiser's side
    assert sent("lion", tmp_path) == (weights + biases) / 8


@pytest.mark.parametrize("processes", communication.PROCESSES)
def test_the_last_step_averages_the_weights(processes):
    dates, batch = 91 // processes, communication.BATCH // processes
    steps = communication.EPOCHS * -(-dates // batch)
    assert (steps - 1 - communication.START) % communication.PERIOD == 0


def test_time_on_the_link():
    some, none = {"bytes": 1.25e6, "calls": 3}, {"bytes": 0, "calls": 0}
    assert milliseconds({"reduce": some, "gather": none}, 2) == pytest.approx(100 + 2 * 3)
    assert milliseconds({"reduce": some, "gather": none}, 4) == pytest.approx(150 + 6 * 3)
    assert milliseconds({"reduce": none, "gather": some}, 4) == pytest.approx(300 + 3 * 3)
    assert milliseconds({"reduce": none, "gather": none}, 4) == 0


def test_the_kept_tables_are_those_of_the_cells():
    with Results(RESULTS).temporary_folder() as folder:
        results = read_json_cells(folder)
    files = small_unet.tables_of(results.values(), communication.LABELS, communication.COLUMNS)
    assert {name: (RESULTS / name).read_text() for name in files} == files


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch's own
def test_the_command_on_two_processes(tmp_path, monkeypatch):
    for name, value in {"grid": "8x16", "years": range(2000, 2006), "dates": 4}.items():
        monkeypatch.setitem(small_unet.WORLD, name, value)
    smaller = {"EPOCHS": 3, "COUNTED_FROM": 1, "START": 2}
    for name, value in smaller.items():
        monkeypatch.setattr(communication, name, value)
    command = [str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--seeds", "1"]
    command += ["--variants", *(f"{way}-2" for way in WAYS)]
    assert communication.main(command) == 0
    rows = csv.DictReader((tmp_path / "out" / "table.csv").read_text().splitlines())
    sizes = {row["variant"]: float(row["bytes"]) for row in rows}
    assert sizes["bf16-2"] == sizes["float32-2"] / 2
    assert sizes["powersgd-2"] < sizes["bf16-2"]
    assert sizes["local-2"] <= sizes["float32-2"] / 4
    assert sizes["lion32-2"] == sizes["float32-2"]
    assert sizes["lion-2"] == pytest.approx(sizes["float32-2"] / 32, rel=0.001)
    monkeypatch.delattr(communication, "train_briefly")  # complete: nothing is trained again
    assert communication.main(command) == 0
