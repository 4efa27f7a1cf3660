"""Parameters, gradients and optimiser states in shards: FSDP2 over all processes of a run."""

from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from ens10.errors import ArgumentError
from ens10.models.networks import Groenquist
from ens10.models.networks.base import Network


def shard_parameters(model: nn.Module, device: torch.device) -> None:
    """Shard every parameter over all processes; blocks are gathered when they are used.

    Zhao et al. 2023, arXiv:2304.11277, by `torch.distributed.fsdp.fully_shard`. Gradients are
    averaged over all processes, and all start from the parameters and buffers of the first process,
    as with DDP. Blocks are the children of the networks.

    Args:
        model: changed in place.
        device: device of this process.

    Raises:
        ArgumentError: a network uses its parameters outside of its blocks.
    """
    for module in model.modules():
        if isinstance(module, Groenquist):
            raise ArgumentError(
                "parameters",
                f"{type(module).__name__} uses its maps outside of the forward pass, where "
                "they are in shards",
                'Set it to "replicated"',
            )
    for tensor in chain(model.parameters(), model.buffers()):
        dist.broadcast(tensor.detach(), src=0)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for network in [module for module in model.modules() if isinstance(module, Network)]:
        for block in _blocks(network):
            fully_shard(block, mesh=mesh)
        fully_shard(network, mesh=mesh)
    unsharded = [name for name, p in model.named_parameters() if not isinstance(p, DTensor)]
    if unsharded:
        raise ArgumentError(
            "parameters",
            f"{', '.join(unsharded)} belong to no network: they would not be averaged",
            'Set it to "replicated"',
        )


def _blocks(module: nn.Module) -> list[nn.Module]:
    """Return the submodules that FSDP gathers one at a time.

    These are the children with parameters, and the items of children that are lists. Networks are
    left out: they have blocks of their own.
    """
    blocks: list[nn.Module] = []
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            blocks += [c for c in child if any(True for _ in c.parameters())]
        elif not isinstance(child, Network) and any(True for _ in child.parameters()):
            blocks.append(child)
    return blocks


def is_sharded(model: nn.Module) -> bool:
    """Return True if the model's parameters are in shards."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def gather_shards(state: Any) -> Any:
    """Return a state dictionary with whole tensors instead of shards; a collective call."""
    if isinstance(state, DTensor):
        return state.full_tensor().cpu()
    if isinstance(state, dict):
        return {key: gather_shards(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(gather_shards(value) for value in state)
    return state


def shard_like(value: Tensor, parameter: Tensor) -> Tensor:
    """Return a tensor sharded like a parameter; unchanged if that is not, or has another shape."""
    if not isinstance(parameter, DTensor) or value.shape != parameter.shape:
        return value
    on_device = value.to(parameter.device)
    shards: Tensor = distribute_tensor(on_device, parameter.device_mesh, parameter.placements)
    return shards


def optimizer_state_like(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimiser's whole state in shards like those of its parameters.

    Args:
        optimizer: optimiser with sharded parameters.
        state: result of `Optimizer.state_dict()`, with whole tensors.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    shards = {
        number: {
            key: shard_like(value, parameters[number]) if isinstance(value, Tensor) else value
            for key, value in values.items()
        }
        for number, values in state["state"].items()
    }
    return {**state, "state": shards}
