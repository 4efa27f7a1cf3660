"""Cost of one training step on many devices, counted without computing, and the choice of a split.

A network runs once on torch's `meta` device, whose tensors have a shape and no values, in a domain
whose messages are counted and not sent. Operations are those of torch's `FlopCounterMode`, memory
is that of the tensors that autograd saves. Not counted: head, loss, optimiser, the routing loss of
mixtures of experts, and whatever depends on values. Nothing is timed:
`ens10.experiments.planning.rates` has the times that were measured.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, Self
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ens10.errors import ArgumentError, Ens10Error
from ens10.models.domain import Cut, Domain, Odd, Whole, use
from ens10.models.layers.smoe.routing import RoutingRule
from ens10.models.parallel.exchange import ProcessGroupExchange
from ens10.models.parallel.shard import Shard
from ens10.models.parallel.supported_modules import require_supported
from ens10.progress import track

Precision = Literal["32", "bf16"]
Grid = tuple[int, int]
FootprintOf = Callable[[int, int, int], "Footprint"]
COUNTED = "counted, not measured"
_DTYPES: dict[str, torch.dtype] = {"32": torch.float32, "bf16": torch.bfloat16}
_PARAMETER_BYTES = 4  # float32, also where fields are bfloat16
_PARAMETER_COPIES = 4  # the parameters, their gradients, and two moments of Adam
_WORKING_FIELDS = 3  # beside the saved ones: two gradients, and a field with its halo
_ADAM_PASSES = 7  # over each parameter: reads it, its gradient and its moments, writes three
# Operations and bytes a second of one thread of an Intel Xeon: from the 3.157 s of a step of the
# paper's U-Net, 75 % of it in convolutions (benchmarks/results/unet_step.json).
_CORE_FLOPS, _CORE_BYTES = 70e9, 5.6e9


class _Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counter of the bytes that operations read and write, without views.

    Tensors on the meta device have no values: a value that is read is 1 or True.

    Attributes:
        access_bytes: the sum over all operations.
    """

    access_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and count its bytes."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return torch.ones((), dtype=args[0].dtype, device="cpu").tolist()
        results = func(*args, **(kwargs or {}))
        inputs, outputs = _tensors(args), _tensors(results)
        if func is torch.ops.aten.copy_.default:
            inputs = inputs[1:]  # the first is only written
        is_view = {_storage(t) for t in outputs} <= {_storage(t) for t in inputs}
        if "empty" not in func.__name__ and (func._schema.is_mutable or not is_view):
            self.access_bytes += sum(tensor.nbytes for tensor in (*inputs, *outputs))
        return results


def _tensors(values: Any) -> list[Tensor]:
    """Return all tensors in nested containers."""
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _storage(tensor: Tensor) -> int:
    """Return the address of a tensor's storage, which views share."""
    return int(tensor.untyped_storage()._cdata)


class SavedTensors(saved_tensors_hooks):
    """The tensors that autograd saves for a backward pass within the block, each storage once.

    Args:
        others: tensors that do not count, such as parameters.
    """

    def __init__(self, others: Iterable[Tensor]) -> None:
        # referenced, so that no other storage gets its address
        self._others = {_storage(tensor): tensor for tensor in others}
        self._saved: dict[int, Tensor] = {}
        super().__init__(self._keep, lambda tensor: tensor)

    def _keep(self, tensor: Tensor) -> Tensor:
        if _storage(tensor) not in self._others:
            self._saved.setdefault(_storage(tensor), tensor)
        return tensor

    def __enter__(self) -> Self:  # type: ignore[override]
        """Begin to count."""
        super().__enter__()
        return self

    @property
    def sizes(self) -> list[int]:
        """Bytes of each storage."""
        return [tensor.untyped_storage().nbytes() for tensor in self._saved.values()]


@contextmanager
def meta_device() -> Iterator[_Meter]:
    """Build and run modules on the meta device, without autocast, which it does not support.

    Yields the counter of the bytes that operations read and write.
    """
    off = (lambda *_, **__: nullcontext()), (lambda *_: False)
    with (
        patch.object(torch, "autocast", off[0]),
        patch.object(torch, "is_autocast_enabled", off[1]),
        torch.device("meta"),
        _Meter() as meter,  # type: ignore[no-untyped-call]
    ):
        yield meter


