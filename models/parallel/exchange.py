"""Messages between the processes that hold parts of the same samples."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

Strips = tuple[Tensor | None, Tensor | None]
Message = tuple[int, Tensor]  # rank in the group, and the tensor sent to or received from it


class Link(Protocol):
    """The neighbours of a part along one dimension."""

    def ends(self, around: bool) -> tuple[bool, bool]:
        """Return True for each side (before, after) at which the grid ends; never if periodic."""
        ...

    def swap(self, to_before: Tensor | None, to_after: Tensor | None, around: bool) -> Strips:
        """Send a strip to each neighbour, and return those received from them.

        A collective call; strips have the same width on all processes.

        Args:
            to_before: strip for the neighbour in the north or west; None for nothing.
            to_after: strip for the neighbour in the south or east; None for nothing.
            around: True if the first part and the last are neighbours.

        Returns:
            The strips received from before, in the shape of `to_after`, and from after, in the
            shape of `to_before`; None where there is no neighbour.
        """
        ...


class Exchange(Protocol):
    """The communication that a split grid needs."""

    @property
    def size(self) -> int:
        """Number of processes."""
        ...

    @property
    def links(self) -> tuple[Link, Link]:
        """Links of this part along the rows, and along the columns."""
        ...

    def total(self, parts: Tensor) -> Tensor:
        """Return the sum over all processes, as a new tensor."""
        ...


class UnsplitLink:
    """The link of a dimension that is not split."""

    def ends(self, around: bool) -> tuple[bool, bool]:
        """Return True for each side (before, after) at which the grid ends; never if periodic."""
        return not around, not around

    def swap(self, to_before: Tensor | None, to_after: Tensor | None, around: bool) -> Strips:
        """Return the strips in reverse order: a periodic part is its own neighbour here."""
        return (to_after, to_before) if around else (None, None)


@dataclass
class Traffic:
    """Counters of the messages that a process has sent.

    Attributes:
        messages: number of messages to neighbours.
        bytes: bytes in these messages.
        sums: number of sums over the group.
        summed_bytes: bytes that this process contributed to the sums.
    """

    messages: int = 0
    bytes: int = 0
    sums: int = 0
    summed_bytes: int = 0


@dataclass(frozen=True)
class Messages:
    """A link by messages of `torch.distributed`, over any of its backends.

    Attributes:
        group: the processes of a sample; None to count messages without sending any.
        ranks: ranks in the group of the parts along this dimension.
        index: index of this part.
        traffic: counters of messages.
    """

    group: dist.ProcessGroup | None
    ranks: tuple[int, ...]
    index: int
    traffic: Traffic

    def ends(self, around: bool) -> tuple[bool, bool]:
        """Return True for each side (before, after) at which the grid ends; never if periodic."""
        return not around and self.index == 0, not around and self.index == len(self.ranks) - 1

    def swap(self, to_before: Tensor | None, to_after: Tensor | None, around: bool) -> Strips:
        """Send a strip to each neighbour, and return those received from them; see `Link.swap`."""
        if to_before is None and to_after is None:
            return None, None
        first, last = self.ends(around)
        before, after = (self.ranks[(self.index + n) % len(self.ranks)] for n in (-1, 1))
        from_before = None if first or to_after is None else torch.empty_like(to_after)
        from_after = None if last or to_before is None else torch.empty_like(to_before)
        # southwards first: with two periodic parts, both neighbours are the same process,
        # and its messages are distinguished by their order
        outbox = [(after, None if last else to_after), (before, None if first else to_before)]
        inbox = [(before, from_before), (after, from_after)]
        for _, strip in outbox:
            if strip is not None:
                self.traffic.messages += 1
                self.traffic.bytes += strip.nbytes
        if self.group is None:
            return from_before, from_after
        any_strip = to_after if to_before is None else to_before
        assert any_strip is not None
        host = any_strip.device.type == "cpu" or dist.get_backend(self.group) == "gloo"
        deliver = self._all_to_all if host else self._point_to_point
        deliver(_drop_missing(outbox), _drop_missing(inbox))
        return from_before, from_after

    def _all_to_all(self, outbox: list[Message], inbox: list[Message]) -> None:
        """Exchange all messages of the group in one collective call, through host memory.

        With gloo this takes 0.3 ms, and separate messages 2 to 4 ms. Gloo cannot send from GPU
        memory: strips there are copied to the host and back.
        """
        assert self.group is not None
        peers = range(self.group.size())
        outgoing, incoming = (
            [[strip for to, strip in messages if to == peer] for peer in peers]
            for messages in (outbox, inbox)
        )
        send_sizes, receive_sizes = (
            [sum(strip.nbytes for strip in strips) for strips in by_peer]
            for by_peer in (outgoing, incoming)
        )
        receive_buffer = torch.empty(sum(receive_sizes), dtype=torch.uint8)
        parts = [
            strip.cpu().contiguous().view(-1).view(torch.uint8)
            for peer_strips in outgoing
            for strip in peer_strips
        ]
        send_buffer = torch.cat(parts) if parts else receive_buffer.new_empty(0)
        dist.all_to_all_single(
            receive_buffer, send_buffer, receive_sizes, send_sizes, group=self.group
        )
        strips = [strip for peer_strips in incoming for strip in peer_strips]
        places = torch.split(receive_buffer, [strip.nbytes for strip in strips])
        for strip, part in zip(strips, places, strict=True):
            strip.copy_(part.view(strip.dtype).view(strip.shape))

    def _point_to_point(self, outbox: list[Message], inbox: list[Message]) -> None:
        """Send and receive each message separately, which is suitable for NCCL."""
        operations = [
            dist.P2POp(operation, strip, group=self.group, group_peer=peer)
            for operation, messages in ((dist.isend, outbox), (dist.irecv, inbox))
            for peer, strip in messages
        ]
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()


def _drop_missing(messages: list[tuple[int, Tensor | None]]) -> list[Message]:
    """Return the messages that have a strip."""
    return [(peer, strip) for peer, strip in messages if strip is not None]


@dataclass
class ProcessGroupExchange:
    """Exchange over a process group of `torch.distributed`.

    Args:
        group: the processes of a sample, with the parts of the first rows in its first ranks; None
            to count the messages of process `rank` without sending any.
        lat: number of parts of the rows.
        lon: number of parts of the columns.
        traffic: counters of the messages sent.
        rank: rank of this process, used without a group only.
    """

    group: dist.ProcessGroup | None
    lat: int
    lon: int = 1
    traffic: Traffic = field(default_factory=Traffic)
    rank: int = 0

    @property
    def size(self) -> int:
        """Number of processes."""
        return self.lat * self.lon

    @property
    def place(self) -> tuple[int, int]:
        """Index of this process's part of the rows, and of the columns."""
        rank = self.rank if self.group is None else self.group.rank()
        return divmod(rank, self.lon)

    @property
    def links(self) -> tuple[Link, Link]:
        """Links of this part along the rows, and along the columns."""
        i, j = self.place
        rows = tuple(n * self.lon + j for n in range(self.lat))
        columns = tuple(i * self.lon + n for n in range(self.lon))
        return self._link(rows, i), self._link(columns, j)

    def _link(self, ranks: tuple[int, ...], index: int) -> Link:
        """Return the link of the part at `index` of `ranks`, the parts along one dimension."""
        return Messages(self.group, ranks, index, self.traffic) if len(ranks) > 1 else UnsplitLink()

    def total(self, parts: Tensor) -> Tensor:
        """Return the sum over all processes, as a new tensor."""
        sums = parts.detach().clone(memory_format=torch.contiguous_format)
        if self.group is not None:
            dist.all_reduce(sums, group=self.group)
        self.traffic.sums += 1
        self.traffic.summed_bytes += sums.nbytes
        return sums
