"""Permutation-invariant encoding of ensemble members as fields of the whole ensemble."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models.layers.attention import each_member
from ens10.models.layers.pointwise import PointConv2d

Pool = Literal["mean", "std", "max"]


class MemberEncoder(nn.Module):
    """A small network shared by the members, pooled over them (deep sets, arXiv:1703.06114).

    Its inputs at each grid point are a member's deviation from the ensemble mean, and that mean:
    linear, ReLU, linear to `channels`. Mean and standard deviation of the codes over the members
    can express what those of the inputs cannot: dependence between variables, skewness, clusters of
    members. Pools do not depend on the order of the members and hardly on their number ("max" grows
    with it).

    Args:
        in_channels: channels of a member's features.
        channels: number of channels of the code, for each pool.
        hidden: width of the hidden layer.
        pools: reductions of the codes over the members.

    Raises:
        ArgumentError: no pool, or a width that is not positive.
        UnknownNameError: another pool.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        channels: int = 4,
        hidden: int = 8,
        pools: Sequence[Pool] = ("mean", "std"),
    ) -> None:
        super().__init__()
        if not pools:
            raise ArgumentError("pools", "no pool is given", "Choose at least one")
        for pool in pools:
            if pool not in get_args(Pool):
                raise UnknownNameError("pools", pool, get_args(Pool))
        if min(channels, hidden) < 1:
            raise ArgumentError("channels", f"{channels} channels from {hidden} hidden ones")
        self.pools, self.out_channels = tuple(pools), len(pools) * channels
        self.deviation = PointConv2d(in_channels, hidden, bias=False)
        self.mean = PointConv2d(in_channels, hidden)
        self.code = nn.Sequential(nn.ReLU(inplace=True), PointConv2d(hidden, channels))

    def forward(self, members: Tensor) -> Tensor:
        """(N, M, in_channels, H, W) -> (N, out_channels, H, W), M at least 2."""
        mean = members.mean(dim=1)
        # linear: applied to members and mean separately, so that deviations are never stored
        shared = self.mean(mean) - self.deviation(mean)
        codes = each_member(self.code, each_member(self.deviation, members) + shared[:, None])
        return torch.cat([pool_members(codes, pool) for pool in self.pools], dim=1)


def pool_members(codes: Tensor, pool: Pool) -> Tensor:
    """Return mean, standard deviation (n - 1) or maximum over the members.

    Args:
        codes: (N, M, C, H, W).
        pool: "mean", "std" or "max".

    Returns:
        (N, C, H, W).
    """
    if pool == "mean":
        return codes.mean(dim=1)
    return codes.amax(dim=1) if pool == "max" else deviation(codes)


def deviation(members: Tensor) -> Tensor:
    """Return the standard deviation (n - 1) over members, (N, M, C, H, W) -> (N, C, H, W).

    Its gradient is finite where all members are the same.
    """
    # spelled out: var() along a dimension that is not the last one takes ten times as long
    perturbations = members - members.mean(dim=1, keepdim=True)
    variance = perturbations.square().sum(dim=1) / (members.shape[1] - 1)
    smallest: float = torch.finfo(members.dtype).tiny ** 0.5
    return variance.clamp(min=smallest).sqrt()