class Footprint(NamedTuple):
    """Cost of one training step in a process: the maximum, if the processes differ.

    Attributes:
        samples: number of samples in the process.
        flops: floating point operations of forward and backward pass; a multiplication with its
            addition is two.
        access_bytes: bytes that operations read and write, summed over the operations.
        activation_bytes: bytes of activations saved for the backward pass, each storage once.
        largest_activation: bytes of the largest saved activation.
        parameters: number of parameters.
        messages: number of messages to neighbours.
        bytes: bytes in these messages.
        sums: number of sums over the processes of a sample.
        summed_bytes: bytes in these sums.
    """

    samples: int
    flops: int
    access_bytes: int
    activation_bytes: int
    largest_activation: int
    parameters: int
    messages: int
    bytes: int
    sums: int
    summed_bytes: int

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameters, and of the gradients that data parallel training sums."""
        return _PARAMETER_BYTES * self.parameters

    @property
    def memory(self) -> int:
        """Bytes at the peak: parameters, gradients, Adam, activations, and three working fields."""
        return step_memory(self.parameters, self.activation_bytes, self.largest_activation)

    @property
    def core_seconds(self) -> float:
        """Seconds of the step on one processor core, by measured rates and without messages."""
        access_bytes = self.access_bytes + _ADAM_PASSES * self.parameter_bytes
        return self.flops / _CORE_FLOPS + access_bytes / _CORE_BYTES

    def times(self, networks: int) -> "Footprint":
        """Return the footprint of several such networks that are trained together."""
        scaled = Footprint(*(networks * number for number in self))
        largest = self.largest_activation
        return scaled._replace(samples=self.samples, largest_activation=largest)


def step_memory(parameters: int, activation_bytes: int, largest_activation: int) -> int:
    """Return the bytes of a step: see `Footprint.memory`."""
    fields = activation_bytes + _WORKING_FIELDS * largest_activation
    return _PARAMETER_COPIES * _PARAMETER_BYTES * parameters + fields


def footprint(
    network: nn.Module,
    shape: Sequence[int],
    grid: Grid,
    lat: int = 1,
    lon: int = 1,
    *,
    dtype: torch.dtype = torch.float32,
) -> Footprint:
    """Count the cost of a training step in the process that needs most.

    A step is counted for the largest parts of the grid and for those with the most neighbours; each
    number is the maximum over these parts.

    Args:
        network: not changed; its parameters may be on the meta device.
        shape: shape of the features in a process before rows and columns: (N, C), or (N, M, C).
        grid: rows and columns of the whole grid.
        lat: number of parts of the rows.
        lon: number of parts of the columns.
        dtype: type of the fields; with bfloat16 parameters are still float32.

    Raises:
        ArgumentError: more parts than the grid has, or another error of the network's.
    """
    bare = _copy_to_meta(network).to(dtype)
    rows, columns = _cuts(network, "lat", grid[0], lat), _cuts(network, "lon", grid[1], lon)
    counts = [_count(bare, shape, (row, column), dtype) for row in rows for column in columns]
    return Footprint(*map(max, zip(*counts, strict=True)))


def _count(
    network: nn.Module, shape: Sequence[int], cuts: tuple[Cut, Cut], dtype: torch.dtype
) -> Footprint:
    """Count a step of a network on the meta device for one part of the grid."""
    rows, columns = cuts
    rank = rows.index * columns.parts + columns.index
    exchange = ProcessGroupExchange(None, rows.parts, columns.parts, rank=rank)
    domain: Domain = Shard(*cuts, exchange) if exchange.size > 1 else Whole()
    size = [cut.local_slice.stop - cut.local_slice.start for cut in cuts]
    features = torch.empty(*shape, *size, dtype=dtype, device="meta")
    parameters = list(network.parameters())
    with use(domain), FlopCounterMode(display=False) as flops, meta_device() as meter:
        with SavedTensors((*parameters, *network.buffers())) as saved:
            outputs = network(features)
        outputs.sum().backward()
    network.zero_grad(set_to_none=True)
    traffic = exchange.traffic
    return Footprint(
        shape[0],
        flops.get_total_flops(),
        meter.access_bytes,
        sum(saved.sizes),
        max(saved.sizes, default=0),
        sum(parameter.numel() for parameter in parameters),
        traffic.messages,
        traffic.bytes,
        traffic.sums,
        traffic.summed_bytes,
    )


def _copy_to_meta(network: nn.Module) -> nn.Module:
    """Copy a network to the meta device, in training mode, without the routing loss of experts."""
    memo = {id(b): torch.empty_like(b, device="meta") for b in network.buffers()}
    for parameter in network.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = nn.Parameter(empty, parameter.requires_grad)
    bare = copy.deepcopy(network, memo)
    for module in bare.modules():
        if isinstance(getattr(module, "rule", None), RoutingRule):
            module.rule = replace(module.rule, classify=False, damping=1.0)  # type: ignore[type-var]
    return bare.train()


def _cuts(network: nn.Module, name: str, total: int, parts: int) -> list[Cut]:
    """Return the largest part, and the largest with neighbours on both sides if it is smaller."""
    halvings = getattr(network, "halvings", 0)
    odd: Odd = getattr(network, "odd", "dropped")
    try:
        cuts = [Cut(total, parts, index, halvings, odd) for index in range(parts)]
    except ArgumentError as error:
        raise ArgumentError(name, str(error).removeprefix("parts: ")) from None

    sizes = [cut.local_slice.stop - cut.local_slice.start for cut in cuts]
    largest = sizes.index(max(sizes))
    busiest = max(range(1, parts - 1) or range(parts), key=lambda index: sizes[index])
    indices = {busiest} if sizes[busiest] == sizes[largest] else {largest, busiest}
    return [cuts[index] for index in sorted(indices)]


class Split(NamedTuple):
    """Number of groups of processes, and of the parts of rows and columns in each group."""

    data: int
    lat: int
    lon: int

    @property
    def parts(self) -> int:
        """Number of processes between which a sample is split."""
        return self.lat * self.lon

    def __str__(self) -> str:
        return f"data {self.data}, lat {self.lat}, lon {self.lon}"


class Option(NamedTuple):
    """A split and its cost.

    Attributes:
        split: the split of the devices.
        footprint: cost of the process that needs most; None if the grid cannot be split so.
        refusal: reason why it cannot be used; empty if it can.
    """

    split: Split
    footprint: Footprint | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Plan:
    """All splits of the devices.

    Attributes:
        options: usable splits first, those with the fewest parts of a sample at the top and among
            them those with the fewest parts of the columns, then those that cannot be used.
        batch: samples of a step, on all devices.
    """

    options: tuple[Option, ...]
    batch: int

    @property
    def best(self) -> Option:
        """The usable split that divides a sample least."""
        return self.options[0]

    def __str__(self) -> str:
        split, footprint, _ = self.best
        assert footprint is not None
        fit = sum(not option.refusal for option in self.options)
        return (
            f"{split}: of {fit} splits that fit the one that divides a sample least, with "
            f"{gigabytes(footprint.memory)} a device for a step of {self.batch} samples ({COUNTED})"
        )


def plan(
    footprint_of: FootprintOf,
    devices: int,
    memory: float,
    batch: int,
    *,
    progress: bool = False,
) -> Plan:
    """Compare all splits of the devices.

    The samples of a step are those of a serial run, so that training is the same: the `data`
    groups share them equally, and there are no more groups than samples.

    Args:
        footprint_of: function of the samples of a process and the parts of rows and columns that
            returns the footprint; see `footprints`.
        devices: number of devices, all of which are used.
        memory: bytes of a device.
        batch: samples of a step, on all devices.
        progress: True to show a progress bar.

    Raises:
        ArgumentError: no devices, samples or memory; or no split can be used: the message has the
            memory that suffices, or the reason why the grid cannot be split.
    """
    for name, value in (("devices", devices), ("batch", batch), ("memory", memory)):
        if not value > 0:
            raise ArgumentError(name, f"{value} is not positive")
    options = []
    candidates = [split for split in splits(devices) if batch % split.data == 0]
    for split in track(candidates, "splits", len(candidates), progress):
        try:
            cost = footprint_of(batch // split.data, split.lat, split.lon)
            refusal = "" if cost.memory <= memory else f"needs {gigabytes(cost.memory)}"
            options.append(Option(split, cost, refusal))
        except Ens10Error as error:
            options.append(Option(split, refusal=str(error).rstrip(".")))
    if not all(option.refusal for option in options):
        return Plan(tuple(sorted(options, key=_order)), batch)
    needs = [(o.footprint.memory, o.split) for o in options if o.footprint is not None]
    if not needs:
        reason = f"the grid cannot be split over {devices}: {options[0].refusal}"
        raise ArgumentError("devices", reason)
    least, split = min(needs)
    raise ArgumentError(
        "memory",
        f"no split over {devices} devices fits {gigabytes(memory)}: the least is "
        f"{gigabytes(least)} a device, with {split} ({COUNTED})",
        "Use more devices, a smaller batch, or bf16",
    )


def splits(devices: int) -> Iterator[Split]:
    """Yield all splits of a number of devices, those with the fewest parts first."""
    for parts in divisors(devices):
        for lon in divisors(parts):
            yield Split(devices // parts, parts // lon, lon)


def divisors(number: int) -> list[int]:
    """Return the divisors of a number in ascending order."""
    return [n for n in range(1, number + 1) if number % n == 0]


def _order(option: Option) -> tuple[bool, int, int]:
    """Return a sort key: usable options first, by parts of a sample, then by those of columns.

    Rows are cut first: around the globe a part of the columns has twice as many neighbours.
    """
    return bool(option.refusal), option.split.parts, option.split.lon


class ChosenLat(NamedTuple):
    """The value of lat="auto", and the reason for it.

    Attributes:
        lat: number of parts of the rows.
        reason: words that follow "since".
        lon: number of parts of the columns.
        more: the next larger number of parts of the rows that is possible; 0 if there is none.
    """

    lat: int
    reason: str
    lon: int = 1
    more: int = 0

    def __str__(self) -> str:
        parts = ((self.lat, "row"), (self.lon, "column"))
        bands = " x ".join(f"{count} {name} bands" for count, name in parts if count > 1)
        if bands:
            return f"each sample is split into {bands}, since {self.reason}"
        advice = f"; set --trainer.strategy.lat {self.more} to split them" if self.more else ""
        return f"samples are not split, since {self.reason}{advice}"


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
    """Return the fewest parts of the rows that fit into the counted memory of a process.

    Args:
        network: not changed.
        shape: shape of the features of a process before rows and columns: (N, C), or (N, M, C).
        grid: rows and columns of the whole grid.
        world: number of processes; lat * lon divides it.
        memory: bytes that a process may use.
        lon: number of parts of the columns.
        dtype: type of the fields.

    Raises:
        ArgumentError: `memory` is not positive, `lon` does not divide `world`, the grid cannot be
            split, or no number of parts fits: the message has the memory of the last one tried.
    """
    if not memory > 0:
        raise ArgumentError("memory", f"{memory} is not positive")
    if world < 1 or world % lon:
        raise ArgumentError("lon", f"{lon} parts do not divide {world} processes")
    before = reason = ""
    choices = divisors(world // lon)
    for lat in choices:
        try:
            need = footprint(network, shape, grid, lat, lon, dtype=dtype).memory
        except ArgumentError as error:
            reason = str(error)
            break  # more parts cannot be cut either
        if need <= memory:
            fits = f"{before}, and lat={lat} " if before else "one part fits: "
            amount = f"{gigabytes(need)} of {gigabytes(memory)} a process ({COUNTED})"
            more = next((n for n in choices if n > lat and _can_cut(network, grid[0], n)), 0)
            return ChosenLat(lat, fits + amount, lon, more)
        before = f"lat={lat} needs {gigabytes(need)}"
    if not before:
        raise ArgumentError("lat", f"the grid cannot be split: {reason}")
    raise ArgumentError(
        "lat",
        f"nothing that divides {world} processes fits {gigabytes(memory)}: {before} ({COUNTED})",
        "Use more processes, a smaller batch, or bf16",
    )


def _can_cut(network: nn.Module, rows: int, parts: int) -> bool:
    try:
        require_supported(network)
        _cuts(network, "lat", rows, parts)
    except ArgumentError:
        return False
    return True


def footprints(
    network: nn.Module,
    channels: Sequence[int],
    grid: Grid,
    precision: Precision = "32",
    copies: int = 1,
) -> FootprintOf:
    """Return a cached function from samples, lat and lon to the footprint of a network.

    It refuses to split a network with modules that are not registered to work on parts.

    Args:
        network: not changed.
        channels: shape of the features of a sample before the grid: (C,), or (M, C) with members.
        grid: rows and columns.
        precision: precision of the fields.
        copies: number of such networks that are trained together.
    """

    @cache
    def footprint_of(samples: int, lat: int, lon: int) -> Footprint:
        if lat * lon > 1:
            require_supported(network)
        shape = (samples, *channels)
        single = footprint(network, shape, grid, lat, lon, dtype=_DTYPES[precision])
        return single.times(copies)

    return footprint_of


def gigabytes(size: float) -> str:
    """Return a number of bytes as text, in GB of 10^9 bytes."""
    return f"{size / 1e9:.3g} GB"
