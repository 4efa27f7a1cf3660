"""Training steps of configurations and batches from memory, without Lightning and without files."""

import dataclasses
import typing
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ens10 import catalog
from ens10.climate import Normaliser
from ens10.experiments.training.data_numbers import read_config
from ens10.loader import Batches
from ens10.loader.batch_layouts import uses_members
from ens10.loader.content import labels, parse_inputs
from ens10.loader.resident import ResidentBatches
from ens10.loader.samples import Samples, Where, move_in_place
from ens10.loader.tensors import TorchBatches
from ens10.models.layers.smoe.tracking import track_loss
from ens10.models.losses import CRPSLoss
from ens10.models.matching import forecast_of, require_match
from ens10.models.postprocessor import use_fused
from ens10.models.statistical import SeasonalEMOS
from ens10.models.statistical.regions import RegionalRegression
from ens10.protocol import protocol_of

CONFIGS = ("paper_unet", "smoe_unet", "location_unet", "transformer", "transformer_neighbours")
# seconds of ten epochs of ENS-10's size on an H200, as they should be
GOALS = {"paper_unet": 25, "location_unet": 25, "transformer_neighbours": 110, "transformer": 375}
MEMBERS, DATES = 10, 1784  # of ENS-10, and of its training
_FOLDER = Path(__file__).resolve().parents[1] / "experiments" / "configs"


def networks() -> list[str]:
    """Names of the configurations of a network and a head, sorted."""
    paths = sorted(_FOLDER.glob("*.yaml"))
    models = {path.stem: read_config(path)["model"] for path in paths}
    return [n for n, m in models.items() if {"network", "head"} <= set(m.get("init_args", {}))]


def part_of(specification: Any, kind: Any = None) -> Any:
    """What a configuration describes by `class_path` and `init_args`, or a plain value.

    Args:
        specification: of the configuration.
        kind: annotation of the argument, for dataclasses that are given by their fields and for
            functions that make objects.
    """
    if isinstance(specification, str) and specification.startswith("ens10."):
        specification = {"class_path": specification}
    if not isinstance(specification, dict):
        return specification
    made = _class(specification.get("class_path")) or _dataclass_of(kind)
    if made is None:
        return specification
    given = specification.get("init_args", {}) if "class_path" in specification else specification
    kinds = typing.get_type_hints(made.__init__)
    options = {key: part_of(value, kinds.get(key)) for key, value in given.items()}
    return partial(made, **options) if _is_callable(kind) else made(**options)


def _is_callable(kind: Any) -> bool:
    """Whether an argument is a function that makes objects, as the blocks of a network are."""
    return any(typing.get_origin(one) is Callable for one in (kind, *typing.get_args(kind)))


def _class(path: str | None) -> Any:
    if path is None:
        return None
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _dataclass_of(kind: Any) -> Any:
    choices = (kind, *typing.get_args(kind))
    return next((one for one in choices if dataclasses.is_dataclass(one)), None)


def model(name: str, grid: tuple[int, int]) -> tuple[nn.Module, nn.Module, dict[str, Any]]:
    """Network and head of a configuration, on another grid, and the optimiser's description."""
    written = read_config(_FOLDER / f"{name}.yaml")["model"]["init_args"]
    network = written["network"]
    _set_grid(network, grid)
    torch.manual_seed(0)
    made, head = part_of(network), part_of(written["head"])
    require_match(made, head)
    for method in (*made.modules(), *head.modules()):
        if isinstance(method, SeasonalEMOS):
            _solved(method, grid)
        elif isinstance(method, RegionalRegression):
            method.region = torch.zeros(grid, dtype=torch.long)  # all points in the first region
            method.solved.fill_(True)
    return made, head, written["optimizer"]


def _set_grid(network: dict[str, Any], grid: tuple[int, int]) -> None:
    """Sets the grid of a network, and of the networks within it, that learn values at points."""
    given = network.get("init_args", {})
    if "grid" in given:
        given["grid"] = list(grid)
    if "network" in given:
        _set_grid(given["network"], grid)


def _solved(method: SeasonalEMOS, grid: tuple[int, int]) -> None:
    """Gives a method the coefficients of the raw ensemble, with no fit."""
    method.coefficients = torch.zeros(4, 1 + 2 * method.harmonics, *grid)
    method.coefficients[2, 0] = -10  # logarithm of the constant deviation
    method.centre, method.floor = torch.full(grid, 280.0), torch.full(grid, 0.01)
    method.solved.fill_(True)


def date(network: nn.Module, grid: tuple[int, int], dates: int = 1) -> dict[str, Tensor]:
    """A batch of independent numbers."""
    g = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, *grid, generator=g)

    inner = (MEMBERS,) if network.takes_members else ()
    mean, std = 280 + 5 * normal(dates), 0.5 + normal(dates).abs()
    return {
        "features": normal(dates, *inner, network.in_channels),
        "raw_mean": mean,
        "raw_std": std,
        "target": mean + 1 + 2 * std * normal(dates),
        "weights": torch.ones(dates, *grid),
        "dates": 86400 * torch.arange(dates),
        "members": mean.unsqueeze(1) + std.unsqueeze(1) * normal(dates, MEMBERS),
    }


