"""Which devices get which part of which samples, chosen with the model of `cost`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from ens10.errors import ArgumentError, Ens10Error
from ens10.models.parallel.cost import Machine, Precision, StepTime, step_time
from ens10.models.parallel.known import require_known
from ens10.models.parallel.recording import Footprint, Grid, footprint
from ens10.progress import track

MODELLED = "model, not measured"
FootprintOf = Callable[[int, int, int], Footprint]
_DTYPES: dict[Precision, torch.dtype] = {"32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Split:
    """How many groups of processes there are, and into how many parts each cuts its samples."""

    data: int
    lat: int
    lon: int

    @property
    def parts(self) -> int:
        """Processes that hold a sample."""
        return self.lat * self.lon

    def __str__(self) -> str:
        return f"data {self.data}, lat {self.lat}, lon {self.lon}"


@dataclass(frozen=True)
class Option:
    """A split, and what the model says of it.

    Attributes:
        split: of the devices.
        footprint: of the process that needs most; None where the grid cannot be cut so.
        time: of a step; None likewise.
        refusal: why it cannot be used, or nothing.
    """

    split: Split
    footprint: Footprint | None = None
    time: StepTime | None = None
    refusal: str = ""


@dataclass(frozen=True)
class Plan:
    """All splits of the devices.

    Attributes:
        options: those that can be used first, the fastest of them at the top.
        memory: bytes of a device.
        batch: samples of a step, on all devices.
    """

    options: tuple[Option, ...]
    memory: float
    batch: int

    @property
    def best(self) -> Option:
        """The fastest that fits."""
        return self.options[0]

    def __str__(self) -> str:
        best = self.best
        assert best.footprint is not None
        assert best.time is not None
        fit = sum(not option.refusal for option in self.options)
        return (
            f"{best.split}: the fastest of {fit} splits that fit, with "
            f"{gigabytes(best.footprint.memory)} a device and {milliseconds(best.time.total)} a "
            f"step of {self.batch} samples ({MODELLED})"
        )


def plan(
    footprint_of: FootprintOf,
    devices: int,
    memory: float,
    batch: int,
    machine: Machine,
    precision: Precision = "32",
    *,
    most_lon: int | None = None,
    progress: bool = False,
) -> Plan:
    """Tries every split of the devices.

    The samples of a step are those of a serial run, so that training is the same: each of `data`
    groups takes as many of them, and no more groups than samples are of use.

    Args:
        footprint_of: from samples of a process, parts of the rows and of the columns; see
            `footprints`.
        devices: how many there are, all of which are to be used.
        memory: bytes of a device.
        batch: samples of a step, on all devices.
        machine: the devices.
        precision: of the fields, as that of the footprints.
        most_lon: most parts of the columns that are tried; None for any number.
        progress: whether to show a bar.

    Raises:
        ArgumentError: no devices, samples or memory; or no split can be used: how much memory
            would do, or why the grid cannot be cut.
    """
    for name, value in (("devices", devices), ("batch", batch), ("memory", memory)):
        if not value > 0:
            raise ArgumentError(name, f"{value} is not positive")
    found = []
    widest = devices if most_lon is None else most_lon
    tried = [s for s in splits(devices) if batch % s.data == 0 and s.lon <= widest]
    for split in track(tried, "splits", len(tried), progress):
        try:
            print_of = footprint_of(batch // split.data, split.lat, split.lon)
        except Ens10Error as error:
            found.append(Option(split, refusal=str(error).rstrip(".")))
            continue
        time = step_time(print_of, machine, split.data, split.parts, precision)
        fits = print_of.memory <= memory
        wants = "" if fits else f"needs {gigabytes(print_of.memory)}"
        found.append(Option(split, print_of, time, wants))
    if all(option.refusal for option in found):
        raise _nothing(found, devices, memory)
    return Plan(tuple(sorted(found, key=_order)), memory, batch)


def splits(devices: int) -> Iterator[Split]:
    """All products of three numbers, those with fewest parts first."""
    for parts in _divisors(devices):
        for lon in _divisors(parts):
            yield Split(devices // parts, parts // lon, lon)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _order(option: Option) -> tuple[bool, float]:
    return bool(option.refusal), option.time.total if option.time else float("inf")


def _nothing(found: Sequence[Option], devices: int, memory: float) -> ArgumentError:
    counted = [(o.footprint.memory, o) for o in found if o.footprint is not None]
    if not counted:
        return ArgumentError(
            "devices", f"the grid cannot be split over {devices}: {found[0].refusal}"
        )
    least, option = min(counted, key=lambda pair: pair[0])
    return ArgumentError(
        "memory",
        f"no split over {devices} devices fits {gigabytes(memory)}: the least is "
        f"{gigabytes(least)} a device, with {option.split} ({MODELLED})",
        "Use more devices, a smaller batch, or bf16",
    )


@dataclass(frozen=True)
class ChosenLat:
    """What lat="auto" is.

    Attributes:
        lat: parts of the rows.
        why: in one line.
    """

    lat: int
    why: str

    def __str__(self) -> str:
        return f"lat={self.lat}: {self.why}"


def choose_lat(
    network: nn.Module,
    shape: Sequence[int],
    grid: Grid,
    world: int,
    memory: float,
    *,
    lon: int = 1,
    dtype: torch.dtype = torch.float32,
) -> ChosenLat:
    """The fewest parts of the rows that fit into the memory of a process, by the model.

    All processes find the same if they are told the same memory.

    Args:
        network: stays as it is.
        shape: of the features of a process before rows and columns: (N, C), or (N, M, C).
        grid: rows and columns of the whole grid.
        world: number of processes; lat * lon divides it.
        memory: bytes that a process may use.
        lon: parts of the columns.
        dtype: of the fields.

    Raises:
        ArgumentError: no number of parts fits, or the grid cannot be cut; how much memory would do.
    """
    if not memory > 0:
        raise ArgumentError("memory", f"{memory} is not positive")
    if world < 1 or world % lon:
        raise ArgumentError("lon", f"{lon} parts do not divide {world} processes")
    needs: list[tuple[int, int]] = []
    reason = ""
    for lat in _divisors(world // lon):
        try:
            need = footprint(network, shape, grid, lat, lon, dtype=dtype).memory
        except ArgumentError as error:
            reason = str(error)
            break  # more parts cannot be cut either
        if need <= memory:
            return ChosenLat(lat, _why(needs, need, memory))
        needs.append((lat, need))
    if not needs:
        raise ArgumentError("lat", f"the grid cannot be split: {reason}")
    lat, need = needs[-1]
    raise ArgumentError(
        "lat",
        f"nothing that divides {world} processes fits {gigabytes(memory)}: lat={lat} needs "
        f"{gigabytes(need)} ({MODELLED})",
        "Use more processes, a smaller batch, or bf16",
    )


def _why(before: Sequence[tuple[int, int]], need: int, memory: float) -> str:
    said = f"{gigabytes(need)} of {gigabytes(memory)} a process"
    if before:
        said += f", where lat={before[-1][0]} needs {gigabytes(before[-1][1])}"
    return f"{said} ({MODELLED})"


def footprints(
    network: nn.Module, channels: Sequence[int], grid: Grid, precision: Precision = "32"
) -> FootprintOf:
    """Footprints of a network, each counted once.

    They refuse to split a network with modules that are not known to work on parts.

    Args:
        network: stays as it is.
        channels: of the features after the samples: (C,), or (M, C) with members.
        grid: rows and columns.
        precision: of the fields.
    """

    @cache
    def of(samples: int, lat: int, lon: int) -> Footprint:
        if lat * lon > 1:
            require_known(network)
        shape = (samples, *channels)
        return footprint(network, shape, grid, lat, lon, dtype=_DTYPES[precision])

    return of


def gigabytes(size: float) -> str:
    """Bytes in words, 10^9 of them a GB."""
    return f"{size / 1e9:.3g} GB"


def milliseconds(seconds: float) -> str:
    """Seconds in words."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
