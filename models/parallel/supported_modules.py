"""Modules that can run on a part of the grid; models with other modules are refused."""

from collections.abc import Callable, Iterator
from typing import cast

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.distributed.fsdp import FSDPModule

from ens10.errors import ArgumentError, listing
from ens10.models import (
    BernsteinHead,
    CRPSLoss,
    DeepEnsemble,
    DressingHead,
    EnergyLoss,
    FamilyHead,
    LogScoreLoss,
    MembersCRPSLoss,
    MembersHead,
    MembersNormalHead,
    MethodHead,
    PostProcessor,
    ResidualNormalHead,
    SpectralCRPSLoss,
    SplineHead,
    SumLoss,
    TargetHeads,
    ThresholdCRPSLoss,
    layers,
    networks,
)
from ens10.models.layers import smoe
from ens10.models.layers.attention import ChannelNorm
from ens10.models.layers.member_encoder import MemberEncoder
from ens10.models.layers.norm import BatchNorm2d, GroupNorm
from ens10.models.layers.padding import FreeConv2d
from ens10.models.layers.pointwise import PointConv2d
from ens10.models.layers.smoe.tracking import RoutingState
from ens10.models.networks.groenquist import _Branches, _Inception
from ens10.models.networks.location_unet import ResidualBlock
from ens10.models.networks.unet import UNetBody
from ens10.models.postprocessor import WeightedMean
from ens10.models.statistical import EMOS, RegionalRegression, SeasonalEMOS

Kind = type[nn.Module]

# each has a test against the serial layer or network, or works at each point on its own
_OWN_MODULES: tuple[Kind, ...] = (
    layers.CondConv2d,
    layers.CoordConv2d,
    layers.ExpertConvolution,
    layers.LocallyConnected2d,
    layers.LowRankLocallyConnected2d,
    layers.MemberAttention,
    layers.NeighbourhoodAttention,
    layers.NeighbourhoodBlock,
    layers.PointEmbedding,
    layers.SMoE2d,
    layers.SameConv2d,
    BatchNorm2d,
    ChannelNorm,
    FreeConv2d,
    GroupNorm,
    PointConv2d,
    RoutingState,
    MemberEncoder,
    smoe.ComparingSMoE2d,
    smoe.ConvGate,
    smoe.CoordConvGate,
    smoe.FixedGate,
    smoe.LocallyConnectedGate,
    smoe.RegionGate,
    smoe.TensorGate,
    networks.MLP,
    networks.MemberContext,
    networks.PaperSAET,
    networks.PaperSpreadNet,
    networks.SAET,
    networks.BiasNet,
    networks.Groenquist,
    networks.LeNet,
    networks.LocationUNet,
    networks.PoET,
    networks.SMoEResNet,
    networks.SMoEUNet,
    networks.SpreadNet,
    networks.Transformer,
    networks.UNet,
    networks.WithMembers,
    ResidualBlock,
    UNetBody,
    _Branches,
    _Inception,
    BernsteinHead,
    DressingHead,
    FamilyHead,
    MembersHead,
    MembersNormalHead,
    MethodHead,
    ResidualNormalHead,
    SplineHead,
    TargetHeads,
    CRPSLoss,
    EnergyLoss,
    LogScoreLoss,
    MembersCRPSLoss,
    SpectralCRPSLoss,
    SumLoss,
    ThresholdCRPSLoss,
    EMOS,
    RegionalRegression,
    SeasonalEMOS,
    DeepEnsemble,
    PostProcessor,
    WeightedMean,
)
_CONTAINERS: tuple[Kind, ...] = (
    nn.Identity,
    nn.ModuleDict,
    nn.ModuleList,
    nn.ParameterDict,
    nn.ParameterList,
    nn.Sequential,
    nn.TransformerEncoder,
    nn.TransformerEncoderLayer,
    CheckpointWrapper,
)
_POINTWISE: tuple[Kind, ...] = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.LeakyReLU,
    nn.Linear,
    nn.LogSigmoid,
    nn.Mish,
    nn.PReLU,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softsign,
    nn.Tanh,
)


def _is_pointwise(module: nn.Module) -> bool:
    """Return True for a convolution of single points, without stride and padding."""
    convolution = cast("nn.Conv2d", module)
    sizes = convolution.kernel_size, convolution.stride
    return sizes == ((1, 1), (1, 1)) and convolution.padding in ((0, 0), "valid", "same")


def _is_halving(module: nn.Module) -> bool:
    """Return True for pooling of 2 x 2 points that do not overlap."""
    pool = cast("nn.MaxPool2d", module)
    plain = (2, (2, 2))
    dilated = getattr(pool, "dilation", 1) not in (1, (1, 1))
    regular = pool.kernel_size in plain and pool.stride in plain and pool.padding in (0, (0, 0))
    return regular and not pool.ceil_mode and not dilated


def _has_no_dropout(module: nn.Module) -> bool:
    """Return True if a dropout layer drops nothing."""
    return bool(cast("nn.Dropout", module).p == 0)


def _normalises_one_axis(module: nn.Module) -> bool:
    """Return True for a layer normalisation over the last axis only."""
    return len(cast("nn.LayerNorm", module).normalized_shape) == 1


def _has_no_stride(module: nn.Module) -> bool:
    """Return True if an attention has a stride of 1."""
    return cast("layers.FinnAttention", module).stride == 1


def _has_no_attention_dropout(module: nn.Module) -> bool:
    """Return True if an attention layer drops no weights."""
    return bool(cast("nn.MultiheadAttention", module).dropout == 0)


