"""Reasons why modules do not work on a part of the grid, with alternatives."""

from torch import nn

_OF_A_PART = "its statistics would cover one part only"
_DRAWS = "processes would draw different random numbers than a serial run"
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
    "Pool": "only pooling of 2 x 2 points, which lie in one part, needs no neighbours",
    "Pad": "it would pad each part; use ens10.models.domain.current().pad",
    "StatisticalMethod": (
        "its maps of the whole grid are not split; those of EMOS and SeasonalEMOS are"
    ),
}


def reason_against(module: nn.Module) -> str:
    """Return why a module is not known to work on a part of the grid."""
    names = " ".join(kind.__name__ for kind in type(module).__mro__)
    for name, reason in _REASONS.items():
        if name in names:
            return reason
    return "it is not known whether it works at each point independently"
