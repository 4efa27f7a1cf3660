"""The parts of `benchmarks/cuda.py`, each in a process of its own.

python benchmarks/cuda_parts.py PART --device cuda --seconds 60 --out FILE [--tiny]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from common import import_elsewhere

import_elsewhere("cuda")  # before torch, which may look for it

import cuda_steps as made  # noqa: E402
import torch  # noqa: E402
from cuda_steps import CONFIGS  # noqa: E402

from ens10.loader.resident import (  # noqa: E402
    ResidentBatches,
    resident_batches,
    resident_size,
)
from ens10.loader.tensors import TorchBatches  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
NETWORKS = ("unet", "smoe_unet", "location_unet", "saet_calibrated", "spline", "deep_ensemble")
ROUNDS = 20  # most repetitions of a timed function
TO_REPORT = 10.0  # seconds that tests have to report what ran
VARIANTS = (
    "bfloat16, 4 dates",
    "float32, 4 dates",
    "bfloat16",
    "float32",
    "bfloat16, 4 dates, cudnn.benchmark",
    "bfloat16, 4 dates, compiled",
    "bfloat16, compiled",
)
COUNTS = ROOT / "benchmarks" / "results" / "step_counts.json"
SHARE_OF_K = 0.5  # at least


@dataclass
class Run:
    """One part at work.

    Attributes:
        device: "cuda" or "cpu".
        tiny: whether the grid is small.
        seconds: that the part has.
        out: where its result is written, again and again.
        result: so far.
    """

    device: str
    tiny: bool
    seconds: float
    out: Path
    start: float = field(default_factory=time.perf_counter)
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the fields."""
        return (19, 24) if self.tiny else (361, 720)

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.seconds - (time.perf_counter() - self.start)

    def add(self, name: str, value: Any) -> None:
        """Keeps a figure, or a row of them, at once."""
        self.result[name] = value
        partial = self.out.with_name(f"{self.out.name}.partial")
        partial.write_text(json.dumps(self.result))
        partial.replace(self.out)

    @contextmanager
    def recorded(self, name: str) -> Iterator[None]:
        """Records an error under a name instead of raising it."""
        try:
            yield
        except Exception as error:
            last = traceback.format_exc().splitlines()
            place = [line.strip() for line in last if line.lstrip().startswith("File ")][-1:]
            text = str(error).strip().splitlines()[:3]
            self.add(name, {"failed": [type(error).__name__, *text, *place]})
        finally:
            if self.device == "cuda":
                torch.cuda.empty_cache()

    def synchronise(self) -> None:
        """Waits for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def timed(self, function: Callable[[], Any], most: float = 1.5) -> float:
        """Median seconds of a function, after three calls that do not count."""
        for _ in range(1 if self.tiny else 3):
            function()
        self.synchronise()
        found: list[float] = []
        begin = time.perf_counter()
        while len(found) < (2 if self.tiny else 3) or (
            not self.tiny and len(found) < ROUNDS and time.perf_counter() - begin < most
        ):
            start = time.perf_counter()
            function()
            self.synchronise()
            found.append(time.perf_counter() - start)
        return median(found)


def tests(run: Run) -> None:
    """The tests marked `cuda`; on the CPU those of the emulated device alone.

    Tests that there is no time for are left out of the counts, and the status says so.
    """
    folder = ROOT / "tests"
    chosen = [str(folder), "-m", "cuda", "-o", f"python_files={' '.join(_marked(folder))}"]
    if run.device == "cpu":
        chosen = [str(folder / "devices" / "test_emulated.py")]
    report = run.out.with_name("tests.xml")
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", str(ROOT), *chosen]
    # files that need a package which is not here are errors, and the others run
    command += ["-q", "--continue-on-collection-errors", f"--junitxml={report}"]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist"]
    out, error = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, stdout=out, stderr=error, text=True) as process:
        try:
            words, _ = process.communicate(timeout=max(run.left - TO_REPORT, 1))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # then it reports what ran
            words, _ = process.communicate()
            run.add("status", "stopped: out of time")
    if not report.exists():
        run.add("failed", words.splitlines()[-10:])
        sys.exit(1)
    suite = ElementTree.parse(report).getroot()[0]
    counts = {key: int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")}
    wrong = []
    for case in suite.iter("testcase"):
        for kind in ("failure", "error"):
            for found in case.iter(kind):
                message = str(found.get("message", ""))[:300]
                wrong.append(
                    {"test": f"{case.get('classname')}::{case.get('name')}", kind: message}
                )
    run.add("tests", counts)
    run.add("wrong", wrong)
    if process.returncode not in (0, 5):
        sys.exit(1)


def _marked(folder: Path) -> list[str]:
    """Patterns of the files with tests marked `cuda`: the others are not even imported."""
    paths = [path for path in sorted(folder.rglob("*.py")) if "mark.cuda" in path.read_text()]
    whole = {path.parent for path in paths if path.name == "conftest.py"}
    files = [path for path in paths if path.parent not in whole]
    patterns = [*(path / "test_*.py" for path in whole), *files]
    return [path.relative_to(folder.parent).as_posix() for path in patterns]


def train(run: Run) -> None:
    """Networks fitted, applied and scored by the command line, on the device and on the CPU."""
    import pandas as pd
    import xarray as xr
    from zarr.registry import register_codec

    from ens10.cli import main as ens10
    from ens10.experiments.demo import config_path
    from ens10.experiments.runner.tasks import Task, task_options
    from ens10.packed16.codec import NAME, Packed16

    register_codec(NAME, Packed16)  # an installation's entry point does
    folder = run.out.parent
    store, task = _store(folder), Task(inputs=made.VARIABLES)

    def fit_and_score(name: str, device: str) -> tuple[float, float]:
        """Score of a run of two epochs, and its seconds."""
        start, to = time.perf_counter(), folder / name / device
        commands = [
            ["fit", "--config", config_path(name), "--data.store", store, "--run", to, "--quiet",
             *task_options(config_path(name), task, store), "--trainer.max_epochs", 2,
             "--trainer.accelerator", "gpu" if device == "cuda" else "cpu",
             "--trainer.devices", 1],
            ["predict", "--run", to, "--quiet"],
            ["score", to],
        ]  # fmt: skip
        for command in commands:
            if ens10([str(word) for word in command]):
                raise RuntimeError(f"ens10 {command[0]} of {name} failed on {device}")
        scores = pd.read_csv(to / "scores.csv", index_col="score")["value"]
        return float(scores["crps"]), time.perf_counter() - start

    def apply(name: str, device: str) -> xr.DataArray:
        """Parameters of the forecasts of the run that was fitted on the device."""
        out = folder / f"{name}-{device}.zarr"
        command = [
            "apply",
            folder / name / run.device,
            store,
            "--out",
            out,
            "--device",
            device,
            "--force",
        ]
        if ens10([str(word) for word in command]):
            raise RuntimeError(f"ens10 apply of {name} failed on {device}")
        with xr.open_zarr(out) as found:
            return found.to_dataarray().load()

    for name in NETWORKS[: 1 if run.tiny else None]:
        if run.left < 5:
            run.add(name, {"skipped": "out of time"})
            continue
        with run.recorded(name):
            score, seconds = fit_and_score(name, run.device)
            cpu_score = score if run.device == "cpu" else fit_and_score(name, "cpu")[0]
            difference = abs(apply(name, run.device) - apply(name, "cpu")).max(skipna=False)
            row: dict[str, Any] = {
                "seconds": round(seconds, 1),
                "CRPS": score,
                "CPU": cpu_score,
                "relative difference of CRPS": abs(score - cpu_score) / cpu_score,
                "largest difference of applied forecasts": float(difference),
            }
            if not row["relative difference of CRPS"] < 0.05:  # also if it is NaN
                row["failed"] = "the scores differ"
            if not row["largest difference of applied forecasts"] < 0.05:
                row["failed"] = "the applied forecasts differ"
            run.add(name, row)


def _store(folder: Path) -> Path:
    from ens10.convert import prepare
    from ens10.synthetic import World

    world = World("8x16", range(2000, 2006), 4, seed=0, steps=(48,)).write(folder / "world")
    return Path(prepare(world, folder / "store.zarr", truth=world / "truth"))


def peaks(run: Run) -> dict[str, float]:
    """The machine's own bounds: matrix products in TFLOP/s, and a copy in GB/s."""
    n = 64 if run.tiny else 8192
    found = {}
    for name, dtype, tf32 in (
        ("float32", torch.float32, False),
        ("tf32", torch.float32, True),
        ("bfloat16", torch.bfloat16, False),
    ):
        with run.recorded(f"matrix product in {name}"):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            a, b = (torch.randn(n, n, device=run.device).to(dtype) for _ in "ab")
            seconds = run.timed(lambda a=a, b=b: a @ b, 0.5)
            found[f"TFLOP/s, {name}"] = round(2 * n**3 / seconds / 1e12, 3)
    torch.backends.cuda.matmul.allow_tf32 = False
    size = 2**16 if run.tiny else 2**30
    source = torch.zeros(size, dtype=torch.uint8, device=run.device)
    target = torch.empty_like(source)
    seconds = run.timed(lambda: target.copy_(source), 0.5)
    found["GB/s, copy, read and written"] = round(2 * size / seconds / 1e9, 2)
    run.add("bounds", found)
    return found


