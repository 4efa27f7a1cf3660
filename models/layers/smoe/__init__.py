"""The spatial mixture-of-experts layer of Dryden & Hoefler 2022 (arXiv:2211.13491).

Examples:
    >>> import torch
    >>> from ens10.models.layers.smoe import SMoE2d, TensorGate
    >>> gate = TensorGate(num_experts=6, selected=3, grid=(4, 8))
    >>> layer = SMoE2d(in_channels=2, num_experts=6, selected=3, gate=gate, filters=5)
    >>> layer(torch.zeros(1, 2, 4, 8)).shape  # three experts of five filters
    torch.Size([1, 15, 4, 8])
"""

from ens10.models.layers.smoe.comparing import ComparingSMoE2d
from ens10.models.layers.smoe.gates import (
    ConvGate,
    CoordConvGate,
    FixedGate,
    Gate,
    LocallyConnectedGate,
    RegionGate,
    TensorGate,
)
from ens10.models.layers.smoe.layer import SMoE2d
from ens10.models.layers.smoe.tracking import (
    record_routing_loss,
    recorded_routing_loss,
    track_loss,
)

__all__ = [
    "ComparingSMoE2d",
    "ConvGate",
    "CoordConvGate",
    "FixedGate",
    "Gate",
    "LocallyConnectedGate",
    "RegionGate",
    "SMoE2d",
    "TensorGate",
    "record_routing_loss",
    "recorded_routing_loss",
    "track_loss",
]
