"""The numbers of a configuration that follow from the data and the trainer.

A configuration leaves them out: channels, grid and positions among the inputs, which each network
names (`Network.numbers_of_data`), and the length of a learning rate's cosine. They are filled in
before the strict parse, so that the `config.yaml` of a run holds them.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from ens10 import catalog
from ens10.channels import resolve, split
from ens10.errors import ArgumentError, UnknownNameError, listing
from ens10.loader.batch_layouts import KindName, uses_members
from ens10.loader.batches import Batches, open_samples
from ens10.loader.content import EXTRA_NAMES
from ens10.models.networks.base import DataShape, Network
from ens10.protocol import protocol_of
from ens10.untrusted import read_mapping

NETWORK = "model.init_args.network"
_SCHEDULER = "model.init_args.scheduler"
_COSINE = "CosineAnnealingLR"
_DATA_OPTIONS = ("protocol", "extras", "ensemble", "step")
_SYNTHETIC_GRID = (46, 96)  # of the worlds that the tables are of
_MASKED = "sst"  # the one variable of ENS-10 with gaps

Config = Mapping[str, Any]


def config_path(name: str) -> Path:
    """Return the path of a configuration that comes with the package."""
    return Path(str(files("ens10.experiments"))) / "configs" / f"{name}.yaml"


def training_batches(data: Config, store: Path | str) -> Batches:
    """Return the training batches of a configuration's `data` on a store.

    Raises:
        UnknownNameError: channels that the store has not.
    """
    options = {name: data[name] for name in _DATA_OPTIONS if data.get(name) is not None}
    if isinstance(options.get("protocol"), Mapping):
        fields = {k: v for k, v in options["protocol"].items() if k != "__path__"}
        options["protocol"] = protocol_of(fields)
    kind: KindName = "members" if uses_members(data) else "fields"
    return Batches(store, data["target"], data.get("inputs"), "train", kind=kind, **options)


def shape_of(data: Config, store: Path | str) -> DataShape:
    """Return the shape of the training data of a configuration on a store.

    Raises:
        UnknownNameError: channels that the store has not.
    """
    return shape_of_batches(training_batches(data, store), members=uses_members(data))


def shape_of_batches(batches: Batches, *, members: bool) -> DataShape:
    """Return the shape of training data; `members` is True for features of each member."""
    samples = batches.samples
    target = (samples.target, samples.step)
    channels, inputs = len(batches.channels), len(batches.inputs)
    return DataShape(
        channels,
        (len(samples.latitude), len(samples.longitude)),
        inputs,
        channels - inputs * (1 if members else 2),
        batches.inputs.index(target) if target in batches.inputs else None,
    )


def shape_of_ens10(data: Config, grid: tuple[int, int] = _SYNTHETIC_GRID) -> DataShape:
    """Return the shape that a configuration's data have if they are all of ENS-10.

    Args:
        data: of the configuration.
        grid: rows and columns.
    """
    upper = [f"{v}_{level}" for v in catalog.names_of_kind("pl") for level in catalog.LEVELS_HPA]
    channels = [*catalog.names_of_kind("sfc"), catalog.WIND_SPEED.name, *upper]
    names_of_targets = [data["target"]] if isinstance(data["target"], str) else data["target"]
    targets = [resolve(name, channels, "target") for name in names_of_targets]
    names = data.get("inputs")
    if names is None:
        levels = {split(target)[1] for target in targets}
        names = [c for c in channels if split(c)[1] in levels and c != catalog.WIND_SPEED.name]
    inputs = [
        (resolve(n.partition("@")[0], channels, "inputs"), n.partition("@")[2]) for n in names
    ]
    masks = sum(name == _MASKED for name, _ in inputs)
    fixed = masks if protocol_of(data.get("protocol") or "clean").masks else 0
    fixed += sum(len(EXTRA_NAMES[extra]) for extra in data.get("extras") or ())
    moments = 1 if uses_members(data) else 2
    place = inputs.index((targets[0], "")) if (targets[0], "") in inputs else None
    return DataShape(moments * len(inputs) + fixed, grid, len(inputs), fixed, place)


def numbers_of_network(model: Config, shape: DataShape) -> dict[str, Any]:
    """Return the numbers of a model's network that follow from the data, by key.

    Args:
        model: of a configuration.
        shape: of the data.

    Returns:
        Values by key, such as "model.init_args.network.init_args.grid"; none without a network.

    Raises:
        ArgumentError: the network needs the target among the inputs.
    """
    specification = (model.get("init_args") or {}).get("network")
    return dict(_numbers(specification, shape, NETWORK))


def _numbers(specification: Any, shape: DataShape, key: str) -> Iterator[tuple[str, Any]]:
    network = network_class(specification)
    if network is None:
        return
    arguments = specification.get("init_args") or {}
    for name, value in network.numbers_of_data(shape, arguments).items():
        if value is None:  # the target's position
            raise ArgumentError("inputs", f"the {name} is not among them", "The network needs it")
        yield f"{key}.init_args.{name}", value
    for name, value in arguments.items():
        if name == "network":
            inner = network.shape_of_inner(shape, arguments)
            yield from _numbers(value, inner, f"{key}.init_args.network")
        elif isinstance(value, Mapping):
            yield from _grids(value, list(shape.grid), f"{key}.init_args.{name}")


def network_class(specification: Any) -> type[Network] | None:
    """Return the class that a specification names; None for one that declares no numbers."""
    path = specification.get("class_path", "") if isinstance(specification, Mapping) else ""
    module, _, name = str(path).rpartition(".")
    try:
        found = getattr(import_module(module or "ens10.models.networks"), name, None)
    except ImportError:  # the strict parse says so
        return None
    return found if isinstance(found, type) and issubclass(found, Network) else None


def _grids(content: Config, grid: list[int], key: str) -> Iterator[tuple[str, Any]]:
    """Yield the grids that are set in a part of a network, such as a gate."""
    for name, value in content.items():
        if name == "grid" and value is not None:
            yield f"{key}.grid", grid
        elif isinstance(value, Mapping):
            yield from _grids(value, grid, f"{key}.{name}")


def schedule_key(config: Config) -> str | None:
    """Return the key of the length of a cosine schedule that leaves it out; else None."""
    scheduler = (config["model"].get("init_args") or {}).get("scheduler")
    path = str(scheduler.get("class_path")) if isinstance(scheduler, Mapping) else ""
    key = f"{_SCHEDULER}.init_args.T_max"
    return key if path.endswith(_COSINE) and value_at(config, key) is None else None


def epochs_of_schedule(config: Config) -> dict[str, Any]:
    """Return the length of a cosine schedule that leaves it out: the epochs of the trainer.

    Raises:
        ArgumentError: the trainer has no limit of epochs.
    """
    if (key := schedule_key(config)) is None:
        return {}
    epochs = (config.get("trainer") or {}).get("max_epochs")
    if not isinstance(epochs, int) or epochs < 1:
        reason = "not set, and the trainer has no limit of epochs"
        raise ArgumentError("T_max", reason, f"Set --trainer.max_epochs, or --{key}")
    return {key: epochs}


def missing_numbers(config: Config, shape: DataShape) -> dict[str, Any]:
    """Return the numbers that a configuration leaves out, by key.

    Args:
        config: with `model` and `data`, and `trainer` if it has a schedule.
        shape: of the data.

    Raises:
        ArgumentError: the network needs the target among the inputs, or the schedule an end.
    """
    right = numbers_of_network(config["model"], shape)
    missing = {key: value for key, value in right.items() if value_at(config, key) is None}
    return missing | epochs_of_schedule(config)


def any_numbers(config: Config) -> dict[str, Any]:
    """Return values for the numbers that a configuration leaves out, for checks of all else."""
    numbers = numbers_of_network(config["model"], DataShape(2, (2, 2), 1, 0, 0))
    if key := schedule_key(config):
        numbers[key] = 1
    return {key: value for key, value in numbers.items() if value_at(config, key) is None}


def check_numbers(config: Config, shape: DataShape) -> None:
    """Check the numbers that a configuration sets.

    Raises:
        ArgumentError: all that do not fit the data, with the right ones.
    """
    right = numbers_of_network(config["model"], shape)
    found = {key: value_at(config, key) for key in right}
    wrong = [key for key in right if _is_set(found[key]) and _plain(found[key]) != right[key]]
    if wrong:
        names = {key: key.removeprefix(f"{NETWORK}.").replace("init_args.", "") for key in wrong}
        reason = "does not fit the data: " + ", ".join(f"{names[k]} is {found[k]}" for k in wrong)
        remedy = "Set " + ", ".join(f"{names[key]} to {right[key]}" for key in wrong)
        raise ArgumentError("network", reason, f"{remedy}, or leave {_it(wrong)} out")


def numbers_on_store(config: Config, store: Path | str, *, check: bool = True) -> dict[str, Any]:
    """Return the numbers that a configuration leaves out, on a store, and check the others.

    Raises:
        UnknownNameError: channels that the store has not.
        ArgumentError: numbers that do not fit the data, or that cannot follow from them.
    """
    if not isinstance((config["model"].get("init_args") or {}).get("network"), Mapping):
        return epochs_of_schedule(config)
    shape = shape_of(config["data"], store)
    if check:
        check_numbers(config, shape)
    return missing_numbers(config, shape)


def _it(items: Sequence[Any]) -> str:
    return "them" if len(items) > 1 else "it"


def _is_set(value: Any) -> bool:
    """Return True for numbers and sequences of them; other values are left to the strict parse."""
    values = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(one, int) for one in values)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def value_at(config: Config, key: str) -> Any:
    """Return the value at a key with dots; None if there is none."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def with_values(config: Config, values: Config) -> dict[str, Any]:
    """Return a copy of a configuration with further values, by keys with dots."""
    filled = {name: dict(v) if isinstance(v, Mapping) else v for name, v in config.items()}
    for key, value in values.items():
        first, _, rest = key.partition(".")
        filled[first] = with_values(filled.get(first) or {}, {rest: value}) if rest else value
    return filled


