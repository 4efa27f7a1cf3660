"""What a network declares about itself."""

from abc import abstractmethod

from torch import Tensor, nn


class Network(nn.Module):
    """A map of gridded features to gridded outputs.

    Attributes:
        in_channels: channels of the features it takes.
        out_channels: channels it delivers; a head states how many it needs.
    """

    in_channels: int
    out_channels: int

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
