"""Modules that can run on a part of the grid; models with other modules are refused.

A module of this package declares so itself, in the body of its class: `splittable = True` if it
works at each point independently or takes neighbours, sums and maps from `current()`; a text with
the reason if it does not; a property if that depends on its options. Subclasses do not inherit it.
The lists here are of modules of torch.
"""

from collections.abc import Callable, Iterator
from typing import cast

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointWrapper
from torch.distributed.fsdp import FSDPModule

from ens10.errors import ArgumentError, listing
from ens10.models.layers.attention import ChannelNorm
from ens10.models.networks.base import Network
from ens10.models.statistical import EMOS, RegionalRegression, SeasonalEMOS

Kind = type[nn.Module]

# methods that keep what they fitted to a part of the grid; other modules of the package declare
# `splittable` in their own class
_METHODS: tuple[Kind, ...] = (EMOS, RegionalRegression, SeasonalEMOS)
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


def _has_no_attention_dropout(module: nn.Module) -> bool:
    """Return True if an attention layer drops no weights."""
    return bool(cast("nn.MultiheadAttention", module).dropout == 0)


_CONDITIONS: dict[Kind, Callable[[nn.Module], bool]] = {
    nn.AvgPool2d: _is_halving,
    nn.Conv2d: _is_pointwise,
    nn.Dropout: _has_no_dropout,
    nn.LayerNorm: _normalises_one_axis,
    nn.MaxPool2d: _is_halving,
    nn.MultiheadAttention: _has_no_attention_dropout,
}
# classes whose submodules are not checked, since they do not call them in the usual way
_WITHOUT_CHECK_OF_SUBMODULES: tuple[Kind, ...] = (ChannelNorm, nn.MultiheadAttention)

_supported_kinds: set[Kind] = {*_METHODS, *_CONTAINERS, *_POINTWISE}


def register_supported(kind: Kind) -> Kind:
    """Register a class of modules that work on a part of the grid; a decorator.

    Use it for classes of other packages; classes of your own may declare `splittable = True`.
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
        "Declare modules of your own that work on parts with `splittable = True` in their class, "
        "or train without splitting samples",
    )


register_known = register_supported  # former name


def _require_halvings(model: nn.Module) -> None:
    """Refuse pooling where parts of the grid may begin at any row."""
    pools = [
        name for name, m in model.named_modules() if isinstance(m, nn.MaxPool2d | nn.AvgPool2d)
    ]
    nets = [module for module in model.modules() if isinstance(module, Network)]
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
    """Return True if a module's class declares or is registered; base classes do not count."""
    # a subclass may do other things with the fields
    kind = _kind_of(module)
    if "splittable" in vars(kind):
        return getattr(module, "splittable") is True  # noqa: B009  (no attribute of nn.Module)
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
    "BatchNorm": f"{_LOCAL_STATISTICS}; use ens10.models.layers.BatchNorm2d",
    "InstanceNorm": f"{_LOCAL_STATISTICS}; use ens10.models.layers.GroupNorm",
    "GroupNorm": f"{_LOCAL_STATISTICS}; use ens10.models.layers.GroupNorm",
    "LayerNorm": (
        f"over rows and columns {_LOCAL_STATISTICS}; use ens10.models.layers.attention.ChannelNorm"
    ),
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
    declared = getattr(module, "splittable", None)
    if isinstance(declared, str):
        return declared
    names = " ".join(kind.__name__ for kind in type(module).__mro__)
    for name, reason in _REASONS.items():
        if name in names:
            return reason
    return "it is not known whether it works at each point independently"