def read_config(
    path: Path, remedy: str = "", grid: tuple[int, int] = _SYNTHETIC_GRID
) -> dict[str, Any]:
    """Read a configuration and fill in the numbers that it leaves out, for data of ENS-10.

    Keys of kept results hold these, whatever data a cell is of; its options hold the others.

    Args:
        path: of the file.
        remedy: what to do about a file that cannot be read.
        grid: rows and columns; those of the synthetic worlds.

    Raises:
        FileError: no such file, or no YAML.
    """
    content = read_mapping(path, *([remedy] if remedy else []))
    if not isinstance(content.get("model"), dict) or not isinstance(content.get("data"), dict):
        return content
    try:
        shape = shape_of_ens10(content["data"], grid)
    except (ArgumentError, KeyError):  # fields that ENS-10 has not: it holds its own numbers
        return content
    return with_values(content, missing_numbers(content, shape))


def usable_inputs(data: Config, store: Path | str) -> tuple[list[str], list[str]]:
    """Return the inputs of a configuration that the data have, and those that they lack.

    Raises:
        ArgumentError: the data have none of them.
    """
    samples = open_samples(store, data["target"], step=data.get("step"))
    inputs: list[str] = []
    missing: list[str] = []
    steps = {str(step) for step in samples.steps}
    for text in data["inputs"]:
        name, _, step = text.partition("@")
        try:
            resolve(name, samples.channels, "inputs")
            (missing if step and step not in steps else inputs).append(text)
        except UnknownNameError:
            missing.append(text)
    if not inputs:
        reason = f"the data have none of {listing(missing)}"
        raise ArgumentError("inputs", reason, f"The data have {listing(samples.channels)}")
    return inputs, missing


def as_options(values: Config) -> list[str]:
    """Return values by key as options of `ens10 fit`."""
    return [f"--{key}={_text(value)}" for key, value in values.items()]


def _text(value: Any) -> str:
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)
