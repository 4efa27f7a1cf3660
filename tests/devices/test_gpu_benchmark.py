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
PARTS = ["tests", "epochs", "steps", "scores", "train", "loader", "split", "profile"]


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


def test_operations_of_products_of_embeddings_are_not_those_of_four_steps(benchmarks):
    import cuda_steps

    def operations(name, variant):
        return cuda_steps.flops(cuda_steps.step(name, GRID, "cpu", variant, tiny=True))

    one, four = operations("location_unet", "float32"), operations("location_unet", "4 dates")
    assert 3.5 * one < four < 3.99 * one  # the embedding is the same for all dates
    plain = operations("paper_unet", "float32")
    assert operations("paper_unet", "4 dates") == 4 * plain
    assert operations("paper_unet", "float32, compiled") == plain  # which is not seen when it runs


def test_a_step_reads_whether_its_loss_is_finite_where_that_is_asked_for(benchmarks):
    import cuda_steps

    steps = {
        checks: cuda_steps.step("location_unet", GRID, "cpu", "bfloat16, 4 dates", checks=checks)
        for checks in (False, True)
    }
    torch.testing.assert_close(steps[True](), steps[False](), rtol=1e-6, atol=0)
    for step in steps.values():
        assert all(group["fused"] for group in step.optimizer.param_groups)
        step.batch["target"][2, 3, 4] = torch.nan
    assert steps[False]().isnan()
    weights = [p.detach().clone() for p in steps[True].network.parameters()]
    with pytest.raises(ArithmeticError, match="a loss is not finite"):
        steps[True]()
    assert all(map(torch.equal, weights, steps[True].network.parameters()))


def test_batches_of_a_configuration_are_those_of_its_network(benchmarks):
    import cuda_steps

    for name in cuda_steps.CONFIGS:
        network, _, _ = cuda_steps.model(name, GRID)
        batches = cuda_steps.configured_batches(name, GRID, 4, 4)
        (batch,) = batches
        wanted = cuda_steps.date(network, GRID, 4)
        assert {k: v.shape for k, v in batch.items()}.items() <= {
            k: tuple(v.shape) for k, v in wanted.items()
        }.items()
        normalised = batch["features"][:, : len(batches.normaliser.channels)]
        assert abs(normalised.mean()) < 0.5
        assert 0.5 < normalised.std() < 2


def test_the_share_of_k_is_of_the_step_that_was_counted(benchmarks):
    import cuda_parts

    counted = json.loads(cuda_parts.COUNTS.read_text())["rows"]["paper_unet"]["K, ms"]
    share = cuda_parts.share_of_k("paper_unet", "bfloat16, 4 dates", (361, 720), 4 * counted)
    assert share == {"K, milliseconds": counted, "share of K": 0.25, "goal, share of K": 0.5}
    for variant, grid in (("bfloat16", (361, 720)), ("bfloat16, 4 dates", (19, 24))):
        assert cuda_parts.share_of_k("paper_unet", variant, grid, 1.0) == {}
    compiled = cuda_parts.share_of_k("paper_unet", "bfloat16, 4 dates, compiled", (361, 720), 1.0)
    assert compiled["share of K"] == counted


def test_cudnn_chooses_by_timing_in_one_variant_alone(benchmarks, tmp_path):
    import cuda_parts

    before = torch.backends.cudnn.benchmark
    run = cuda_parts.Run("cpu", True, 10.0, tmp_path / "result.json")
    seen = []
    with run.recorded("one"), cuda_parts.cudnn_benchmark(not before):
        seen.append(torch.backends.cudnn.benchmark)
        raise MemoryError
    assert seen == [not before]
    assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize(("devices", "backend"), [(1, "gloo"), (2, "nccl")])
def test_two_devices_are_split_over_nccl(benchmarks, monkeypatch, tmp_path, devices, backend):
    import cuda_parts
    import spatial_ranks

    def processes(world, *, backend):
        raise InterruptedError(world, backend)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(spatial_ranks, "Processes", processes)
    run = cuda_parts.Run("cuda", True, 10.0, tmp_path / "result.json")
    with pytest.raises(InterruptedError) as caught:
        cuda_parts.split(run)
    assert caught.value.args == (2, backend)
    assert run.result["backend"].startswith(backend)


def test_the_most_valuable_parts_come_first(benchmarks):
    import cuda_parts

    cuda = cuda_command()
    assert list(cuda.SHARES) == list(cuda_parts.PARTS) == PARTS
    assert sum(cuda.SHARES.values()) == 8 * 60


