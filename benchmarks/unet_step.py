"""Claim: where a training step of the paper's U-Net spends its time, and what makes it shorter.

    python benchmarks/unet_step.py [--device cuda] [--rounds N] [--out FILE]

One date of 22 x 361 x 720 (the configuration `paper_unet`), float32: forward, head, CRPS with
weights, backward, Adam. Variants start from the same weights and are timed in turns: the figure is
the median over the rounds of the ratio to the step as shipped, in CPU time of the process on 1
thread (by the clock, with synchronisation, on a GPU). Their losses, of each round one, are those
of the step as shipped to 1e-4. Forms of Adam are timed apart, since a step of it is too small a
part to be seen in the whole. Shares are those of torch's profiler (own time of each operator; on a
GPU that of its kernels), on 1 and on 2 threads, and measured last, when all is warm. A line's
target is only that the variant is no slower.
"""

import argparse
import copy
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from common import Line, run
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from ens10.models import CRPSLoss, ResidualNormalHead
from ens10.models.layers import levels
from ens10.models.layers.padding import upsample_twice
from ens10.models.networks import UNet

GRID = (361, 720)
CHANNELS = 22
RATE = 1e-5
TOLERANCE = 1e-4
CLAIM = "where a training step of the paper's U-Net spends its time, and what makes it shorter"
SHIPPED, CHANNELS_LAST = "as shipped", "features and weights in channels_last"
WITHOUT = "without oneDNN"  # what it is worth: slower
KEPT = "channels_last, kept where levels are joined"
# operators by what they are for; the first match counts
GROUPS = {
    "convolution, backward": ("convolution_backward", "conv_depthwise2d_backward"),
    "convolution, forward": ("convolution", "conv2d", "_slow_conv"),
    "batch normalisation": ("batch_norm",),
    "ReLU": ("threshold_backward", "clamp_min", "relu"),
    "pooling": ("max_pool2d",),
    "upsampling": ("upsample", "replication_pad2d"),
    "joining and copying": ("aten::cat", "aten::copy_", "aten::fill_", "aten::zero_"),
    "optimiser": ("Optimizer.step", "_fused_adam", "_foreach", "addcdiv", "lerp"),
}


@dataclass
class Step:
    """One training step of the network, again and again on the same date.

    Attributes:
        network: is trained.
        batch: features, raw_mean, raw_std, target, weights.
        optimizer: of the network's parameters.
        around: a context that the step runs in.
        losses: what the steps gave.
    """

    network: nn.Module
    batch: dict[str, Tensor]
    optimizer: torch.optim.Optimizer
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    losses: list[float] = field(default_factory=list)

    def __call__(self) -> None:
        """Forward, loss, backward, optimiser."""
        head, loss = ResidualNormalHead(), CRPSLoss()
        with self.around():
            forecast = head(self.network(self.batch["features"]), self.batch)
            weights = self.batch["weights"]
            crps = torch.where(weights > 0, weights * loss(forecast, self.batch["target"]), 0)
            mean = crps.sum() / weights.sum()
            self.optimizer.zero_grad()
            mean.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        self.losses.append(float(mean.detach()))


def date(device: str) -> dict[str, Tensor]:
    """A batch of one date, of independent numbers."""
    g = torch.Generator().manual_seed(0)
    mean = 280 + 5 * torch.randn(1, *GRID, generator=g)
    std = 0.5 + torch.rand(1, *GRID, generator=g)
    batch = {
        "features": torch.randn(1, CHANNELS, *GRID, generator=g),
        "raw_mean": mean,
        "raw_std": std,
        "target": mean + 1 + 2 * std * torch.randn(1, *GRID, generator=g),
        "weights": 0.5 + torch.rand(1, *GRID, generator=g),
    }
    return {name: value.to(device) for name, value in batch.items()}


def joined(skip: Tensor, below: Tensor, *, periodic_longitude: bool = False) -> Tensor:
    """`join_level` without a view and a padding that lose channels_last, for maps of one date."""
    upper = upsample_twice(below, periodic_longitude=periodic_longitude)
    if skip.shape[-2] % 2:
        upper = torch.cat([upper[:, :, :1], upper], dim=2)
    return torch.cat([skip, upper], dim=1)


def variants(device: str) -> dict[str, Step]:
    """The step as shipped first, then each with one thing changed."""
    torch.manual_seed(0)
    network, batch = UNet(CHANNELS).to(device), date(device)
    last = torch.channels_last
    wide = batch | {"features": batch["features"].contiguous(memory_format=last)}

    def step(batch: dict[str, Tensor], formed: bool = False) -> Step:
        own = copy.deepcopy(network)
        if formed:
            own = own.to(memory_format=last)  # type: ignore[call-overload]
        return Step(own, batch, torch.optim.Adam(own.parameters(), lr=RATE))

    made = {
        SHIPPED: step(batch),
        CHANNELS_LAST: step(wide, formed=True),
        KEPT: step(wide, formed=True),
        "ReLU not in place": step(batch),
    }
    made[KEPT].around = partial(patch.object, levels, "join_level", joined)
    for module in made["ReLU not in place"].network.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    name, flags = WITHOUT, partial(torch.backends.mkldnn.flags, enabled=False)
    if device != "cpu":
        name = "convolutions chosen by trial"
        flags = partial(torch.backends.cudnn.flags, benchmark=True)
    made[name] = step(batch)
    made[name].around = flags
    return made


