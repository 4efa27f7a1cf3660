"""`ens10 plan`: how to share the training of a configuration out over devices.

Operations, memory and messages of every split are counted by `ens10.models.parallel.cost`. Seconds
are shown where training steps of the configuration were measured on the device, see
`ens10.experiments.planning.rates`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from ens10 import catalog
from ens10.errors import ArgumentError, FileError, UnknownNameError
from ens10.experiments.planning.rates import DEVICES, Grid, build_part, measured_steps, on_grid
from ens10.experiments.planning.step_counts import count_config, print_counts
from ens10.experiments.training.data_numbers import config_path, read_config
from ens10.grid import grid_shape
from ens10.models.networks.base import Network
from ens10.models.parallel.cost import (
    COUNTED,
    Footprint,
    FootprintOf,
    Option,
    Plan,
    Precision,
    footprints,
    gigabytes,
    meta_device,
    plan,
)
from ens10.untrusted import read_mapping
from ens10.usage import configuration_errors


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


class StepTimes(NamedTuple):
    """Measured times of a configuration's training step, by which other steps are scaled.

    Attributes:
        source: description of the measurement, or of what was not measured.
        seconds: of the measured step, one for each device that was measured; empty without any.
        cost: counted cost of the measured step.
    """

    source: str
    seconds: tuple[float, ...] = ()
    cost: Footprint | None = None

    def of(self, part: Footprint) -> str:
        """Return the seconds of a step of one part as text, without messages; "" if unknown."""
        if self.cost is None:
            return ""
        times = [part.core_seconds / self.cost.core_seconds * time for time in self.seconds]
        least, most = (f"{1e3 * time:.3g}" for time in (min(times), max(times)))
        return f"{least} ms" if least == most else f"{least} to {most} ms"


class TrainingPlan(NamedTuple):
    """The splits of a subject over devices, with measured times and the precision of its fields."""

    plan: Plan
    subject: Subject
    times: StepTimes
    precision: Precision


def plan_config(
    config: Path | str,
    devices: int,
    memory_gb: float,
    *,
    grid: str | None = None,
    batch_size: int | None = None,
    machine: str | None = None,
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
        machine: "cpu" or "h200", whose measured times are shown; None for counts alone.
        precision: "32" or "bf16".
        progress: whether to show a bar.

    Raises:
        FileError: no such file, or no network in it.
        ArgumentError: an argument outside its range, a machine that was not measured, or nothing
            fits.
    """
    field_precision = _precision(precision)
    subject = subject_of(config, grid_shape(grid, "--grid") if grid else None)
    batch = subject.batch if batch_size is None else batch_size
    times = step_times(
        machine, Path(config).stem, field_precision, max(1, batch // max(1, devices))
    )
    cost = subject.footprints(field_precision)
    best = plan(cost, devices, 1e9 * memory_gb, batch, progress=progress)
    return TrainingPlan(best, subject, times, field_precision)


def counts_of_config(
    config: Path, grid: str | None = None, batch_size: int | None = None, precision: str = "32"
) -> None:
    """Print what a training step of a configuration does on a GPU; see `count_config`.

    Raises:
        FileError, ArgumentError: as for `plan_config` and `count_config`.
    """
    if batch_size is not None and batch_size < 1:
        raise ArgumentError("batch", f"{batch_size} is not positive")
    points = grid_shape(grid, "--grid") if grid else subject_of(config).grid
    found, dates = count_config(config, points, batch_size, _precision(precision))
    shape = f"{dates} x {points[0]} x {points[1]} dates and points"
    print_counts(found, f"{config.stem}, {shape}, precision {precision}: {COUNTED}", console_of())


def _precision(name: str) -> Precision:
    precisions: dict[str, Precision] = {"32": "32", "bf16": "bf16"}
    if name not in precisions:
        raise UnknownNameError("precision", name, precisions)
    return precisions[name]


def step_times(machine: str | None, model: str, precision: Precision, dates: int) -> StepTimes:
    """Return the measured times of a configuration's step on a device, with its counted cost.

    Args:
        machine: see `plan_config`.
        model: name of the configuration.
        precision: of the fields.
        dates: of a step on one device; the measured step with the nearest number is taken.

    Raises:
        ArgumentError: a machine that was not measured.
    """
    if machine is None:
        return StepTimes(f"not measured; --machine {' or '.join(DEVICES)} shows measured steps")
    measured = measured_steps(machine)
    by_dates = measured.seconds.get(model, {}).get(precision)
    path = config_path(model)
    if not by_dates or not read_mapping(path)["model"]["init_args"].get("network"):
        names = [name for name, by in measured.seconds.items() if precision in by]
        known = f"measured there in precision {precision}: {', '.join(names) or 'nothing'}"
        return StepTimes(f"{model} is not measured on {measured.machine}; {known}")
    count = min(by_dates, key=lambda number: abs(number - dates))
    cost = subject_of(path, measured.grid).footprints(precision)(count, 1, 1)
    rows, columns = measured.grid
    source = (
        f"measured steps of {model}.yaml ({count} x {rows} x {columns} dates and points) on "
        f"{measured.machine}, scaled by counted operations; messages are not measured"
    )
    return StepTimes(source, tuple(count * time for time in by_dates[count]), cost)


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
        network: Network = build_part(Network, specification)
    copies = int(arguments.get("size", 5)) if class_path.endswith("DeepEnsemble") else 1
    count = members or int(data.get("ensemble") or len(catalog.MEMBERS))
    channels = (*([count] if network.takes_members else []), network.in_channels)
    return Subject(network, copies, points, channels, int(data.get("batch_size") or 1))


def _grids(specification: Any) -> Iterator[Grid]:
    """Yield every grid that parts of a network are bound to."""
    for key, value in specification.items() if isinstance(specification, dict) else ():
        if key == "grid" and isinstance(value, list | tuple) and len(value) == 2:
            yield int(value[0]), int(value[1])
        else:
            yield from _grids(value)


def print_plan(training_plan: TrainingPlan) -> None:
    """Print the table of splits, the recommended one, and the source of the times."""
    console, (best, subject, times, precision) = console_of(), training_plan
    shape = " x ".join(map(str, (best.batch, *subject.channels, *subject.grid)))
    title = f"{type(subject.network).__name__}, {shape}, precision {precision}: {COUNTED}"
    console.print(title, style="bold", highlight=False)
    header = ("data", "lat", "lon", "memory", "messages", "sent", "computes")
    table = Table(*header, "", box=None, padding=(0, 1))
    for option in best.options[:12]:
        table.add_row(*_cells(option, times), style="green" if option is best.best else "")
    console.print(table, highlight=False)
    remaining = len(best.options) - 12
    lines = [f"and {remaining} splits more"] if remaining > 0 else []
    lines += [f"Recommended: {best}", f"Use it by: {_flags(best)}", f"Times: {times.source}"]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def console_of() -> Console:
    """Return a console, of 120 columns where it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _cells(option: Option, times: StepTimes) -> list[str]:
    cells, part = list(map(str, option.split)), option.footprint
    if part is None:
        return [*cells, *[""] * 4, option.refusal]
    sent = f"{part.bytes / 1e6:.3g} MB"
    numbers = [gigabytes(part.memory), str(part.messages), sent, times.of(part)]
    return [*cells, *numbers, "does not fit" if option.refusal else ""]


def _flags(best: Plan) -> str:
    split = best.best.split
    options = [f"--trainer.devices={split.data * split.parts}"]
    if split.parts > 1:
        options += ["--trainer.strategy=SpatialStrategy", f"--trainer.strategy.lat={split.lat}"]
        options += [f"--trainer.strategy.lon={split.lon}"] if split.lon > 1 else []
    return " ".join([*options, f"--data.batch_size={best.batch // split.data}"])