def steps(run: Run) -> None:
    """A training step of each network, in its variants: those with goals first, compiled last."""
    bounds = peaks(run)
    for variant in VARIANTS:
        kind = "tf32" if variant.startswith("float32") else "bfloat16"
        peak = bounds.get(f"TFLOP/s, {kind}")
        for name in CONFIGS:
            key = f"{name}, {variant}"
            if run.left < (35 if "compiled" in variant and not run.tiny else 2):
                run.add(key, {"skipped": "out of time"})
                continue
            with run.recorded(key), cudnn_benchmark("cudnn.benchmark" in variant):
                row = measured_step(run, name, variant)
                row["share of the matrix product"] = (
                    round(row["TFLOP/s"] / peak, 4) if peak else None
                )
                run.add(key, row | share_of_k(name, variant, run.grid, row["milliseconds"]))


@contextmanager
def cudnn_benchmark(chosen: bool) -> Iterator[None]:
    """Lets cuDNN choose its algorithms by timing them, if that is chosen."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = chosen
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def share_of_k(
    name: str, variant: str, grid: tuple[int, int], milliseconds: float
) -> dict[str, float]:
    """K of a step, counted by `step_counts.py`, and its share; nothing of a step not counted."""
    counts = json.loads(COUNTS.read_text())
    is_counted = counts["grid"] == "x".join(map(str, grid))
    if not is_counted or not variant.startswith(f"bfloat16, {counts['dates']} dates"):
        return {}
    k = counts["rows"][name]["K, ms"]
    share = round(k / milliseconds, 4)
    return {"K, milliseconds": k, "share of K": share, "goal, share of K": SHARE_OF_K}


def measured_step(run: Run, name: str, variant: str) -> dict[str, Any]:
    """Seconds, memory and arithmetic of a step."""
    start = time.perf_counter()
    step = made.step(name, run.grid, run.device, variant, tiny=run.tiny, checks=True)
    dates = len(step.batch["target"])
    if run.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    losses = [step()]
    run.synchronise()
    first = time.perf_counter() - start
    seconds = run.timed(step)
    losses.append(step())
    found: dict[str, Any] = {
        "dates": dates,
        "samples a second": round(dates / seconds, 2),
        "milliseconds": round(1e3 * seconds, 3),
        "seconds until the second step": round(first, 1),
        "losses, first and last": [round(float(loss), 5) for loss in losses],
    }
    if run.device == "cuda":
        found["peak memory, GB"] = round(torch.cuda.max_memory_allocated() / 1e9, 3)
        found["tf32 of convolutions"] = torch.backends.cudnn.allow_tf32
    # of this very step: products of embeddings are the same for any number of dates
    found["FLOPs"] = made.flops(step)
    found["TFLOP/s"] = round(found["FLOPs"] / seconds / 1e12, 3)
    return found


def epochs(run: Run) -> None:
    """Ten epochs of ENS-10's size in bfloat16, four dates a step, beside the goals on an H200."""
    for name, goal in made.GOALS.items():
        if run.left < 5:
            run.add(name, {"skipped": "out of time"})
            continue
        with run.recorded(name):
            run.add(name, ten_epochs(run, name) | {"goal, seconds": goal})


