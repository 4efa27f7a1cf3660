"""Claim: training steps of the networks are faster than in plain torch.

    python benchmarks/networks.py [--networks NAME ...] [--compiled] [--rounds N] [--out FILE]

Training steps of the shipped configurations with four dates of 46 x 96 points (10 members where the
network takes members), float32, one thread: forward, head, loss, backward, optimiser. "Plain" is
the same step with torch's periodic padding, convolutions of points, attention to neighbours from
torch's operations, CRPS of mixtures by autograd, features in channels first and Adam as a loop over
the parameters. The plain U-Net is the network of the ENS-10 paper from torch's own layers, beside
the configuration `paper_unet`, whose weights it has. Losses of each pair agree to 1e-4; steps are
timed in turns, in processor seconds, and a ratio is the median over the rounds. `--compiled` adds
the step with the network compiled by inductor, which needs a C++ compiler.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from statistics import median
from typing import Any
from unittest.mock import patch

import cuda_steps
import torch
from common import Line, run
from torch import Tensor, nn
from torch.nn import functional

from ens10.metrics.distributions import _torch as distributions
from ens10.metrics.distributions.mixture import crps_of_components
from ens10.models import domain
from ens10.models.extend import Edges, Sides
from ens10.models.layers import neighbourhood
from ens10.models.layers.pointwise import PointConv2d
from ens10.models.networks.base import Network
from ens10.models.networks.unet import UNet

CODE = (
    "models/networks", "models/layers", "models/heads", "models/losses", "models/domain",
    "models/extend", "models/around", "metrics/distributions",
)  # fmt: skip

GRID, DATES = (46, 96), 4
CLAIM = "training steps of the networks are faster than in plain torch"
TOLERANCE = 1e-4
_date = cuda_steps.date


class PlainUNet(Network):
    """The U-Net of the ENS-10 paper from torch's layers (Ashkboos et al. 2022)."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, 2

        def block(*widths: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for before, after in pairwise(widths):
                convolution = nn.Conv2d(before, after, 3, padding=1)
                layers += [convolution, nn.BatchNorm2d(after), nn.ReLU()]
            return nn.Sequential(*layers)

        self.down_0, self.down_1 = block(in_channels, 32, 32), block(32, 64, 64)
        self.bottom = block(64, 128, 128, 128, 64)
        self.up_1, self.up_0 = block(128, 64, 32), block(64, 32, 32)
        self.last = nn.Conv2d(32, 2, 3, padding=1)
        self.pool, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2, mode="bilinear")

    def forward(self, features: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 2, H, W)."""
        zero = self.down_0(features)
        one = self.down_1(self.pool(zero))
        two = self.bottom(self.pool(one))
        one = self.up_1(torch.cat([one, self._to(one, two)], 1))
        return self.last(self.up_0(torch.cat([zero, self._to(zero, one)], 1)))

    def _to(self, like: Tensor, below: Tensor) -> Tensor:
        """Upsampled, with a copy of the first row on top where the rows were odd."""
        upper = self.up(below)
        return functional.pad(upper, (0, 0, like.shape[-2] - upper.shape[-2], 0), mode="replicate")


def plain_padding(fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
    """Padding of the columns and then of the rows by torch."""
    top, bottom, left, right = sides
    for widths, edge in (((left, right, 0, 0), edges.columns), ((0, 0, top, bottom), edges.rows)):
        if any(widths):
            fields = functional.pad(fields, widths, mode="constant" if edge == "zeros" else edge)
    return fields


def plain_points(layer: PointConv2d, *parts: Tensor) -> Tensor:
    """Convolution of points by torch; several parts are joined first."""
    fields = parts[0]
    if len(parts) > 1:
        samples = max(len(part) for part in parts)
        fields = torch.cat([part.expand(samples, -1, -1, -1) for part in parts], 1)
    return layer._conv_forward(fields, layer.weight, layer.bias)


_contiguous = Tensor.contiguous


def plain_contiguous(
    fields: Tensor, memory_format: torch.memory_format = torch.contiguous_format
) -> Tensor:
    """The fields as they are where channels_last is asked for."""
    last = memory_format == torch.channels_last
    return fields if last else _contiguous(fields, memory_format=memory_format)


class TracedMixture:
    """CRPS of mixtures of normals by autograd."""

    @staticmethod
    def apply(*tensors: Tensor) -> Tensor:
        """Scores, components first."""
        wide = (tensor.double() for tensor in tensors)
        return crps_of_components(distributions.TORCH, *wide).to(tensors[0].dtype)


class Subject:
    """One form of a step.

    Args:
        step: is repeated.
        plain: whether padding, memory format and optimiser are those of plain torch.
    """

    def __init__(self, step: cuda_steps.Step, *, plain: bool) -> None:
        self.step, self.plain, self.losses = step, plain, []
        for group in step.optimizer.param_groups:
            group["fused"] = None if plain else True

    def __call__(self) -> float:
        """Processor seconds of a step."""
        with ExitStack() as stack:
            if self.plain:
                stack.enter_context(patch.object(domain, "extend", plain_padding))
                stack.enter_context(patch.object(PointConv2d, "forward", plain_points))
                stack.enter_context(patch.object(neighbourhood, "_use_compiled", lambda *_: False))
                stack.enter_context(patch.object(distributions, "CompiledMixture", TracedMixture))
                stack.enter_context(patch.object(Tensor, "contiguous", plain_contiguous))
            start = time.process_time()
            loss = self.step()
            spent = time.process_time() - start
        self.losses.append(float(loss))
        return spent


def subjects(name: str, compiled: bool) -> dict[str, Subject]:
    """The forms of a step; the plain one first."""
    made = {
        "plain": Subject(_step(name), plain=True),
        "shipped": Subject(_step(name), plain=False),
    }
    if compiled:
        made["compiled"] = Subject(_step(name, "float32 compiled"), plain=False)
    return made


def _step(name: str, variant: str = "float32") -> cuda_steps.Step:
    step = cuda_steps.step(name, GRID, "cpu", variant)
    step.batch = _date(step.network, GRID, DATES)
    return step


def against_plain_unet() -> dict[str, Subject]:
    """The paper's U-Net from torch's layers, and ours with the same weights."""
    ours, theirs = _step("paper_unet"), _step("paper_unet")
    assert isinstance(ours.network, UNet)
    network = PlainUNet(ours.network.in_channels)
    weights = list(ours.network.state_dict().values())
    network.load_state_dict(dict(zip(network.state_dict(), weights, strict=True)))
    theirs.network = network
    defaults = {k: v for k, v in theirs.optimizer.defaults.items() if k in ("lr", "betas")}
    theirs.optimizer = torch.optim.Adam(network.parameters(), **defaults)
    return {"plain": Subject(theirs, plain=True), "shipped": Subject(ours, plain=False)}


def timed(made: Mapping[str, Subject], rounds: int) -> dict[str, list[float]]:
    """Seconds of the steps of each subject; refuses losses that differ."""
    times: dict[str, list[float]] = {name: [] for name in made}
    for n in range(rounds + 1):
        for name, subject in made.items():
            seconds = subject()
            if n:
                times[name].append(seconds)
    first = [subject.losses[0] for subject in made.values()]
    if max(first) - min(first) > TOLERANCE * abs(first[0]):
        raise SystemExit(f"the losses differ: {dict(zip(made, first, strict=True))}")
    return times


def measure(given: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratio and samples a second of each network."""
    torch.set_num_threads(1)
    lines, rates = [], {}
    pairs = {name: lambda name=name: subjects(name, given.compiled) for name in given.networks}
    pairs["the ENS-10 paper's U-Net"] = against_plain_unet
    for name, make in pairs.items():
        times = timed(make(), given.rounds)
        rates[name] = {form: round(DATES / median(values), 2) for form, values in times.items()}
        plain = times.pop("plain")
        for form, values in times.items():
            ratio = median(a / b for a, b in zip(values, plain, strict=True))
            target = 1.02 if form == "shipped" else 1
            lines.append(
                Line(f"{name}: time of a step {form}, to plain torch", ratio, target, False)
            )
    return lines, {"samples_a_processor_second": rates, "grid": GRID, "dates": DATES}


def _options(parser: argparse.ArgumentParser) -> None:
    alone = [name for name in cuda_steps.networks() if name != "shared_trunk"]  # has several heads
    parser.add_argument("--networks", nargs="+", default=alone, metavar="NAME")
    parser.add_argument("--compiled", action="store_true")


if __name__ == "__main__":
    raise SystemExit(run(CLAIM, measure, code=CODE, rounds=9, options=_options))
