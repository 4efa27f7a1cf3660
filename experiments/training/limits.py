"""Epochs within a processor time, and parts of a batch within a memory, for `ens10 fit`.

Both are measured on a copy of the training before it begins, and become options of it, which the
configuration of the run holds.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partialmethod
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.experiments.runs.provenance import duration
from ens10.loader.batch import Batch
from ens10.loader.buffers import size_of
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.tensors import TorchBatches, as_tensors
from ens10.models.layers.smoe.routing import RoutingRule
from ens10.models.parallel.cost import COUNTED, SavedTensors, divisors, gigabytes, step_memory
from ens10.models.postprocessor import StatisticalPostProcessor, require_fields

PROCESSOR_TIME = "--processor-time"
STEP_MEMORY = "--step-memory"
LIMITS = {
    PROCESSOR_TIME: (
        "TIME", "train as many epochs as take this time, such as 90s, 10min or 2h: on a CPU summed "
        "over its cores, on a GPU elapsed",
    ),
    STEP_MEMORY: (
        "SIZE", "train batches in parts whose steps take at most this memory, such as 8GB, and add "
        "their gradients",
    ),
}  # fmt: skip
_TIME = re.compile(r"(\d+(?:\.\d+)?) ?(s|min|h)")
_SECONDS = {"s": 1, "min": 60, "h": 3600}
_WARM_UP, _STEPS = 2, 5
_INTERVAL = "val_check_interval"
_COUNT_BATCHES = (
    "limit_train_batches", "limit_val_batches", "limit_test_batches", "limit_predict_batches",
    "overfit_batches", _INTERVAL,
)  # fmt: skip
_VALIDATES_EVERY = "check_val_every_n_epoch"


def split_limits(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Take the limits, such as `--processor-time 10min`, out of a command line.

    Returns:
        The other arguments, and the texts of the limits by option.

    Raises:
        ArgumentError: a limit without a value.
    """
    others, limits = [], {}
    words = iter(arguments)
    for argument in words:
        name, equals, value = argument.partition("=")
        if name not in LIMITS:
            others.append(argument)
            continue
        limits[name] = value if equals else next(words, "")
        if not limits[name]:
            raise ArgumentError(name, "has no value", "See `ens10 fit --help`")
    return others, limits


def require_no_limits(limits: Iterable[str], reason: str) -> None:
    """Refuse limits where nothing is measured.

    Raises:
        ArgumentError: there is one.
    """
    for name in limits:
        raise ArgumentError(name, reason, "Leave it out")


@dataclass(frozen=True)
class Probe:
    """A copy of a training, which is run for a few steps and discarded.

    Attributes:
        model: of the training; a copy of it is run.
        data: made for this probe alone.
        trainer: arguments of Lightning's trainer; callbacks and loggers are left out.
    """

    model: pl.LightningModule
    data: EnsembleDataModule
    trainer: Mapping[str, Any]

    def run(self, callback: pl.Callback, **settings: Any) -> pl.Trainer:
        """Run an epoch, or what `callback` and `settings` leave of it, and return its trainer.

        Raises:
            ArgumentError: a model that is solved in one pass, several processes, or a trial run of
                a few batches.
        """
        if isinstance(self.model, StatisticalPostProcessor):
            reason = "a statistical method is solved in one pass, whose length is given"
            raise ArgumentError("limits", reason, "Leave --processor-time and the like out")
        if self.trainer.get("fast_dev_run"):
            reason = "a trial run of a few batches has no epochs, and no limits of batches"
            raise ArgumentError("trainer.fast_dev_run", reason, "Leave it or the limits out")
        none = {"callbacks": [callback], "max_steps": -1} | dict.fromkeys(
            ("min_epochs", "min_steps", "max_time")
        )
        off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
        own = {"max_epochs": 1, "num_sanity_val_steps": 0, **none, **dict.fromkeys(off, False)}
        if self.trainer.get(_VALIDATES_EVERY) is not None:
            own[_VALIDATES_EVERY] = 1
        trainer = pl.Trainer(**{**self.trainer, **own, **settings})
        if trainer.world_size > 1:
            reason = f"steps are measured in one process, not in {trainer.world_size}"
            raise ArgumentError("devices", reason, "Set devices to 1, or the limits by hand")
        trainer.fit(deepcopy(self.model), datamodule=self.data)
        return trainer


