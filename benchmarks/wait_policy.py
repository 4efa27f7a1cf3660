"""Claim: OpenMP threads that sleep while they wait train as fast alone, and faster beside others.

    python benchmarks/wait_policy.py [--busy N] [--rounds N] [--out FILE]

A step of the U-Net of `make demo` (a batch of 4 dates of 12 x 46 x 96: forward, backward, Adam) in
processes of one and two threads on two cores. The threads spin at barriers (the default of GNU's
OpenMP) or sleep (`OMP_WAIT_POLICY=passive`, which the commands of ens10 set). They are measured
twice, without and with N processes on the same cores that compute without end. The cases take
turns; figures are medians of the time by the clock and of processor time. After the last step the
weights must be equal, bit by bit, with both policies.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from common import Line, run

CODE = ("models/networks/unet",)

CASES = {
    "2 threads, spin": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": ""},
    "2 threads, sleep": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"},
    "1 thread": {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
}
CHILD = """
import hashlib, sys, time
import torch
from ens10.models.networks import UNet

torch.manual_seed(0)
network, features = UNet(12), torch.randn(4, 12, 46, 96)
optimizer = torch.optim.Adam(network.parameters(), 1e-3)
for line in sys.stdin:
    start, cpu = time.perf_counter(), time.process_time()
    optimizer.zero_grad()
    network(features).square().mean().backward()
    optimizer.step()
    times = time.perf_counter() - start, time.process_time() - cpu
    weights = b"".join(p.detach().numpy().tobytes() for p in network.parameters())
    print(*times, hashlib.sha256(weights).hexdigest(), flush=True)
"""


def start(program: str, environment: Mapping[str, str]) -> "subprocess.Popen[str]":
    """A Python process; an empty value removes a variable."""
    variables = {name: value for name, value in {**os.environ, **environment}.items() if value}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program]
    return subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, text=True)


def step(process: "subprocess.Popen[str]") -> tuple[float, float, str]:
    """Seconds and processor seconds of one step, and the checksum of the weights after it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    seconds, cpu, weights = process.stdout.readline().split()
    return float(seconds), float(cpu), weights


def steps(rounds: int, busy: int) -> dict[str, dict[str, float]]:
    """Medians of each case, in milliseconds, beside busy processes; the first round is left out."""
    children = {name: start(CHILD, environment) for name, environment in CASES.items()}
    others: list[subprocess.Popen[str]] = []
    try:
        for child in children.values():
            step(child)
        others += [start("while True: pass", {}) for _ in range(busy)]
        found = [{name: step(child) for name, child in children.items()} for _ in range(rounds)]
    finally:
        for process in [*others, *children.values()]:
            process.kill()
    assert found[-1]["2 threads, spin"][2] == found[-1]["2 threads, sleep"][2]
    return {
        name: {
            unit: round(1e3 * median(one[name][n] for one in found), 1)
            for n, unit in enumerate(("ms by the clock", "ms of processor"))
        }
        for name in CASES
    }


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """The cases on two cores, without and with busy processes."""
    load = os.getloadavg()[0]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    lines, found = [], {}
    for busy, target in ((0, 0.95), (options.busy, 1.0)):
        place = f"beside {busy} busy processes" if busy else "alone"
        found[place] = steps(options.rounds, busy)
        spin = found[place]["2 threads, spin"]
        for unit, value in found[place]["2 threads, sleep"].items():
            what = f"{unit} of a step {place}: threads that spin to threads that sleep"
            lines.append(Line(what, spin[unit] / value, target))
    return lines, {"load average before": round(load, 1), "steps": found}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the number of busy processes."""
    parser.add_argument("--busy", type=int, default=8, help="processes that compute beside it")


if __name__ == "__main__":
    claim = (
        "OpenMP threads that sleep while they wait train as fast alone, and faster beside others"
    )
    sys.exit(run(claim, measure, code=CODE, rounds=15, options=add_options))