MARKED = """
import pytest, torch

@pytest.mark.cuda
def test_one(): pass

def test_not_chosen(): raise ValueError
"""


@pytest.fixture
def marked(benchmarks, monkeypatch, tmp_path):
    """A function that runs the part `tests` on other files, and returns its result."""
    import cuda_parts

    def result(files, seconds=300.0):
        for name, text in files.items():
            path = tmp_path / "tests" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(cuda_parts, "ROOT", tmp_path)
        run = cuda_parts.Run("cuda", True, seconds, tmp_path / "result.json")
        try:
            cuda_parts.tests(run)
        except SystemExit as error:
            run.result["exit"] = error.code
        return run.result

    return result


def test_marked_tests_run_where_a_package_is_missing(marked):
    missing = "import a_package_that_is_not_here\n"
    found = marked(
        {
            "a/test_marked.py": MARKED,
            "a/test_not_marked.py": missing,
            "b/test_missing.py": missing + MARKED,
            "c/conftest.py": missing + "# pytest.mark.cuda",
            "c/test_of_the_fixture.py": MARKED,
        }
    )
    assert found["tests"] == {"tests": 3, "failures": 0, "errors": 2, "skipped": 0}
    assert {one["test"].strip(":") for one in found["wrong"]} == {"tests.b.test_missing", "tests.c"}
    assert found["exit"] == 1
    assert "status" not in found


@pytest.mark.slow
def test_tests_that_ran_before_the_time_was_up_count(marked):
    waiting = """
def test_two_waits():
    import signal, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have ignored
    time.sleep(600)
"""
    both = MARKED + waiting.replace("\ndef", "\n@pytest.mark.cuda\ndef")
    found = marked({"test_marked.py": both}, seconds=60.0)
    assert found["status"] == "stopped: out of time"
    assert found["tests"]["tests"] >= 1
    assert found["tests"]["failures"] == found["tests"]["errors"] == 0
    assert found["exit"] == 1


def test_files_of_marked_tests_are_found(benchmarks):
    import cuda_parts

    found = cuda_parts._marked(ROOT / "tests")
    assert {"tests/devices/test_*.py", "tests/models/test_finite_check.py"} <= set(found)
    assert len(found) < 20


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_all_marked_tests_are_found(benchmarks):
    """Without the import of all files, which takes half a minute and packages for tests."""
    import cuda_parts

    def names(*options):
        command = [sys.executable, "-m", "pytest", "tests", "-m", "cuda", "--collect-only", "-q"]
        command += ["-p", "no:cacheprovider", "-p", "no:xdist", *options]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=700)
        return {line for line in done.stdout.splitlines() if "::" in line}

    found = names("-o", f"python_files={' '.join(cuda_parts._marked(ROOT / 'tests'))}")
    assert len(found) > 150
    assert found == names()


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


def cuda_command():
    """`benchmarks/cuda.py` as a module of another name."""
    spec = importlib.util.spec_from_file_location("gpu_benchmark", ROOT / "benchmarks" / "cuda.py")
    cuda = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cuda)
    return cuda


def test_what_there_is_no_time_for_is_recorded(benchmarks, tmp_path):
    cuda = cuda_command()
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
    assert {n: part["status"] for n, part in parts.items()} == dict.fromkeys(PARTS, "complete")
    assert list(parts) == PARTS
    assert done.returncode == 0
    assert len(parts["epochs"]) == 2 + 4  # status and seconds; networks
    assert len(parts["steps"]) == 3 + 5 * 7  # status, seconds and bounds; networks by variants
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
@pytest.mark.parametrize("name", [name for name in PARTS if name not in ("tests", "profile")])
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
        assert len(kept) == 1 + 7  # bounds; variants
        rows = [kept[f"location_unet, {variant}"] for variant in cuda_parts.VARIANTS]
        one, four = sorted({(row["dates"], row["FLOPs"]) for row in rows})
        assert one[1] < four[1] < 4 * one[1]
    if name == "epochs":
        assert list(kept) == list(cuda_parts.made.GOALS)
        for row in kept.values():
            assert row["dates"] == 17840
            assert row["dates stay"] == "cpu"
            assert min(row["seconds, through the ring"], row["seconds, dates that stay"]) > 0
        assert [row["features"] for row in kept.values()] == [22, 80, 28, 15]
        assert [row["goal, seconds"] for row in kept.values()] == [25, 25, 110, 375]
    if name == "split":
        assert kept["relative difference of outputs, float64"] < 1e-10
