"""`ens10 reproduce --plan`: what it would take, on ENS-10 itself or on a store; nothing is done."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ens10 import catalog
from ens10.channels import split
from ens10.durable import write_whole
from ens10.errors import Ens10Error, FileError
from ens10.experiments.reproduce.dryrun_costs import Cost, Plans, cost_of, order, plans_of
from ens10.experiments.reproduce.dryrun_data import (
    Data,
    ens10,
    inputs_of,
    kept_climates,
    of_store,
    sizes_of,
    sizes_on_disk,
    with_needs,
)
from ens10.experiments.reproduce.dryrun_rates import Rates
from ens10.experiments.studies.reproduce.command import Request

_GB = 1e9
_WIDTH = 120
_BYTES_PER_VALUE = 2  # of ENS-10's files


@dataclass(frozen=True)
class DryRun:
    """What a reproduction would take.

    Attributes:
        request: what is asked for.
        data: what it is done on.
        sizes: bytes of the store by its parts.
        exists: whether the store is there, and its sizes are those of its files.
        download: bytes of the files by kind, and of the whole store; empty for a store.
        prepare: hours of one core, and the command; None for a store.
        costs: of one seed.
        refused: by name, why a cell cannot be.
        rates: that hours are made of.
    """

    request: Request
    data: Data
    sizes: Mapping[str, int]
    exists: bool
    download: Mapping[str, int]
    prepare: tuple[float, str] | None
    costs: Sequence[Cost]
    refused: Mapping[str, str]
    rates: Rates

    @property
    def hours(self) -> float:
        """Of all cells of all seeds."""
        return self.request.seeds * sum(cost.total for cost in self.costs)


def dry_run(request: Request, rates: Rates) -> DryRun:
    """Counts and adds up.

    Args:
        request: what is asked for; without a store, ENS-10 itself is meant.
        rates: as measured.

    Raises:
        Ens10Error: no such store; a target that the data lack; a model that was not measured.
    """
    plans = {m: plans_of(m, request.configs, request.budget) for m in request.rows}
    rules, smaller = request.rules, [task.members for task in request.tasks]
    if request.store is not None:
        data, sizes = of_store(request.store), sizes_on_disk(request.store)
        download, prepare = {}, None
    else:
        whole = ens10(request.targets)
        data = ens10(request.targets, _needed(plans, request, whole))
        data = with_needs(data, smaller, request.targets)
        sizes = sizes_of(data, rules)
        download = _download() | {"store of everything": sum(sizes_of(whole, rules).values())}
        prepare = _preparing(data, request, rates)
    costs, refused = [], {}
    for task in request.tasks:
        for model, planned in plans.items():
            try:
                costs.append(cost_of(model, task, data, rates, planned, request.configs))
            except Ens10Error as error:
                refused[f"{model} ({task.name})"] = str(error)
    exists = request.store is not None
    found = order(costs)
    return DryRun(request, data, sizes, exists, download, prepare, found, refused, rates)


def _needed(plans: Mapping[str, Plans], request: Request, whole: Data) -> Iterable[tuple[str, int]]:
    for target in request.targets:
        for planned in plans.values():
            yield from inputs_of(planned.config["data"], target, whole)


def _download() -> dict[str, int]:
    """Bytes of the values in ENS-10's files; their headers add some hundred to each field."""
    rows, columns = catalog.GRID_SHAPE
    dates = len(catalog.month_days()) * len(catalog.HINDCAST_YEARS)
    each = _BYTES_PER_VALUE * rows * columns * len(catalog.MEMBERS) * len(catalog.STEPS_HOURS)
    levels = {"sfc": 1, "pl": len(catalog.LEVELS_HPA)}
    kinds: tuple[catalog.Kind, ...] = ("sfc", "pl")
    return {
        f"files of {kind}": dates * each * levels[kind] * len(catalog.names_of_kind(kind))
        for kind in kinds
    }


def _preparing(data: Data, request: Request, rates: Rates) -> tuple[float, str]:
    """Hours of one core, and the command."""
    scale = data.grid[0] * data.grid[1] / (rates.grid[0] * rates.grid[1])
    messages = len(data.time) * len(data.steps) * data.members * len(data.channels)
    climates = len(data.climate) * sum(kept_climates(data, request.rules))
    seconds = scale * (messages * rates.prepare + climates * rates.climate)
    return seconds / 3600, _command(data, request)


def _command(data: Data, request: Request) -> str:
    levels = sorted({level for name in data.channels if (level := split(name)[1]) is not None})
    surface = bool(data.of_kind("sfc"))
    words = ["ens10 prepare RAW STORE --truth ERA5"]
    if not surface:
        words.append("--variables " + " ".join(catalog.names_of_kind("pl")))
    elif not levels:
        words.append("--variables " + " ".join(catalog.names_of_kind("sfc")))
    words += ["--levels " + " ".join(map(str, levels))] if levels else []
    words.append("--steps " + " ".join(map(str, data.steps)))
    words += ["--ensembles " + " ".join(map(str, data.ensembles))] if data.ensembles else []
    words.append("--climate " + " ".join(f"{name}@48" for name in request.targets))
    if request.protocol != "clean":
        words.append(f"--climate-protocol {request.protocol}")
    return " ".join(words)