_CONDITIONS: dict[Kind, Callable[[nn.Module], bool]] = {
    nn.AvgPool2d: _is_halving,
    nn.Conv2d: _is_pointwise,
    nn.Dropout: _has_no_dropout,
    layers.FinnAttention: _has_no_stride,
    nn.LayerNorm: _normalises_one_axis,
    nn.MaxPool2d: _is_halving,
    nn.MultiheadAttention: _has_no_attention_dropout,
}
# classes whose submodules are not checked, since they do not call them in the usual way
_WITHOUT_CHECK_OF_SUBMODULES: tuple[Kind, ...] = (ChannelNorm, nn.MultiheadAttention)

_supported_kinds: set[Kind] = {*_OWN_MODULES, *_CONTAINERS, *_POINTWISE}


def register_supported(kind: Kind) -> Kind:
    """Register a class of modules that work on a part of the grid; a decorator.

    Modules do if they work at each point independently, or use `ens10.models.domain.current()` for
    neighbours, sums over the grid and parameters with a value at each point. Submodules are checked
    separately, and subclasses must be registered themselves.

    Args:
        kind: a class of modules.

    Returns:
        The class.
    """
    _supported_kinds.add(kind)
    return kind


def require_supported(model: nn.Module) -> None:
    """Refuse a model with a module that is not registered to work on a part of the grid.

    Its outputs at the borders of the parts, or its statistics, would be silently wrong.

    Args:
        model: a Lightning module, or a part of one.

    Raises:
        ArgumentError: a module that is not registered; the message lists all by their path in the
            model. Or a layer that pools although the networks' `halvings` is 0.
    """
    _require_halvings(model)
    unsupported = dict(_unsupported(model, ""))
    if not unsupported:
        return
    kinds = {type(module): module for module in unsupported.values()}
    places = [f"{place} ({type(module).__name__})" for place, module in unsupported.items()]
    reasons = [f"{kind.__name__}: {reason_against(module)}" for kind, module in kinds.items()]
    raise ArgumentError(
        "model",
        f"it cannot be split between processes, because of {listing(places)}. {'; '.join(reasons)}",
        "Declare modules of your own that work on parts with "
        "ens10.models.parallel.register_supported, or train without splitting samples",
    )


register_known = register_supported  # former name


def _require_halvings(model: nn.Module) -> None:
    """Refuse pooling where parts of the grid may begin at any row."""
    pools = [
        name for name, m in model.named_modules() if isinstance(m, nn.MaxPool2d | nn.AvgPool2d)
    ]
    nets = [module for module in model.modules() if isinstance(module, networks.Network)]
    if pools and nets and not any(network.halvings for network in nets):
        raise ArgumentError(
            "network",
            f"{listing(pools)} halve the grid, but the network's `halvings` is 0",
            "Set it to the number of times that the grid is halved, and `odd` to what becomes of "
            "the last of an odd number",
        )


def _unsupported(module: nn.Module, place: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield unsupported modules, the outermost only, with their paths in the model."""
    if not _is_supported(module):
        yield place or "the model", module
    elif _kind_of(module) not in _WITHOUT_CHECK_OF_SUBMODULES:
        for name, child in module.named_children():
            yield from _unsupported(child, f"{place}.{name}" if place else name)


def _is_supported(module: nn.Module) -> bool:
    """Return True if a module's class is registered; base classes do not count."""
    # a subclass may do other things with the fields
    kind = _kind_of(module)
    return kind in _supported_kinds or (kind in _CONDITIONS and _CONDITIONS[kind](module))


def _kind_of(module: nn.Module) -> Kind:
    """Return a module's class, without the one that `fully_shard` derives from it."""
    kind = type(module)
    wrapped = FSDPModule in kind.__bases__
    return next(base for base in kind.__bases__ if base is not FSDPModule) if wrapped else kind


_LOCAL_STATISTICS = "its statistics would cover one part only"
_RANDOM_NUMBERS = "processes would draw different random numbers than a serial run"
# key: a part of the name of the class or of one of its base classes
_REASONS = {
    "StatisticalPostProcessor": "it is fitted in one process; set devices to 1",
    "BatchNorm": f"{_LOCAL_STATISTICS}; use ens10.models.layers.BatchNorm2d",
    "InstanceNorm": f"{_LOCAL_STATISTICS}; use ens10.models.layers.GroupNorm",
    "GroupNorm": f"{_LOCAL_STATISTICS}; use ens10.models.layers.GroupNorm",
    "LayerNorm": (
        f"over rows and columns {_LOCAL_STATISTICS}; use ens10.models.layers.attention.ChannelNorm"
    ),
    "FinnAttention": "filters of query and key would cross the border; set stride to 1",
    "PaperPoET": "filters of its attention would cross the border; use ens10.models.networks.PoET",
    "Conv": (
        "its filter would not see the neighbouring parts; use ens10.models.layers.SameConv2d, or a "
        "1x1 kernel with stride 1 and without padding"
    ),
    "Dropout": f"{_RANDOM_NUMBERS}; set p to 0",
    "MultiheadAttention": f"{_RANDOM_NUMBERS}; set dropout to 0",
    "Upsample": "points at a border need the next part's; use ens10.models.layers.upsample_twice",
    "Pool": "only pooling of 2 x 2 points, which lie in one part, needs no neighbours",
    "Pad": "it would pad each part; use ens10.models.domain.current().pad",
    "StatisticalMethod": (
        "its maps of the whole grid are not split; those of EMOS and SeasonalEMOS are"
    ),
}


def reason_against(module: nn.Module) -> str:
    """Return why a module is not supported on a part of the grid."""
    names = " ".join(kind.__name__ for kind in type(module).__mro__)
    for name, reason in _REASONS.items():
        if name in names:
            return reason
    return "it is not known whether it works at each point independently"
