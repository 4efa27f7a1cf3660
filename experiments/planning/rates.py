"""Measured seconds of training and forecasts: read from files, or from a probe of this machine.

`results/full_size/throughput.json` has the times of one processor core and `h200.json` those of
NVIDIA H200 devices. A device is only timed where it was measured; nothing is derived from data
sheets. A probe trains a few steps of a model on random fields.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from ens10.errors import ArgumentError, FileError
from ens10.experiments.runner.tasks import MEMBERS
from ens10.experiments.runs import provenance
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.training.data_numbers import config_path, read_config
from ens10.experiments.training.limits import StepClock
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import uses_members
from ens10.progress import track
from ens10.untrusted import parse_json
from ens10.usage import Parser

STATISTICAL = "StatisticalPostProcessor"
Grid = tuple[int, int]
DEVICES = {"cpu": "throughput", "h200": "h200"}  # files of measured training steps


@dataclass(frozen=True)
class Rates:
    """Measured rates on one grid, for target t2m of 10 members under protocol clean.

    Seconds are processor time of one core, or time of an accelerator if a model's `device` is one.

    Attributes:
        grid: rows and columns.
        machine: description of the machine.
        prepare: seconds for a GRIB message.
        score: seconds for a date, of prediction and scores besides the model.
        climate: seconds for the model climate of a date, for each of its members.
        models: by name, see `measure`.
        reading_gb: memory of a network's training for its batches, besides its steps.
    """

    grid: Grid
    machine: str
    prepare: float
    score: float
    climate: float
    models: Mapping[str, Mapping[str, Any]]
    reading_gb: float = 0.0


def read_rates(path: Path | None = None) -> Rates:
    """Read measured rates; None for those of one core, which come with the package.

    Raises:
        FileError: no such file, or one without rates.
    """
    path = path or _package_file("cpu")
    remedy = "Give a file like experiments/results/full_size/throughput.json"
    if not path.is_file():
        raise FileError(path, "no measured rates", remedy)
    try:
        content = parse_json(path.read_text())
        rows, columns = content.pop("grid")
        return Rates((rows, columns), **content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(path, f"holds no measured rates ({error})", remedy) from error


def _package_file(device: str) -> Path:
    folder = Path(str(files("ens10.experiments"))) / "results" / "full_size"
    return folder / f"{DEVICES[device]}.json"


@dataclass(frozen=True)
class MeasuredSteps:
    """Measured training steps of configurations on one kind of device.

    Attributes:
        machine: description of the device.
        grid: rows and columns.
        seconds: seconds of a date by configuration, precision and dates of a step; several values
            if several devices were measured.
    """

    machine: str
    grid: Grid
    seconds: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]]


def measured_steps(device: str) -> MeasuredSteps:
    """Return the training steps that were measured on a device.

    Args:
        device: "cpu" for one processor core, or "h200".

    Raises:
        ArgumentError: a device that was not measured.
    """
    if device not in DEVICES:
        remedy = (
            f"Measured are {' and '.join(DEVICES)}; on another device run `ens10 reproduce --plan "
            "--probe`, which measures the models there"
        )
        raise ArgumentError("machine", f"{device!r} is not measured", remedy)
    content = parse_json(_package_file(device).read_text())
    rows, columns = content["grid"]
    seconds = {name: _seconds_of(model) for name, model in content["models"].items()}
    return MeasuredSteps(content["machine"], (rows, columns), seconds)


def _seconds_of(model: dict[str, Any]) -> dict[str, dict[int, list[float]]]:
    if "train_seconds" in model:
        return {"32": {int(model["batch"]): [model["train_seconds"]]}}
    return {name: {int(n): times for n, times in by.items()} for name, by in model.items()}


def measure_rates(rates: Rates, models: Sequence[str], progress: bool = True) -> Rates:
    """Return the rates with models measured on this machine, each in a process of its own.

    Raises:
        FileError: a model cannot be run.
    """
    tracked_models = track(models, "models", len(models), progress)
    new_rates = {model: measure_in_process(model, rates.grid) for model in tracked_models}
    devices = ", ".join(sorted({str(rate["device"]) for rate in new_rates.values()}))
    machine = f"{rates.machine}; models on this machine ({devices})"
    return replace(rates, machine=machine, models={**rates.models, **new_rates})


_MEASURE = (
    "import json, sys; from ens10.experiments.planning.rates import measure; "
    "print(json.dumps(measure(sys.argv[1], (int(sys.argv[2]), int(sys.argv[3])))))"
)


def measure_in_process(model: str, grid: Grid) -> dict[str, Any]:
    """Run `measure` in a process of its own, on one thread, so that its memory is the model's."""
    command = [sys.executable, "-c", _MEASURE, model, *map(str, grid)]
    thread_limits = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    result = subprocess.run(
        command, env={**os.environ, **thread_limits}, capture_output=True, text=True, check=False
    )
    if result.returncode:
        error = (result.stderr.strip().splitlines() or [f"exit status {result.returncode}"])[-1]
        reason = f"could not be run at {grid[0]}x{grid[1]} points"
        raise FileError(config_path(model), reason, error)
    rate: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return rate


