"""The number of parts for lat="auto": the fewest that fit into the memory of a process."""

import os
from typing import Any

import torch
from torch import nn

from ens10.models.networks.base import Network
from ens10.models.parallel.cost import ChosenLat, choose_lat

_MEMBERS = 10  # members of ENS-10, for data modules without `ensemble`
_MEMORY_SHARE = 0.9  # of a device's memory, that a run may take


def lat_of_run(
    model: nn.Module | None,
    trainer: Any,
    grid: tuple[int, int],
    world: int,
    lon: int,
    memory: float,
) -> ChosenLat:
    """Return the number of parts of the rows for a run, by the cost model.

    Args:
        model: model whose networks are split; with None, or without networks, nothing is split.
        trainer: its data module gives the batch size.
        grid: rows and columns.
        world: number of processes.
        lon: number of parts of the columns.
        memory: bytes that a process may use.

    Raises:
        ArgumentError: nothing fits, or the grid cannot be cut.
    """
    networks = outermost_networks(model)
    if not networks:
        return ChosenLat(1, "there is no network to split", lon)
    data = getattr(trainer, "datamodule", None)
    samples = int(getattr(data, "batch_size", 1))
    members = getattr(data, "ensemble", None) or _MEMBERS
    network = networks[0]
    shape = (samples, *([members] if network.takes_members else []), network.in_channels)
    half = "bf16" in str(getattr(trainer, "precision", "32"))
    dtype = torch.bfloat16 if half else torch.float32
    # the networks of a deep ensemble are trained together
    return choose_lat(network, shape, grid, world, memory / len(networks), lon=lon, dtype=dtype)


def outermost_networks(model: nn.Module | None) -> list[Network]:
    """Return the networks of a model that are not parts of other networks."""
    if model is None:
        return []
    if isinstance(model, Network):
        return [model]
    return [network for child in model.children() for network in outermost_networks(child)]


def memory_of_process(device: torch.device, processes: int) -> float:
    """Return the bytes that a process may use: of its GPU, or its share of the main memory.

    Args:
        device: device of the process.
        processes: number of processes on this machine.
    """
    if device.type == "cuda":
        return _MEMORY_SHARE * torch.cuda.get_device_properties(device).total_memory
    pages: int = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return _MEMORY_SHARE * pages / processes