def ten_epochs(run: Run, name: str) -> dict[str, Any]:
    """Seconds of ten epochs from steps over a sample of dates.

    The dates stay where `--data.resident auto` keeps those of ENS-10, if they fit there; and come
    through the ring of buffers.
    """
    count, rounds = (8, 1) if run.tiny else (48, 2)
    device = torch.device(run.device)
    step = made.step(name, run.grid, run.device, "bfloat16, 4 dates", tiny=run.tiny, checks=True)

    def trained(batch: dict[str, torch.Tensor]) -> None:
        step.batch = batch
        step()

    def sample() -> Any:
        return made.configured_batches(name, run.grid, count, 4)

    whole = made.configured_batches(name, run.grid, made.DATES, 4)
    kept = resident_batches(whole, None, device, "auto")
    found: dict[str, Any] = {
        "dates": 10 * made.DATES,
        "dates of the sample": count,
        "from": "arrays in memory",
        "features": len(whole.channels),
        "GB of the dates of an epoch": round(resident_size(whole) / 1e9, 3),
        "dates stay": kept.place.type if kept else "nowhere: they do not fit",
    }
    forms = {"through the ring": TorchBatches(sample(), None, pinned=run.device == "cuda")}
    if kept is not None:
        forms["dates that stay"] = ResidentBatches(sample(), None, kept.place, device)
    for form, batches in forms.items():
        one_epoch(run, batches, trained)  # buffers are made, and dates read
        seconds = median(one_epoch(run, batches, trained) for _ in range(rounds))
        found[f"seconds, {form}"] = round(found["dates"] / 4 * seconds, 1)
    return found


