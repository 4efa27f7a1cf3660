"""`ens10 plan` and `ens10 reproduce --plan`: what a training, or a table of them, would take.

`ens10 plan` counts the network of a configuration on every split of the devices, and times it by
the model of `ens10.models.parallel.cost`. `ens10 reproduce --plan` counts the bytes of a store and
multiplies measured seconds of a date (of a file, or of a probe of this machine) by dates and
epochs. Nothing is trained but a few steps of a probe.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partialmethod
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytorch_lightning as pl
import torch
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader

from ens10 import catalog
from ens10.channels import channel_names, resolve, split
from ens10.climate import blocks
from ens10.durable import write_whole
from ens10.errors import ArgumentError, Ens10Error, FileError, MissingDataError, UnknownNameError
from ens10.experiments import provenance
from ens10.experiments.data_numbers import read_config
from ens10.experiments.demo import config_path
from ens10.experiments.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.runner.tasks import MEMBERS, Task, config_of, load_budget
from ens10.experiments.studies.reproduce.command import Request
from ens10.grid import grid_shape
from ens10.loader.batch import Batch
from ens10.loader.batch_layouts import uses_members
from ens10.loader.content import EXTRA_NAMES
from ens10.models.networks.base import Network
from ens10.models.parallel.cost import (
    MACHINES,
    MODELLED,
    FootprintOf,
    Grid,
    Machine,
    Option,
    Plan,
    Precision,
    footprints,
    gigabytes,
    meta_device,
    milliseconds,
    plan,
    step_time,
)
from ens10.packed16.layout import packed_chunk_bytes
from ens10.progress import track
from ens10.protocol import Protocol
from ens10.quantiles.options import Climatology
from ens10.splits import split_dates
from ens10.stations import as_row
from ens10.untrusted import parse_json
from ens10.usage import Parser, configuration_errors

_STATISTICAL = "StatisticalPostProcessor"


class Subject(NamedTuple):
    """The network of a configuration with the sizes that its training depends on.

    Attributes:
        network: on the meta device, without memory for its values.
        copies: how many networks are trained side by side, as in a deep ensemble.
        grid: rows and columns.
        channels: of the features after the samples: (C,), or (M, C) with members.
        batch: samples of a step in the configuration.
    """

    network: Network
    copies: int
    grid: Grid
    channels: tuple[int, ...]
    batch: int

    def footprints(self, precision: Precision) -> FootprintOf:
        """Return the cost of a step by split; see `ens10.models.parallel.cost.footprints`."""
        return footprints(self.network, self.channels, self.grid, precision, self.copies)


class TrainingPlan(NamedTuple):
    """The splits of a subject over devices, with the precision of its fields."""

    plan: Plan
    subject: Subject
    machine: Machine
    precision: Precision


def plan_config(
    config: Path | str,
    devices: int,
    memory_gb: float,
    *,
    grid: str | None = None,
    batch_size: int | None = None,
    machine: str = "a100",
    precision: str = "32",
    progress: bool = False,
) -> TrainingPlan:
    """Plan the training of a configuration.

    Args:
        config: YAML with a `model`, as `ens10 fit` takes it.
        devices: how many.
        memory_gb: of each, in units of 10^9 bytes.
        grid: "ROWSxCOLUMNS"; None for that of the network if it is bound to one, else ENS-10's.
        batch_size: samples of a step, on all devices; None for the configuration's.
        machine: "cpu", "a100" or "h200".
        precision: "32" or "bf16".
        progress: whether to show a bar.

    Raises:
        FileError: no such file, or no network in it.
        ArgumentError: an argument outside its range, or nothing fits.
    """
    precisions: dict[str, Precision] = {"32": "32", "bf16": "bf16"}
    if machine not in MACHINES:
        raise UnknownNameError("machine", machine, MACHINES)
    if precision not in precisions:
        raise UnknownNameError("precision", precision, precisions)
    subject = subject_of(config, grid_shape(grid, "--grid") if grid else None)
    batch = subject.batch if batch_size is None else batch_size
    field_precision, preset = precisions[precision], MACHINES[machine]
    cost = subject.footprints(field_precision)
    best = plan(cost, devices, 1e9 * memory_gb, batch, preset, field_precision, progress=progress)
    return TrainingPlan(best, subject, preset, field_precision)


def subject_of(
    config: Path | str,
    grid: Grid | None = None,
    in_channels: int | None = None,
    members: int | None = None,
) -> Subject:
    """Return the network of a configuration and its sizes, without memory for its values.

    Args:
        config: YAML with a `model`.
        grid: rows and columns; None for that of the network if it is bound to one, else ENS-10's.
        in_channels: of the features; None for the network's own.
        members: of the ensemble; None for the configuration's.

    Raises:
        FileError: no such file, or no network in it.
        ArgumentError: the network cannot be made, or not for this grid.
    """
    path = Path(config)
    content = read_config(path, "Give one of experiments/configs", grid or catalog.GRID_SHAPE)
    model, data = content.get("model"), content.get("data") or {}
    if not isinstance(model, dict):
        raise FileError(path, "it has no model", "Give a configuration as `ens10 fit` takes it")
    arguments, class_path = model.get("init_args") or {}, str(model.get("class_path", "its model"))
    specification = arguments.get("network")
    if not specification:
        reason = f"{class_path.rpartition('.')[2]} has no network to share out"
        raise FileError(path, reason, "Plan is for models with a network")
    points = grid or next(_grids(specification), catalog.GRID_SHAPE)
    specification = on_grid(specification, points)
    if in_channels is not None:
        specification["init_args"]["in_channels"] = in_channels
    with configuration_errors(path), meta_device():
        network: Network = _build(Network, specification)
    copies = int(arguments.get("size", 5)) if class_path.endswith("DeepEnsemble") else 1
    count = members or int(data.get("ensemble") or len(catalog.MEMBERS))
    channels = (*([count] if network.takes_members else []), network.in_channels)
    return Subject(network, copies, points, channels, int(data.get("batch_size") or 1))


def _build(base: type[Any], specification: Any) -> Any:
    """Make an object of a subclass of `base`, as YAML describes it."""
    parser = Parser(exit_on_error=False)
    parser.add_subclass_arguments(base, "part")
    build = getattr(parser, "instantiate", None) or parser.instantiate_classes
    return build(parser.parse_object({"part": specification})).part


def _grids(specification: Any) -> Iterator[Grid]:
    """Yield every grid that parts of a network are bound to."""
    for key, value in specification.items() if isinstance(specification, dict) else ():
        if key == "grid" and isinstance(value, list | tuple) and len(value) == 2:
            yield int(value[0]), int(value[1])
        else:
            yield from _grids(value)


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


def print_plan(training_plan: TrainingPlan) -> None:
    """Print the table of splits, the recommended one, and the source of the rates."""
    console, (best, subject, machine, precision) = _console(), training_plan
    shape = " x ".join(map(str, (best.batch, *subject.channels, *subject.grid)))
    name = type(subject.network).__name__
    title = f"{name}, {shape}, precision {precision}, {machine.name}: {MODELLED}"
    console.print(title, style="bold", highlight=False)
    header = ("data", "lat", "lon", "memory", "step", "computes", "messages")
    table = Table(*header, "", box=None, padding=(0, 1))
    for option in best.options[:12]:
        table.add_row(*_cells(option), style="green" if option is best.best else "")
    console.print(table, highlight=False)
    remaining = len(best.options) - 12
    lines = [f"and {remaining} splits more"] if remaining > 0 else []
    lines += [f"Recommended: {best}", f"Use it by: {_flags(best)}"]
    for line in (*lines, f"Rates of {machine.name}: {machine.source}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _cells(option: Option) -> list[str]:
    time, cells = option.time, list(map(str, option.split))
    if option.footprint is None or time is None:
        return [*cells, *[""] * 4, option.refusal]
    memory = gigabytes(option.footprint.memory)
    times = map(milliseconds, (time.total, time.compute, time.messages))
    return [*cells, memory, *times, "does not fit" if option.refusal else ""]


def _flags(best: Plan) -> str:
    split = best.best.split
    options = [f"--trainer.devices={split.data * split.parts}"]
    if split.parts > 1:
        options += ["--trainer.strategy=SpatialStrategy", f"--trainer.strategy.lat={split.lat}"]
        options += [f"--trainer.strategy.lon={split.lon}"] if split.lon > 1 else []
    return " ".join([*options, f"--data.batch_size={best.batch // split.data}"])


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
    """Read measured rates; None for the file that comes with the package.

    Raises:
        FileError: no such file, or one without rates.
    """
    path = path or Path(str(files("ens10.experiments"))) / "results/full_size/throughput.json"
    remedy = "Give a file like experiments/results/full_size/throughput.json"
    if not path.is_file():
        raise FileError(path, "no measured rates", remedy)
    try:
        content = parse_json(path.read_text())
        rows, columns = content.pop("grid")
        return Rates((rows, columns), **content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(path, f"holds no measured rates ({error})", remedy) from error


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
    "import json, sys; from ens10.experiments.plan import measure; "
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


class _Clock(pl.Callback):
    """Callback that records the times of the start of training, and of start and end of steps."""

    def __init__(self, on_processor: bool) -> None:
        self._now = time.process_time if on_processor else time.perf_counter
        self.times: dict[str, list[float]] = {}

    def _add(self, event: str, *_: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.setdefault(event, []).append(self._now())

    on_fit_start = partialmethod(_add, "fit")
    on_train_batch_start = partialmethod(_add, "start")
    on_train_batch_end = partialmethod(_add, "end")
    on_predict_batch_end = partialmethod(_add, "predicted")


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
    statistical = specification["class_path"].endswith(_STATISTICAL)
    size, steps = int(data.get("batch_size") or 1), 16 if statistical else 3
    network = specification["init_args"].get("network")
    channels = int(network["init_args"]["in_channels"]) if network else 2
    batches = [_batch(data, channels, grid, size, n) for n in range(steps if statistical else 1)]
    settings = {n: v for n, v in (config.get("trainer") or {}).items() if n == "precision"}
    accelerator = str((config.get("trainer") or {}).get("accelerator") or "auto")
    clock = _Clock(accelerator == "cpu" or not torch.cuda.is_available())
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
        module = _build(pl.LightningModule, specification)
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


def _batch(data: dict[str, Any], channels: int, grid: Grid, size: int, seed: int) -> Batch:
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


_STEP = 48  # hours: the target's
_MASKED_VARIABLE = "sst"  # the one variable of ENS-10 with missing values


@dataclass(frozen=True, eq=False)
class Data:
    """Dates, grid and variables of a store that exists or is planned.

    Attributes:
        time: start dates, shape (n,).
        steps: hours.
        grid: rows and columns.
        members: of the ensemble.
        channels: canonical names, such as "t2m" and "z_500"; each variable on all levels.
        truth: channels of the truth, at the target's step.
        ensembles: sizes of smaller ensembles that have statistics of their own.
        climate: channels with a model climate.
    """

    time: npt.NDArray[np.datetime64]
    steps: tuple[int, ...]
    grid: Grid
    members: int
    channels: tuple[str, ...]
    truth: tuple[str, ...]
    ensembles: tuple[int, ...] = ()
    climate: tuple[str, ...] = ()

    def valid_at(self, step: int) -> npt.NDArray[np.datetime64]:
        """Return the valid dates at a step."""
        return np.asarray(self.time + np.timedelta64(step, "h"))

    @property
    def levels(self) -> list[int]:
        """Return the levels of the channels, hPa, in ascending order."""
        return sorted({level for name in self.channels if (level := split(name)[1]) is not None})

    @property
    def surface(self) -> list[str]:
        """The channels that are not on levels."""
        return [name for name in self.channels if split(name)[1] is None]

    def climatology(self, rules: Protocol) -> Climatology:
        """Return the dates from which model climates are chosen."""
        return Climatology(self.time, self.valid_at(_STEP), rules, rules.efi.window)


def ens10(targets: Sequence[str], inputs: Iterable[tuple[str, int]] | None = None) -> Data:
    """Return dates, grid and variables of ENS-10 itself, from the catalogue.

    Args:
        targets: channels with truth.
        inputs: channels and steps to keep, and with them every variable on each of their levels
            (as `ens10 prepare` keeps them); None for all.
    """
    days = catalog.month_days()
    dates = [f"{y}-{day[:2]}-{day[2:]}T00:00:00" for y in catalog.HINDCAST_YEARS for day in days]
    channels, steps = _channels(catalog.LEVELS_HPA), set(catalog.STEPS_HOURS)
    if inputs is not None:
        selection = list(inputs)
        steps, levels = {step for _, step in selection}, {split(name)[1] for name, _ in selection}
        channels = _channels(sorted(n for n in levels if n is not None), None in levels)
    truth = tuple(resolve(target, channels, "targets") for target in targets)
    axes = np.array(dates, "M8[s]"), tuple(sorted(steps)), catalog.GRID_SHAPE
    return Data(*axes, len(catalog.MEMBERS), tuple(channels), truth)


def _channels(levels: Iterable[int], surface: bool = True) -> list[str]:
    upper = [f"{name}_{level}" for name in catalog.names_of_kind("pl") for level in levels]
    return [*(catalog.names_of_kind("sfc") if surface else ()), *upper]


def with_statistics(data: Data, ensembles: Sequence[int], climate: Sequence[str]) -> Data:
    """Add the statistics of smaller ensembles and the climates that spare cells a pass."""
    smaller = tuple(sorted({size for size in ensembles if size < data.members}))
    climates = tuple(resolve(name, list(data.channels)) for name in climate)
    return replace(data, ensembles=smaller, climate=climates)


def data_of_store(path: Path) -> Data:
    """Return dates, grid and variables of a store.

    Raises:
        Ens10Error: no store, or one that is damaged.
    """
    from ens10.store import forecasts, open_store, store_kinds

    dataset, kinds = as_row(forecasts(path, dask=False)), store_kinds(path)
    statistics = open_store(path, "statistics")
    smaller = [str(n).partition("_first")[2] for n in statistics if "ensemble_mean_first" in str(n)]
    sizes = dataset.sizes
    return Data(
        dataset["time"].to_numpy().astype("M8[s]"),
        tuple(int(step) for step in dataset["step"].to_numpy()),
        (sizes["latitude"], sizes["longitude"]),
        sizes["number"],
        tuple(channel_names(dataset)),
        tuple(channel_names(open_store(path, "truth"))) if "truth" in kinds else (),
        tuple(sorted(map(int, smaller))),
        tuple(str(n) for n in open_store(path, "climate")) if "climate" in kinds else (),
    )


def sizes_of(data: Data, rules: Protocol) -> dict[str, int]:
    """Return the bytes of all values in a store by its parts, computed from its dimensions.

    Fields count as 16-bit ones. A constant field (rain at the start) takes next to nothing;
    metadata and the list of files, some hundred bytes a chunk, come on top.

    Args:
        data: dates, grid and variables of the store.
        rules: protocol of the climate.
    """
    rows, columns = data.grid
    points, fields = rows * columns, len(data.time) * len(data.steps)
    chunk, surface = packed_chunk_bytes(data.members, rows, columns), len(data.surface)
    years, _ = blocks(np.stack([data.valid_at(step) for step in data.steps], axis=1))
    sums = years.shape[0] * len(data.steps) * 2 * 3 * 8  # count, sum, sum of squares; mean and std
    pairs = [split(name) for name in data.truth]
    upper, levels = {n for n, level in pairs if level}, {level for _, level in pairs if level}
    # in the truth each variable on levels has all of its levels
    truth_fields = sum(not level for _, level in pairs) + len(upper) * len(levels)
    climate_fields = len(_climate_members(data, rules)) * rules.efi.levels if data.climate else 0
    sizes = {
        "sfc": fields * surface * chunk,
        "pl": fields * (len(data.channels) - surface) * chunk,
        "statistics": (1 + len(data.ensembles)) * len(data.channels) * points * (fields * 8 + sums),
        "truth": len(data.time) * truth_fields * points * 4,
        "climate": len(data.climate) * climate_fields * points * 4,
    }
    return {name: size for name, size in sizes.items() if size}


def _climate_members(data: Data, rules: Protocol) -> list[int]:
    """Return the number of members of each climate that a store keeps for a channel."""
    climatology = data.climatology(rules)
    return [
        data.members * len(climatology.positions(day, climatology.eligible(year)))
        for year in climatology.judged_years()
        for day in climatology.calendar
    ]


def sizes_on_disk(path: Path) -> dict[str, int]:
    """Return the bytes of a store's files by its parts."""
    sizes: dict[str, int] = {}
    for file in path.rglob("*"):
        if file.is_file():
            part = file.relative_to(path).parts[0] if file.parent != path else "metadata"
            sizes[part] = sizes.get(part, 0) + file.stat().st_size
    return sizes


