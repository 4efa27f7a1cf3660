"""Any module of torch as a network."""

from torch import Tensor, nn

from ens10.models.networks.base import Network

RESULT_VERSION = 1  # raise it when results change


class ModuleNetwork(Network):
    """A module of torch, from features (N, in_channels, H, W) to outputs (N, out_channels, H, W).

    Args:
        module: the module; points are independent if it has `pointwise = True`.
        in_channels: channels of the features.
        out_channels: channels of the outputs, as the head takes them.
    """

    def __init__(self, module: nn.Module, in_channels: int, out_channels: int = 2) -> None:
        super().__init__()
        self.module, self.in_channels, self.out_channels = module, in_channels, out_channels
        self.pointwise = bool(getattr(module, "pointwise", False))

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        outputs: Tensor = self.module(features)
        return outputs
