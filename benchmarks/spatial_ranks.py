"""Processes that run the paper's U-Net: the first of them on the whole grid, or some on its parts.

Each has one thread, and all of them belong to one group; of N parts the first N take theirs.
"""

import ctypes
import gc
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from ens10.models.domain import Cut, Domain, Whole, use
from ens10.models.networks import UNet
from ens10.models.parallel import ProcessGroupExchange, Shard

CHANNELS, HALVINGS = 22, 2
Grid = tuple[int, int]
_groups: dict[int, Any] = {}


class Subject:
    """The U-Net on this process's part of one random sample.

    Args:
        parts: of the rows; with 1, the whole grid.
        grid: rows and columns.
        dtype: of all numbers, which are drawn in float64.
        device: where it runs; parts on one GPU exchange through the host, by gloo.
    """

    def __init__(self, parts: int, grid: Grid, dtype: torch.dtype, device: str = "cpu") -> None:
        torch.manual_seed(0)
        self.network = UNet(CHANNELS).to(dtype).to(device)
        features = torch.randn(1, CHANNELS, *grid, dtype=torch.float64).to(dtype)
        chosen = torch.randn(1, self.network.out_channels, *grid, dtype=torch.float64).to(dtype)
        self.domain, self.exchange = _domain(parts, grid)
        rows = self.domain.local_slices[0] if isinstance(self.domain, Shard) else slice(None)
        self.features = features[:, :, rows].clone().to(device)
        self.chosen = chosen[:, :, rows].clone().to(device)

    def forward(self) -> Tensor:
        """Outputs of this part."""
        self.network.zero_grad()
        with use(self.domain):
            outputs: Tensor = self.network(self.features)
        return outputs

    def backward(self, outputs: Tensor) -> Tensor:
        """Gradients of sum(chosen * outputs) for all parameters, summed over the parts."""
        with use(self.domain):
            outputs.backward(self.chosen)  # type: ignore[no-untyped-call]
        found = [p.grad.flatten() for p in self.network.parameters() if p.grad is not None]
        gradients = torch.cat(found)
        if self.exchange is not None:  # as data parallelism does
            dist.all_reduce(gradients, group=self.exchange.group)
        return gradients


def _domain(parts: int, grid: Grid) -> tuple[Domain, ProcessGroupExchange | None]:
    if parts == 1:
        return Whole(), None
    exchange = ProcessGroupExchange(_groups[parts], parts)
    rows = Cut(grid[0], parts, exchange.place[0], HALVINGS)
    return Shard(rows, Cut(grid[1], 1, 0, HALVINGS), exchange), exchange


subject = lru_cache(maxsize=8)(Subject)


def results(parts: int, grid: Grid, dtype: torch.dtype, device: str = "cpu") -> tuple[Any, Any]:
    """Outputs of this part, and gradients of all."""
    one = subject(parts, grid, dtype, device)
    outputs = one.forward()
    return outputs.detach().cpu().numpy(), one.backward(outputs).cpu().numpy()


def timed(parts: int, grid: Grid, device: str = "cpu") -> tuple[float, float]:
    """Seconds of a step by the clock, and of this process's CPU time."""
    one = subject(parts, grid, torch.float32, device)
    if parts > 1:
        dist.barrier(group=_groups[parts])
    start, worked = time.perf_counter(), time.process_time()
    one.backward(one.forward())
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - start, time.process_time() - worked


def saved(parts: int, grid: Grid) -> int:
    """Bytes that the graph keeps for the backward pass: each storage once, without parameters."""
    one = subject(parts, grid, torch.float32)
    own = {p.untyped_storage().data_ptr() for p in one.network.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        outputs = one.forward()
    one.backward(outputs)
    return sum(size for place, size in kept.items() if place not in own)


def sent(parts: int, grid: Grid) -> int:
    """Bytes that this process sends to its neighbours in a step."""
    one = subject(parts, grid, torch.float32)
    if one.exchange is None:
        return 0
    before = one.exchange.traffic.bytes
    one.backward(one.forward())
    return one.exchange.traffic.bytes - before


def peak(parts: int, grid: Grid) -> int:
    """Bytes of resident memory that a step adds at most."""
    one = subject(parts, grid, torch.float32)
    one.backward(one.forward())  # what is made once
    one.network.zero_grad()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    one.backward(one.forward())
    return _status("VmHWM") - before


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


def _work(pipe: Connection, rank: int, world: int, meeting: str, backend: str) -> None:
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)  # what "cuda" means in this process
    store = dist.FileStore(meeting, world)  # type: ignore[attr-defined]
    wait = timedelta(seconds=120)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=wait)
    for parts in range(2, world + 1):
        _groups[parts] = dist.new_group(list(range(parts)))
    while (job := pipe.recv()) is not None:
        function, args = job
        try:
            pipe.send((True, function(*args)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
    dist.destroy_process_group()


class Processes:
    """Processes that wait for functions.

    Args:
        world: how many.
        returns_memory: whether larger arrays go back to the system as soon as they are freed: for
            peaks of memory; it costs time.
        backend: "gloo", or "nccl", with a GPU for each process.
    """

    def __init__(self, world: int, *, returns_memory: bool = False, backend: str = "gloo") -> None:
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory()
        meeting = str(Path(self._folder.name) / "meeting")
        self._pipes, self._processes = [], []
        with _environment({"MALLOC_MMAP_THRESHOLD_": "65536"} if returns_memory else {}):
            for rank in range(world):
                mine, theirs = context.Pipe()
                process = context.Process(
                    target=_work, args=(theirs, rank, world, meeting, backend), daemon=True
                )
                process.start()
                self._pipes.append(mine)
                self._processes.append(process)

    def __call__(self, parts: int, function: Callable[..., Any], *args: Any) -> list[Any]:
        """What the first `parts` processes return; their number is the first argument."""
        for pipe in self._pipes[:parts]:
            pipe.send((function, (parts, *args)))
        answers = [pipe.recv() for pipe in self._pipes[:parts]]
        if failures := [text for good, text in answers if not good]:
            raise RuntimeError("\n".join(failures))
        return [value for _, value in answers]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(30)
        self._folder.cleanup()


@contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", *more)}
    os.environ.update({"OMP_NUM_THREADS": "1", **more})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