def content_of(found: DryRun) -> dict[str, Any]:
    """Everything as JSON holds it: bytes, hours, GB."""
    return {
        "protocol": found.request.rules.name,
        "grid": list(found.data.grid),
        "start_dates": len(found.data.time),
        "steps": list(found.data.steps),
        "channels": list(found.data.channels),
        "store_bytes": dict(found.sizes),
        "store_exists": found.exists,
        "whole_bytes": dict(found.download),
        "prepare": dict(zip(("hours", "command"), found.prepare, strict=True))
        if found.prepare
        else None,
        "seeds": found.request.seeds,
        "hours": found.hours,
        "cells": [
            {
                "model": cost.model,
                "target": cost.task.target,
                "members": cost.task.members,
                "epochs": cost.epochs,
                "dates": dict(cost.dates),
                "hours": dict(cost.hours),
                "memory_gb": cost.memory_gb,
                "device": cost.device,
                "rate": "measured" if cost.measured else "scaled",
            }
            for cost in found.costs
        ],
        "refused": dict(found.refused),
        "rates": {"grid": list(found.rates.grid), "machine": found.rates.machine},
    }


def write_json(found: DryRun, path: Path) -> None:
    """Writes `content_of`.

    Raises:
        FileError: a folder is there.
    """
    if path.is_dir():
        raise FileError(path, "is a folder", "Give the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content_of(found), indent=1) + "\n")


def print_dry_run(found: DryRun, cores: int) -> None:
    """Tables of data and cells, and sums.

    Args:
        found: to print.
        cores: at work together: cells at a time, times threads of each.
    """
    plain = Console()
    console = plain if plain.is_terminal else Console(width=_WIDTH)
    for table in (_data_table(found), _cells_table(found)):
        console.print(table, highlight=False)
        console.print()
    for line in _lines(found, cores):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _data_table(found: DryRun) -> Table:
    title = f"Data: {found.request.store}" if found.exists else "Data: ENS-10 itself"
    table = Table("part", "size", "where from", title=title, title_justify="left", box=None)
    for name, size in found.download.items():
        table.add_row(name, _size(size), "counted: all variables, levels and steps")
    for name, size in found.sizes.items():
        told = "its files" if found.exists else "counted: what these cells need"
        table.add_row(f"store: {name}", _size(size), told)
    table.add_row("store, together", _size(sum(found.sizes.values())), "", style="bold")
    return table


def _cells_table(found: DryRun) -> Table:
    header = ("target", "members", "model", "epochs", "hours", "memory", "from")
    title = "Hours of one core for a cell, and the most memory"
    table = Table(*header, title=title, title_justify="left", box=None)
    for cost in found.costs:
        device = "" if cost.device == "one core" else f", {cost.device}"
        table.add_row(
            cost.task.target,
            str(cost.task.members),
            cost.model,
            str(cost.epochs),
            _hours(cost.total),
            f"{cost.memory_gb:.1f} GB",
            ("measured" if cost.measured else "scaled") + device,
        )
    return table


def _lines(found: DryRun, cores: int) -> Iterable[str]:
    dates = found.costs[0].dates if found.costs else {}
    told = ", ".join(f"{count} to {name}" for name, count in dates.items())
    seeds = found.request.seeds
    yield f"Dates of protocol {found.request.rules.name}: {told}."
    if found.prepare:
        hours, command = found.prepare
        yield f"Prepare: {_hours(hours)} h of one core, scaled from measured messages:"
        yield f"  {command}"
    yield (
        f"{len(found.costs)} cells x {seeds} seeds: {_hours(found.hours)} h of one core, "
        f"{found.hours / 24:.1f} days; on {cores} at a time {found.hours / 24 / cores:.1f} days "
        "if all of them are kept busy."
    )
    for name, why in found.refused.items():
        yield f"Left out: {name}: {why}"
    rows, columns = found.rates.grid
    yield (
        f"Measured at {rows} x {columns} points on {found.rates.machine}: seconds of a date in a "
        'model\'s own training for t2m from 10 members, times dates and epochs. "scaled": times '
        "what `ens10 plan` counts of the network for other channels, members or points, too."
    )
    if not found.exists:
        whole = sum(size for name, size in found.download.items() if name.startswith("files"))
        yield (
            f"ENS-10 is a download of {whole / 1e12:.2f} TB, under {catalog.DATA_LICENCE}; the "
            "truth, ERA5, has a licence of its own. `ens10 download DIR --kind sfc --dates all "
            "--dry-run` asks the server."
        )


def _size(size: float) -> str:
    return f"{size / 1e12:.2f} TB" if size >= 1e12 else f"{size / _GB:.3g} GB"


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
