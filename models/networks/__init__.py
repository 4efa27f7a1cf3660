"""Networks: from gridded features to the outputs that a head turns into a forecast."""

from ens10.models.networks.base import Network
from ens10.models.networks.convnext import ConvNeXt
from ens10.models.networks.groenquist import (
    BiasNet,
    Groenquist,
    PaperBiasUNet,
    PaperSpreadNet,
    SpreadNet,
)
from ens10.models.networks.lenet import LeNet
from ens10.models.networks.location_unet import LocationUNet
from ens10.models.networks.member_context import MemberContext
from ens10.models.networks.member_encoder import WithMembers
from ens10.models.networks.mlp import MLP
from ens10.models.networks.poet import PaperPoET, PoET
from ens10.models.networks.saet import SAET, PaperSAET
from ens10.models.networks.smoe_resnet import SMoEResNet
from ens10.models.networks.smoe_unet import SMoEUNet
from ens10.models.networks.transformer import Transformer
from ens10.models.networks.unet import UNet

__all__ = [
    "MLP",
    "SAET",
    "BiasNet",
    "ConvNeXt",
    "Groenquist",
    "LeNet",
    "LocationUNet",
    "MemberContext",
    "Network",
    "PaperBiasUNet",
    "PaperPoET",
    "PaperSAET",
    "PaperSpreadNet",
    "PoET",
    "SMoEResNet",
    "SMoEUNet",
    "SpreadNet",
    "Transformer",
    "UNet",
    "WithMembers",
]
