"""The command that measures a GPU runs as a whole where there is none."""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ens10.models import PostProcessor

ROOT = Path(__file__).parents[2]
GRID = (9, 12)


@pytest.fixture
def benchmarks(monkeypatch):
    """The folder's modules; none of them is kept, since their names are short."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(ROOT / "benchmarks")):
            del sys.modules[name]


@pytest.mark.slow
def test_steps_are_those_of_the_lightning_module(benchmarks, monkeypatch):
    import cuda_steps

    monkeypatch.setattr(PostProcessor, "log", lambda *_, **__: None)
    for name in cuda_steps.CONFIGS:
        network, head, _ = cuda_steps.model(name, GRID)
        network.train()
        wanted = PostProcessor(network, head).training_step(cuda_steps.date(network, GRID))
        found = cuda_steps.step(name, GRID, "cpu")
        assert type(found.network) is type(network)
        torch.testing.assert_close(found(), wanted.detach(), rtol=1e-5, atol=0)
        assert cuda_steps.flops(found) > 0


def test_nested_options_of_a_configuration_count(benchmarks):
    import cuda_steps

    network, head, optimizer = cuda_steps.model("smoe_unet", GRID)
    layers = [m for m in network.modules() if type(m).__name__ == "SMoE2d"]
    assert {(one.filters, one.weighted, one.rule.classify) for one in layers} == {(8, True, False)}
    assert layers[0].gate.weight.shape[1:] == GRID
    assert optimizer["init_args"]["lr"] == 0.003
    _, head, _ = cuda_steps.model("location_unet", GRID)
    assert head.method.strength == 300.0


def test_batches_of_the_ring_keep_their_values_while_they_are_copied(benchmarks, real_device):
    import cuda_steps

    def features(pinned):
        loader = cuda_steps.batches(GRID, 8, pinned=pinned)
        return [b["features"].to(real_device.name, non_blocking=True) for b in loader]

    wanted = [values.clone() for values in features(False)]
    assert len(wanted) == 8
    assert wanted[0].shape[1:] == (22, *GRID)
    for _ in range(5):
        found = features(real_device.name == "cuda")
        torch.testing.assert_close(torch.stack(found), torch.stack(wanted), rtol=0, atol=0)


def test_what_there_is_no_time_for_is_recorded(benchmarks, tmp_path):
    spec = importlib.util.spec_from_file_location("gpu_benchmark", ROOT / "benchmarks" / "cuda.py")
    cuda = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cuda)
    out = tmp_path / "result.json"
    given = {"device": "cpu", "tiny": True, "minutes": 0.0, "out": out, "parts": ["steps", "split"]}
    given |= {"commit": None}
    cuda.measured(argparse.Namespace(**given))
    cuda.written({"failed": 'File "/a/place/of/one.py", 2/3 of a/b'}, tmp_path / "other.json")
    assert (
        json.loads((tmp_path / "other.json").read_text())["failed"] == 'File "one.py", 2/3 of a/b'
    )
    result = json.loads(out.read_text())
    assert {part["status"] for part in result["parts"].values()} == {"skipped: out of time"}
    assert "NOT figures of a GPU" in result["about"]["measured on"]
    assert "NOT" in result["about"]["grid"]


def test_a_part_that_fails_is_recorded(benchmarks, tmp_path):
    import cuda_parts

    run = cuda_parts.Run("cpu", True, 10.0, tmp_path / "result.json")
    with run.recorded("one"):
        raise MemoryError("CUDA out of memory")
    run.add("two", 2)
    kept = json.loads((tmp_path / "result.json").read_text())
    assert kept["one"]["failed"][:2] == ["MemoryError", "CUDA out of memory"]
    assert kept["two"] == 2


def command(*arguments, timeout):
    script = str(ROOT / "benchmarks" / "cuda.py")
    return subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, timeout=timeout
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an NVIDIA GPU")
def test_without_a_gpu_it_says_what_to_do():
    kept = ROOT / "benchmarks" / "results" / "cuda.json"
    before = kept.read_bytes()
    done = command(timeout=120)
    assert done.returncode == 2
    assert "--device cpu --tiny" in done.stderr
    assert kept.read_bytes() == before


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_all_parts_run_on_the_cpu(tmp_path):
    out = tmp_path / "result.json"
    given = ("--device", "cpu", "--tiny", "--minutes", "1000", "--out", str(out))
    done = command(*given, timeout=1400)
    parts = json.loads(out.read_text())["parts"]
    assert {name: part["status"] for name, part in parts.items()} == dict.fromkeys(
        ["tests", "train", "steps", "scores", "loader", "split", "profile"], "complete"
    )
    assert done.returncode == 0
    assert len(parts["steps"]) == 3 + 5 * 5  # status, seconds and bounds; networks by variants
    assert parts["split"]["relative difference of outputs, float64"] < 1e-10
    assert len(parts["profile"]["float32, 4 dates"]) == 15


@pytest.mark.slow
def test_a_part_runs_in_a_process_of_its_own(tmp_path):
    out = tmp_path / "result.json"
    given = ("--device", "cpu", "--tiny", "--minutes", "1000", "--out", str(out))
    done = command(*given, "--parts", "profile", timeout=500)
    assert done.returncode == 0, done.stderr
    (part,) = json.loads(out.read_text())["parts"].values()
    assert part["status"] == "complete"
    assert len(part["float32, 4 dates"]) == 15


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # as in its own process
@pytest.mark.parametrize("name", ["train", "steps", "scores", "loader", "split"])
def test_other_parts_run_in_this_process(benchmarks, monkeypatch, tmp_path, name):
    """With one network of five; the part of the tests is in the long form of this test."""
    import cuda_parts

    monkeypatch.setattr(cuda_parts, "CONFIGS", ("location_unet",))
    run = cuda_parts.Run("cpu", True, 1000.0, tmp_path / "result.json")
    cuda_parts.PARTS[name](run)
    kept = json.loads(run.out.read_text())
    failed = {
        key: value
        for key, value in kept.items()
        if "failed" in (key, *(value if isinstance(value, dict) else []))
    }
    assert not failed
    if name == "steps":
        assert len(kept) == 1 + 5  # bounds; variants
    if name == "split":
        assert kept["relative difference of outputs, float64"] < 1e-10