def one_epoch(run: Run, batches: Any, work: Callable[[dict[str, torch.Tensor]], Any]) -> float:
    """Seconds of a batch: of its way to the device, and of the work with it."""
    start = time.perf_counter()
    for batch in on_device(run, batches):
        work(batch)
    run.synchronise()
    return (time.perf_counter() - start) / len(batches)


def on_device(run: Run, batches: Any) -> Iterator[dict[str, torch.Tensor]]:
    """The batches on the device."""
    for batch in batches:
        yield {key: value.to(run.device, non_blocking=True) for key, value in batch.items()}


def scores(run: Run) -> None:
    """Kernels of scores, as ratios to a copy of their bytes."""
    from score_kernels import copies, gradient

    from ens10.metrics import crps_ensemble, crps_normal, efi, energy_score

    H, W = run.grid
    random = torch.Generator(run.device).manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, H, W, generator=random, device=run.device)

    members, y, mu, sigma = normal(10, 4), normal(4), normal(4), normal(4).abs() + 0.5
    climate = normal(101).sort(0).values
    levels = [n / 100 for n in range(101)]
    ensemble = {"estimator": "fair", "member_dim": 0}
    leaf, leaves = (
        members.clone().requires_grad_(),
        [t.clone().requires_grad_() for t in (mu, sigma)],
    )
    index = {"member_dim": 0, "quantile_dim": 0, "levels": levels, "check": False}

    def of_members(x: torch.Tensor) -> Any:
        return crps_ensemble(x, y, **ensemble)

    def of_normals(*given: torch.Tensor) -> Any:
        return crps_normal(*given, y, check=False)

    def energy(x: torch.Tensor) -> Any:
        return energy_score(x, y, **ensemble, variable_dim=1)

    compiled = torch.compile(of_members, backend="aot_eager" if run.tiny else "inductor")
    subjects: dict[str, tuple[Callable[[], Any], tuple[torch.Tensor, ...]]] = {
        "ensemble CRPS": (lambda: of_members(members), (members, y)),
        "ensemble CRPS, gradient": (gradient(of_members, leaf), (members, y)),
        "normal CRPS": (lambda: of_normals(mu, sigma), (mu, sigma, y)),
        "normal CRPS, gradient": (gradient(of_normals, *leaves), (mu, sigma, y)),
        "energy score": (lambda: energy(members), (members, y)),
        "energy score, gradient": (gradient(energy, leaf), (members, y)),
        "EFI": (lambda: efi(members[:, 0], climate, **index), (members[:, 0], climate)),
        "ensemble CRPS, compiled": (lambda: compiled(members), (members, y)),
    }
    for name, (subject, given) in subjects.items():
        with run.recorded(name):
            seconds, bound = run.timed(subject, 0.7), run.timed(copies(*given), 0.3)
            run.add(
                name,
                {
                    "milliseconds": round(1e3 * seconds, 4),
                    "milliseconds of the copy": round(1e3 * bound, 4),
                    "times the copy": round(seconds / bound, 2),
                },
            )


def loader(run: Run) -> None:
    """What a step waits for batches: through the ring of buffers, and of dates on the device."""
    count, rounds = (4, 1) if run.tiny else (24, 3)
    for size in (1, 4):
        words = f"{size} date{'s' * (size > 1)} a batch"
        variant = "bfloat16, 4 dates" if size > 1 else "bfloat16"
        step = made.step("paper_unet", run.grid, run.device, variant, tiny=run.tiny, checks=True)

        def trained(batch: dict[str, torch.Tensor], step: Any = step) -> None:
            step.batch = batch
            step()

        ring = made.batches(run.grid, count, pinned=run.device == "cuda", size=size)
        kept = made.resident(run.grid, count, run.device, size)
        step.batch = next(on_device(run, ring))
        bytes_of_batch = sum(value.nbytes for value in step.batch.values())
        content = {"dates": count, "bytes": bytes_of_batch, "from": "arrays in memory"}
        run.add(f"batches, {words}", content)
        for batches in (ring, kept):
            one_epoch(run, batches, trained)  # the dates are on the device afterwards
        alone = run.timed(step)
        run.add(f"milliseconds of the step alone, {words}", round(1e3 * alone, 3))
        for name, batches in (("through the ring", ring), ("on the device", kept)):
            both = median(one_epoch(run, batches, trained) for _ in range(rounds))
            only = median(one_epoch(run, batches, lambda _: None) for _ in range(rounds))
            where = f"{name}, {words}"
            run.add(f"milliseconds with the loader, {where}", round(1e3 * both, 3))
            run.add(f"share of the time that the step waits, {where}", round(1 - alone / both, 4))
            run.add(f"milliseconds of the loader alone, {where}", round(1e3 * only, 3))


