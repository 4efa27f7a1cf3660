"""What the options of docs/train_for_less.md take: time, counted bytes and memory, side by side.

    python benchmarks/train_for_less.py [--page]

Writes results/train_for_less.json; with `--page` only the table of the page, from that file.
Batches of 8 dates at 46 x 96 points are trained whole and in parts, each in a process of its own. A
training of the perceptron is given a time and compared with the time that it took.
"""

import json
import multiprocessing
import resource
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytorch_lightning as pl
import torch

import ens10
from ens10.experiments.planning.plan import subject_of
from ens10.experiments.planning.rates import build_part, on_grid, random_batch
from ens10.experiments.planning.step_counts import count_config
from ens10.experiments.runs.provenance import processor, read_provenance
from ens10.experiments.training.data_numbers import config_path, read_config
from ens10.experiments.training.limits import StepClock, _StepBytes
from ens10.models.parallel.cost import step_memory
from ens10.synthetic import World

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "train_for_less.json"
PAGE = ROOT / "docs" / "train_for_less.md"
GRID, BATCH, STEPS, NAME = (46, 96), 8, 4, "convnext"
ASKED = 10


def step_in_parts(part: int) -> dict[str, float]:
    """Processor seconds and memory of a step of 8 dates in parts."""
    torch.set_num_threads(1)
    parts = BATCH // part
    config = read_config(config_path(NAME), grid=GRID)
    channels = subject_of(config_path(NAME), GRID).channels[-1]
    batches = [random_batch(config["data"], channels, GRID, part, n) for n in range(parts)]
    module = build_part(pl.LightningModule, on_grid(config["model"], GRID))
    clock, saved = StepClock(), _StepBytes()
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    options: dict[str, Any] = {"max_epochs": 1, "accelerator": "cpu", "devices": 1}
    options |= {"accumulate_grad_batches": parts, "callbacks": [clock, saved]}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loader = torch.utils.data.DataLoader(batches * STEPS, batch_size=None)  # type: ignore[arg-type]
    pl.Trainer(**options, **quiet).fit(module, loader)
    times = [clock.times["start"][0], *clock.times["end"][parts - 1 :: parts]]
    steps = [end - start for start, end in pairwise(times)]
    parameters = sum(p.numel() for p in module.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "seconds": round(median(steps[1:]), 3),
        "counted MB": round(step_memory(parameters, *saved.counts[0]) / 1e6, 1),
        "peak MB": round((peak - before) / 1e3, 1),
    }


def timed() -> dict[str, float]:
    """The time that a training was given, and that it took."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        World(grid=GRID, years=range(2000, 2005), dates=12, steps=(48,)).write(path / "world")
        ens10.prepare(path / "world", path / "store", truth=path / "world" / "truth")
        limit = f"{ASKED}s"
        run = ens10.fit(path / "store", "mlp", run=path / "run", processor_time=limit, quiet=True)
        facts = read_provenance(run.path)
        epochs = facts["processor_time"]["epochs"]
        return {"asked": ASKED, "epochs": epochs, "seconds": facts["cpu_seconds"]}


def table(found: dict[str, Any]) -> str:
    """The rows of the page."""
    lines = [
        "| option | what is compared | processor time (s) | counted memory (MB) | measured (MB) |",
        "|---|---|---:|---:|---:|",
    ]
    for part, row in found["parts"].items():
        whole = int(part) == BATCH
        what = f"a step of {BATCH} dates" + ("" if whole else f" in parts of {part}")
        cells = f"{row['seconds']} | {row['counted MB']} | {row['peak MB']}"
        lines.append(f"| {'none' if whole else '`--step-memory`'} | {what} | {cells} |")
    time = found["time"]
    what = f"a training of {time['asked']} s: {time['epochs']} epochs"
    lines.append(f"| `--processor-time` | {what} | {time['seconds']} | | |")
    return "\n".join(lines)


def main() -> None:
    """Measures and writes the file, or writes the table of the page."""
    if "--page" not in sys.argv:
        context = multiprocessing.get_context("fork")
        rows = {}
        for part in (8, 4, 2, 1):
            with context.Pool(1) as pool:
                rows[str(part)] = pool.apply(step_in_parts, (part,))
            print(part, rows[str(part)], flush=True)
        found = {"network": NAME, "grid": GRID, "processor": processor(), "parts": rows}
        counts = count_config(config_path(NAME), GRID, BATCH, "32")[0]
        found["counted GB of a step on a GPU"] = round(counts.counts.total.bytes / 1e9, 3)
        found["time"] = timed()
        RESULT.write_text(json.dumps(found, indent=1) + "\n")
    begin, end = "<!-- train for less -->", "<!-- end -->"
    text = PAGE.read_text()
    head, rest = text.split(begin)
    rows_of_page = table(json.loads(RESULT.read_text()))
    PAGE.write_text(f"{head}{begin}\n{rows_of_page}\n{end}{rest.split(end, 1)[1]}")


if __name__ == "__main__":
    main()
