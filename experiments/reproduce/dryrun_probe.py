"""A few steps of a configuration's model at the true size, timed: random fields, no data needed.

    python -m ens10.experiments.reproduce.dryrun_probe unet --grid 361x720

On a processor one thread computes, and its processor time counts, which is the time of a core of
one's own; on an accelerator the time of the clock counts. Reading of data is not part of it.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from jsonargparse import ArgumentParser
from torch.utils.data import DataLoader

from ens10 import catalog
from ens10.errors import FileError
from ens10.experiments import provenance
from ens10.experiments.demo import config_path
from ens10.experiments.plan import on_grid
from ens10.experiments.quiet import few_words
from ens10.grid import grid_shape
from ens10.loader.batch import Batch
from ens10.untrusted import read_mapping

_STEPS = 3  # of a network, the first of which does not count
_DATES = 16  # that a statistical method is solved from
_STATISTICAL = "StatisticalPostProcessor"
_DAY = 86400
_SPAN = 7000  # days among which dates are spread


class _Clock(pl.Callback):
    """When training began, and each step of training and prediction ended."""

    def __init__(self, on_processor: bool) -> None:
        self._now = time.process_time if on_processor else time.perf_counter
        self.begun = self.first = 0.0
        self.trained: list[float] = []
        self.predicted: list[float] = []

    def _time(self) -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return self._now()

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        self.begun = self._time()

    def on_train_batch_start(self, *_: Any) -> None:
        self.first = self.first or self._time()

    def on_train_batch_end(self, *_: Any) -> None:
        self.trained.append(self._time())

    def on_predict_batch_end(self, *_: Any) -> None:
        self.predicted.append(self._time())


def measure(model: str, grid: tuple[int, int]) -> dict[str, Any]:
    """Times a model in this process.

    Args:
        model: name of a configuration, for T2m and 10 members.
        grid: rows and columns.

    Returns:
        `train_seconds` and `predict_seconds` of one date; `before_seconds` of one date, for a
        method that is solved before the first epoch; `memory_gb`, the most that was held;
        `batch`; `device`.
    """
    config = read_mapping(config_path(model))
    module = _module(on_grid(config["model"], grid))
    data, asked = config["data"], config.get("trainer") or {}
    statistical = config["model"]["class_path"].endswith(_STATISTICAL)
    size = int(data.get("batch_size") or 1)
    count = _DATES if statistical else _STEPS
    channels = _channels(config["model"])
    drawn = [_batch(data, channels, grid, size, n) for n in range(count if statistical else 1)]
    trainer, clock = _trainer(asked)
    with few_words():
        trainer.fit(module, _loader(drawn if statistical else drawn * count))
        trainer.predict(module, _loader([drawn[0]] * _STEPS))
    last = clock.trained[-1]
    spent = last - clock.begun if statistical else last - clock.trained[0]
    dates = size * (count if statistical else count - 1)
    solved = getattr(module, "method", None) is not None and not statistical
    return {
        "train_seconds": round(spent / dates, 4),
        "before_seconds": round((clock.first - clock.begun) / (size * count), 4) if solved else 0.0,
        "predict_seconds": round(
            (clock.predicted[-1] - clock.predicted[0]) / (size * (_STEPS - 1)), 4
        ),
        "memory_gb": round(_memory(trainer) / 1e9, 2),
        "batch": size,
        "device": _device(trainer),
    }


def measure_apart(model: str, grid: tuple[int, int]) -> dict[str, Any]:
    """As `measure`, in a process of its own, whose memory is that of this model alone.

    Raises:
        FileError: the process failed; the last of what it wrote.
    """
    command = [
        sys.executable,
        "-m",
        "ens10.experiments.reproduce.dryrun_probe",
        model,
        "--grid",
        "x".join(map(str, grid)),
    ]
    one = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        command, env={**os.environ, **one}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise FileError(config_path(model), f"could not be run at {command[-1]} points", last)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _module(specification: dict[str, Any]) -> pl.LightningModule:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(pl.LightningModule, "model")
    build = getattr(parser, "instantiate", None) or parser.instantiate_classes
    made: pl.LightningModule = build(parser.parse_object({"model": specification})).model
    return made


def _channels(specification: dict[str, Any]) -> int:
    network = specification["init_args"].get("network")
    return int(network["init_args"]["in_channels"]) if network else 2


def _batch(
    data: dict[str, Any], channels: int, grid: tuple[int, int], size: int, seed: int
) -> Batch:
    """Fields without any pattern in space, with a bias and spread that can be learnt."""
    rng = torch.Generator().manual_seed(seed)
    members = len(catalog.MEMBERS)

    def noise(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, *grid, generator=rng)

    mean, std = 280 + 5 * noise(size), 0.5 + noise(size).abs()
    inner = (members, channels) if data.get("kind") == "members" else (channels,)
    batch: Batch = {
        "features": noise(size, *inner),
        "raw_mean": mean,
        "raw_std": std,
        "target": mean + 1 + 1.5 * std * noise(size),
        "weights": torch.ones(size, *grid),
        "dates": _DAY * torch.randint(_SPAN, (size,), generator=rng),
    }
    if data.get("members"):
        batch["members"] = mean[:, None] + std[:, None] * noise(size, members)
    return batch


def _loader(batches: list[Batch]) -> DataLoader[Any]:
    return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def _trainer(asked: dict[str, Any]) -> tuple[pl.Trainer, _Clock]:
    accelerator = str(asked.get("accelerator") or "auto")
    on_processor = accelerator == "cpu" or not torch.cuda.is_available()
    clock = _Clock(on_processor)
    kept = {name: asked[name] for name in ("precision",) if name in asked}
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator=accelerator,
        devices=1,
        callbacks=[clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **kept,
    )
    return trainer, clock


def _memory(trainer: pl.Trainer) -> float:
    """Bytes at the peak: of the accelerator if there is one, else of the process."""
    if trainer.strategy.root_device.type == "cuda":
        return float(torch.cuda.max_memory_allocated())
    return 1e6 * provenance.peak_memory_mb()


def _device(trainer: pl.Trainer) -> str:
    if trainer.strategy.root_device.type == "cuda":
        return str(torch.cuda.get_device_name())
    return "one core"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures one model, and prints a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m ens10.experiments.reproduce.dryrun_probe")
    parser.add_argument("model")
    parser.add_argument("--grid", default="x".join(map(str, catalog.GRID_SHAPE)))
    given = parser.parse_args(arguments)
    print(json.dumps(measure(given.model, grid_shape(given.grid, "--grid"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