def split(run: Run) -> None:
    """Two processes against the serial step: over NCCL, or on one device over gloo by the host."""
    from spatial import _distance
    from spatial_ranks import Processes, results, timed

    several = run.device == "cuda" and torch.cuda.device_count() > 1
    backend = "nccl" if several else "gloo"
    reason = "a device for each process" if several else "NCCL refuses two processes on one device"
    run.add("backend", f"{backend}: {reason}")
    wide = (37, 48)
    with Processes(2, backend=backend) as processes:
        outputs, gradients = processes(1, results, wide, torch.float64, run.device)[0]
        ranks = processes(2, results, wide, torch.float64, run.device)
        joined = torch.cat([torch.from_numpy(one[0]) for one in ranks], 2).numpy()
        run.add("relative difference of outputs, float64", _distance(joined, outputs))
        worst = max(_distance(one[1], gradients) for one in ranks)
        run.add("relative difference of gradients, float64", worst)
        for parts in (1, 2):
            rounds = []
            for n in range(3 if run.tiny else 8):
                seconds = max(one[0] for one in processes(parts, timed, run.grid, run.device))
                rounds += [seconds] if n else []
            run.add(f"milliseconds of a step, {parts} processes", round(1e3 * median(rounds), 3))
    if not max(worst, run.result["relative difference of outputs, float64"]) < 1e-10:
        sys.exit("split and serial differ")


def profile(run: Run) -> None:
    """The operators of the U-Net's step that take longest, in float32 and bfloat16."""
    from torch.profiler import ProfilerActivity
    from unet_step import profiled

    cuda = run.device == "cuda"
    for variant in ("float32, 4 dates", "bfloat16, 4 dates"):
        with run.recorded(variant):
            step = made.step(
                "paper_unet", run.grid, run.device, variant, tiny=run.tiny, checks=True
            )
            for _ in range(3):
                step()
            run.synchronise()
            activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * cuda
            with torch.profiler.profile(activities=activities) as profiler:
                step()
                run.synchronise()
            run.add(variant, _rows(profiler.key_averages(), cuda))
            run.add(f"{variant}, shares of groups", profiled(step, run.device))


def _rows(events: Any, cuda: bool) -> list[dict[str, Any]]:
    """The 15 of most own time: kernels on a GPU, operators on the CPU."""
    wanted = [e for e in events if not cuda or "CUDA" in str(e.device_type)]
    key = "self_device_time_total" if cuda else "self_cpu_time_total"
    ordered = sorted(wanted, key=lambda event: -getattr(event, key))
    total = sum(getattr(event, key) for event in ordered) or 1
    return [
        {
            "name": event.key[:120],
            "calls": event.count,
            "milliseconds": round(getattr(event, key) / 1e3, 4),
            "share": round(getattr(event, key) / total, 4),
        }
        for event in ordered[:15]
    ]


PARTS: dict[str, Callable[[Run], None]] = {
    "tests": tests,
    "epochs": epochs,
    "steps": steps,
    "scores": scores,
    "train": train,
    "loader": loader,
    "split": split,
    "profile": profile,
}


def main() -> None:
    """Runs a part; exits with 1 if any of its figures is an error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    if given.tiny:
        torch.set_num_threads(1)
    run = Run(given.device, given.tiny, given.seconds, given.out)
    PARTS[given.part](run)
    failed = [key for key, value in run.result.items() if "failed" in (key, *_keys(value))]
    print(f"failed: {failed}" if failed else "complete", flush=True)
    os._exit(int(bool(failed)))  # without waiting for the workers of torch's compiler


def _keys(value: Any) -> list[str]:
    return list(value) if isinstance(value, dict) else []


if __name__ == "__main__":
    main()
