"""Why a module cannot work on a part of the grid, and what can in its place."""

from torch import nn

from ens10.models.statistical.base import StatisticalMethod

_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
_CONVOLUTIONS = nn.modules.conv._ConvNd
_POOLS = (
    nn.AvgPool2d,
    nn.MaxPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool2d,
    nn.LPPool2d,
    nn.FractionalMaxPool2d,
)
_PADDINGS = (
    nn.CircularPad2d,
    nn.ConstantPad2d,
    nn.ReflectionPad2d,
    nn.ReplicationPad2d,
)
_REASONS: tuple[tuple[tuple[type, ...], str], ...] = (
    (
        _NORMS,
        "its statistics would be those of a part; use ens10.models.layers.norm.BatchNorm2d",
    ),
    (
        (nn.GroupNorm,),
        "its statistics would be those of a part; use ens10.models.layers.groupnorm.GroupNorm",
    ),
    (
        (nn.LayerNorm,),
        "over rows and columns its statistics would be those of a part; use "
        "ens10.models.layers.attention.ChannelNorm",
    ),
    (
        (_CONVOLUTIONS,),
        "its filter would not see the neighbouring parts; use ens10.models.layers.SameConv2d, or "
        "a 1x1 kernel with stride 1 and without padding",
    ),
    (
        (nn.modules.dropout._DropoutNd,),
        "each process would draw for itself, and not what a run in one process draws; set p to 0",
    ),
    (
        (nn.MultiheadAttention,),
        "each process would draw for itself; set dropout to 0",
    ),
    (
        (nn.Upsample,),
        "points at a border need the next part's; use ens10.models.layers.upsample_twice",
    ),
    (_POOLS, "only pooling of 2 x 2 points, by whole parts, needs no neighbours"),
    (_PADDINGS, "it would pad each part; use ens10.models.domain.current().pad"),
    (
        (StatisticalMethod,),
        "it has maps of the whole grid that it does not cut; EMOS and SeasonalEMOS do",
    ),
)


def reason_against(module: nn.Module) -> str:
    """Why a module is not known to work on a part of the grid."""
    for kinds, reason in _REASONS:
        if isinstance(module, kinds):
            return reason
    return "nothing is known of whether it looks beyond a point"
