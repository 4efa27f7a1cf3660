"""What a training step takes on so many devices: counted without computing it, timed by a model.

A network runs once on torch's `meta` device, whose tensors have a shape and no values, in a domain
whose messages go nowhere. Operations are those of torch's `FlopCounterMode`, memory is that of the
tensors that autograd saves, messages are those that a real step sends. Left out are head, loss and
optimiser, the routing loss of mixtures of experts (quantiles of a few sums), and what only the
values could tell. The time of a step is a model, not a measurement:

    T = flops / rate + moved / memory rate                               the largest part computes
      + messages * latency + bytes / bandwidth                           halos
      + sums * 2 ceil(log2 s) * latency + summed / bandwidth     norms, over s parts of a sample
      + 2 ceil(log2 n) * latency + 2 (n - 1) / n * gradients / bandwidth    over all n processes

It is the latency-bandwidth model of Dryden et al. 2019 (arXiv:1903.06681). Nothing overlaps, and
starting an operation takes no time: very small parts take longer than this. To measure a step
instead, use `ens10 reproduce --plan --probe`.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, get_args
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ens10.errors import ArgumentError, Ens10Error, UnknownNameError
from ens10.models.domain import Cut, Domain, Odd, Whole, use
from ens10.models.layers.smoe.routing import RoutingRule
from ens10.models.parallel.exchange import Alone, Link, Strips, Traffic
from ens10.models.parallel.known import require_known
from ens10.models.parallel.shard import Shard
from ens10.progress import track

Precision = Literal["32", "bf16"]
Grid = tuple[int, int]
FootprintOf = Callable[[int, int, int], "Footprint"]
MODELLED = "model, not measured"
_DTYPES: dict[Precision, torch.dtype] = {"32": torch.float32, "bf16": torch.bfloat16}
_PARAMETER_BYTES = 4  # float32, also where fields are bfloat16
_STATES = 4  # the parameters, their gradients, and two moments of Adam
_WORKING = 3  # fields beside the saved ones: two gradients, and one with its halo
_ADAM = 7  # passes over memory for each parameter: reads it, its gradient and moments, writes three


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Lets networks run on the meta device, and adds up the bytes that operations move.

    A value that a network asks for is 1, or True; autocast, which meta tensors do not have, is off.
    Views are free.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moved = 0
        self._entered = ExitStack()

    def __enter__(self) -> "_Meter":
        self._entered.enter_context(patch.object(torch, "autocast", lambda *_, **__: nullcontext()))
        self._entered.enter_context(patch.object(torch, "is_autocast_enabled", lambda *_: False))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._entered.close()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs one operation."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return _one(args[0].dtype)
        results = func(*args, **(kwargs or {}))
        inputs, outputs = list(_tensors(args)), list(_tensors(results))
        if func is torch.ops.aten.copy_.default:
            inputs = inputs[1:]  # the other is written alone
        storages = {_storage(tensor) for tensor in inputs}
        is_view = all(_storage(tensor) in storages for tensor in outputs)
        if "empty" not in func.__name__ and (func._schema.is_mutable or not is_view):
            self.moved += sum(tensor.nbytes for tensor in (*inputs, *outputs))
        return results


def _one(dtype: torch.dtype) -> float | int | bool:
    if dtype == torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@contextmanager
def without_values() -> Iterator[None]:
    """Modules that are made within are on the meta device, and take no memory."""
    with torch.device("meta"), _Meter():
        yield


@dataclass(frozen=True)
class _CountingLink:
    """A link that sends nothing but counts; what would come is there, without values.

    Attributes:
        parts: along this dimension.
        index: of this part.
        traffic: where messages are counted.
    """

    parts: int
    index: int
    traffic: Traffic

    def ends(self, around: bool) -> tuple[bool, bool]:
        """See `Link.ends`."""
        return not around and self.index == 0, not around and self.index == self.parts - 1

    def swap(self, to_before: Tensor | None, to_after: Tensor | None, around: bool) -> Strips:
        """See `Link.swap`."""
        first, last = self.ends(around)
        for strip, nobody in ((to_before, first), (to_after, last)):
            if strip is not None and not nobody:
                self.traffic.messages += 1
                self.traffic.bytes += strip.nbytes
        from_before = None if first or to_after is None else torch.empty_like(to_after)
        from_after = None if last or to_before is None else torch.empty_like(to_before)
        return from_before, from_after


@dataclass
class _Counting:
    """An `Exchange` of one process alone, which counts what it would send.

    Args:
        lat: parts of the rows.
        lon: parts of the columns.
        place: which of them is this process's.
    """

    lat: int
    lon: int = 1
    place: tuple[int, int] = (0, 0)
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.lat * self.lon

    @property
    def links(self) -> tuple[Link, Link]:
        """Of the rows, and of the columns."""
        return self._link(self.lat, self.place[0]), self._link(self.lon, self.place[1])

    def _link(self, parts: int, index: int) -> Link:
        return _CountingLink(parts, index, self.traffic) if parts > 1 else Alone()

    def total(self, parts: Tensor) -> Tensor:
        """This process's summand."""
        self.traffic.sums += 1
        self.traffic.summed_bytes += parts.nbytes
        return parts.detach().clone(memory_format=torch.contiguous_format)


