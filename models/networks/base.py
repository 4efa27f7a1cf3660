"""What a network declares about itself."""

from abc import abstractmethod

from torch import Tensor, nn

from ens10.models.domain import Odd


class Network(nn.Module):
    """A map of gridded features to gridded outputs.

    Attributes:
        in_channels: channels of the features it takes.
        out_channels: channels it delivers; a head states how many it needs.
        takes_members: whether it takes features of each member (`kind: members` of the data).
        gives_members: whether it delivers outputs of each member, for a head that takes them.
        least_members: smallest ensemble that it is defined for; only if it takes members.
        halvings: how often it halves rows and columns on its way down. A grid that is split
            between processes is cut at multiples of 2^halvings.
        odd: what becomes of the last of an odd number of rows or columns when it halves them.
    """

    in_channels: int
    out_channels: int
    takes_members: bool = False
    gives_members: bool = False
    least_members: int = 1
    halvings: int = 0
    odd: Odd = "dropped"

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W).

        Members are the second dimension, (N, M, ...), of features if the network takes them and
        of outputs if it gives them.
        """

    def penalty(self) -> Tensor | None:
        """What training adds to the loss, in its units; None for nothing."""
        return None
