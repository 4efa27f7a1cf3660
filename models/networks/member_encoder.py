"""Member features for networks that take fields."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.models.layers.member_encoder import MemberEncoder, Pool, deviation
from ens10.models.layers.norm import BatchNorm2d
from ens10.models.networks.base import DataShape, Network

RESULT_VERSION = 1  # raise it when results change
# defaults, which `shape_of_inner` takes where a configuration leaves them out
_CHANNELS = 4
_POOLS: tuple[Pool, ...] = ("mean", "std")


class WithMembers(Network):
    """A network of fields whose features are the ensemble's moments and a member encoder's output.

    Its features are, in this order, the means of the members' channels; the standard deviations (n
    - 1) of those that differ between members; and the pools of a `MemberEncoder`. Deviations and
    pools are normalised (batch statistics), since the data module normalises members by the
    statistics of their mean. Any number of members of at least 2, in any order.

    Args:
        network: takes 2 `in_channels` - `fixed` + `channels` x number of pools.
        in_channels: channels of a member's features.
        fixed: number of last channels that are the same for all members: masks and location; None
            for none. A configuration that leaves it out has the number of the data.
        channels: number of channels of the members' code, for each pool.
        hidden: width of the encoder.
        pools: "mean", "std" (n - 1), "max" over the members.

    Raises:
        ArgumentError: a network that takes members itself or another number of channels, or an
            option outside its range.
        UnknownNameError: another pool.
    """

    splittable = True
    takes_members = True
    least_members = 2

    def __init__(
        self,
        network: Network,
        in_channels: int,
        fixed: int | None = None,
        channels: int = _CHANNELS,
        hidden: int = 8,
        pools: Sequence[Pool] = _POOLS,
    ) -> None:
        super().__init__()
        fixed = fixed or 0
        if not 0 <= fixed < in_channels:
            raise ArgumentError("fixed", f"{fixed} of {in_channels} channels of a member")
        self.encoder = MemberEncoder(in_channels, channels, hidden, pools)
        self.in_channels, self.out_channels = in_channels, network.out_channels
        self.varying_channels = in_channels - fixed
        extra = self.varying_channels + self.encoder.out_channels  # deviations and pools
        required = in_channels + extra
        name = type(network).__name__
        if network.takes_members:
            raise ArgumentError(
                "network",
                f"{name} takes members itself",
                "Use it alone, or choose a network of fields",
            )
        if network.in_channels != required:
            raise ArgumentError(
                "network",
                f"{name} takes {network.in_channels} channels, the members give {required}",
                f"Set its in_channels to {required}",
            )
        self.norm = BatchNorm2d(extra)
        self.network = network
        self.halvings, self.odd = network.halvings, network.odd
        self.pointwise = network.pointwise

    @classmethod
    def numbers_of_data(cls, shape: DataShape, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the numbers of channels, of all and of those that are the same for all members."""
        return super().numbers_of_data(shape, arguments) | {"fixed": shape.fixed}

    @classmethod
    def shape_of_inner(cls, shape: DataShape, arguments: Mapping[str, Any]) -> DataShape:
        """Return the shape with the channels of deviations and of the members' code."""
        code = arguments.get("channels", _CHANNELS) * len(arguments.get("pools", _POOLS))
        deviations = shape.in_channels - shape.fixed
        return shape._replace(in_channels=shape.in_channels + deviations + code)

    def forward(self, features: Tensor) -> Tensor:
        """(N, M, in_channels, H, W) -> (N, out_channels, H, W)."""
        spread = deviation(features[:, :, : self.varying_channels])
        extra = self.norm(torch.cat([spread, self.encoder(features)], dim=1))
        outputs: Tensor = self.network(torch.cat([features.mean(dim=1), extra], dim=1))
        return outputs

    def penalty(self) -> Tensor | None:
        """Return the penalty of the wrapped network."""
        return self.network.penalty()