def measure(model: str, grid: Grid) -> dict[str, Any]:
    """Time a few steps of a model with random fields, without reading of data.

    The times are processor time on a CPU, and elapsed time on an accelerator. The first step of a
    network does not count.

    Args:
        model: name of a configuration, for t2m and 10 members.
        grid: rows and columns.

    Returns:
        `train_seconds` and `predict_seconds` of one date; `before_seconds` of one date, for a
        method that is solved before the first epoch; `memory_gb`, the peak;
        `batch`; `device`.
    """
    config = read_config(config_path(model), grid=grid)
    specification, data = on_grid(config["model"], grid), config["data"]
    statistical = specification["class_path"].endswith(STATISTICAL)
    size, steps = int(data.get("batch_size") or 1), 16 if statistical else 3
    network = specification["init_args"].get("network")
    channels = int(network["init_args"]["in_channels"]) if network else 2
    batches = [
        random_batch(data, channels, grid, size, n) for n in range(steps if statistical else 1)
    ]
    settings = {n: v for n, v in (config.get("trainer") or {}).items() if n == "precision"}
    accelerator = str((config.get("trainer") or {}).get("accelerator") or "auto")
    clock = StepClock()
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator=accelerator,
        devices=1,
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    with suppress_lightning_warnings():
        module = build_part(pl.LightningModule, specification)
        trainer.fit(module, _loader(batches if statistical else batches * steps))
        trainer.predict(module, _loader([batches[0]] * 3))
    begin, start, ends = clock.times["fit"][0], clock.times["start"][0], clock.times["end"]
    first, count = (begin, steps) if statistical else (ends[0], steps - 1)
    has_solver = getattr(module, "method", None) is not None and not statistical
    prediction_ends = clock.times["predicted"]
    on_gpu = trainer.strategy.root_device.type == "cuda"
    peak = torch.cuda.max_memory_allocated() if on_gpu else 1e6 * provenance.peak_memory_mb()
    return {
        "train_seconds": round((ends[-1] - first) / (size * count), 4),
        "before_seconds": round((start - begin) / (size * steps), 4) if has_solver else 0.0,
        "predict_seconds": round((prediction_ends[-1] - prediction_ends[0]) / (size * 2), 4),
        "memory_gb": round(peak / 1e9, 2),
        "batch": size,
        "device": str(torch.cuda.get_device_name()) if on_gpu else "one core",
    }


def random_batch(data: dict[str, Any], channels: int, grid: Grid, size: int, seed: int) -> Batch:
    """Make a batch of fields without spatial pattern, with a bias and spread that can be learnt."""
    rng = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, *grid, generator=rng)

    mean, std = 280 + 5 * noise(size), 0.5 + noise(size).abs()
    inner = (MEMBERS, channels) if uses_members(data) else (channels,)
    batch: Batch = {
        "features": noise(size, *inner),
        "raw_mean": mean,
        "raw_std": std,
        "target": mean + 1 + 1.5 * std * noise(size),
        "weights": torch.ones(size, *grid),
        "dates": 86400 * torch.randint(7000, (size,), generator=rng),
    }
    if data.get("members"):
        batch["members"] = mean[:, None] + std[:, None] * noise(size, MEMBERS)
    return batch


def _loader(batches: list[Batch]) -> DataLoader[Any]:
    return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def build_part(base: type[Any], specification: Any) -> Any:
    """Make an object of a subclass of `base`, as YAML describes it."""
    parser = Parser(exit_on_error=False)
    parser.add_subclass_arguments(base, "part")
    build = getattr(parser, "instantiate", None) or parser.instantiate_classes
    return build(parser.parse_object({"part": specification})).part


def on_grid(specification: Any, grid: Grid) -> Any:
    """Return a copy of a specification, with each grid that its parts are bound to replaced."""
    if not isinstance(specification, dict):
        return specification
    return {
        key: list(grid)
        if key == "grid" and isinstance(value, list | tuple)
        else on_grid(value, grid)
        for key, value in specification.items()
    }
