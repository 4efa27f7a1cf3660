"""Tasks, budgets and synthetic worlds: the data of a configuration, and how long it trains."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ens10 import catalog
from ens10.convert import prepare
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.experiments.runs.claims import make_once
from ens10.experiments.training.data_numbers import (
    as_options,
    network_class,
    numbers_of_network,
    read_config,
    shape_of,
    value_at,
)
from ens10.loader.batches import Batches
from ens10.protocol import Protocol, protocol_of
from ens10.synthetic import World
from ens10.synthetic.world import WorldKind
from ens10.untrusted import read_mapping

MEMBERS = 10  # of ENS-10


@dataclass(frozen=True)
class Task:
    """Target, ensemble and protocol of a correction.

    Attributes:
        protocol: "clean", "paper", or the path of a YAML file.
        target: channel, such as "t2m" or "z500".
        members: of the ensemble, counted from the first.
        inputs: input channels of all models except those of the target alone; empty for the inputs
            of each configuration.
        step: lead time, h, of data with truth at several; None for that of the configuration.
    """

    protocol: str = "clean"
    target: str = "t2m"
    members: int = MEMBERS
    inputs: tuple[str, ...] = ()
    step: int | None = None

    @property
    def folder(self) -> str:
        """Name of the folder of runs and results; "" for the usual target, members and protocol."""
        if replace(self, inputs=(), step=None) == DEFAULT_TASK:
            return ""
        return f"{self.rules.name}-{self.target}-{self.members}"

    @property
    def name(self) -> str:
        """Protocol, target and size of the ensemble in words, for messages."""
        return f"{self.rules.name}, {self.target}, {self.members} members"

    @property
    def rules(self) -> Protocol:
        """Rules of splits, normalisation and scores, from the name or file in `protocol`."""
        return protocol_of(self.protocol)


DEFAULT_TASK = Task()


def task_options(config: Path, task: Task, store: Path) -> tuple[str, ...]:
    """Return the options for `ens10 fit` that carry a configuration over to a task and a store.

    A configuration is written for one target and grid. Its inputs, the number of its channels and
    its grid follow the task and the store; what cannot follow by itself is refused. Inputs that are
    the target and the wind at its level become those of a target on a pressure level. A
    configuration of fewer members than the task's keeps its number of them.

    Args:
        config: the configuration file.
        task: to carry it over to.
        store: prepared data.

    Returns:
        Options such as "--data.target=z500"; none for values that the configuration already has.

    Raises:
        ArgumentError: it cannot be carried over; more members than the task or the store has.
        UnknownNameError: channels that the store has not.
    """
    content = read_config(config)
    data = _changed_data(content["data"], task, store)
    options = {f"data.{name}": value for name, value in data.items()}
    if "network" in content["model"]["init_args"]:
        options |= network_options(content["model"], {**content["data"], **data}, store)
    return tuple(as_options(options))


def _changed_data(data: dict[str, Any], task: Task, store: Path) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if data.get("protocol", "clean") != task.protocol:
        changes["protocol"] = task.protocol
    target_alone = data.get("inputs") == [data["target"]]
    with_wind = [data["target"], *_wind_at(data["target"])]
    if data["target"] != task.target:
        changes["target"] = task.target
        if target_alone:
            changes["inputs"] = [task.target]
        elif data.get("inputs") == with_wind and _wind_at(task.target) != with_wind[1:]:
            changes["inputs"] = [task.target, *_wind_at(task.target)]
    if task.inputs and not target_alone:
        changes["inputs"] = list(task.inputs)
    if task.step is not None:
        changes["step"] = task.step
    ensemble = data.get("ensemble")
    if ensemble is not None and ensemble > task.members:
        remedy = f"Leave the model out, or give --members {ensemble}"
        raise ArgumentError("members", f"{task.members}, but the model is of {ensemble}", remedy)
    step = changes.get("step", data.get("step"))
    stored_members = members_of(store, task.target, step, task.protocol)
    if task.members > stored_members:
        raise ArgumentError("members", f"{task.members}, but {store} has {stored_members}")
    if ensemble is None and task.members != stored_members:
        changes["ensemble"] = task.members
    return changes


def network_options(model: dict[str, Any], data: dict[str, Any], store: Path) -> dict[str, Any]:
    """Return the options that adapt a network to the channels and the grid of other data.

    Args:
        model: of a configuration, with a network.
        data: of the configuration.
        store: prepared data.

    Returns:
        Values by key of the configuration, such as "model.init_args.network.init_args.grid".

    Raises:
        ArgumentError: a network that cannot be adapted.
        UnknownNameError: channels that the store has not.
    """
    network = model["init_args"]["network"]
    if network_class(network) is None:
        reason = f"{network.get('class_path')} does not say which numbers follow from the data"
        raise ArgumentError("network", reason, "Write a configuration for this target and grid")
    numbers = numbers_of_network(model, shape_of(data, store))
    return {key: n for key, n in numbers.items() if value_at({"model": model}, key) != n}


def _wind_at(target: str) -> list[str]:
    """Return the channels of the wind at the level of a target, such as "z500" or "z_500"."""
    match = re.fullmatch(r"(.+?)_?(\d+)", target)
    if match is None or target in catalog.VARIABLES or match[1] not in catalog.names_of_kind("pl"):
        return ["u10", "v10"]
    return [f"u{match[2]}", f"v{match[2]}"]


@cache
def members_of(store: Path, target: str, step: int | None = None, protocol: str = "clean") -> int:
    """Return the number of members that a store has of a target."""
    batches = Batches(store, target, [target], "train", step=step, protocol=protocol)
    return batches.samples.members


def load_budget(name: str | None) -> dict[str, tuple[str, ...]]:
    """Return options for `ens10 fit` by model, from `experiments/budgets/NAME.yaml`.

    Args:
        name: of the budget; None for the configurations' own lengths.

    Raises:
        UnknownNameError: no such budget.
        ArgumentError: the file is no mapping of models to options.
    """
    if name is None:
        return {}
    folder = Path(str(files("ens10.experiments"))) / "budgets"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        raise UnknownNameError("budget", name, sorted(p.stem for p in folder.glob("*.yaml")))
    content = read_mapping(path)
    if not all(isinstance(v, dict) for v in content.values()):
        raise ArgumentError("budget", f"{path} is no mapping of models to options")
    return {
        model: tuple(f"--{name}={value}" for name, value in options.items())
        for model, options in content.items()
    }


def config_of(model: str, configs: Path) -> Path:
    """Return the configuration file of a model.

    Raises:
        FileError: there is none.
    """
    path = configs / f"{model}.yaml"
    if path.is_file() and path.parent == configs:
        return path
    names = ", ".join(sorted(p.stem for p in configs.glob("*.yaml")))
    raise FileError(path, "no such configuration", f"Known: {names}")


YEARS = range(1998, 2008)
DATES = 40


@dataclass(frozen=True)
class WorldSize:
    """Size and kind of a synthetic world.

    Attributes:
        grid: rows x columns.
        years: hindcast years.
        dates: start dates in each year.
        levels: of the variables on pressure levels, hPa.
        steps: hours.
        kinds: of variables, "sfc" and "pl".
        world: kind of the world, "pointwise" or "displaced".
    """

    grid: str = "46x96"
    years: tuple[int, ...] = tuple(YEARS)
    dates: int = DATES
    levels: tuple[int, ...] = (500, 850)
    steps: tuple[int, ...] = catalog.STEPS_HOURS
    kinds: tuple[catalog.Kind, ...] = ("sfc", "pl")
    world: WorldKind = "pointwise"

    @classmethod
    def from_options(cls, **options: Any) -> "WorldSize":
        """Return a size with some attributes set and the others at their defaults.

        Args:
            **options: attributes; `years` may also be the number of years from the default first
                year.
        """
        attributes = dict(options)
        if isinstance(attributes.get("years"), int):
            first = cls().years[0]
            attributes["years"] = range(first, first + attributes["years"])
        field_values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list | range) else value
            for name, value in attributes.items()
        }
        return cls(**field_values)

    @property
    def folder(self) -> str:
        """Name of the folder of such worlds; "" for the default size."""
        usual = type(self)()
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        parts = [f"{self.grid}-{len(self.years)}x{self.dates}"]
        for name, value in values.items():
            if name in ("levels", "steps", "kinds") and value != getattr(usual, name):
                parts.append("_".join([name, *map(str, value)]))
        if self.world != usual.world:
            parts.append(self.world)
        return "" if self == usual else "-".join(parts)


_DEFAULT_SIZE = WorldSize()


def store_of(
    folder: Path, seed: int, size: WorldSize = _DEFAULT_SIZE, *, wait: bool = False
) -> Path:
    """Return the prepared store of a seed's world; make world and store if they are missing.

    Args:
        folder: of this seed: `world` and `store.zarr` are made in it.
        seed: of everything random in the world.
        size: of the world.
        wait: whether to wait where another process is making it.

    Raises:
        FileError: another process is making it, and we do not wait; a world of another size.
    """
    store, world = folder / "store.zarr", folder / "world"

    def make() -> None:
        _write_world(folder, seed, size)
        prepare(world, store, truth=world / "truth", progress=False)

    make_once(store, make, wait=wait)
    _check_size(folder, size)
    return store


def _check_size(folder: Path, size: WorldSize) -> None:
    """Raise a FileError if the world of the folder differs in kind, grid, years or dates.

    A world of fewer variables, levels or lead times is accepted: a model that needs more fails.
    """
    if not (folder / "world").exists():
        return
    world = World.load(folder / "world")
    if world.kind != size.world:
        reason = f"is a {world.kind} world, not a {size.world} one"
        raise FileError(folder / "world", reason, "Work in another folder")
    rows, columns = len(world.grid.latitude()), len(world.grid.longitude())
    actual_size = _in_words(f"{rows}x{columns}", world.years, len(world.month_days))
    requested_size = _in_words(size.grid.lower(), sorted(size.years), size.dates)
    if actual_size != requested_size:
        remedy = "Request its size, or work in another folder"
        raise FileError(folder / "world", f"has {actual_size}; requested: {requested_size}", remedy)


def _in_words(grid: str, years: Sequence[int], dates: int) -> str:
    return f"{grid} points, {dates} dates in each of the years {' '.join(map(str, years))}"


def _write_world(folder: Path, seed: int, size: WorldSize) -> None:
    _check_size(folder, size)
    if (folder / "world").exists():
        return
    names = [name for kind in size.kinds for name in catalog.names_of_kind(kind)]
    if size.world == "displaced" and "sfc" in size.kinds:
        names.append(catalog.WIND_SPEED.name)
    world = World(
        size.grid, size.years, size.dates, names, seed, levels=size.levels, steps=size.steps,
        kind=size.world,
    )  # fmt: skip
    world.write_once(folder / "world")
