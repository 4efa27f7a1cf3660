"""Wrapper that appends context of the ensemble and a grid-point embedding to each member."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.models.domain import current
from ens10.models.layers.embedding import PointEmbedding, require_grid
from ens10.models.layers.member_encoder import deviation
from ens10.models.networks.base import DataShape, Network

RESULT_VERSION = 1  # raise it when results change
_SMALLEST_SPREAD = 1e-3  # in units of the normalised features


class MemberContext(Network):
    """Further channels for a network of members: context of the ensemble, and an embedding.

    The context of a channel is three channels more: the member's deviation from the ensemble mean
    in units of the spread (the standard deviation over members, n - 1), the logarithm of the
    spread, and the mean. A linear function of these can shift all members and change their spread,
    which one of the members alone cannot. The embedding is a learned map that distinguishes grid
    points (`PointEmbedding`); the same channels are appended to each member.

    Args:
        network: takes members with `in_channels` + 3 `context` + `embedding` channels.
        in_channels: channels of a member's features.
        context: number of channels, counted from the first, whose context is added. The target is
            the first if `data.inputs` names it first.
        grid: rows and columns (H, W) of the data, for the embedding.
        embedding: channels of the embedding, 0 for none.
        ridge: weight of the embedding's mean square, in units of the loss.
        smoothness: weight of its mean squared gradient; 0 for stations.

    Raises:
        ArgumentError: a network that takes no members or another number of channels, more context
            than channels, or an embedding without grid.

    Examples:
        >>> import torch
        >>> from ens10.models.networks import MemberContext, Transformer
        >>> network = MemberContext(Transformer(in_channels=10), in_channels=7, context=1)
        >>> network(torch.randn(1, 5, 7, 4, 8)).shape  # 5 members
        torch.Size([1, 2, 4, 8])
    """

    splittable = True
    takes_members = True
    least_members = 2

    def __init__(
        self,
        network: Network,
        in_channels: int,
        context: int = 1,
        grid: Sequence[int] | None = None,
        embedding: int = 0,
        ridge: float = 1e-4,
        smoothness: float = 1e-4,
    ) -> None:
        super().__init__()
        if not 0 <= context <= in_channels:
            raise ArgumentError("context", f"{context} of {in_channels} channels of a member")
        if embedding and grid is None:
            raise ArgumentError("grid", "the embedding needs it", "Set it to [rows, columns]")
        name, required = type(network).__name__, _inner_channels(in_channels, context, embedding)
        if not network.takes_members:
            reason = f"{name} takes no members"
            raise ArgumentError("network", reason, "Choose Transformer, SAET or PoET")
        if network.in_channels != required:
            reason = f"{name} takes {network.in_channels} channels, the members give {required}"
            raise ArgumentError("network", reason, f"Set its in_channels to {required}")
        self.network, self.context = network, context
        self.in_channels, self.out_channels = in_channels, network.out_channels
        self.gives_members, self.pointwise = network.gives_members, network.pointwise
        self.halvings, self.odd = network.halvings, network.odd
        self.embedding = None
        if embedding and grid is not None:
            self.embedding = PointEmbedding(grid, embedding, ridge, smoothness)

    @classmethod
    def numbers_of_data(cls, shape: DataShape, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of channels, and the grid if there is an embedding."""
        grid = {"grid": list(shape.grid)} if arguments.get("embedding") else {}
        return super().numbers_of_data(shape, arguments) | grid

    @classmethod
    def shape_of_inner(cls, shape: DataShape, arguments: Mapping[str, Any]) -> DataShape:
        """Return the shape with the channels of context and embedding."""
        context, embedding = arguments.get("context", 1), arguments.get("embedding", 0)
        return shape._replace(in_channels=_inner_channels(shape.in_channels, context, embedding))

    def forward(self, features: Tensor) -> Tensor:
        """(N, M, in_channels, H, W) -> the outputs of the network.

        Raises:
            ArgumentError: data on another grid than that of the embedding.
        """
        channels = [features]
        if self.context:
            context = features[:, :, : self.context]
            mean = context.mean(dim=1, keepdim=True)
            spread = deviation(context)[:, None].clamp(min=_SMALLEST_SPREAD)
            channels += [(context - mean) / spread, spread.log().expand_as(context)]
            channels += [mean.expand_as(context)]
        if self.embedding is not None:
            require_grid(features, self.embedding.grid, "the embedding of MemberContext")
            place = current().of_samples(self.embedding()).movedim(-3, 0)[:, None]
            channels += [place.expand(*features.shape[:2], -1, -1, -1).to(features.dtype)]
        outputs: Tensor = self.network(torch.cat(channels, dim=2))
        return outputs

    def penalty(self) -> Tensor | None:
        """Return the penalties of the embedding and of the network, or None if there are none."""
        penalty = None if self.embedding is None else self.embedding.penalty()
        net_term = self.network.penalty()
        return penalty if net_term is None else net_term if penalty is None else penalty + net_term


def _inner_channels(in_channels: int, context: int, embedding: int) -> int:
    return in_channels + 3 * context + embedding