class Step:
    """One training step, again and again.

    Args:
        network: is trained.
        head: from outputs to forecasts.
        batch: on the device.
        optimizer: of the network's parameters.
        autocast: the context of the forward pass.
        checks: whether the host reads in each step whether the loss is finite, as in a fit.
    """

    def __init__(
        self,
        network: nn.Module,
        head: nn.Module,
        batch: dict[str, Tensor],
        optimizer: torch.optim.Optimizer,
        autocast: AbstractContextManager[Any],
        *,
        checks: bool = False,
    ) -> None:
        self.checks = checks
        self.network, self.head, self.batch = network, head, batch
        self.optimizer, self.autocast, self.loss = optimizer, autocast, CRPSLoss()
        self.values: Callable[[dict[str, Tensor]], Tensor] = self.losses  # or compiled

    def losses(self, batch: dict[str, Tensor]) -> Tensor:
        """The loss at each point: what `--model.compiled` compiles as one."""
        forecast = forecast_of(self.network, self.head, batch)
        return self.loss.evaluate(forecast, batch["target"], batch["weights"])

    def __call__(self) -> Tensor:
        """Forward, loss, backward, optimiser; gives the loss, which lies on the device.

        Raises:
            ArithmeticError: the loss of a date is not finite, if that is checked.
        """
        batch = self.batch
        with self.autocast:
            values = self.values(batch)
        weights = batch["weights"]
        sums = torch.where(weights > 0, weights * values, 0)
        if self.checks:  # the only value of a step for which the host waits
            sums = sums.flatten(1).sum(1)
            if not bool(sums.isfinite().all()):
                raise ArithmeticError("a loss is not finite")
        mean = sums.sum() / weights.sum()
        penalty = self.network.penalty()
        mean = track_loss(mean, self.network)
        total = mean if penalty is None else mean + penalty
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        return total.detach()


def step(
    name: str,
    grid: tuple[int, int],
    device: str,
    variant: str = "float32",
    *,
    tiny: bool = False,
    checks: bool = False,
) -> Step:
    """The step of a configuration, with torch's fused Adam as in a fit.

    Args:
        name: of the configuration.
        grid: rows and columns.
        device: "cpu" or "cuda".
        variant: "float32" or "bfloat16", and further words: "4 dates", "compiled".
        tiny: whether the compiler is to be quick rather than good.
        checks: whether the host reads in each step whether the loss is finite.
    """
    network, head, described = model(name, grid)
    dates = 4 if "4 dates" in variant else 1
    batch = {key: value.to(device) for key, value in date(network, grid, dates).items()}
    network, head = network.to(device), head.to(device)
    kind = _class(described["class_path"])
    optimizer = kind(network.parameters(), **described["init_args"])
    use_fused(optimizer)
    half = variant.startswith("bfloat16")
    around = torch.autocast(device, torch.bfloat16) if half else nullcontext()
    made = Step(network, head, batch, optimizer, around, checks=checks)
    if "compiled" in variant:
        made.values = torch.compile(made.losses, backend="aot_eager" if tiny else "inductor")
    return made


def flops(step: Step) -> int:
    """Floating-point operations of a step: those of matrix products and convolutions.

    Of a compiled step, whose products the counter does not see, those of the uncompiled one.
    """
    values, step.values = step.values, step.losses
    try:
        with FlopCounterMode(display=False) as counter:
            step()
    finally:
        step.values = values
    return int(counter.get_total_flops())


