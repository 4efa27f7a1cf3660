"""What a cell takes: measured seconds of a date, times dates and epochs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ens10.channels import resolve
from ens10.errors import ArgumentError
from ens10.experiments.reproduce.dryrun_data import TARGET_STEP, Data, count_channels, inputs_of
from ens10.experiments.reproduce.dryrun_rates import MEMBERS, Rates
from ens10.experiments.runner.tasks import Task, config_of, load_budget
from ens10.protocol import split_dates
from ens10.quantiles.options import Climatology
from ens10.untrusted import read_mapping

_STATISTICAL = "StatisticalPostProcessor"
Grid = tuple[int, int]


@dataclass(frozen=True)
class Cost:
    """What one cell takes.

    Attributes:
        model: name of its configuration.
        task: protocol, target and members.
        epochs: of the training; 1 for what is solved.
        dates: in each split.
        hours: by part: "train", "predict and score", "climate" (of the EECRPS).
        memory_gb: at the most.
        device: whose hours these are.
        measured: whether this very training was measured, and only the number of dates and epochs
            is another; else it is scaled by what `ens10 plan` counts of the two networks.
    """

    model: str
    task: Task
    epochs: int
    dates: Mapping[str, int]
    hours: Mapping[str, float]
    memory_gb: float
    device: str
    measured: bool

    @property
    def total(self) -> float:
        """Hours of the cell."""
        return sum(self.hours.values())


@dataclass(frozen=True)
class Plans:
    """How a model is trained.

    Attributes:
        config: its configuration.
        epochs: as configured, or as the budget has them.
        share: of the training dates that an epoch sees.
    """

    config: Mapping[str, Any]
    epochs: int
    share: float

    @property
    def statistical(self) -> bool:
        """Whether it is solved and not trained."""
        return str(self.config["model"]["class_path"]).endswith(_STATISTICAL)

    @property
    def channels(self) -> int:
        """That its network is configured for."""
        return int(self.config["model"]["init_args"]["network"]["init_args"]["in_channels"])


def plans_of(model: str, configs: Path, budget: str | None) -> Plans:
    """How a model is trained.

    Raises:
        FileError: no such configuration.
    """
    content = read_mapping(config_of(model, configs))
    options = [word.removeprefix("--") for word in load_budget(budget).get(model, ())]
    changed = dict(option.split("=", 1) for option in options)
    asked = content.get("trainer") or {}
    epochs = changed.get("trainer.max_epochs", asked.get("max_epochs", 1))
    share = changed.get("trainer.limit_train_batches", asked.get("limit_train_batches", 1.0))
    return Plans(content, int(epochs), float(share))


def cost_of(model: str, task: Task, data: Data, rates: Rates, plans: Plans, configs: Path) -> Cost:
    """What a cell takes.

    Args:
        model: name of its configuration.
        task: to carry it over to.
        data: to be done on.
        rates: as measured.
        plans: how it is trained.
        configs: folder of the configurations.

    Raises:
        Ens10Error: the data lack an input or members, are too few for the protocol, or the model
            was not measured.
    """
    if task.members > data.members:
        raise ArgumentError("members", f"{task.members}, but the data have {data.members}")
    rate = rates.of(model)
    inputs = inputs_of(plans.config["data"], task.target, data)
    index = split_dates(task.rules, data.time, data.valid_at(TARGET_STEP)).index
    dates = {name: len(found) for name, found in index.items()}
    points = _points(data.grid) / _points(rates.grid)
    factor, more = points, 0.0
    if not plans.statistical:
        channels = count_channels(plans.config["data"], inputs, task.rules)
        members = task.members if plans.config["data"].get("kind") == "members" else MEMBERS
        size = int(rate["batch"])
        wanted = _counted(model, configs, data.grid, channels, members, size)
        base = _counted(model, configs, rates.grid, plans.channels, MEMBERS, size)
        factor = wanted[0] / base[0]
        more = (wanted[1] - base[1]) / 1e9 + rates.reading_gb
    seen = plans.share * dates["train"]
    train = plans.epochs * (seen * rate["train_seconds"] + dates["val"] * rate["predict_seconds"])
    train += dates["train"] * rate["before_seconds"]
    predict = dates["test"] * rate["predict_seconds"]
    seconds = {
        "train": factor * train,
        "predict and score": factor * predict + points * dates["test"] * rates.score,
        "climate": points * rates.climate * _climate_members(task, data),
    }
    hours = {name: value / 3600 for name, value in seconds.items()}
    memory = max(0.0, rate["memory_gb"] + more)
    measured = abs(factor - 1) < 1e-3
    device = str(rate["device"])
    return Cost(model, task, plans.epochs, dates, hours, memory, device, measured)


def _points(grid: Grid) -> int:
    return grid[0] * grid[1]


def _climate_members(task: Task, data: Data) -> int:
    """Members in the climates of all test dates, where the data do not keep them."""
    if resolve(task.target, list(data.channels)) in data.climate:
        return 0
    valid = data.valid_at(TARGET_STEP)
    climate = Climatology(data.time, valid, task.rules, task.rules.efi.window)
    test = split_dates(task.rules, data.time, valid).index["test"]
    return data.members * sum(len(climate.judged(data.time[n], valid[n])) for n in test)


@cache
def _counted(
    model: str, configs: Path, grid: Grid, channels: int, members: int, size: int
) -> tuple[float, float]:
    """Seconds of a step and bytes at its peak, by the model of `ens10 plan`."""
    from ens10.experiments.plan import subject_of
    from ens10.models.parallel.cost import MACHINES, step_time

    subject = subject_of(config_of(model, configs), grid, channels, members)
    found = subject.footprints("32")(size, 1, 1)
    return step_time(found, MACHINES["cpu"]).compute, float(found.memory)


def order(costs: Sequence[Cost]) -> list[Cost]:
    """By target and model, smaller ensembles first."""
    targets = list(dict.fromkeys(cost.task.target for cost in costs))
    models = list(dict.fromkeys(cost.model for cost in costs))
    return sorted(
        costs,
        key=lambda c: (targets.index(c.task.target), models.index(c.model), c.task.members),
    )
