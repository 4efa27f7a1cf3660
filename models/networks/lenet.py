"""LeNet on the full grid: a reconstruction of a baseline whose code was not published."""

from torch import Tensor, nn

from ens10.models.layers.padding import Poles, SameConv2d
from ens10.models.networks.base import Network, start_at_zero

RESULT_VERSION = 1  # raise it when results change


class LeNet(Network):
    """A small convolutional network: 62,976 parameters for 14 channels, 64,176 for 22.

    Ashkboos et al. 2022 name a LeNet as baseline and give neither code nor sizes. This is our
    reconstruction: the layers of LeNet-5 (LeCun et al. 1998, doi:10.1109/5.726791) at each point of
    the grid. 5x5 convolutions to 6, 16 and 120 channels, then 84 channels and the outputs at each
    point on its own; the receptive field is 13 x 13 points. Choices of this implementation: ReLU
    for tanh, and no subsampling, since there is an output at each point.

    Args:
        in_channels: channels of the features.
        out_channels: output channels at each point.
        periodic_longitude: True if first and last column are neighbours; the network then commutes
            with rotations in longitude.
        poles: padding beyond the first and last row, "zeros" or "replicate".
        zero_init: initialise the last layer to zero: a residual head then returns the raw ensemble.
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 2,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
        zero_init: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels

        def conv(before: int, after: int) -> SameConv2d:
            return SameConv2d(before, after, 5, periodic_longitude=periodic_longitude, poles=poles)

        last = nn.Conv2d(84, out_channels, 1)
        if zero_init:
            start_at_zero(last)
        self.layers = nn.Sequential(
            conv(in_channels, 6),
            nn.ReLU(inplace=True),
            conv(6, 16),
            nn.ReLU(inplace=True),
            conv(16, 120),
            nn.ReLU(inplace=True),
            nn.Conv2d(120, 84, 1),
            nn.ReLU(inplace=True),
            last,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        outputs: Tensor = self.layers(features)
        return outputs
