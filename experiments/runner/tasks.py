"""Tasks and budgets: what a configuration is carried over to, and how long it trains."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.loader.batches import Batches
from ens10.protocol import Protocol, protocol_of
from ens10.untrusted import read_mapping

MEMBERS = 10  # of ENS-10
_NETWORK = "model.init_args.network.init_args"


@dataclass(frozen=True)
class Task:
    """What is to be corrected, and by which rules.

    Attributes:
        protocol: "clean", "paper", or the path of a YAML file.
        target: channel, such as "t2m" or "z500".
        members: of the ensemble, counted from the first.
    """

    protocol: str = "clean"
    target: str = "t2m"
    members: int = MEMBERS

    @property
    def folder(self) -> str:
        """Of its runs and results; none for the usual task, whose cells came first."""
        return "" if self == USUAL else f"{self.rules.name}-{self.target}-{self.members}"

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self.rules.name}, {self.target}, {self.members} members"

    @property
    def rules(self) -> Protocol:
        """The protocol itself."""
        return protocol_of(self.protocol)


USUAL = Task()


def task_options(config: Path, task: Task, store: Path) -> tuple[str, ...]:
    """Options for `ens10 fit` that carry a configuration over to a task and a store.

    A configuration is written for one target and grid. Its inputs, the number of its channels and
    its grid follow the task and the store; what cannot follow by itself is refused.

    Args:
        config: the configuration file.
        task: to carry it over to.
        store: prepared data.

    Returns:
        Nothing for what the configuration says already.

    Raises:
        ArgumentError: it cannot be carried over; more members than the store has.
        UnknownNameError: channels that the store has not.
    """
    content = read_mapping(config)
    data = _changed_data(content["data"], task, store)
    options = {f"data.{name}": value for name, value in data.items()}
    if "network" in content["model"]["init_args"]:
        moved = "target" in data
        options |= network_options(content["model"], {**content["data"], **data}, store, moved)
    return tuple(f"--{name}={_text(value)}" for name, value in options.items())


def _changed_data(data: dict[str, Any], task: Task, store: Path) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if data.get("protocol", "clean") != task.protocol:
        changed["protocol"] = task.protocol
    if data["target"] != task.target:
        changed["target"] = task.target
        if data.get("inputs") == [data["target"]]:
            changed["inputs"] = [task.target]
    bound = data.get("ensemble")
    if bound not in (None, task.members):
        remedy = f"Leave the model out, or give --members {bound}"
        raise ArgumentError("members", f"{task.members}, but the model is of {bound}", remedy)
    held = _members(store, task.target)
    if task.members > held:
        raise ArgumentError("members", f"{task.members}, but {store} has {held}")
    if bound is None and task.members != held:
        changed["ensemble"] = task.members
    return changed


def network_options(
    model: dict[str, Any], data: dict[str, Any], store: Path, moved: bool = False
) -> dict[str, Any]:
    """The number of channels and the grid of a network, where data have others.

    Args:
        model: of a configuration, with a network.
        data: of the configuration.
        store: prepared data.
        moved: whether the target is another than the configuration was written for.

    Returns:
        Values by key of the configuration, such as "model.init_args.network.init_args.grid".

    Raises:
        ArgumentError: a network that cannot follow.
        UnknownNameError: channels that the store has not.
    """
    batches = training_batches(data, store)
    arguments = model["init_args"]["network"]["init_args"]
    changed: dict[str, Any] = {}
    channels = len(batches.channels)
    if moved and "target" in arguments:
        raise _bound("its network knows the target by its position")
    if arguments["in_channels"] != channels:
        if sum(path.endswith("in_channels") for path, _ in _leaves(arguments)) > 1:
            raise _bound(f"its networks are made for other than {channels} channels")
        changed[f"{_NETWORK}.in_channels"] = channels
    grid = [len(batches.samples.latitude), len(batches.samples.longitude)]
    for path, value in _leaves(arguments):
        if path.split(".")[-1] == "grid" and value != grid:
            changed[f"{_NETWORK}.{path}"] = grid
    return changed


def _bound(reason: str) -> ArgumentError:
    return ArgumentError("model", reason, "Write a configuration for this target")


def _leaves(content: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def training_batches(data: dict[str, Any], store: Path) -> Batches:
    """The training batches of a configuration's `data` on a store.

    Raises:
        UnknownNameError: channels that the store has not.
    """
    names = ("protocol", "extras", "kind", "ensemble")
    given = {name: data[name] for name in names if data.get(name) is not None}
    return Batches(store, data["target"], data.get("inputs"), "train", **given)


@cache
def _members(store: Path, target: str) -> int:
    return Batches(store, target, [target], "train").samples.members


def _text(value: Any) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)


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
    known = ", ".join(sorted(p.stem for p in configs.glob("*.yaml")))
    raise FileError(path, "no such configuration", f"Known: {known}")
