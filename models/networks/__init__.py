"""Networks: from gridded features to the outputs that a head turns into a forecast."""

from ens10.models.networks.base import Network
from ens10.models.networks.mlp import MLP
from ens10.models.networks.unet import UNet

__all__ = ["MLP", "Network", "UNet"]
