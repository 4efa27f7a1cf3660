"""What one training step takes on a part of the grid, counted without computing it.

A network runs once on torch's `meta` device, whose tensors have a shape and no values, in a domain
whose messages go nowhere. Nothing is estimated: operations, bytes and messages are those of a real
step on a device other than the CPU. Left out are head, loss and optimiser, the routing loss of
mixtures of experts (quantiles of a few sums), and what only the values could tell.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ens10.errors import ArgumentError
from ens10.models.domain import Cut, Domain, Odd, Whole, use
from ens10.models.layers.smoe.routing import RoutingRule
from ens10.models.parallel.counting import Meter, Saved
from ens10.models.parallel.exchange import Alone, Link, Strips, Traffic
from ens10.models.parallel.shard import Shard

Grid = tuple[int, int]
_PARAMETER_BYTES = 4  # float32, also where fields are bfloat16
_STATES = 4  # the parameters, their gradients, and two moments of Adam
_WORKING = 3  # fields beside the saved ones: two gradients, and one with its halo


@dataclass(frozen=True)
class RecordingLink:
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
class Recording:
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
        return RecordingLink(parts, index, self.traffic) if parts > 1 else Alone()

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
        operations: kernels that a device starts.
        moved: bytes that operations read and write, each on its own.
        saved: bytes of activations kept for the backward pass, each storage once.
        largest: bytes of the largest of them.
        parameters: how many.
        messages: to neighbours.
        bytes: in them.
        sums: over the processes of a sample.
        summed_bytes: in them.
        back: messages of the backward pass among them.
        back_bytes: in those.
    """

    samples: int
    flops: int
    operations: int
    moved: int
    saved: int
    largest: int
    parameters: int
    messages: int
    bytes: int
    sums: int
    summed_bytes: int
    back: int
    back_bytes: int

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
            one = count(bare, shape, rows, columns, dtype)
            found = one if found is None else found.most(one)
    assert found is not None
    return found


def count(
    network: nn.Module, shape: Sequence[int], rows: Cut, columns: Cut, dtype: torch.dtype
) -> Footprint:
    """The footprint of one part; arguments as of `footprint`, the network on the meta device."""
    exchange = Recording(rows.parts, columns.parts, (rows.index, columns.index))
    domain: Domain = Shard(rows, columns, exchange) if exchange.size > 1 else Whole()
    size = [part.own.stop - part.own.start for part in (rows, columns)]
    features = torch.empty(*shape, *size, dtype=dtype, device="meta")
    parameters = list(network.parameters())
    saved = Saved([*parameters, *network.buffers()])
    with use(domain), Meter() as meter:
        with saved_tensors_hooks(saved.keep, lambda kept: kept):
            outputs = network(features)
        before = replace(exchange.traffic)
        outputs.sum().backward()
    for parameter in parameters:
        parameter.grad = None
    traffic = exchange.traffic
    return Footprint(
        samples=shape[0],
        flops=meter.flops,
        operations=meter.operations,
        moved=meter.moved,
        saved=sum(saved.sizes.values()),
        largest=max(saved.sizes.values(), default=0),
        parameters=sum(parameter.numel() for parameter in parameters),
        messages=traffic.messages,
        bytes=traffic.bytes,
        sums=traffic.sums,
        summed_bytes=traffic.summed_bytes,
        back=traffic.messages - before.messages,
        back_bytes=traffic.bytes - before.bytes,
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