@dataclass(frozen=True)
class Footprint:
    """What one training step takes in a process; of several, the most that any of them needs.

    Attributes:
        samples: in the process.
        flops: floating point operations of forward and backward pass; a multiplication with its
            addition is two.
        moved: bytes that operations read and write, each on its own.
        saved: bytes of activations kept for the backward pass, each storage once.
        largest: bytes of the largest of them.
        parameters: how many.
        messages: to neighbours.
        bytes: in them.
        sums: over the processes of a sample.
        summed_bytes: in them.
    """

    samples: int
    flops: int
    moved: int
    saved: int
    largest: int
    parameters: int
    messages: int
    bytes: int
    sums: int
    summed_bytes: int

    @property
    def parameter_bytes(self) -> int:
        """Of the gradients that data parallel training sums, too."""
        return _PARAMETER_BYTES * self.parameters

    @property
    def memory(self) -> int:
        """Bytes at the peak: parameters, gradients, Adam, activations, and three fields at work."""
        return _STATES * self.parameter_bytes + self.saved + _WORKING * self.largest

    def times(self, networks: int) -> "Footprint":
        """Of as many such networks, trained side by side."""
        kept = ("samples", "largest")
        more = {f.name: getattr(self, f.name) * networks for f in fields(self)}
        return replace(self, **{name: n for name, n in more.items() if name not in kept})

    def most(self, other: "Footprint") -> "Footprint":
        """The larger of each number."""
        names = [f.name for f in fields(self)]
        return Footprint(*(max(getattr(self, name), getattr(other, name)) for name in names))


def footprint(
    network: nn.Module,
    shape: Sequence[int],
    grid: Grid,
    lat: int = 1,
    lon: int = 1,
    *,
    halvings: int | None = None,
    odd: Odd | None = None,
    dtype: torch.dtype = torch.float32,
) -> Footprint:
    """Of the largest part, and of the one with most neighbours.

    Args:
        network: stays as it is; its parameters may be on the meta device.
        shape: of the features in a process before rows and columns: (N, C), or (N, M, C).
        grid: rows and columns of the whole grid.
        lat: parts of the rows.
        lon: parts of the columns.
        halvings: how often the network halves the grid; None for what it declares.
        odd: what becomes of the last of an odd number; None for what the network declares.
        dtype: of the fields; in bfloat16 parameters are float32 still.

    Raises:
        ArgumentError: more parts than the grid has, or another error of the network's.
    """
    halvings = getattr(network, "halvings", 0) if halvings is None else halvings
    rule: Odd = getattr(network, "odd", "dropped") if odd is None else odd
    cuts = [
        _cuts(name, total, parts, halvings, rule)
        for name, total, parts in (("lat", grid[0], lat), ("lon", grid[1], lon))
    ]
    bare = _without_values(network).to(dtype)
    found = None
    for rows in cuts[0]:
        for columns in cuts[1]:
            one = _count(bare, shape, rows, columns, dtype)
            found = one if found is None else found.most(one)
    assert found is not None
    return found