class MemorySamples(Samples):
    """Dates in memory: every date has the moments and members of a few fields, made when needed.

    Args:
        grid: rows and columns.
        count: dates to train on.
        channels: names.
    """

    def __init__(self, grid: tuple[int, int], count: int, channels: Sequence[str]) -> None:
        self.channels, self.levels = tuple(channels), dict.fromkeys(channels)
        self.steps, self.step, self.step_units, self.target = [48], 48, "h", "t2m"
        days = np.datetime64("1998-01-02", "ns") + np.arange(count) * np.timedelta64(4, "D")
        later = np.array(["2016-01-02", "2017-01-02"], "datetime64[ns]")  # years not trained on
        days = np.concatenate([days, later])
        self.time, self.valid_time = days, days + np.timedelta64(48, "h")
        self.latitude = np.linspace(90, -90, grid[0])
        self.longitude = np.arange(grid[1]) * 360 / grid[1]
        self.degrees = tuple(np.meshgrid(self.latitude, self.longitude, indexing="ij"))
        self.members, self.attributes, self.has_truth = MEMBERS, {"units": "K"}, True

    @cached_property
    def _fields(self) -> tuple[Any, Any]:
        """Means and deviations: three of each of a few channels."""
        random = np.random.default_rng(0)
        shape = (3, min(len(self.channels), len(VARIABLES)), *self._grid)
        mean = random.standard_normal(shape, np.float32) + 280
        return mean, 0.5 + random.random(shape, np.float32)

    def read_truth(self, i: int, out: Any, rows: slice = slice(None)) -> int:
        """See `Samples`."""
        out[...] = self._fields[0][i % 3, 0, rows] + 1
        return int(out.nbytes)

    def read_moments(
        self, where: Where, channels: Sequence[str], mean: Any, std: Any, moves: Any = (None, None)
    ) -> int:
        """See `Samples`."""
        means, deviations = self._fields
        i = where.date % 3
        for n, channel in enumerate(channels):
            c = self.channels.index(channel) % means.shape[1]
            mean[n], std[n] = means[i, c, where.rows], deviations[i, c, where.rows]
        move_in_place(moves, mean, std)
        return int(mean.nbytes + std.nbytes)

    def read_members(self, where: Where, channel: str, out: Any, move: Any = None) -> int:
        """See `Samples`; the members are the fields of the channel in turns."""
        means, _ = self._fields
        c = self.channels.index(channel) % means.shape[1]
        for n, field in enumerate(out):
            field[...] = means[(where.date + n) % 3, c, where.rows]
        move_in_place((move,), out)
        return int(out.nbytes)


VARIABLES = ("t2m", "sst", "tcw", "tcwv", "cp", "msl", "tcc", "u10", "v10", "tp", "skt")


def batches(grid: tuple[int, int], count: int, *, pinned: bool, size: int = 1) -> TorchBatches:
    """Batches of 22 features a date from memory, through the ring of kept buffers."""
    return TorchBatches(_memory_batches(grid, count, size), None, pinned=pinned)


def resident(grid: tuple[int, int], count: int, device: str, size: int = 1) -> TorchBatches:
    """The same batches, of dates that stay on the device after the first epoch."""
    place = torch.device(device)
    return ResidentBatches(_memory_batches(grid, count, size), None, place, place)


def _memory_batches(grid: tuple[int, int], count: int, size: int) -> Batches:
    samples = MemorySamples(grid, count, VARIABLES)
    options: dict[str, Any] = {"protocol": "paper", **_READING, "batch_size": size}
    return Batches(samples, "t2m", list(VARIABLES), **options)


_READING = {"threads": 2, "ring": 4}
_GAPS = "sst"  # the one variable of ENS-10 with gaps


def configured_batches(name: str, grid: tuple[int, int], count: int, size: int = 1) -> Batches:
    """Batches with the features of a configuration, of ENS-10's variables and from memory.

    Args:
        name: of the configuration.
        grid: rows and columns.
        count: dates of the training, the first ones.
        size: dates in a batch.
    """
    data = read_config(_FOLDER / f"{name}.yaml")["data"]
    samples = _configured_samples(data, grid)
    protocol = protocol_of(data.get("protocol") or "clean")
    inputs = parse_inputs(data.get("inputs"), samples)
    names = [f"{n}:{moment}" for moment in ("mean", "std") for n in labels(inputs, samples.step)]
    names += [f"{_GAPS}:mask"] if protocol.masks and (_GAPS, samples.step) in inputs else []
    centres = [{"mean": 280, "std": 1}.get(n.rpartition(":")[2], 0) for n in names]
    centre = np.array(centres, np.float32)[:, None, None]
    centre = np.broadcast_to(centre, (len(names), *grid))
    batches = Batches(
        samples, data["target"], data.get("inputs"), kind=kind_of(data), protocol=protocol,
        normaliser=Normaliser(tuple(names), centre, np.ones_like(centre)), batch_size=size,
        **{key: data[key] for key in ("extras", "members") if key in data}, **_READING,
    )  # fmt: skip
    batches.index = np.arange(count)
    return batches


def kind_of(data: dict[str, Any]) -> Any:
    """The layout of the batches of a configuration's data."""
    return "members" if uses_members(data) else data.get("kind", "fields")


def _configured_samples(data: dict[str, Any], grid: tuple[int, int]) -> MemorySamples:
    """Samples of all variables of ENS-10 at all its lead times."""
    surface = dict.fromkeys([*catalog.names_of_kind("sfc"), catalog.WIND_SPEED.name])
    upper = {f"{v}{p}": p for v in catalog.names_of_kind("pl") for p in catalog.LEVELS_HPA}
    levels = upper | surface  # "u10" is the wind at 10 m
    derived = {catalog.WIND_SPEED.name} if data.get("inputs") is None else set()  # no input then
    samples = MemorySamples(grid, DATES, [name for name in levels if name not in derived])
    samples.levels = levels
    samples.target, samples.members = data["target"], data.get("ensemble") or MEMBERS
    samples.steps = list(catalog.STEPS_HOURS)
    return samples