def inputs_of(config: Mapping[str, Any], target: str, data: Data) -> list[tuple[str, int]]:
    """Return channel and step of each input of a model.

    Args:
        config: the `data` of its configuration.
        target: channel to correct instead of that of the configuration.
        data: that are available.

    Raises:
        UnknownNameError: an input that the data lack.
    """
    channels, names = list(data.channels), config.get("inputs")
    target_channel = resolve(target, channels, "targets")
    if names is None:
        level = split(target_channel)[1]
        return [(name, _STEP) for name in channels if split(name)[1] == level]
    parts = [text.partition("@") for text in ([target] if names == [config["target"]] else names)]
    return [(resolve(name, channels, "inputs"), int(step or _STEP)) for name, _, step in parts]


def count_channels(
    config: Mapping[str, Any], inputs: Sequence[tuple[str, int]], rules: Protocol
) -> int:
    """Count the features of a network: of each member, or mean and deviation; masks; extras."""
    per_input = 1 if uses_members(config) else 2
    masks = sum(name == _MASKED_VARIABLE for name, _ in inputs) if rules.masks else 0
    return (
        per_input * len(inputs)
        + masks
        + sum(len(EXTRA_NAMES[x]) for x in config.get("extras") or ())
    )


class Training(NamedTuple):
    """A model's configuration, its epochs, and the share of the training dates that each sees."""

    config: Mapping[str, Any]
    epochs: int
    share: float