def _count(
    network: nn.Module, shape: Sequence[int], rows: Cut, columns: Cut, dtype: torch.dtype
) -> Footprint:
    """The footprint of one part; arguments as of `footprint`, the network on the meta device."""
    exchange = _Counting(rows.parts, columns.parts, (rows.index, columns.index))
    domain: Domain = Shard(rows, columns, exchange) if exchange.size > 1 else Whole()
    size = [part.own.stop - part.own.start for part in (rows, columns)]
    features = torch.empty(*shape, *size, dtype=dtype, device="meta")
    parameters = list(network.parameters())
    saved = {_storage(tensor): tensor for tensor in (*parameters, *network.buffers())}
    free = set(saved)

    def keep(tensor: Tensor) -> Tensor:
        saved.setdefault(_storage(tensor), tensor)  # held, so that no other gets its address
        return tensor

    with use(domain), FlopCounterMode(display=False) as flops, _Meter() as meter:
        with saved_tensors_hooks(keep, lambda kept: kept):
            outputs = network(features)
        outputs.sum().backward()
    for parameter in parameters:
        parameter.grad = None
    sizes = [t.untyped_storage().nbytes() for place, t in saved.items() if place not in free]
    traffic = exchange.traffic
    return Footprint(
        samples=shape[0],
        flops=flops.get_total_flops(),
        moved=meter.moved,
        saved=sum(sizes),
        largest=max(sizes, default=0),
        parameters=sum(parameter.numel() for parameter in parameters),
        messages=traffic.messages,
        bytes=traffic.bytes,
        sums=traffic.sums,
        summed_bytes=traffic.summed_bytes,
    )