def optimisers(device: str, rounds: int) -> dict[str, float]:
    """Median seconds of a step of Adam, in its forms, on the gradients of a network."""
    torch.manual_seed(0)
    network = UNet(CHANNELS).to(device)
    made = {}
    forms: dict[str, dict[str, bool]] = {"loop": {"foreach": False}, "foreach": {"foreach": True}}
    for name, form in {**forms, "fused": {"fused": True}}.items():
        own = copy.deepcopy(network)
        for parameter in own.parameters():
            parameter.grad = torch.ones_like(parameter)
        made[name] = torch.optim.Adam(own.parameters(), lr=RATE, **form)  # type: ignore[arg-type]
    times: dict[str, list[float]] = {name: [] for name in made}
    for n in range(10 * rounds + 1):
        for name, optimizer in made.items():
            seconds = timed(optimizer.step, device)
            if n:
                times[name].append(seconds)
    return {name: median(values) for name, values in times.items()}


def timed(run: Callable[[], Any], device: str) -> float:
    """CPU seconds of the process; on a GPU those of the clock."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    start = clock()
    run()
    if device != "cpu":
        torch.cuda.synchronize()
    return clock() - start


def difference(steps: Mapping[str, Step]) -> float:
    """The largest difference of a loss from that of the step as shipped, relative."""
    told = steps[SHIPPED].losses
    return max(
        abs(a - b) / abs(a)
        for step in steps.values()
        for a, b in zip(told, step.losses, strict=True)
    )


def ratios(steps: Mapping[str, Step], rounds: int, device: str) -> tuple[dict[str, float], float]:
    """Median ratio of each to the step as shipped, in turns, and the median seconds of that."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for n in range(rounds + 1):
        for name, step in steps.items():
            seconds = timed(step, device)
            if n:
                times[name].append(seconds)
    base = times.pop(SHIPPED)
    shares = {
        name: median(b / a for a, b in zip(base, values, strict=True))
        for name, values in times.items()
    }
    return shares, median(base)


def profiled(step: Step, device: str, count: int = 1) -> dict[str, float]:
    """Share of each group of operators in the own time of all, the largest first."""
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if device != "cpu" else []
    with profile(activities=activities) as profiler:
        for _ in range(count):
            step()
    spent: dict[str, float] = {}
    for event in profiler.key_averages():
        own = event.self_cpu_time_total if device == "cpu" else event.self_device_time_total
        if device != "cpu" and "CPU" not in str(event.device_type):
            continue  # a kernel: its time is counted with the operator that called it
        spent[_group(event.key)] = spent.get(_group(event.key), 0) + own
    total = sum(spent.values())
    ordered = sorted(spent.items(), key=lambda item: -item[1])
    return {name: round(value / total, 4) for name, value in ordered}


def _group(operator: str) -> str:
    for group, words in GROUPS.items():
        if any(word in operator for word in words):
            return group
    return "head, loss and all else"


def measure(given: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Shares on 1 and 2 threads, and the variants' ratios."""
    torch.set_num_threads(1)
    steps = variants(given.device)
    found, seconds = ratios(steps, given.rounds, given.device)
    worst = difference(steps)
    if worst > TOLERANCE:
        raise SystemExit(f"the variants' losses differ by {worst} of the loss")
    adam = optimisers(given.device, given.rounds)
    shares = {}
    for threads in (1, 2) if given.device == "cpu" else (1,):
        torch.set_num_threads(threads)
        for name in (SHIPPED, KEPT):
            key = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
            shares[key] = profiled(steps[name], given.device)
    told = {name: f"{name}, time relative to the step as shipped" for name in found}
    lines = [Line(told[name], value, 1.0, name == WITHOUT) for name, value in found.items()]
    return lines, {
        "device": given.device if given.device == "cpu" else torch.cuda.get_device_name(),
        "seconds_of_a_step": round(seconds, 3),
        "largest_costs": list(shares[f"{SHIPPED}, 1 thread"])[:3],
        "shares": shares,
        "milliseconds_of_adam": {name: round(1e3 * value, 2) for name, value in adam.items()},
        "largest_relative_difference_of_the_losses": worst,
    }


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))


if __name__ == "__main__":
    raise SystemExit(run(CLAIM, measure, rounds=5, options=_options))
