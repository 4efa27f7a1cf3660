"""The base class of networks: its attributes describe inputs, outputs and levels."""

from abc import abstractmethod

from torch import Tensor, nn

from ens10.models.domain import Odd


class Network(nn.Module):
    """A map of gridded features to gridded outputs.

    Attributes:
        in_channels: channels of the input features.
        out_channels: channels of the outputs; a head requires a certain number.
        takes_members: True if it takes features of each member (`kind: members` of the data).
        gives_members: True if it has outputs for each member, for a head that takes them.
        least_members: smallest ensemble size; only if it takes members.
        pointwise: True if the outputs at a point depend on the features of that point alone. Only
            such networks take stations.
        halvings: number of times that it halves rows and columns. A grid that is split between
            processes is cut at multiples of 2^halvings.
        odd: treatment of the last of an odd number of rows or columns when it halves them.
        splittable: declared by each network in its own class, not inherited: True if it works on a
            part of the grid (see `ens10.models.domain`), or a text that says why it does not. A
            network that declares it is listed in `ens10.models.networks`.
    """

    in_channels: int
    out_channels: int
    takes_members: bool = False
    gives_members: bool = False
    least_members: int = 1
    pointwise: bool = False
    halvings: int = 0
    odd: Odd = "dropped"

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W).

        Members are the second dimension, (N, M, ...), of features if the network takes them and
        of outputs if it gives them.
        """

    def penalty(self) -> Tensor | None:
        """Return a term that training adds to the loss, in its units, or None."""
        return None


def start_at_zero(layer: nn.Module) -> None:
    """Set all parameters of a last layer to zero: a residual head then gives the raw ensemble."""
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