def training_of(model: str, configs: Path, budget: str | None) -> Training:
    """Return how a model is trained: its configuration, with the options of a budget.

    Raises:
        FileError: no such configuration.
    """
    content = read_config(config_of(model, configs))
    options = [word.removeprefix("--") for word in load_budget(budget).get(model, ())]
    settings = {f"trainer.{name}": value for name, value in (content.get("trainer") or {}).items()}
    settings |= dict(option.split("=", 1) for option in options)
    epochs = int(settings.get("trainer.max_epochs", 1))
    return Training(content, epochs, float(settings.get("trainer.limit_train_batches", 1)))


def cell_of(
    model: str, task: Task, data: Data, rates: Rates, training: Training, configs: Path
) -> dict[str, Any]:
    """Return the cost of a cell: measured seconds of a date, times dates and epochs.

    Args:
        model: name of its configuration.
        task: target, number of members and protocol.
        data: of the store.
        rates: measured rates.
        training: see `training_of`.
        configs: folder of the configurations.

    Returns:
        `hours` by part ("train", "predict and score", "climate" of the EECRPS), `dates` of each
        split, `memory_gb`, `device`, and `rate`: "measured" if only the numbers of dates and epochs
        differ, else "scaled" by what `ens10 plan` counts of the two networks.

    Raises:
        Ens10Error: the data lack an input or members, are too few for the protocol, or the model
            was not measured.
    """
    if task.members > data.members:
        raise ArgumentError("members", f"needs {task.members} members, found {data.members}")
    if model not in rates.models:
        raise MissingDataError("throughput", [model], "Measure it on this machine with --probe")
    rate, settings = rates.models[model], training.config["data"]
    inputs, climatology = inputs_of(settings, task.target, data), data.climatology(task.rules)
    index = split_dates(task.rules, data.time, climatology.valid_time).index
    dates = {name: len(positions) for name, positions in index.items()}
    points = data.grid[0] * data.grid[1] / (rates.grid[0] * rates.grid[1])
    factor, extra_memory = points, 0.0
    if not str(training.config["model"]["class_path"]).endswith(_STATISTICAL):
        members = task.members if uses_members(settings) else MEMBERS
        size, path = int(rate["batch"]), config_of(model, configs)
        channels = count_channels(settings, inputs, task.rules)
        cost = _model_cost(path, data.grid, channels, members, size)
        base_cost = _model_cost(path, rates.grid, None, MEMBERS, size)
        factor = cost[0] / base_cost[0]
        extra_memory = (cost[1] - base_cost[1]) / 1e9 + rates.reading_gb
    predict_seconds, train_dates = rate["predict_seconds"], training.share * dates["train"]
    train_seconds = training.epochs * (
        train_dates * rate["train_seconds"] + dates["val"] * predict_seconds
    )
    train_seconds += dates["train"] * rate["before_seconds"]
    climates = 0
    if resolve(task.target, list(data.channels)) not in data.climate:
        test_times = [(climatology.time[n], climatology.valid_time[n]) for n in index["test"]]
        climates = data.members * sum(len(climatology.climate_dates(*pair)) for pair in test_times)
    seconds = {
        "train": factor * train_seconds,
        "predict and score": dates["test"] * (factor * predict_seconds + points * rates.score),
        "climate": points * rates.climate * climates,
    }
    return {
        "model": model,
        "target": task.target,
        "members": task.members,
        "epochs": training.epochs,
        "dates": dates,
        "hours": {name: value / 3600 for name, value in seconds.items()},
        "memory_gb": max(0.0, rate["memory_gb"] + extra_memory),
        "device": str(rate["device"]),
        "rate": "measured" if abs(factor - 1) < 1e-3 else "scaled",
    }


