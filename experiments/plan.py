"""`ens10 plan`: how to share a network's training out over devices, before there are any.

The network of a configuration is made without memory, counted on every split of the devices, and
timed by the model of `ens10.models.parallel.cost`: nothing is trained, and nothing measured.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError as ParserError
from jsonargparse import ArgumentParser
from rich.console import Console
from rich.table import Table

from ens10 import catalog
from ens10.errors import Ens10Error, FileError
from ens10.experiments.usage import brief
from ens10.grid import grid_shape
from ens10.models.networks.base import Network
from ens10.models.parallel.cost import (
    MODELLED,
    Footprint,
    FootprintOf,
    Grid,
    Machine,
    Option,
    Plan,
    Precision,
    check_precision,
    footprints,
    gigabytes,
    machine_named,
    milliseconds,
    plan,
    without_values,
)
from ens10.untrusted import read_mapping

_MOST_ROWS = 12
_WIDTH = 120


@dataclass(frozen=True)
class Subject:
    """What is to be trained.

    Attributes:
        network: on the meta device.
        copies: how many of it are trained side by side.
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
        """What a step takes; see `ens10.models.parallel.cost.footprints`."""
        one = footprints(self.network, self.channels, self.grid, precision)

        def of(samples: int, lat: int, lon: int) -> Footprint:
            return one(samples, lat, lon).times(self.copies)

        return of


@dataclass(frozen=True)
class Planned:
    """A plan, and what it is of.

    Attributes:
        plan: the splits.
        subject: what is to be trained.
        machine: the devices.
        precision: of the fields.
    """

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
) -> Planned:
    """Plans the training of a configuration.

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
    chosen, of_fields = machine_named(machine), check_precision(precision)
    subject = subject_of(config, grid_shape(grid, "--grid") if grid else None)
    found = plan(
        subject.footprints(of_fields),
        devices,
        1e9 * memory_gb,
        subject.batch if batch_size is None else batch_size,
        chosen,
        of_fields,
        progress=progress,
    )
    return Planned(found, subject, chosen, of_fields)


def subject_of(
    config: Path | str,
    grid: Grid | None = None,
    in_channels: int | None = None,
    members: int | None = None,
) -> Subject:
    """What a configuration trains, without memory for it.

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
    held = _read(path)
    specification, copies = _network_of(path, held)
    points = grid or next(_grids(specification), catalog.GRID_SHAPE)
    if in_channels is not None:
        arguments = {**specification["init_args"], "in_channels": in_channels}
        specification = {**specification, "init_args": arguments}
    network = _made(path, on_grid(specification, points))
    data = held.get("data") or {}
    count = members or int(data.get("ensemble") or len(catalog.MEMBERS))
    channels = (*([count] if network.takes_members else []), network.in_channels)
    return Subject(network, copies, points, channels, int(data.get("batch_size") or 1))


def print_plan(planned: Planned) -> None:
    """The table of splits, what is recommended, and where the figures come from."""
    plain = Console()
    console = plain if plain.is_terminal else Console(width=_WIDTH)
    subject = planned.subject
    shape = " x ".join(map(str, (planned.plan.batch, *subject.channels, *subject.grid)))
    console.print(
        f"{type(subject.network).__name__}, {shape}, precision {planned.precision}, "
        f"{planned.machine.name}: {MODELLED}",
        style="bold",
        highlight=False,
    )
    header = ("data", "lat", "lon", "memory", "step", "computes", "messages")
    table = Table(*header, "", box=None, padding=(0, 1))
    options = planned.plan.options
    for option in options[:_MOST_ROWS]:
        table.add_row(*_cells(option), style="green" if option is planned.plan.best else "")
    console.print(table, highlight=False)
    lines = [f"and {len(options) - _MOST_ROWS} splits more"] if len(options) > _MOST_ROWS else []
    lines += [f"Recommended: {planned.plan}", f"Use it by: {_flags(planned.plan)}"]
    for line in (*lines, f"Rates of {planned.machine.name}: {planned.machine.source}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _cells(option: Option) -> list[str]:
    split, time = option.split, option.time
    cells = [str(split.data), str(split.lat), str(split.lon)]
    if option.footprint is None or time is None:
        return [*cells, *[""] * 4, option.refusal]
    parts = (time.total, time.compute, time.messages)
    memory = gigabytes(option.footprint.memory)
    return [*cells, memory, *map(milliseconds, parts), "does not fit" if option.refusal else ""]


def _flags(found: Plan) -> str:
    split = found.best.split
    options = [f"--trainer.devices={split.data * split.parts}"]
    if split.parts > 1:
        options += ["--trainer.strategy=SpatialStrategy", f"--trainer.strategy.lat={split.lat}"]
        options += [f"--trainer.strategy.lon={split.lon}"] if split.lon > 1 else []
    return " ".join([*options, f"--data.batch_size={found.batch // split.data}"])


def _read(config: Path) -> dict[str, Any]:
    held = read_mapping(config, "Give one of experiments/configs")
    if not isinstance(held.get("model"), dict):
        raise FileError(config, "it has no model", "Give a configuration as `ens10 fit` takes it")
    return held


def _network_of(config: Path, held: dict[str, Any]) -> tuple[Any, int]:
    """The network's part of a configuration, and how many of it are trained side by side."""
    arguments = held["model"].get("init_args") or {}
    if not arguments.get("network"):
        name = str(held["model"].get("class_path", "its model")).rpartition(".")[2]
        raise FileError(
            config, f"{name} has no network to share out", "Plan is for models with a network"
        )
    several = str(held["model"].get("class_path")).endswith("DeepEnsemble")
    return arguments["network"], int(arguments.get("size", 5)) if several else 1


def _made(config: Path, specification: Any) -> Network:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Network, "network")
    build = getattr(parser, "instantiate", None) or parser.instantiate_classes
    try:
        with without_values():
            network: Network = build(parser.parse_object({"network": specification})).network
    except ParserError as error:
        raise FileError(config, brief(str(error)).rstrip(".")) from None
    except ValueError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, Ens10Error):
            cause = cause.__cause__ or cause.__context__
        raise cause or FileError(config, brief(str(error)).rstrip(".")) from None
    return network


def _grids(specification: Any) -> Iterator[Grid]:
    """Every grid that parts of a network are bound to."""
    if isinstance(specification, dict):
        for key, value in specification.items():
            if key == "grid" and isinstance(value, list | tuple) and len(value) == 2:
                yield int(value[0]), int(value[1])
            else:
                yield from _grids(value)


def on_grid(specification: Any, grid: Grid) -> Any:
    """A specification whose parts are bound to this grid, where they are bound to one."""
    if not isinstance(specification, dict):
        return specification
    return {
        key: list(grid)
        if key == "grid" and isinstance(value, list | tuple)
        else on_grid(value, grid)
        for key, value in specification.items()
    }
