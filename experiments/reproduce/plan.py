"""`ens10 reproduce --plan`: bytes, hours and memory that a table of models would take.

The bytes of a store are counted. Hours are measured seconds of a date (of a file, or of a probe of
this machine) times dates and epochs.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.table import Table

from ens10 import catalog
from ens10.channels import channel_names, resolve, split
from ens10.climate import blocks
from ens10.durable import write_whole
from ens10.errors import ArgumentError, Ens10Error, FileError, MissingDataError
from ens10.experiments.planning.plan import console_of, subject_of
from ens10.experiments.planning.rates import STATISTICAL, Grid, Rates
from ens10.experiments.reproduce.command import Request
from ens10.experiments.runner.tasks import MEMBERS, Task, config_of, load_budget
from ens10.experiments.training.data_numbers import read_config
from ens10.loader.batch_layouts import uses_members
from ens10.loader.content import EXTRA_NAMES
from ens10.packed16.layout import packed_chunk_bytes
from ens10.protocol import Protocol
from ens10.quantiles.options import ClimateDates
from ens10.splits import split_dates
from ens10.stations import as_row

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

    def climatology(self, rules: Protocol) -> ClimateDates:
        """Return the dates from which model climates are chosen."""
        return ClimateDates(self.time, self.valid_at(_STEP), rules, rules.efi.window)


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
    if not str(training.config["model"]["class_path"]).endswith(STATISTICAL):
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
    """Return seconds of a step on one core and bytes at its peak, both counted."""
    cost = subject_of(config, grid, channels, members).footprints("32")(size, 1, 1)
    return cost.core_seconds, float(cost.memory)


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
    console, exists, sizes = console_of(), content["store_exists"], content["store_bytes"]
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