def _without_values(network: nn.Module) -> nn.Module:
    """A copy on the meta device that trains, without the judgement of its choices of experts."""
    held = {id(b): torch.empty_like(b, device="meta") for b in network.buffers()}
    for parameter in network.parameters():
        empty = torch.empty_like(parameter, device="meta")
        held[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
    bare = copy.deepcopy(network, held)
    for module in bare.modules():
        if isinstance(getattr(module, "rule", None), RoutingRule):
            module.rule = replace(module.rule, classify=False, damping=1.0)  # type: ignore[type-var]
    return bare.train()


def _cuts(name: str, total: int, parts: int, halvings: int, odd: Odd) -> list[Cut]:
    """A largest part, and the largest of those that have neighbours on both sides."""
    try:
        cuts = [Cut(total, parts, index, halvings, odd) for index in range(parts)]
    except ArgumentError as error:
        raise ArgumentError(name, str(error).removeprefix("parts: ")) from None
    sizes = [cut.own.stop - cut.own.start for cut in cuts]
    inner = range(1, parts - 1) or range(parts)
    largest = max(range(parts), key=lambda index: sizes[index])
    busiest = max(inner, key=lambda index: sizes[index])
    chosen = {busiest} if sizes[busiest] == sizes[largest] else {largest, busiest}
    return [cuts[index] for index in sorted(chosen)]


@dataclass(frozen=True)
class Wire:
    """What messages go through.

    Attributes:
        latency: seconds before the first byte.
        bandwidth: bytes per second of one process, each way.
    """

    latency: float
    bandwidth: float

    def seconds(self, messages: float, size: float) -> float:
        """Of so many messages with so many bytes in all."""
        return messages * self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Machine:
    """Devices of one kind in nodes, with one process each.

    Attributes:
        name: of the preset.
        flops: operations per second that convolutions reach, by precision.
        memory: bytes per second that all else reaches.
        node: processes in a node.
        near: between processes of a node.
        far: between nodes, for each process.
        source: where the figures are from.
    """

    name: str
    flops: dict[Precision, float]
    memory: float
    node: int
    near: Wire
    far: Wire
    source: str

    def wire(self, processes: int) -> Wire:
        """The slowest between so many neighbouring ranks."""
        return self.near if self.node % processes == 0 else self.far


def _assumed(
    name: str, tf32: float, bf16: float, memory: float, near: float, far: float
) -> Machine:
    """A preset of vendor's peaks, in Tflop/s and TB/s, and of wires in GB/s each way."""
    return Machine(
        name,
        {"32": 0.3 * 1e12 * tf32, "bf16": 0.3 * 1e12 * bf16},
        0.7 * 1e12 * memory,
        8,
        Wire(10e-6, 0.7e9 * near),
        Wire(20e-6, 0.7e9 * far),
        f"not measured: the vendor's dense peaks of {tf32:g} (TF32) and {bf16:g} Tflop/s (bfloat16)"
        f" times an assumed 0.3; memory of {memory:g} TB/s, NVLink of {near:g} and a network of"
        f" {far:g} GB/s a device and way, times an assumed 0.7; 10 us"
        " for a message in a node and 20 us between nodes are assumed; 8 devices a node",
    )


# The vendor's data sheets: A100 80GB SXM (NVIDIA 2021), H200 SXM (NVIDIA 2024), without sparsity.
_PRESETS = (
    Machine(
        "cpu",
        {"32": 70e9, "bf16": 70e9},
        5.6e9,
        2,
        Wire(60e-6, 1.5e9),
        Wire(100e-6, 1.25e9),
        "one thread of an Intel Xeon in a machine of 2 cores: rates from the 3.157 s that a step"
        " of the paper's U-Net took there, 75 % of it in convolutions"
        " (benchmarks/results/unet_step.json); 60 us and 1.5 GB/s are the best of 200 exchanges of"
        " 60 to 260 kB over gloo while the machine was busy; between nodes 100 us and 10 Gbit/s,"
        " and bfloat16 no faster, are assumed",
    ),
    _assumed("a100", 156, 312, 2.039, 300, 25),
    _assumed("h200", 494, 989, 4.8, 450, 50),
)
MACHINES = {machine.name: machine for machine in _PRESETS}


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step, by the model of this module.

    Attributes:
        compute: of the largest part, with the optimiser.
        halos: messages to neighbours.
        sums: over the processes of a sample.
        gradients: their sum over all processes.
    """

    compute: float
    halos: float
    sums: float
    gradients: float

    @property
    def messages(self) -> float:
        """All that one process would not need."""
        return self.halos + self.sums + self.gradients

    @property
    def total(self) -> float:
        """The step."""
        return self.compute + self.messages


def step_time(
    footprint: Footprint,
    machine: Machine,
    data: int = 1,
    parts: int = 1,
    precision: Precision = "32",
) -> StepTime:
    """The step of data * parts processes.

    Args:
        footprint: of one process.
        machine: the devices.
        data: groups of processes, each with its own samples.
        parts: processes that hold a sample.
        precision: of the fields; the footprint is to be of the same.

    Raises:
        ArgumentError: no process.
    """
    if data < 1 or parts < 1:
        raise ArgumentError("parts", f"{data} x {parts} processes are none")
    size = footprint.parameter_bytes
    moved = footprint.moved + _ADAM * size
    group, world = machine.wire(parts), machine.wire(data * parts)
    hops = footprint.sums * _hops(parts)
    share = 2 * (1 - 1 / (data * parts))
    return StepTime(
        compute=footprint.flops / machine.flops[precision] + moved / machine.memory,
        halos=group.seconds(footprint.messages, footprint.bytes),
        sums=group.seconds(hops, footprint.summed_bytes) if parts > 1 else 0.0,
        gradients=world.seconds(_hops(data * parts), share * size),
    )


def _hops(processes: int) -> int:
    """Messages one after another in a sum that all get: up and down a tree."""
    return 2 * math.ceil(math.log2(processes))


def machine_named(name: str) -> Machine:
    """A preset.

    Raises:
        UnknownNameError: there is none of this name.
    """
    if name not in MACHINES:
        raise UnknownNameError("machine", name, MACHINES)
    return MACHINES[name]


def check_precision(precision: str) -> Precision:
    """The precision, if it is one.

    Raises:
        UnknownNameError: it is none.
    """
    known: dict[str, Precision] = {name: name for name in get_args(Precision)}
    if precision not in known:
        raise UnknownNameError("precision", precision, known)
    return known[precision]


@dataclass(frozen=True)
class Split:
    """How many groups of processes there are, and into how many parts each cuts its samples."""

    data: int
    lat: int
    lon: int

    @property
    def parts(self) -> int:
        """Processes that hold a sample."""
        return self.lat * self.lon

    def __str__(self) -> str:
        return f"data {self.data}, lat {self.lat}, lon {self.lon}"


@dataclass(frozen=True)
class Option:
    """A split, and what the model says of it.

    Attributes:
        split: of the devices.
        footprint: of the process that needs most; None where the grid cannot be cut so.
        time: of a step; None likewise.
        refusal: why it cannot be used, or nothing.
    """

    split: Split
    footprint: Footprint | None = None
    time: StepTime | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Plan:
    """All splits of the devices.

    Attributes:
        options: those that can be used first, the fastest of them at the top.
        memory: bytes of a device.
        batch: samples of a step, on all devices.
    """

    options: tuple[Option, ...]
    memory: float
    batch: int

    @property
    def best(self) -> Option:
        """The fastest that fits."""
        return self.options[0]

    def __str__(self) -> str:
        best = self.best
        assert best.footprint is not None
        assert best.time is not None
        fit = sum(not option.refusal for option in self.options)
        return (
            f"{best.split}: the fastest of {fit} splits that fit, with "
            f"{gigabytes(best.footprint.memory)} a device and {milliseconds(best.time.total)} a "
            f"step of {self.batch} samples ({MODELLED})"
        )


def plan(
    footprint_of: FootprintOf,
    devices: int,
    memory: float,
    batch: int,
    machine: Machine,
    precision: Precision = "32",
    *,
    progress: bool = False,
) -> Plan:
    """Tries every split of the devices.

    The samples of a step are those of a serial run, so that training is the same: each of `data`
    groups takes as many of them, and no more groups than samples are of use.

    Args:
        footprint_of: from samples of a process, parts of the rows and of the columns; see
            `footprints`.
        devices: how many there are, all of which are to be used.
        memory: bytes of a device.
        batch: samples of a step, on all devices.
        machine: the devices.
        precision: of the fields, as that of the footprints.
        progress: whether to show a bar.

    Raises:
        ArgumentError: no devices, samples or memory; or no split can be used: how much memory
            would do, or why the grid cannot be cut.
    """
    for name, value in (("devices", devices), ("batch", batch), ("memory", memory)):
        if not value > 0:
            raise ArgumentError(name, f"{value} is not positive")
    found = []
    tried = [s for s in splits(devices) if batch % s.data == 0]
    for split in track(tried, "splits", len(tried), progress):
        try:
            print_of = footprint_of(batch // split.data, split.lat, split.lon)
        except Ens10Error as error:
            found.append(Option(split, refusal=str(error).rstrip(".")))
            continue
        time = step_time(print_of, machine, split.data, split.parts, precision)
        fits = print_of.memory <= memory
        wants = "" if fits else f"needs {gigabytes(print_of.memory)}"
        found.append(Option(split, print_of, time, wants))
    if all(option.refusal for option in found):
        raise _nothing(found, devices, memory)
    return Plan(tuple(sorted(found, key=_order)), memory, batch)


def splits(devices: int) -> Iterator[Split]:
    """All products of three numbers, those with fewest parts first."""
    for parts in _divisors(devices):
        for lon in _divisors(parts):
            yield Split(devices // parts, parts // lon, lon)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _order(option: Option) -> tuple[bool, float]:
    return bool(option.refusal), option.time.total if option.time else float("inf")


def _nothing(found: Sequence[Option], devices: int, memory: float) -> ArgumentError:
    counted = [(o.footprint.memory, o) for o in found if o.footprint is not None]
    if not counted:
        return ArgumentError(
            "devices", f"the grid cannot be split over {devices}: {found[0].refusal}"
        )
    least, option = min(counted, key=lambda pair: pair[0])
    return ArgumentError(
        "memory",
        f"no split over {devices} devices fits {gigabytes(memory)}: the least is "
        f"{gigabytes(least)} a device, with {option.split} ({MODELLED})",
        "Use more devices, a smaller batch, or bf16",
    )


@dataclass(frozen=True)
class ChosenLat:
    """What lat="auto" is.

    Attributes:
        lat: parts of the rows.
        why: in one line.
    """

    lat: int
    why: str

    def __str__(self) -> str:
        return f"lat={self.lat}: {self.why}"


def choose_lat(
    network: nn.Module,
    shape: Sequence[int],
    grid: Grid,
    world: int,
    memory: float,
    *,
    lon: int = 1,
    dtype: torch.dtype = torch.float32,
) -> ChosenLat:
    """The fewest parts of the rows that fit into the memory of a process, by the model.

    All processes find the same if they are told the same memory.

    Args:
        network: stays as it is.
        shape: of the features of a process before rows and columns: (N, C), or (N, M, C).
        grid: rows and columns of the whole grid.
        world: number of processes; lat * lon divides it.
        memory: bytes that a process may use.
        lon: parts of the columns.
        dtype: of the fields.

    Raises:
        ArgumentError: no number of parts fits, or the grid cannot be cut; how much memory would do.
    """
    if not memory > 0:
        raise ArgumentError("memory", f"{memory} is not positive")
    if world < 1 or world % lon:
        raise ArgumentError("lon", f"{lon} parts do not divide {world} processes")
    needs: list[tuple[int, int]] = []
    reason = ""
    for lat in _divisors(world // lon):
        try:
            need = footprint(network, shape, grid, lat, lon, dtype=dtype).memory
        except ArgumentError as error:
            reason = str(error)
            break  # more parts cannot be cut either
        if need <= memory:
            return ChosenLat(lat, _why(needs, need, memory))
        needs.append((lat, need))
    if not needs:
        raise ArgumentError("lat", f"the grid cannot be split: {reason}")
    lat, need = needs[-1]
    raise ArgumentError(
        "lat",
        f"nothing that divides {world} processes fits {gigabytes(memory)}: lat={lat} needs "
        f"{gigabytes(need)} ({MODELLED})",
        "Use more processes, a smaller batch, or bf16",
    )


def _why(before: Sequence[tuple[int, int]], need: int, memory: float) -> str:
    said = f"{gigabytes(need)} of {gigabytes(memory)} a process"
    if before:
        said += f", where lat={before[-1][0]} needs {gigabytes(before[-1][1])}"
    return f"{said} ({MODELLED})"


def footprints(
    network: nn.Module, channels: Sequence[int], grid: Grid, precision: Precision = "32"
) -> FootprintOf:
    """Footprints of a network, each counted once.

    They refuse to split a network with modules that are not known to work on parts.

    Args:
        network: stays as it is.
        channels: of the features after the samples: (C,), or (M, C) with members.
        grid: rows and columns.
        precision: of the fields.
    """

    @cache
    def of(samples: int, lat: int, lon: int) -> Footprint:
        if lat * lon > 1:
            require_known(network)
        shape = (samples, *channels)
        return footprint(network, shape, grid, lat, lon, dtype=_DTYPES[precision])

    return of


def gigabytes(size: float) -> str:
    """Bytes in words, 10^9 of them a GB."""
    return f"{size / 1e9:.3g} GB"


def milliseconds(seconds: float) -> str:
    """Seconds in words."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
