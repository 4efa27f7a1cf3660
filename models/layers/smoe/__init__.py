"""The spatial mixture-of-experts layer of Dryden & Hoefler 2022 (arXiv:2211.13491)."""

from ens10.models.layers.smoe.comparing import ComparingSMoE2d
from ens10.models.layers.smoe.gates import FixedGate, Gate, TensorGate
from ens10.models.layers.smoe.input_gates import ConvGate, CoordConvGate, LocallyConnectedGate
from ens10.models.layers.smoe.layer import SMoE2d
from ens10.models.layers.smoe.tracking import track_loss

__all__ = [
    "ComparingSMoE2d",
    "ConvGate",
    "CoordConvGate",
    "FixedGate",
    "Gate",
    "LocallyConnectedGate",
    "SMoE2d",
    "TensorGate",
    "track_loss",
]