class StepClock(pl.Callback):
    """Callback that records the times of the events of a training, in seconds.

    They are processor times where the model is on the CPU, and elapsed times elsewhere.

    Attributes:
        times: of the start of training ("fit"), start and end of steps ("start", "end") and of
            validations ("validates", "validated"), and of the end of predictions ("predicted").
    """

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {}

    def _add(self, event: str, trainer: pl.Trainer, *_: Any) -> None:
        on_processor = trainer.strategy.root_device.type == "cpu"
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        now = time.process_time() if on_processor else time.perf_counter()
        self.times.setdefault(event, []).append(now)

    on_fit_start = partialmethod(_add, "fit")
    on_train_batch_start = partialmethod(_add, "start")
    on_train_batch_end = partialmethod(_add, "end")
    on_validation_start = partialmethod(_add, "validates")
    on_validation_end = partialmethod(_add, "validated")
    on_predict_batch_end = partialmethod(_add, "predicted")


class _FewSteps(StepClock):
    """A clock that ends the training after a few steps, with the validation of the epoch.

    Batches whose gradients are accumulated are one step.
    """

    def on_train_batch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
        """Record the time; end after the last step that is measured."""
        self._add("end", trainer, *rest)
        batches = (_WARM_UP + _STEPS) * trainer.accumulate_grad_batches
        trainer.should_stop = len(self.times["end"]) >= batches


class EpochCost(NamedTuple):
    """Measured seconds of a training.

    Attributes:
        step: of a batch.
        epoch: with its validations.
        before: what comes once: before the first step, and what the first steps take longer.
    """

    step: float
    epoch: float
    before: float


def measure_epoch(probe: Probe) -> EpochCost:
    """Measure the median step after a few for warming up, and one validation.

    A step includes the reading of its batch, as in the first epoch, and its share of the
    optimiser's step.
    """
    clock = _FewSteps()
    trainer = probe.run(clock)
    fit, first = clock.times["fit"][0], clock.times["start"][0]
    pauses = list(zip(*(clock.times.get(k, []) for k in ("validates", "validated")), strict=True))
    times = [
        end - start - sum(b - a for a, b in pauses if start < a < end)
        for start, end in pairwise([first, *clock.times["end"]])
    ]
    steps = [np.mean(few).item() for few in _chunks(times, trainer.accumulate_grad_batches)]
    warm_up = min(_WARM_UP, len(steps) - 1)
    step = median(steps[warm_up:])
    once = sum(max(0.0, one - step) for one in steps[:warm_up]) * trainer.accumulate_grad_batches
    validation = max((end - start for start, end in pauses), default=0.0)
    batches = trainer.num_training_batches
    every = trainer.val_check_batch or batches
    validations = batches / every / (probe.trainer.get(_VALIDATES_EVERY) or 1)
    return EpochCost(step, batches * step + validations * validation, first - fit + once)


