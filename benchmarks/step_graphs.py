"""Claim: what a training step of one date gains on a GPU by a CUDA graph and without host checks.

    python benchmarks/step_graphs.py [--seconds 270] [--dates 1] [--out FILE.json] [NAME ...]
    python benchmarks/step_graphs.py --device cpu --tiny --out FILE.json    # to try the program

Each network is measured in a process of its own, in bfloat16 at 361 x 720 with Adam:

    check       forward, loss, backward; the host reads whether the loss is finite, as in a fit
    no check    the same, and nothing is read
    flag        the finite check as a flag on the device, which the fused Adam takes as `found_inf`
    graph       forward, loss, backward and flag replayed as one CUDA graph, Adam launched after it
    whole       Adam in the graph, too
    compiled    network, head and loss by one call of `torch.compile`, with the flag
    overhead    the same in the mode "reduce-overhead", which captures CUDA graphs itself

A variant is timed after its losses in four steps from the same weights were compared with those of
"no check". The compiled variants come last and are stopped at the end of the time.
"""

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import import_elsewhere

import_elsewhere("cuda")  # before torch, which may look for it

import cuda_steps as made  # noqa: E402
import torch  # noqa: E402
from cuda_parts import Run  # noqa: E402
from torch import Tensor  # noqa: E402

from ens10.models.matching import forecast_of  # noqa: E402

VARIANTS = ("check", "no check", "flag", "graph", "whole")
COMPILED = ("compiled", "overhead")
COMPARED = 4  # steps whose losses are compared


class Variant:
    """A training step in one of the variants.

    Args:
        step: network, head, batch and optimiser.
        kind: the variant's name.
        tiny: whether the compiler is to be quick rather than good.
    """

    def __init__(self, step: made.Step, kind: str, *, tiny: bool) -> None:
        self.step, self.kind, self.tiny = step, kind, tiny
        self.flag = torch.zeros((), device=step.batch["target"].device)
        self.mean: Callable[[dict[str, Tensor]], Tensor] = self._mean
        if kind in COMPILED:
            backend = {"backend": "aot_eager"} if tiny else {}
            mode = {"mode": "reduce-overhead"} if kind == "overhead" and not tiny else {}
            self.mean = torch.compile(self._mean, **backend, **mode)
        if kind not in ("check", "no check"):
            step.optimizer.found_inf = self.flag
        self.graph: Any = None

    def _mean(self, batch: dict[str, Tensor]) -> Tensor:
        step = self.step
        forecast = forecast_of(step.network, step.head, batch)
        weights = batch["weights"]
        values = step.loss.evaluate(forecast, batch["target"], weights)
        return torch.where(weights > 0, weights * values, 0).sum() / weights.sum()

    def gradients(self) -> Tensor:
        """Forward, loss, backward and the check; the loss on the device."""
        step = self.step
        with step.autocast:
            mean = self.mean(step.batch)
        penalty = step.network.penalty()
        mean = made.track_loss(mean, step.network)
        total = mean if penalty is None else mean + penalty
        if self.kind == "check" and not bool(total.isfinite()):
            raise ArithmeticError("a loss is not finite")
        total.backward()
        if self.kind not in ("check", "no check"):
            self.flag.copy_(~total.detach().isfinite())
        return total.detach()

    def eager(self) -> Tensor:
        """One step without a graph."""
        if self.kind == "overhead":
            torch.compiler.cudagraph_mark_step_begin()
        self.step.optimizer.zero_grad()
        loss = self.gradients()
        self.step.optimizer.step()
        return loss

    def capture(self) -> None:
        """Captures the graph; weights and moments are afterwards as before."""
        weights = copy.deepcopy(self.step.network.state_dict())
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # the warming up that torch asks for
            for _ in range(3):
                self.eager()
        torch.cuda.current_stream().wait_stream(side)
        self.step.optimizer.zero_grad()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.gradients()
            if self.kind == "whole":
                self.step.optimizer.step()
        with torch.no_grad():
            for name, value in self.step.network.state_dict().items():
                value.copy_(weights[name])
            for state in self.step.optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def __call__(self) -> Tensor:
        """One step."""
        if self.kind not in ("graph", "whole") or self.step.batch["target"].device.type != "cuda":
            return self.eager()
        if self.graph is None:
            self.capture()
        self.graph.replay()
        if self.kind == "graph":
            self.step.optimizer.step()
        return self.loss


