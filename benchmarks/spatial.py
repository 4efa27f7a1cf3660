"""Claim: a sample split between processes costs each its share, and equals the serial run.

    python benchmarks/spatial.py [--data DIR] [--grid 361 720] [--rounds N] [--check] [--out FILE]

The paper's U-Net with 22 channels and one sample on the whole grid, against 2 and 4 parts of its
rows over gloo, one thread a process, serial included. Equality comes first: float64 outputs and
gradients on 37 x 48; float32 outputs on the whole grid, which are compared with float64. A step is
forward, backward and the sum of the parameters' gradients over the processes; serial and split
steps take turns, and each round is kept with the load of the machine before it. CPU work is that of
all processes of a step. Saved activations are the storages that the graph keeps, counted once and
without parameters; the peak of resident memory is that of a step in processes that give memory back
at once. Bytes sent are compared with a formula of the layers, below. A process reads its rows
alone: bytes are those of the loader. `--device cuda` times forward and backward against rows on one
device instead, without messages.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from common import VARIABLES, Line, run, store
from spatial_ranks import CHANNELS, HALVINGS, Processes, peak, results, saved, sent, timed

from ens10.loader import Batches
from ens10.loader.batch_layouts import Fields
from ens10.loader.order import Share
from ens10.models.domain import Cut
from ens10.models.layers import SameConv2d
from ens10.models.networks import UNet
from ens10.models.networks.unet import PLACES

CODE = (
    "models/parallel", "models/networks/unet", "models/layers/padding", "models/layers/norm",
    "models/domain", "models/extend", "models/around",
)  # fmt: skip

SMALL = (37, 48)
PARTS = (2, 4)
SAVED = {2: 0.55, 4: 0.32}  # of the serial activations
WORK, SPEED_UP = 1.15, 1.5
FLOAT = 4
Grid = tuple[int, int]


def convolutions() -> Iterator[tuple[int, int, bool]]:
    """Channels in, level, and whether the input has a gradient, of each convolution."""
    network = UNet(CHANNELS)
    for place, level in PLACES.items():
        block = getattr(network, place)
        layers = [block] if isinstance(block, SameConv2d) else block
        for n, layer in enumerate(layers):
            if isinstance(layer, SameConv2d):
                yield layer.in_channels, level, (place, n) != ("down_0", 0)


def formula(grid: Grid, parts: int) -> int:
    """Bytes that all parts send in a step, by the layers of the network.

    Each of the parts - 1 borders is crossed, in a forward pass, by a row of every map that is
    convolved with 3 x 3 points and of every map that is interpolated, both ways, and by one row
    downwards of every map that gets a row on top because pooling dropped one; in the backward
    pass by as much the other way, but for the features, which have no gradient.
    """
    rows, columns = ([n >> level for level in range(HALVINGS + 1)] for n in grid)
    total = 0
    for channels, level, has_gradient in convolutions():
        total += 2 * channels * columns[level] * (1 + has_gradient)
    network = UNet(CHANNELS)
    for block, level in ((network.bottom, 1), (network.up_1, 0)):
        channels = [one for one in block if isinstance(one, SameConv2d)][-1].out_channels
        total += 2 * 2 * channels * columns[level + 1]  # interpolated
        odd = rows[level] % 2
        total += 2 * odd * channels * 2 * columns[level + 1]
    return FLOAT * total * (parts - 1)


def equality(processes: Processes, grid: Grid) -> dict[str, float]:
    """Relative L2 of outputs and gradients, split or in single precision, against serial float64.

    torch's batch normalisation of channels_last sums over a channel in single precision, so that
    serial outputs of a large grid have fewer digits than split ones.
    """
    found = {}
    outputs, gradients = processes(1, results, SMALL, torch.float64)[0]
    for parts in PARTS:
        ranks = processes(parts, results, SMALL, torch.float64)
        name = f"{parts} parts, {SMALL[0]} x {SMALL[1]}, float64"
        found[f"outputs, {name}"] = _distance(_joined(ranks), outputs)
        found[f"gradients, {name}"] = max(_distance(one[1], gradients) for one in ranks)
    if not all(value <= 1e-10 for value in found.values()):
        sys.exit(f"split and serial differ: {found}")
    # outputs alone: in float32 ties of a pooling go another way
    outputs = processes(1, results, grid, torch.float64)[0][0]
    errors = {
        parts: _distance(_joined(processes(parts, results, grid, torch.float32)), outputs)
        for parts in (1, *PARTS)
    }
    for parts, error in errors.items():
        found[f"outputs, {parts} parts, {grid[0]} x {grid[1]}, float32"] = error
    if not all(errors[parts] <= errors[1] for parts in PARTS):
        sys.exit(f"split outputs are further from float64 than serial ones: {found}")
    return found


def _joined(ranks: Sequence[tuple[npt.NDArray[Any], Any]]) -> npt.NDArray[Any]:
    return np.concatenate([outputs for outputs, _ in ranks], axis=2)


def _distance(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    distance, length = np.linalg.norm(found - expected), np.linalg.norm(expected)
    return float(distance / length)


def rounds(processes: Processes, grid: Grid, count: int) -> list[dict[str, Any]]:
    """Seconds by the clock (of the slowest) and of CPU (of all), serial and split, in turns."""
    found = []
    for n in range(count + 1):
        one: dict[str, Any] = {"load": round(os.getloadavg()[0], 2)}
        for parts in (1, *PARTS):
            ranks = processes(parts, timed, grid)
            clock, worked = max(r[0] for r in ranks), sum(r[1] for r in ranks)
            one[f"{parts}"] = {"seconds": round(clock, 3), "cpu": round(worked, 3)}
        if n:
            found.append(one)
            print(one, file=sys.stderr, flush=True)
    return found


def ratio(found: Sequence[Mapping[str, Any]], parts: int, key: str) -> float:
    """Median over the rounds, of the split step to the serial one of its round."""
    ratios = [one[f"{parts}"][key] / one["1"][key] for one in found]
    return float(median(ratios))


def read(options: argparse.Namespace) -> dict[int, list[float]]:
    """Bytes that each part reads of one date of the store, to those of the whole grid."""
    path = store(options.data)
    height, width = 361, 720  # of the benchmarks' store

    def of(index: int, parts: int) -> int:
        rows = Cut(height, parts, index, HALVINGS)
        bounds = tuple(rows.bounds), (0, width)
        kind = Share(0, 1, rows.local_slice, slice(0, width), bounds).kind(Fields())
        batches = Batches(
            path, "t2m", list(VARIABLES), kind=kind, threads=0, shuffle=False, normalise=False
        )
        next(iter(batches))
        return batches.bytes_read

    whole = of(0, 1)
    return {n: [of(index, n) / whole for index in range(n)] for n in PARTS}


def by_rows(device: str, grid: Grid, count: int) -> dict[str, float]:
    """Median milliseconds of forward and backward on the first rows of the grid, on one device."""
    network, found = UNet(CHANNELS).to(device), {}
    for parts in (1, 2, 4, 8, 16):
        rows = Cut(grid[0], parts, 0, HALVINGS).local_slice.stop
        features = torch.randn(1, CHANNELS, rows, grid[1], device=device)
        times = []
        for n in range(count + 1):
            start = time.perf_counter()
            network(features).sum().backward()
            if device != "cpu":
                torch.cuda.synchronize()
            times += [time.perf_counter() - start] if n else []
        found[f"{rows} of {grid[0]} rows"] = round(1e3 * median(times), 3)
    return found


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """All of it, or time against rows on a GPU."""
    grid = tuple(options.grid)
    if options.device != "cpu":
        times = by_rows(options.device, grid, options.rounds)
        return [], {"measured": {"milliseconds": times}, "device": torch.cuda.get_device_name()}
    torch.set_num_threads(1)
    measured: dict[str, Any] = {}
    lines: list[Line] = []
    with Processes(max(PARTS)) as processes:
        measured["relative differences"] = equality(processes, grid)
        measured["rounds"] = found = rounds(processes, grid, options.rounds)
        serial = processes(1, saved, grid)[0]
        for n in PARTS:
            shares = [kept / serial for kept in processes(n, saved, grid)]
            measured[f"saved activations a process, {n} parts"] = [round(s, 4) for s in shares]
            what = f"saved activations of the fullest of {n} processes, of the serial ones"
            lines.append(Line(what, max(shares), SAVED[n], at_least=False))
        for n in PARTS:
            total = sum(processes(n, sent, grid))
            measured[f"bytes sent in a step, {n} parts"] = total
            what = f"bytes sent by {n} processes, difference from the formula's"
            lines.append(Line(what, abs(total - formula(grid, n)), 0, at_least=False))
    for n in PARTS:
        what = f"CPU work of {n} processes, of the serial one"
        lines.append(Line(what, ratio(found, n, "cpu"), WORK, at_least=False))
    lines.append(Line("speed-up of 2 processes", 1 / ratio(found, 2, "seconds"), SPEED_UP))
    measured["peak of memory above that before a step, of the serial one"] = peaks(grid)
    reading = read(options)
    measured["bytes read by each process, of all"] = {
        f"{n}": [round(share, 4) for share in shares] for n, shares in reading.items()
    }
    for n, shares in reading.items():
        halo = (2 if n > 2 else 1) / 361  # the most rows that the first convolution could want
        what = f"bytes read by each of {n} processes, of all"
        lines.append(Line(what, max(shares), 1 / n + halo, at_least=False))
    model = {f"bytes sent in a step, {n} parts": formula(grid, n) for n in PARTS}
    return lines, {"grid": grid, "measured": measured, "model": model}


def peaks(grid: Grid) -> dict[str, list[float]]:
    """Growth of resident memory in a step, of the serial one."""
    with Processes(max(PARTS), returns_memory=True) as processes:
        serial = processes(1, peak, grid)[0]
        return {f"{n}": [round(p / serial, 3) for p in processes(n, peak, grid)] for n in PARTS}


def arguments(parser: argparse.ArgumentParser) -> None:
    """The grid, and where it runs."""
    parser.add_argument("--grid", type=int, nargs=2, default=(361, 720))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")


if __name__ == "__main__":
    claim = __doc__.splitlines()[0].removeprefix("Claim: ")
    sys.exit(run(claim, measure, code=CODE, rounds=9, options=arguments))