def _chunks(values: Sequence[float], size: int) -> list[Sequence[float]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def epochs_within(text: str, probe: Probe) -> tuple[int, dict[str, Any]]:
    """Return the number of epochs that fit into a processor time, and facts for the provenance.

    Raises:
        ArgumentError: no time, or less than that of one epoch.
    """
    seconds, cost = _seconds_of(text), measure_epoch(probe)
    epochs = int((seconds - cost.before) // cost.epoch)
    before = f", and what comes before {duration(cost.before)}" if cost.before >= 0.1 else ""
    if epochs < 1:
        reason = f"an epoch takes {duration(cost.epoch)}{before}: more than {text}"
        raise ArgumentError(PROCESSOR_TIME, reason, "Give more time, or set --trainer.max_epochs")
    line = f"{text}: {epochs} epochs of {duration(cost.epoch)} each{before}"
    measured = {name: round(value, 4) for name, value in cost._asdict().items()}
    return epochs, {"line": line, "asked": text, "epochs": epochs, "measured_seconds": measured}


def _seconds_of(text: str) -> float:
    """Return the seconds of a text such as "90s", "10min" or "2h".

    Raises:
        ArgumentError: it is no time, or zero.
    """
    match = _TIME.fullmatch(text.strip())
    if not match or not float(match[1]):
        raise ArgumentError(PROCESSOR_TIME, f"{text!r} is no time", "Choose such as 90s, 10min, 2h")
    return float(match[1]) * _SECONDS[match[2]]


class _SmallBatches(TorchBatches):
    """A batch of one date and, where batches have several dates, one of two."""

    most = 2

    def __len__(self) -> int:
        return self.most

    def __iter__(self) -> Iterator[Batch]:
        dates = np.resize(self.batches.index, self.most)
        for count in range(1, self.most + 1):
            yield as_tensors(self.batches.batch(dates[:count]))


class _StepBytes(pl.Callback):
    """Counter of the bytes that the model, head and loss save for the backward pass of each step.

    Attributes:
        counts: of each step: bytes of all saved tensors and of the batch, and of the largest.
    """

    def __init__(self) -> None:
        self.counts: list[tuple[int, int]] = []
        self._saved: SavedTensors | None = None

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, *_: Any
    ) -> None:  # fmt: skip
        """Begin to count; Lightning has no hook around the forward pass."""
        del trainer
        state = (*pl_module.parameters(), *pl_module.buffers())
        inputs = [values for values in batch.values() if isinstance(values, Tensor)]
        self._batch_bytes = sum(values.nbytes for values in inputs)
        self._saved = SavedTensors((*state, *inputs))
        self._saved.__enter__()

    def on_before_backward(self, *_: Any) -> None:
        """End the count before anything is computed again for the backward pass."""
        sizes = self.end()
        self.counts.append((sum(sizes) + self._batch_bytes, max(sizes, default=0)))

    def end(self) -> list[int]:
        """End the count of a step, if one is counted, and return its sizes."""
        saved, self._saved = self._saved, None
        if saved is None:
            return []
        saved.__exit__()
        return saved.sizes


def part_within(text: str, probe: Probe) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return options that train the batch in parts of a memory, and facts for the provenance.

    The bytes of a step of one date and of two dates are counted, and extended to more dates by
    straight lines. The part is the largest divisor of the batch that fits. Parameters, gradients
    and the moments of Adam are included, see `ens10.models.parallel.cost.Footprint.memory`.

    Raises:
        ArgumentError: no size; a single date does not fit; the batch is of patches or points; the
            trainer has limits that are shares of an epoch, or validates after a number of batches
            of which the last one is shorter.
    """
    limit, batch = size_of(STEP_MEMORY, text), probe.data.batch_size
    require_fields(probe.data, "parts of a batch are")
    counter = _StepBytes()
    batches = _SmallBatches(probe.data.batches("train"), None)
    batches.most = min(batch, 2)
    vars(probe.data)["train_dataloader"] = lambda: batches
    whole = {"limit_train_batches": batches.most, "limit_val_batches": 0, _INTERVAL: 1.0}
    try:
        probe.run(counter, **whole, overfit_batches=0, accumulate_grad_batches=1)
    finally:
        counter.end()
    parameters = sum(parameter.numel() for parameter in probe.model.parameters())

    def memory(dates: int) -> int:
        one, two = counter.counts[0], counter.counts[-1]
        return step_memory(parameters, *(a + (dates - 1) * (b - a) for a, b in zip(one, two)))  # noqa: B905

    fitting = [dates for dates in divisors(batch) if memory(dates) <= limit]
    if not fitting:
        reason = f"a step of one date takes {gigabytes(memory(1))}, more than {text}"
        raise ArgumentError(STEP_MEMORY, reason, f"Give more; {COUNTED}")
    part, needs = fitting[-1], f"{gigabytes(memory(batch))} ({COUNTED})"
    facts = {"asked": text, "batch": batch, "part": part, "bytes": memory(part)}
    if part == batch:
        return {}, {"line": f"{text}: batches of {batch} fit, with {needs}", **facts}
    line = f"{text}: batches of {batch}, which take {needs}, are trained in parts of {part}"
    line += f", with {gigabytes(memory(part))}{_inequality(probe.model)}"
    interval = probe.trainer.get(_INTERVAL)
    if isinstance(interval, int) and len(batches.batches.index) % batch:
        reason = (
            f"{interval} batches, of which the last one of an epoch has less than {batch} dates"
        )
        raise ArgumentError(f"trainer.{_INTERVAL}", reason, "Leave it out, or choose another batch")
    return _options_of_parts(probe.trainer, part, batch // part), {"line": line, **facts}


def _options_of_parts(trainer: Mapping[str, Any], part: int, parts: int) -> dict[str, Any]:
    """Return the options of the data and the trainer; limits count parts in place of batches."""
    accumulated = int(trainer.get("accumulate_grad_batches") or 1) * parts
    options = {"data.batch_size": part, "trainer.accumulate_grad_batches": accumulated}
    for name in _COUNT_BATCHES:
        value = trainer.get(name)
        if isinstance(value, float) and value not in (0, 1):
            reason = f"{value} of an epoch may end within a batch that is trained in parts"
            raise ArgumentError(f"trainer.{name}", reason, "Give a number of batches")
        if isinstance(value, int):
            options[f"trainer.{name}"] = value * parts
    return options


def _inequality(model: pl.LightningModule) -> str:
    """Return what makes the gradient of parts differ from that of the whole batch, if anything."""
    modules = list(model.modules())
    rules = [getattr(module, "rule", None) for module in modules]
    reasons = {
        "its batch normalisation": any(isinstance(m, nn.BatchNorm2d) for m in modules),
        "its routing loss": any(isinstance(r, RoutingRule) and r.classify for r in rules),
    }
    found = " and ".join(name for name, is_found in reasons.items() if is_found)
    return found and f"; NOT the same training: {found} sees one part at a time"