@cache
def _model_cost(
    config: Path, grid: Grid, channels: int | None, members: int, size: int
) -> tuple[float, float]:
    """Return seconds of a step and bytes at its peak, by the model of `ens10 plan`."""
    cost = subject_of(config, grid, channels, members).footprints("32")(size, 1, 1)
    return step_time(cost, MACHINES["cpu"]).compute, float(cost.memory)


def plan_table(request: Request, rates: Rates) -> dict[str, Any]:
    """Return bytes, hours and memory that a reproduction takes, by cell and in total.

    Args:
        request: models, tasks, seeds and store; without a store, ENS-10 itself is meant.
        rates: measured rates.

    Returns:
        All numbers as JSON holds them: bytes, hours of one seed's cells and of all seeds, GB; in
        `refused`, by name, the reasons why cells cannot be computed.

    Raises:
        Ens10Error: no such store; a target that the data lack.
    """
    trainings = {m: training_of(m, request.configs, request.budget) for m in request.rows}
    rules, targets, prepare, whole_bytes = request.rules, request.targets, None, {}
    if request.store is not None:
        data, sizes = data_of_store(request.store), sizes_on_disk(request.store)
    else:
        full_data, configs = ens10(targets), [t.config["data"] for t in trainings.values()]
        needs = [n for t in targets for one in configs for n in inputs_of(one, t, full_data)]
        smaller = [task.members for task in request.tasks]
        data = with_statistics(ens10(targets, needs), smaller, targets)
        sizes = sizes_of(data, rules)
        store = sum(sizes_of(full_data, rules).values())
        whole_bytes = _files(full_data) | {"store of everything": store}
        prepare = {
            "hours": _preparation_hours(data, rates, rules),
            "command": _command(data, request),
        }
    cells, refusals = [], {}
    for task, model in sorted(
        ((task, model) for task in request.tasks for model in trainings),
        key=lambda one: (targets.index(one[0].target), request.rows.index(one[1])),
    ):
        try:
            cells.append(cell_of(model, task, data, rates, trainings[model], request.configs))
        except Ens10Error as error:
            refusals[f"{model} ({task.name})"] = str(error)
    return {
        "protocol": rules.name,
        "grid": list(data.grid),
        "start_dates": len(data.time),
        "steps": list(data.steps),
        "channels": list(data.channels),
        "store": str(request.store or ""),
        "store_bytes": sizes,
        "store_exists": request.store is not None,
        "whole_bytes": whole_bytes,
        "prepare": prepare,
        "seeds": request.seeds,
        "hours": request.seeds * sum(sum(cell["hours"].values()) for cell in cells),
        "cells": cells,
        "refused": refusals,
        "rates": {"grid": list(rates.grid), "machine": rates.machine},
    }


