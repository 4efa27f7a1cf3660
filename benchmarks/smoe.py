"""Claim: a mixture-of-experts layer that computes the k chosen experts costs like them.

    python benchmarks/smoe.py [--device cuda] [--before FOLDER] [--rounds N] [--check] [--out FILE]

Forward and backward on one thread, routing classification and damping included, against the layer
as in the paper (all E experts, `topk`, a full sort for the quantile, the classification loss by
autograd; its two backward passes folded into one) and a plain convolution of k filters. Results
are first compared in float64 (on 90 x 180); times are CPU time in float32, ratios the median over
paired rounds. Memory is the peak of a step's resident memory in a process of its own, above the
peak of the plain convolution, in maps of k channels, without the gradient of the gate, which a
convolution has not and every learned map has: the larger of the peak without routing loss (no
such gradient) and the peak with it less that gradient. With `--device cuda` the torch forms run,
by the clock. With `--before` the compiled form of another source tree, such as that of an earlier
commit, runs in turns with this one, in processes of their own.
"""

import argparse
import ctypes
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import Line, run
from torch import Tensor, nn
from torch.nn import functional

from ens10.models.layers.smoe import SMoE2d, TensorGate

CODE = ("models/layers/smoe",)

QUANTILE, DAMPING = 0.3, 0.1
MARGIN, DAMPING_MARGIN = 1e-5, 1e-3  # in units of the output
CASES = {  # rows, columns, channels, E, k; how much faster than the dense form
    "90x180 C16 E64 k4": ((90, 180, 16, 64, 4), 6.0),
    "361x720 C16 E64 k16": ((361, 720, 16, 64, 16), 4.0),
    "361x720 C64 E64 k16": ((361, 720, 64, 64, 16), 2.0),
    "361x720 C64 E128 k64": ((361, 720, 64, 128, 64), 1.5),
}


class Routed(torch.autograd.Function):
    """The chosen values; backward judges them and does what the paper's second pass does."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, gate: Tensor, chosen: Tensor) -> Tensor:
        """Gathers (N, k, H, W) from (N, E, H, W)."""
        ctx.save_for_backward(gate, chosen)
        return values.gather(1, chosen)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """Damped gradient of the values, classification gradient of the gate."""
        gate, chosen = ctx.saved_tensors
        errors = gradient.abs()
        ordered = errors.flatten(1).sort(dim=1).values
        rank = QUANTILE * (ordered.shape[1] - 1)
        below, above = ordered[:, int(rank)], ordered[:, int(rank) + 1]
        limit = below + (rank - int(rank)) * (above - below)
        unit = 2 / errors.numel()  # of the gradient, for an error of 1
        wrong = errors > limit.view(-1, 1, 1, 1) + MARGIN * unit
        damped = errors > limit.view(-1, 1, 1, 1) + DAMPING_MARGIN * unit
        E, k = gate.shape[1], chosen.shape[1]
        others = wrong.sum(1, keepdim=True).to(gate.dtype) / (E - k)
        target = others.expand(gate.shape).clone().scatter_(1, chosen, (~wrong).to(gate.dtype))
        with torch.enable_grad():
            logits = gate.detach().requires_grad_()
            loss = functional.binary_cross_entropy_with_logits(logits, target)
            (for_gate,) = torch.autograd.grad(loss, logits)
        part = torch.where(damped, gradient * DAMPING, gradient)
        for_values = torch.zeros(gate.shape, dtype=part.dtype, device=part.device)
        return for_values.scatter_(1, chosen, part), for_gate, None


class Dense(nn.Module):
    """The layer as in the paper: all experts at all points."""

    def __init__(self, channels: int, experts: int, k: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.experts = nn.Conv2d(channels, experts, 3, padding=1, bias=False)
        self.gate, self.k = TensorGate(experts, k, grid), k

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, k, H, W)."""
        gate = self.gate(x)
        chosen = gate.topk(self.k, dim=1).indices
        out: Tensor = Routed.apply(self.experts(x), gate, chosen)  # type: ignore[no-untyped-call]
        return out