def variant(name: str, kind: str, run: Run, dates: int) -> Variant:
    """A variant of a configuration's step, from the same weights as all others."""
    torch._dynamo.reset()
    text = "bfloat16, 4 dates" if dates == 4 else "bfloat16"
    step = made.step(name, run.grid, run.device, text, tiny=run.tiny)
    step.head.to(run.device)
    options = {"lr": step.optimizer.param_groups[0]["lr"], "fused": True}
    options |= {"capturable": True} if kind == "whole" and run.device == "cuda" else {}
    step.optimizer = torch.optim.Adam(step.network.parameters(), **options)
    return Variant(step, kind, tiny=run.tiny)


def measured(run: Run, name: str, kind: str, dates: int, reference: list[float]) -> dict[str, Any]:
    """Milliseconds of a step and its losses; `reference` gets those of the first that has any."""
    start = time.perf_counter()
    step = variant(name, kind, run, dates)
    losses = [float(step()) for _ in range(COMPARED)]
    first = time.perf_counter() - start
    reference.extend(losses if not reference else [])
    wrong = max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))
    begin = time.perf_counter()
    for _ in range(5):
        step()
    launch = (time.perf_counter() - begin) / 5
    return {
        "milliseconds": round(1e3 * run.timed(step), 3),
        "milliseconds in a row of 20": round(1e3 * _row(run, step), 3),
        "milliseconds until launched": round(1e3 * launch, 3),
        "seconds of the first steps": round(first, 1),
        "losses": [round(loss, 6) for loss in losses],
        "largest relative difference of losses": float(f"{wrong:.2g}"),
    }


def _row(run: Run, step: Variant) -> float:
    """Seconds of a step among steps that follow each other without waiting, as in a fit."""
    run.synchronise()
    begin = time.perf_counter()
    for _ in range(20):
        step()
    run.synchronise()
    return (time.perf_counter() - begin) / 20


def network(run: Run, name: str, kinds: list[str], dates: int) -> None:
    """All variants of a network; an error is recorded."""
    reference: list[float] = []
    for kind in kinds:
        with run.recorded(kind):
            run.add(kind, measured(run, name, kind, dates, reference))


def in_process(name: str, kinds: list[str], seconds: float, options: Any) -> dict[str, Any]:
    """Measures variants in a process of their own, and what it had written if it is stopped."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "row.json"
        command = [sys.executable, __file__, name, "--kinds", ",".join(kinds), "--out", str(out)]
        command += ["--device", options.device, "--dates", str(options.dates), "--one"]
        command += ["--tiny"] if options.tiny else []
        log = Path(folder) / "log"
        with log.open("w") as stream:
            process = subprocess.Popen(command, stdout=stream, stderr=stream)
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = None
        row = json.loads(out.read_text()) if out.exists() else {}
        if code != 0:
            row["stopped"] = {"exit": code, "last lines": log.read_text().splitlines()[-8:]}
    return row


def main() -> None:
    """Measures the networks, first without the compiler."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0].removeprefix("Claim: "))
    parser.add_argument("names", nargs="*", default=list(made.CONFIGS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=270.0)
    parser.add_argument("--dates", type=int, choices=(1, 4), default=1)
    parser.add_argument("--kinds", default=",".join((*VARIANTS, *COMPILED)))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--one", action="store_true", help="in this process")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if options.one:
        run = Run(options.device, options.tiny, options.seconds, options.out)
        network(run, options.names[0], kinds, options.dates)
        return
    start = time.perf_counter()
    result: dict[str, Any] = {"torch": torch.__version__, "dates": options.dates, "rows": {}}
    if options.device == "cuda":
        result["device"] = torch.cuda.get_device_name()
    rounds = ([k for k in kinds if k in VARIANTS], *([k] for k in kinds if k in COMPILED))
    for chosen in filter(None, rounds):
        for name in options.names:
            left = options.seconds - (time.perf_counter() - start)
            if left < 15:
                continue
            row = in_process(name, ["no check", *chosen] if chosen[0] in COMPILED else chosen,
                             min(left, 75), options)  # fmt: skip
            kept = result["rows"].setdefault(name, {})
            kept.update({key: row[key] for key in row if key not in kept})
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(result, indent=1) + "\n")
            print(name, json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
