"""Claim: our split convolutions are no slower than those of PhysicsNeMo's ShardTensor.

    python benchmarks/shard_tensor.py [--rounds N] [--check] [--out FILE]

Four 3x3 convolutions with ReLU and a pooling between, 22 to 64 channels, one sample of 360 x 720
points in two equal parts (ShardTensor wants equal ones) over gloo, one thread a process: forward,
backward and the sum of the weights' gradients. Equality comes first, in float64; then both take
turns in the same processes. Where PhysicsNeMo (2.2.2) is not installed there is nothing to compare
with. Its `register_custom_ops` wants torchvision; the operations used here are registered without.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from common import Line, run
from spatial_ranks import Processes
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard as Along
from torch.distributed.tensor import distribute_module

from ens10.models.domain import Cut, use
from ens10.models.layers import SameConv2d
from ens10.models.parallel import ProcessGroupExchange, Shard

CODE = (
    "models/parallel", "models/layers/padding", "models/domain", "models/extend",
    "models/around",
)  # fmt: skip

GRID, PARTS, WIDTHS = (360, 720), 2, (22, 32, 32, 64, 64)


def network(convolution: Any) -> nn.Sequential:
    """Four convolutions, a pooling behind the second."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for n, (before, after) in enumerate(pairwise(WIDTHS)):
        layers += [convolution(before, after), nn.ReLU()]
        if n == 1:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


class Ours:
    """This package's convolutions on this process's rows."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.network = network(lambda a, b: SameConv2d(a, b)).to(dtype)
        exchange = ProcessGroupExchange(dist.group.WORLD, PARTS)  # type: ignore[arg-type]
        rows = Cut(GRID[0], PARTS, exchange.place[0], 1)
        self.domain = Shard(rows, Cut(GRID[1], 1, 0, 1), exchange)
        self.fields = sample(dtype)[:, :, rows.local_slice].clone()

    def step(self) -> tuple[Tensor, Tensor]:
        """Outputs of this part, and all gradients, summed over the parts."""
        self.network.zero_grad()
        with use(self.domain):
            outputs = self.network(self.fields)
            outputs.square().sum().backward()
        gradients = flat(p.grad for p in self.network.parameters())
        dist.all_reduce(gradients)
        return outputs.detach(), gradients


class Theirs:
    """torch's convolutions on a ShardTensor."""

    def __init__(self, dtype: torch.dtype) -> None:
        from physicsnemo.domain_parallel import ShardTensor
        from physicsnemo.domain_parallel.shard_utils import (  # noqa: F401
            conv_patches,
            pooling_patches,
        )

        plain = network(lambda a, b: nn.Conv2d(a, b, 3, padding=1)).to(dtype)
        mesh = init_device_mesh("cpu", (PARTS,), mesh_dim_names=("rows",))
        self.network = distribute_module(plain, mesh)
        height = GRID[0] // PARTS
        own = slice(dist.get_rank() * height, (dist.get_rank() + 1) * height)
        shapes = {0: tuple(torch.Size((1, WIDTHS[0], height, GRID[1])) for _ in range(PARTS))}
        local = sample(dtype)[:, :, own].clone()
        # without the shapes it would want pinned memory
        self.fields = ShardTensor.from_local(local, mesh, (Along(2),), sharding_shapes=shapes)

    def step(self) -> tuple[Tensor, Tensor]:
        """As `Ours.step`."""
        self.network.zero_grad()
        outputs = self.network(self.fields).to_local()
        outputs.square().sum().backward()
        gradients = [p.grad for p in self.network.parameters()]
        return outputs.detach(), flat(g.full_tensor() for g in gradients)


def sample(dtype: torch.dtype) -> Tensor:
    """One sample, the same in all processes."""
    torch.manual_seed(1)
    return torch.randn(1, WIDTHS[0], *GRID, dtype=dtype)


def flat(gradients: Any) -> Tensor:
    """All numbers in one row."""
    return torch.cat([gradient.flatten() for gradient in gradients])


@lru_cache(maxsize=4)
def subject(name: str, dtype: torch.dtype) -> Ours | Theirs:
    """One of the two, made once."""
    return Ours(dtype) if name == "ours" else Theirs(dtype)


def difference(_: int) -> float:
    """Largest relative difference of outputs and gradients, in float64."""
    found = [subject(name, torch.float64).step() for name in ("ours", "theirs")]
    subject.cache_clear()
    pairs = zip(*found, strict=True)
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)


def timed(_: int, name: str) -> tuple[float, float]:
    """Seconds of a step by the clock, and of this process's CPU time."""
    one = subject(name, torch.float32)
    dist.barrier()
    start, worked = time.perf_counter(), time.process_time()
    one.step()
    return time.perf_counter() - start, time.process_time() - worked


def measure(options: Any) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Equality, then both in turns."""
    if find_spec("physicsnemo") is None:
        sys.exit("PhysicsNeMo is not installed: there is nothing to compare with")
    rounds: list[dict[str, Any]] = []
    with Processes(PARTS) as processes:
        worst = max(processes(PARTS, difference))
        for n in range(options.rounds + 1):
            found = {name: processes(PARTS, timed, name) for name in ("ours", "theirs")}
            if n:
                rounds.append(
                    {
                        name: {"seconds": max(r[0] for r in ranks), "cpu": sum(r[1] for r in ranks)}
                        for name, ranks in found.items()
                    }
                )
    lines = [Line("relative difference in float64", worst, 1e-10, at_least=False)]
    for what, key in (("time", "seconds"), ("CPU work", "cpu")):
        ratio = median(one["theirs"][key] / one["ours"][key] for one in rounds)
        lines.append(Line(f"{what} of ShardTensor, of ours, 2 processes", ratio, 1.0))
    return lines, {"measured": {"rounds": rounds}}


if __name__ == "__main__":
    claim = __doc__.splitlines()[0].removeprefix("Claim: ")
    sys.exit(run(claim, measure, code=CODE, rounds=9))
