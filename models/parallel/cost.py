"""A model, not a measurement: how long one training step takes on so many devices.

    T = max(flops / rate + moved / memory rate,                     the largest part computes,
            operations * launch)                                    if it is not too small
      + messages * latency + bytes / bandwidth                      halos
      + sums * 2 ceil(log2 s) * latency + summed / bandwidth        norms, over s parts of a sample
      + 2 ceil(log2 n) * latency + 2 (n - 1) / n * gradients / bandwidth    over all n processes

It is the latency-bandwidth model of Dryden et al. 2019 (arXiv:1903.06681), with the largest part
for the imbalance of parts. Nothing overlaps, neither computing with moving data nor either with
messages: a real run may be faster. Left out are reading data, head and loss.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.parallel.recording import Footprint

Precision = Literal["32", "bf16"]
_ADAM = 7  # passes over memory for each parameter: reads it, its gradient and moments, writes three


@dataclass(frozen=True)
class Wire:
    """What messages go through.

    Attributes:
        latency: seconds before the first byte.
        bandwidth: bytes per second of one process, each way.
    """

    latency: float
    bandwidth: float

    def seconds(self, messages: float, size: float) -> float:
        """Of so many messages with so many bytes in all."""
        return messages * self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Machine:
    """Devices of one kind in nodes, with one process each.

    Attributes:
        name: of the preset.
        flops: operations per second that convolutions reach, by precision.
        memory: bytes per second that all else reaches.
        launch: seconds to start an operation.
        node: processes in a node.
        near: between processes of a node.
        far: between nodes, for each process.
        source: where the figures are from.
    """

    name: str
    flops: dict[Precision, float]
    memory: float
    launch: float
    node: int
    near: Wire
    far: Wire
    source: str

    def wire(self, processes: int) -> Wire:
        """The slowest between so many neighbouring ranks."""
        return self.near if self.node % processes == 0 else self.far


def _assumed(
    name: str, tf32: float, bf16: float, memory: float, near: float, far: float
) -> Machine:
    """A preset of vendor's peaks, in Tflop/s and TB/s, and of wires in GB/s each way."""
    return Machine(
        name,
        {"32": 0.3 * 1e12 * tf32, "bf16": 0.3 * 1e12 * bf16},
        0.7 * 1e12 * memory,
        5e-6,
        8,
        Wire(10e-6, 0.7e9 * near),
        Wire(20e-6, 0.7e9 * far),
        f"not measured: the vendor's dense peaks of {tf32:g} (TF32) and {bf16:g} Tflop/s (bfloat16)"
        f" times an assumed 0.3; memory of {memory:g} TB/s, NVLink of {near:g} and a network of"
        f" {far:g} GB/s a device and way, times an assumed 0.7; 5 us to start an operation, 10 us"
        " for a message in a node and 20 us between nodes are assumed; 8 devices a node",
    )


# The vendor's data sheets: A100 80GB SXM (NVIDIA 2021), H200 SXM (NVIDIA 2024), without sparsity.
_PRESETS = (
    Machine(
        "cpu",
        {"32": 70e9, "bf16": 70e9},
        5.6e9,
        0.0,
        2,
        Wire(60e-6, 1.5e9),
        Wire(100e-6, 1.25e9),
        "one thread of an Intel Xeon in a machine of 2 cores: rates from the 3.157 s that a step"
        " of the paper's U-Net took there, 75 % of it in convolutions"
        " (benchmarks/results/unet_step.json); 60 us and 1.5 GB/s are the best of 200 exchanges of"
        " 60 to 260 kB over gloo while the machine was busy; between nodes 100 us and 10 Gbit/s,"
        " and bfloat16 no faster, are assumed",
    ),
    _assumed("a100", 156, 312, 2.039, 300, 25),
    _assumed("h200", 494, 989, 4.8, 450, 50),
)
MACHINES = {machine.name: machine for machine in _PRESETS}


@dataclass(frozen=True)
class StepTime:
    """Seconds of one step, by the model of this module.

    Attributes:
        compute: of the largest part, with the optimiser.
        halos: messages to neighbours.
        sums: over the processes of a sample.
        gradients: their sum over all processes.
    """

    compute: float
    halos: float
    sums: float
    gradients: float

    @property
    def messages(self) -> float:
        """All that one process would not need."""
        return self.halos + self.sums + self.gradients

    @property
    def total(self) -> float:
        """The step."""
        return self.compute + self.messages


def step_time(
    footprint: Footprint,
    machine: Machine,
    data: int = 1,
    parts: int = 1,
    precision: Precision = "32",
) -> StepTime:
    """The step of data * parts processes.

    Args:
        footprint: of one process.
        machine: the devices.
        data: groups of processes, each with its own samples.
        parts: processes that hold a sample.
        precision: of the fields; the footprint is to be of the same.

    Raises:
        ArgumentError: no process.
    """
    if data < 1 or parts < 1:
        raise ArgumentError("parts", f"{data} x {parts} processes are none")
    size = footprint.parameter_bytes
    moved = footprint.moved + _ADAM * size
    group, world = machine.wire(parts), machine.wire(data * parts)
    hops = footprint.sums * _hops(parts)
    share = 2 * (1 - 1 / (data * parts))
    computes = footprint.flops / machine.flops[precision] + moved / machine.memory
    return StepTime(
        compute=max(computes, footprint.operations * machine.launch),
        halos=group.seconds(footprint.messages, footprint.bytes),
        sums=group.seconds(hops, footprint.summed_bytes) if parts > 1 else 0.0,
        gradients=world.seconds(_hops(data * parts), share * size),
    )


def _hops(processes: int) -> int:
    """Messages one after another in a sum that all get: up and down a tree."""
    return 2 * math.ceil(math.log2(processes))


def machine_named(name: str) -> Machine:
    """A preset.

    Raises:
        UnknownNameError: there is none of this name.
    """
    if name not in MACHINES:
        raise UnknownNameError("machine", name, MACHINES)
    return MACHINES[name]


def check_precision(precision: str) -> Precision:
    """The precision, if it is one.

    Raises:
        UnknownNameError: it is none.
    """
    known: dict[str, Precision] = {name: name for name in get_args(Precision)}
    if precision not in known:
        raise UnknownNameError("precision", precision, known)
    return known[precision]
