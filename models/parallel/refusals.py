"""Why a module is not known to work on a part of the grid, and what to take in its place."""

from torch import nn

_OF_A_PART = "its statistics would be those of a part"
_DRAWS = "each process would draw for itself, otherwise than a run in one process"
# by a part of the name of the class, or of one that it is made from
_REASONS = {
    "StatisticalPostProcessor": "it is fitted in one process; set devices to 1",
    "BatchNorm": f"{_OF_A_PART}; use ens10.models.layers.norm.BatchNorm2d",
    "InstanceNorm": f"{_OF_A_PART}; use ens10.models.layers.groupnorm.GroupNorm",
    "GroupNorm": f"{_OF_A_PART}; use ens10.models.layers.groupnorm.GroupNorm",
    "LayerNorm": (
        f"over rows and columns {_OF_A_PART}; use ens10.models.layers.attention.ChannelNorm"
    ),
    "Conv": (
        "its filter would not see the neighbouring parts; use ens10.models.layers.SameConv2d, or a "
        "1x1 kernel with stride 1 and without padding"
    ),
    "Dropout": f"{_DRAWS}; set p to 0",
    "MultiheadAttention": f"{_DRAWS}; set dropout to 0",
    "Upsample": "points at a border need the next part's; use ens10.models.layers.upsample_twice",
    "Pool": "only pooling of 2 x 2 points, which are always of one part, needs no neighbours",
    "Pad": "it would pad each part; use ens10.models.domain.current().pad",
    "StatisticalMethod": (
        "it has maps of the whole grid that it does not cut; EMOS and SeasonalEMOS do"
    ),
}


def reason_against(module: nn.Module) -> str:
    """Why a module is not known to work on a part of the grid."""
    names = " ".join(kind.__name__ for kind in type(module).__mro__)
    for name, reason in _REASONS.items():
        if name in names:
            return reason
    return "nothing is known of whether it looks beyond a point"