def _files(data: Data) -> dict[str, int]:
    """Return the bytes of the values in ENS-10's files; headers add some hundred to each field."""
    rows, columns = data.grid
    channel_bytes = 2 * rows * columns * data.members * len(data.steps) * len(data.time)
    surface = len(data.surface)
    upper = len(data.channels) - surface
    return {"files of sfc": channel_bytes * surface, "files of pl": channel_bytes * upper}


def _preparation_hours(data: Data, rates: Rates, rules: Protocol) -> float:
    """Return hours of one core to prepare a store."""
    scale = data.grid[0] * data.grid[1] / (rates.grid[0] * rates.grid[1])
    messages = len(data.time) * len(data.steps) * data.members * len(data.channels)
    climates = len(data.climate) * sum(_climate_members(data, rules))
    return scale * (messages * rates.prepare + climates * rates.climate) / 3600


def _command(data: Data, request: Request) -> str:
    kinds: Sequence[catalog.Kind] = ["sfc"] if data.surface else ["pl"]
    kinds = [] if data.surface and data.levels else kinds
    options: dict[str, Sequence[object]] = {
        "variables": [name for kind in kinds for name in catalog.names_of_kind(kind)],
        "levels": data.levels,
        "steps": data.steps,
        "ensembles": data.ensembles,
        "climate": [f"{name}@48" for name in request.targets],
        "climate-protocol": [request.protocol] if request.protocol != "clean" else [],
    }
    words = [f"--{name} {' '.join(map(str, values))}" for name, values in options.items() if values]
    return " ".join(["ens10 prepare RAW STORE --truth ERA5", *words])