Shape = tuple[int, int, int, int, int]


def build(name: str, shape: Shape) -> nn.Module:
    """A subject by name."""
    H, W, C, E, k = shape
    torch.manual_seed(0)
    if name == "convolution":
        return nn.Conv2d(C, k, 3, padding=1, bias=False)
    if name == "dense":
        return Dense(C, E, k, (H, W))
    gate, taught = TensorGate(E, k, (H, W)), name != "untaught"
    kernel: Any = name if taught else "compiled"
    rule = {"quantile": QUANTILE, "damping": DAMPING, "margin": MARGIN}
    rule["damping_margin"] = DAMPING_MARGIN
    layer = SMoE2d(C, E, k, gate, **rule, routing_loss=taught, kernel=kernel)  # type: ignore[arg-type]
    layer.state.loss_scale = torch.ones(())  # the gradient that is given is that of the loss
    return layer


def subject(
    name: str, shape: Shape, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[nn.Module, Tensor, Callable[[], Tensor]]:
    """The layer, its input, and a function that takes a step of both passes."""
    H, W, C, _, k = shape
    layer = build(name, shape).to(device, dtype)
    random = torch.Generator().manual_seed(1)
    x = torch.randn(1, C, H, W, generator=random).to(device, dtype).requires_grad_()
    gradient = torch.randn(1, k, H, W, generator=random).to(device, dtype)

    def step() -> Tensor:
        layer.zero_grad()
        x.grad = None
        out: Tensor = layer(x)
        out.backward(gradient)
        return out

    return layer, x, step


def results(name: str, shape: Shape, like: nn.Module | None) -> tuple[nn.Module, list[Tensor]]:
    """Values and gradients in float64, with the parameters of another layer."""
    layer, x, step = subject(name, shape, torch.float64)
    if like is not None:
        layer.load_state_dict(like.state_dict())
    out = step().detach()
    gradients = {n: p.grad for n, p in layer.named_parameters()}
    return layer, [out, x.grad, gradients["experts.weight"], gradients["gate.weight"]]  # type: ignore[list-item]


def compare(shape: Shape, subjects: Sequence[str]) -> float:
    """The largest difference relative to the largest number of each result, on 90 x 180."""
    shape = (90, 180, *shape[2:])
    first, wanted = results("dense", shape, None)
    worst = 0.0
    for name in subjects:
        for got, want in zip(results(name, shape, first)[1], wanted, strict=True):
            worst = max(worst, ((got - want).abs().max() / want.abs().max()).item())
    if not worst <= 1e-12:
        sys.exit(f"{shape}: results differ by {worst:.2g}")
    return worst


def timed(steps: Mapping[str, Callable[[], Any]], rounds: int, device: str) -> dict[str, Any]:
    """Seconds of each subject in each round."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for n in range(rounds + 1):
        for name, step in steps.items():
            start = clock()
            step()
            if device != "cpu":
                torch.cuda.synchronize()
            if n:
                seconds[name].append(clock() - start)
    return seconds


def peak(name: str, case: str) -> int:
    """Bytes of resident memory that a step adds at most, less the gradient of the gate."""
    torch.set_num_threads(1)
    layer, x, step = subject(name, CASES[case][0])
    step()
    layer.zero_grad()
    x.grad = None
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    step()
    gradient = layer.gate.weight.grad if hasattr(layer, "gate") else None  # type: ignore[union-attr]
    return _status("VmHWM") - before - (0 if gradient is None else gradient.nbytes)  # type: ignore[operator]


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(key))


def peaks(case: str, subjects: Sequence[str]) -> dict[str, float]:
    """Peaks above the convolution, in maps of k channels, each in a process of its own."""
    H, W, _, _, k = CASES[case][0]
    # all larger arrays go back to the system when they are freed
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    found = {}
    for name in ("convolution", *subjects):
        command = [sys.executable, __file__, "--peak", name, case]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found[name] = int(done.stdout) / (4 * k * H * W)
    return {name: found[name] - found["convolution"] for name in subjects}


def seconds_of_tree(tree: str, case: str) -> float:
    """CPU time of a step of the compiled form in a source tree, the best of some."""
    command = [sys.executable, __file__, "--step", case]
    environment = os.environ | {"PYTHONPATH": tree, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, cwd=tree, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def step_seconds(case: str) -> float:
    """CPU time of a step of the compiled form, the best of some after one that does not count."""
    torch.set_num_threads(1)
    step = subject("compiled", CASES[case][0])[2]
    step()
    times = timed({"compiled": step}, 5, "cpu")["compiled"]
    return float(min(times))


def measure(options: argparse.Namespace) -> tuple[Sequence[Line], Mapping[str, Any]]:
    """Ratios of CPU time and peaks of memory."""
    torch.set_num_threads(1)
    cpu = options.device == "cpu"
    names = ("dense", "compiled" if cpu else "eager", "convolution")
    lines, details = [], {}
    for case, (shape, target) in CASES.items():
        found: dict[str, Any] = {}
        if cpu:
            found["largest relative difference"] = compare(shape, ("eager", "compiled"))
        steps = {name: subject(name, shape, device=options.device)[2] for name in names}
        seconds = timed(steps, options.rounds, options.device)
        found["milliseconds"] = {n: round(1e3 * median(s), 2) for n, s in seconds.items()}
        if cpu:
            ratios = _ratios(seconds, "dense", "compiled")
            found["dense to compiled, quartiles"] = _quartiles(ratios)
            cost = _ratios(seconds, "compiled", "convolution")
            found["compiled to convolution, quartiles"] = _quartiles(cost)
            lines.append(Line(f"{case}: dense to compiled, CPU time", median(ratios), target))
            above = peaks(case, ("compiled", "untaught"))
            found["maps above the convolution"] = {n: round(v, 2) for n, v in above.items()}
            if options.before:
                here = str(Path(__file__).parents[1])
                turns = {tree: [] for tree in (str(Path(options.before).resolve()), here)}
                for _ in range(options.rounds):
                    for tree, times in turns.items():
                        times.append(seconds_of_tree(tree, case))
                old, new = turns.values()
                found["after to before, milliseconds"] = [1e3 * median(new), 1e3 * median(old)]
                what = f"{case}: compiled, CPU time after to before"
                lines.append(Line(what, median(new) / median(old), 1.1, at_least=False))
            what = f"{case}: peak memory above the convolution, maps of k channels"
            lines.append(Line(what, max(above.values()), 1.5, at_least=False))
        print(case, found, file=sys.stderr, flush=True)
        details[case] = found
    times = [case["milliseconds"] for case in details.values()]
    bounds = [f"{t['dense'] / t['convolution']:.1f}" for t in times]  # of k filters, without gates
    return lines, {"device": options.device, "cases": details, "bounds": bounds}


def _ratios(seconds: Mapping[str, Sequence[float]], one: str, two: str) -> list[float]:
    return [a / b for a, b in zip(seconds[one], seconds[two], strict=True)]


def _quartiles(values: Sequence[float]) -> list[float]:
    found = torch.tensor(values).quantile(torch.tensor([0.25, 0.5, 0.75]))
    return [round(value, 2) for value in found.tolist()]


def device(parser: argparse.ArgumentParser) -> None:
    """Where the layers run, and the source tree to compare with."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--before", help="folder of another source tree")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        print(peak(*sys.argv[2:]))
        sys.exit(0)
    if sys.argv[1:2] == ["--step"]:
        print(step_seconds(*sys.argv[2:]))
        sys.exit(0)
    claim = __doc__.splitlines()[0].removeprefix("Claim: ")
    sys.exit(run(claim, measure, code=CODE, rounds=9, options=device))
