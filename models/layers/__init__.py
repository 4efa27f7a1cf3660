"""Layers for fields on a regular latitude-longitude grid."""

from ens10.models.layers.attention import MemberAttention
from ens10.models.layers.condconv import CondConv2d
from ens10.models.layers.coordconv import CoordConv2d
from ens10.models.layers.embedding import PointEmbedding
from ens10.models.layers.expert_convolution import ExpertConvolution
from ens10.models.layers.expert_layers import Experts
from ens10.models.layers.groupnorm import GroupNorm
from ens10.models.layers.locally_connected import LocallyConnected2d
from ens10.models.layers.low_rank import LowRankLocallyConnected2d
from ens10.models.layers.norm import BatchNorm2d
from ens10.models.layers.padding import SameConv2d, upsample_twice
from ens10.models.layers.smoe import SMoE2d, track_loss

__all__ = [
    "BatchNorm2d",
    "CondConv2d",
    "CoordConv2d",
    "ExpertConvolution",
    "Experts",
    "GroupNorm",
    "LocallyConnected2d",
    "LowRankLocallyConnected2d",
    "MemberAttention",
    "PointEmbedding",
    "SMoE2d",
    "SameConv2d",
    "track_loss",
    "upsample_twice",
]