def write_json(content: dict[str, Any], path: Path) -> None:
    """Write the result of `plan_table` as JSON.

    Raises:
        FileError: the path is a folder.
    """
    if path.is_dir():
        raise FileError(path, "is a folder", "Give the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, indent=1) + "\n")


def print_table(content: dict[str, Any], cores: int) -> None:
    """Print tables of data and cells, and sums.

    Args:
        content: result of `plan_table`.
        cores: number in use: cells at a time, times threads of each.
    """
    console, exists, sizes = _console(), content["store_exists"], content["store_bytes"]
    table_style: dict[str, Any] = {"title_justify": "left", "box": None}
    title = f"Data: {content['store'] or 'ENS-10 itself'}"
    table = Table("part", "size", title=title, **table_style)
    stores = {f"store{'' if exists else ' of these cells'}: {name}": n for name, n in sizes.items()}
    for name, size in {**content["whole_bytes"], **stores}.items():
        table.add_row(name, _size(size))
    table.add_row("store, together", _size(sum(sizes.values())), style="bold")
    console.print(table, "", highlight=False)
    header = ("target", "members", "model", "epochs", "hours", "memory", "from")
    title = "Hours of one core for a cell, and the most memory"
    table = Table(*header, title=title, **table_style)
    for cell in content["cells"]:
        words = [str(cell[name]) for name in header[:4]]
        device = "" if cell["device"] == "one core" else f", {cell['device']}"
        words += [_hours(sum(cell["hours"].values())), f"{cell['memory_gb']:.1f} GB"]
        table.add_row(*words, cell["rate"] + device)
    console.print(table, "", highlight=False)
    for line in _lines(content, cores):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _lines(content: dict[str, Any], cores: int) -> Iterator[str]:
    cells, seeds, hours = content["cells"], content["seeds"], content["hours"]
    dates = cells[0]["dates"] if cells else {}
    counts = ", ".join(f"{count} to {name}" for name, count in dates.items())
    yield f"Dates of protocol {content['protocol']}: {counts}."
    if content["prepare"]:
        duration = _hours(content["prepare"]["hours"])
        yield f"Prepare: {duration} h of one core, scaled from measured messages:"
        yield f"  {content['prepare']['command']}"
    yield (
        f"{len(cells)} cells x {seeds} seeds: {_hours(hours)} h of one core, {hours / 24:.1f} "
        f"days; on {cores} at a time {hours / 24 / cores:.1f} days if all of them are kept busy."
    )
    for name, reason in content["refused"].items():
        yield f"Left out: {name}: {reason}"
    (rows, columns), machine = content["rates"]["grid"], content["rates"]["machine"]
    yield (
        f"Measured at {rows} x {columns} points on {machine}: seconds of a date in a "
        'model\'s own training for t2m from 10 members, times dates and epochs. "scaled": times '
        "what `ens10 plan` counts of the network for other channels, members or points, too."
    )
    if not content["store_exists"]:
        total = sum(content["whole_bytes"][f"files of {kind}"] for kind in ("sfc", "pl"))
        yield (
            f"ENS-10 is a download of {total / 1e12:.2f} TB, under {catalog.DATA_LICENCE}; the "
            "truth, ERA5, has a licence of its own. `ens10 download DIR --kind sfc --dates all "
            "--dry-run` asks the server."
        )


def _size(size: float) -> str:
    return f"{size / 1e12:.2f} TB" if size >= 1e12 else f"{size / 1e9:.3g} GB"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
