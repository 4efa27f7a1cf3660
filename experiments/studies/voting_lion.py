"""Lion whose processes send one bit for each weight, and follow the majority."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor


class VotingLion(torch.optim.Optimizer):
    """Steps of one size along the sign on which most processes agree; none where they are equal.

    Each process keeps the momentum of its own gradients, which are not averaged before. With
    one process it is Lion (Chen et al. 2023, arXiv:2302.06675); majority votes are those of
    Bernstein et al. 2018, arXiv:1802.04434. In this package for tensors on the CPU.

    Args:
        params: weights.
        lr: size of a step.
        weight_decay: share of the weights, times `lr`, that is taken off in each step.
        betas: weights of the momentum in the direction, and in the next momentum.
        votes: False where gradients are averaged before, so that all processes agree.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-4,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.99),
        votes: bool = True,
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "betas": betas})
        self._combine = majority if votes else torch.sign

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Vote, and change the weights."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            directions = [self._direction(weight, *group["betas"]).flatten() for weight in weights]
            sizes = [weight.numel() for weight in weights]
            votes = torch.split(self._combine(torch.cat(directions)), sizes)
            for weight, vote in zip(weights, votes, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.sub_(vote.view_as(weight), alpha=group["lr"])
        return loss

    def _direction(self, weight: Tensor, now: float, later: float) -> Tensor:
        """Return this process's direction of a weight, and renew its momentum."""
        assert weight.grad is not None
        momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
        direction = torch.lerp(weight.grad, momentum, now)
        momentum.lerp_(weight.grad, 1 - later)
        return direction


def majority(values: Tensor) -> Tensor:
    """Return the vote on each value: 1 for "at least 0", -1 for "below 0", and 0 for a draw.

    Args:
        values: one-dimensional, of this process.
    """
    bits = torch.from_numpy(np.packbits((values >= 0).numpy()))
    gathered = [bits]
    if dist.is_initialized():
        gathered = [torch.empty_like(bits) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, bits)
    signs = [np.unpackbits(one.numpy(), count=len(values)) for one in gathered]
    return torch.from_numpy(np.sign(2.0 * np.sum(signs, 0, int) - len(signs))).to(values)
