"""From the members of an ensemble to fields of the whole ensemble, whatever their order."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.layers.attention import each_member

Pool = Literal["mean", "std", "max"]


class MemberEncoder(nn.Module):
    """A small network shared by the members, pooled over them (deep sets, arXiv:1703.06114).

    Each member is seen at each grid point as its deviation from the ensemble mean beside that
    mean: linear, ReLU, linear to `channels`. Mean and standard deviation over the members of
    what comes out can say what those of the inputs do not: how variables of a member go together,
    skewness, two groups of members. Pools do not depend on the order of the members and hardly on
    their number ("max" grows with it).

    Args:
        in_channels: channels of a member's features.
        channels: of the code, for each pool.
        hidden: width of the layer between.
        pools: how the codes of the members become one.

    Raises:
        ArgumentError: no pool, or a width that is not positive.
        UnknownNameError: another pool.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int = 4,
        hidden: int = 8,
        pools: Sequence[Pool] = ("mean", "std"),
    ) -> None:
        super().__init__()
        if not pools:
            raise ArgumentError("pools", "no pool is given", "Give at least one")
        for pool in pools:
            if pool not in get_args(Pool):
                raise UnknownNameError("pools", pool, get_args(Pool))
        if min(channels, hidden) < 1:
            raise ArgumentError("channels", f"{channels} channels from {hidden} hidden ones")
        self.pools, self.out_channels = tuple(pools), len(pools) * channels
        self.deviation = nn.Conv2d(in_channels, hidden, 1, bias=False)
        self.mean = nn.Conv2d(in_channels, hidden, 1)
        self.code = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(hidden, channels, 1))

    def forward(self, members: Tensor) -> Tensor:
        """(N, M, in_channels, H, W) -> (N, out_channels, H, W), M at least 2."""
        mean = members.mean(dim=1)
        # the deviation's map is linear: taken of members and mean, there is no copy of deviations
        shared = self.mean(mean) - self.deviation(mean)
        codes = each_member(self.code, each_member(self.deviation, members) + shared[:, None])
        return torch.cat([pooled(codes, pool) for pool in self.pools], dim=1)


def pooled(codes: Tensor, pool: Pool) -> Tensor:
    """Mean, standard deviation (n - 1) or largest value over the members.

    Args:
        codes: (N, M, C, H, W).
        pool: which.

    Returns:
        (N, C, H, W).
    """
    if pool == "mean":
        return codes.mean(dim=1)
    return codes.amax(dim=1) if pool == "max" else deviation(codes)


def deviation(members: Tensor) -> Tensor:
    """Standard deviation (n - 1) over the members, (N, M, C, H, W) -> (N, C, H, W).

    Its gradient is finite where all members are the same.
    """
    # spelled out: var() along a dimension that is not the last one takes ten times as long
    perturbations = members - members.mean(dim=1, keepdim=True)
    variance = perturbations.square().sum(dim=1) / (members.shape[1] - 1)
    smallest: float = torch.finfo(members.dtype).tiny ** 0.5
    return variance.clamp(min=smallest).sqrt()
