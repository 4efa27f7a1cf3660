"""Layers for fields on a regular latitude-longitude grid."""

from ens10.models.layers.attention import ChannelNorm, FinnAttention, MemberAttention
from ens10.models.layers.embedding import PointEmbedding
from ens10.models.layers.expert_layers import ExpertConvolution, Experts
from ens10.models.layers.location_convolutions import (
    CondConv2d,
    CoordConv2d,
    LocallyConnected2d,
    LowRankLocallyConnected2d,
)
from ens10.models.layers.member_encoder import MemberEncoder
from ens10.models.layers.neighbourhood import NeighbourhoodAttention, NeighbourhoodBlock
from ens10.models.layers.norm import BatchNorm2d, GroupNorm
from ens10.models.layers.padding import FreeConv2d, SameConv2d, upsample_twice
from ens10.models.layers.pointwise import PointConv2d
from ens10.models.layers.smoe import SMoE2d, track_loss

__all__ = [
    "BatchNorm2d",
    "ChannelNorm",
    "CondConv2d",
    "CoordConv2d",
    "ExpertConvolution",
    "Experts",
    "FinnAttention",
    "FreeConv2d",
    "GroupNorm",
    "LocallyConnected2d",
    "LowRankLocallyConnected2d",
    "MemberAttention",
    "MemberEncoder",
    "NeighbourhoodAttention",
    "NeighbourhoodBlock",
    "PointConv2d",
    "PointEmbedding",
    "SMoE2d",
    "SameConv2d",
    "track_loss",
    "upsample_twice",
]
