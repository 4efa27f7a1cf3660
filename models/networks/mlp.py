"""The multilayer perceptron of the ENS-10 paper, at each grid point on its own."""

from torch import Tensor, nn

from ens10.models.networks.base import Network


class MLP(Network):
    """Linear - ReLU - Linear at each grid point, with the same weights everywhere.

    2562 parameters for 17 channels (mean and deviation of 7 variables, and the 3 location
    features) and 3586 for 25, as in Ashkboos et al. 2022.

    Args:
        in_channels: channels of the features, location features included.
        hidden: width of the hidden layer.
        out_channels: channels delivered at each point.
    """

    def __init__(self, in_channels: int, hidden: int = 128, out_channels: int = 2) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        # a 1x1 convolution is a Linear over the channels, without moving them to the last axis
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, out_channels, 1)
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        outputs: Tensor = self.layers(features)
        return outputs
