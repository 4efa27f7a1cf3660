"""The table of docs/many_devices_model.md: steps on many devices, extrapolated by the cost model.

    python -m ens10.experiments.plan_table [--out docs/many_devices_model.md]

It takes some minutes, and nothing is trained or measured.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ens10.durable import write_whole
from ens10.experiments.commands import tells_errors
from ens10.experiments.demo import config_path
from ens10.experiments.plan import subject_of
from ens10.models.parallel.cost import MACHINES, Precision, step_time
from ens10.models.parallel.planning import MODELLED, FootprintOf, Option, milliseconds, plan
from ens10.models.parallel.recording import Grid
from ens10.progress import track

MODELS = {"unet": "U-Net", "smoe_unet": "SMoE U-Net"}
GRIDS: dict[str, Grid] = {"0.5": (361, 720), "0.25": (721, 1440), "0.1": (1801, 3600)}
DEVICES = (8, 64, 256)
MACHINE = MACHINES["h200"]
PRECISION: Precision = "32"
MEMORY = 141e9  # bytes of an H200
SAMPLES = 8  # of a step, strong scaling
NODE = 8  # devices that share a sample, weak scaling
_MOST_LON = 4
_HEADER = (
    "model", "degrees", "scaling", "devices", "samples", "data", "lat", "lon", "GB a device",
    "step", "computes", "messages", "efficiency",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One line: a model on a grid and a number of devices.

    Attributes:
        model: name of its configuration.
        degrees: of the grid.
        scaling: "strong", the same samples on more devices, or "weak", more samples too.
        devices: how many.
    """

    model: str
    degrees: str
    scaling: str
    devices: int

    @property
    def samples(self) -> int:
        """Of a step, on all devices."""
        return SAMPLES if self.scaling == "strong" else self.devices // NODE


def cases() -> Iterator[Case]:
    """All lines of the table."""
    for model in MODELS:
        for degrees in GRIDS:
            for scaling in ("strong", "weak"):
                for devices in DEVICES:
                    yield Case(model, degrees, scaling, devices)


def line(case: Case) -> str:
    """The line of a case.

    Raises:
        ArgumentError: nothing fits.
    """
    counted = _counted(case.model, case.degrees)
    best = _best(case, counted)
    assert best.footprint is not None
    assert best.time is not None
    alone_samples = SAMPLES if case.scaling == "strong" else 1
    alone = step_time(counted(alone_samples, 1, 1), MACHINE, precision=PRECISION).total
    share = alone / alone_samples * case.samples / (case.devices * best.time.total)
    split = best.split
    cells = (
        MODELS[case.model], case.degrees, case.scaling, case.devices, case.samples,
        split.data, split.lat, split.lon, f"{best.footprint.memory / 1e9:.3g}",
        milliseconds(best.time.total), milliseconds(best.time.compute),
        milliseconds(best.time.messages), f"{100 * share:.0f} %",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def page(lines: Sequence[str]) -> str:
    """The page, with the assumptions beside the table."""
    head = f"| {' | '.join(_HEADER)} |", "|" + "---|" * len(_HEADER)
    return _TEXT.format(
        modelled=MODELLED, table="\n".join((*head, *lines)), source=MACHINE.source,
        samples=SAMPLES, node=NODE, most_lon=_MOST_LON,
    )  # fmt: skip


@cache
def _counted(model: str, degrees: str) -> FootprintOf:
    return subject_of(config_path(model), GRIDS[degrees]).footprints(PRECISION)


def _best(case: Case, counted: FootprintOf) -> Option:
    def of(devices: int, samples: int) -> Option:
        found = plan(counted, devices, MEMORY, samples, MACHINE, PRECISION, most_lon=_MOST_LON)
        return found.best

    if case.scaling == "strong":
        return of(case.devices, case.samples)
    node, groups = of(NODE, 1), case.devices // NODE
    assert node.footprint is not None
    time = step_time(node.footprint, MACHINE, groups, node.split.parts, PRECISION)
    return Option(replace(node.split, data=groups), node.footprint, time)


_TEXT = """# Training on 8, 64 and 256 devices: {modelled}

Nobody ran this. It is what the cost model of `ens10 plan` says of H200 devices in nodes of 8,
float32 (TF32 in convolutions). Made by `python -m ens10.experiments.plan_table`; do not edit.

{table}

- Strong scaling: {samples} samples a step, whatever the number of devices. Weak: a sample for each
  {node} devices, which hold it together. The split (data x lat x lon) is the fastest of those with
  at most {most_lon} parts of the columns.
- Step: computes + messages. Messages are halos, sums of norms, and the sum of gradients.
- Efficiency: samples a second and device, relative to the same network and samples (weak: one) on
  one device by the same model, whether or not they fit there. It can exceed 100 %: the layers of a
  whole grid copy each field to pad it around the globe, parts keep strips alone.

## What it says

- On the grid of ENS-10 a device is hardly busy with a whole sample: groups of devices with samples
  of their own (data) are the fastest while there are as many samples as devices. Parts are for
  what does not fit, and for finer grids.
- A part can be so small that starting its operations takes all the time: "computes" falls no more.
- Sums of norms wait for messages one after another, and cost most where the parts of a sample lie
  on several nodes: a sample is best held by the devices of one node.

## Counted

Operations, bytes moved, activations kept, parameters, messages and sums: from one forward and
backward pass of the network of `experiments/configs` on the meta device, in the largest part and in
the one with most neighbours (`models/parallel/recording.py`). Memory is 4 x float32 parameters
(with gradients and Adam), the activations, and three times the largest of them.

## Assumed

- Rates: {source}.
- T = max(operations / rate + bytes / memory rate, kernels x time to start one) + messages x
  latency + bytes / bandwidth, for halos, sums of norms (up and down a tree) and gradients (a ring).
  See `models/parallel/cost.py`; the form is that of Dryden et al. 2019 (arXiv:1903.06681).
- Nothing overlaps: neither computing with moving data, nor messages with either. DDP and CUDA
  graphs would do better than this, above all for small parts, where starting kernels takes most.
- Each operation reads and writes its fields once, unfused; the rate of convolutions does not
  depend on how many rows a part has.
- Left out: reading data, head and loss, failures, and others on the same network.
- Parameters are whole on each device. The gates of the SMoE U-Net have a value at each grid point:
  at 0.1 degrees they are most of the gradients that are summed.
"""


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 with one line on bad input."""
    parser = argparse.ArgumentParser(prog="python -m ens10.experiments.plan_table")
    parser.add_argument("--out", type=Path, default=Path("docs/many_devices_model.md"))
    options = parser.parse_args(arguments)
    every = list(cases())
    lines = [line(case) for case in track(every, "table", len(every), sys.stderr.isatty())]
    write_whole(options.out, page(lines))
    print(f"Wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
