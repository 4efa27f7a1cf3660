"""Checks that networks, heads and the features of a batch match."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar, cast

from pytorch_lightning import LightningModule
from torch import Tensor, nn

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Distribution
from ens10.models.domain import Places, use
from ens10.models.heads import Head, TargetHeads
from ens10.models.layers.location_convolutions import CoordConv2d
from ens10.models.losses import Loss
from ens10.models.networks.base import Network
from ens10.models.statistical.advection import Advection
from ens10.models.statistical.base import GridBuffers
from ens10.models.statistical.emos import EMOS
from ens10.models.statistical.predictor_emos import BoostedEMOS, RidgeEMOS
from ens10.models.statistical.seasonal_emos import SeasonalEMOS

T = TypeVar("T")


def require_match(network: Network, head: Head, times: int = 1) -> None:
    """Refuse a head whose inputs do not match the network's outputs.

    Args:
        network: whose outputs the head takes.
        head: takes them.
        times: number of times that the head is applied, each to channels of its own.

    Raises:
        ArgumentError: channel numbers differ, or only one of the two works on members.
    """
    required = times * head.out_channels
    if network.out_channels != required:
        often = f" {times} times {head.out_channels}" if times > 1 else f" {required}"
        raise ArgumentError(
            "network",
            f"{type(network).__name__} delivers {network.out_channels} channels, "
            f"{type(head).__name__} takes{often}",
            f"Set out_channels to {required}",
        )
    if network.gives_members != head.takes_members:
        gives, takes = (
            "each member" if many else "a grid point"
            for many in (network.gives_members, head.takes_members)
        )
        raise ArgumentError(
            "head",
            f"{type(network).__name__} delivers outputs of {gives}, but "
            f"{type(head).__name__} takes those of {takes}",
            "MembersHead and MembersNormalHead take those of each member",
        )


_AMOUNT_MODELS = {
    "tp": "emos_csg or unet_csg",
    "cp": "emos_csg or unet_csg",
    "si10": "emos_truncated or unet_truncated",
}


def advice_for_amounts(model: nn.Module, targets: Sequence[str]) -> str:
    """Return one line of advice if forecasts of precipitation or wind speed can be below 0.

    Args:
        model: with heads or statistical methods.
        targets: channels to correct.

    Returns:
        The advice, or "" for other targets and for distributions with a bound.
    """
    amounts = [name for name in targets if is_amount(name)]
    if not amounts or not any(map(_is_unbounded, model.modules())):
        return ""
    name = amounts[0]
    return (
        f"{name} is never below 0, but this model's forecasts can be. Use {_AMOUNT_MODELS[name]}."
    )


def is_amount(target: str) -> bool:
    """Return True for precipitation and wind speed, which are never negative."""
    return target in _AMOUNT_MODELS


def _is_unbounded(part: nn.Module) -> bool:
    if isinstance(part, SeasonalEMOS):
        return math.isinf(part.lower)
    if isinstance(part, EMOS | RidgeEMOS | BoostedEMOS):
        return True
    return isinstance(part, Head) and part.is_unbounded


def require_pointwise(model: nn.Module, data: str = "stations") -> None:
    """Refuse networks and losses that use neighbouring points, which stations do not have.

    Args:
        model: with networks and losses.
        data: what the data are: "stations", or "points" in random order.

    Raises:
        ArgumentError: a network that is not `pointwise`, advection, or a loss with `needs_grid`.
    """
    for part in model.modules():
        name = type(part).__name__
        reason = f"the data are {data}, but {{}} uses neighbouring points"
        if isinstance(part, Network) and not part.pointwise:
            remedy = "Choose a network that works at each point, such as MLP (attribute pointwise)"
            raise ArgumentError("network", reason.format(name), remedy)
        if isinstance(part, Advection):
            remedy = "Set advection to false"
            raise ArgumentError("advection", reason.format(name), remedy)
        if isinstance(part, Loss) and part.needs_grid:
            remedy = "Choose a loss at each point, such as CRPSLoss"
            raise ArgumentError("loss", reason.format(name), remedy)


def require_no_place(model: nn.Module, grid: tuple[int, int]) -> None:
    """Refuse models with parts that are bound to places, whose dates cannot be moved.

    These are embeddings, coordinates, layers and gates with a value at each point of the grid or of
    a coarser level of it, and fitted statistical methods.

    Args:
        model: with networks and heads.
        grid: rows and columns of the data.

    Raises:
        ArgumentError: it has such a part.
    """
    for part in model.modules():
        if not isinstance(part, LightningModule) and _has_places(part, grid):
            reason = f"views cannot be moved: {type(part).__name__} is bound to places of the grid"
            remedy = "Set roll and mirror to false, or choose a network without an embedding"
            raise ArgumentError("kind", reason, remedy)


def _has_places(part: nn.Module, grid: tuple[int, int]) -> bool:
    tensors = (*part._parameters.values(), *part._buffers.values())
    shapes = [tuple(t.shape[-2:]) for t in tensors if t is not None and t.ndim > 2]
    levels = {
        tuple(-(-n // 2**level) if up else n // 2**level for n in grid)
        for level in range(min(grid).bit_length() - 2)
        for up in (False, True)
    }
    is_bound = (
        isinstance(part, GridBuffers | CoordConv2d) or getattr(part, "grid", None) is not None
    )
    return is_bound or not levels.isdisjoint(shapes)


def forecast_of(
    network: Network, head: Head, batch: Batch, grid: tuple[int, int] | None = None
) -> Distribution | tuple[Distribution, ...]:
    """Return the forecast of a network and head for a batch, or that of each of several targets.

    Args:
        network: maps the features to outputs.
        head: maps the outputs to the forecast.
        batch: fields, or patches or points with their `rows` and `columns`.
        grid: rows and columns of the whole grid, for values at each grid point in patches and
            points; None takes them for whole fields.

    Raises:
        ArgumentError: features that the network cannot take, or another number of targets than the
            head is for.
    """

    def finish(outputs: Tensor) -> Distribution | tuple[Distribution, ...]:
        return cast("Distribution | tuple[Distribution, ...]", head(outputs, batch))

    return finish_outputs(network, head, batch, grid, finish)


def finish_outputs(
    network: Network,
    head: Head,
    batch: Batch,
    grid: tuple[int, int] | None,
    finish: Callable[[Tensor], T],
) -> T:
    """Return a function of a network's outputs for a batch, with its patches' places set.

    Args:
        network: maps the features to outputs.
        head: that `finish` applies.
        batch: as for `forecast_of`.
        grid: as for `forecast_of`.
        finish: function of the outputs.

    Raises:
        ArgumentError: as `forecast_of`.
    """
    features = batch["features"]
    _check_features(features, network)
    _check_targets(batch, head)
    places: AbstractContextManager[object] = nullcontext()
    if grid is not None and "rows" in batch:
        patch = (features.shape[-2], features.shape[-1])
        places = use(Places(batch["rows"], batch["columns"], patch, grid))
    with places:
        return finish(network(features))


_FIELDS = ("features", "raw_mean", "raw_std", "target", "weights", "members")


def as_fields(batch: Batch) -> Batch:
    """Return a batch of P points as P fields of 1 x 1 points; other batches as they are."""
    if "latitude" not in batch or batch["raw_mean"].ndim > 2:
        return batch
    fields = {k: batch[k][..., None, None] for k in _FIELDS if k in batch}  # type: ignore[literal-required]
    return cast("Batch", {**batch, **fields})


def _check_targets(batch: Batch, head: Head) -> None:
    """Refuse another number of targets than the head is for."""
    raw = batch.get("raw_mean")
    targets = raw.shape[1] if raw is not None and raw.ndim > 3 else 1
    heads = len(head.heads) if isinstance(head, TargetHeads) else 1
    if targets != heads:
        count = f"{targets} target" + ("s" if targets > 1 else "")
        raise ArgumentError(
            "head",
            f"the batch has {count}, but {type(head).__name__} forecasts {heads}",
            "Use TargetHeads with a head for each target, or another head for one target",
        )


def _check_features(features: Tensor, network: Network) -> None:
    """Refuse features that the network cannot take."""
    layout, kind = ("(N, C, H, W)", "fields")
    if network.takes_members:
        layout, kind = ("(N, M, C, H, W)", "members")
    name, shape = type(network).__name__, f"the batch has shape {tuple(features.shape)}"
    if features.ndim != layout.count(",") + 1:
        raise ArgumentError(
            "features", f"{shape}, but {name} takes {layout}", f"Set data.kind to {kind}"
        )
    if features.shape[-3] != network.in_channels:
        raise ArgumentError(
            "features",
            f"{shape} {layout}, but {name} takes {network.in_channels} channels",
            f"Set the network's in_channels to {features.shape[-3]}",
        )
    if network.takes_members and features.shape[1] < network.least_members:
        raise ArgumentError(
            "features",
            f"{name} needs at least {network.least_members} members, found {features.shape[1]}",
            "Raise data.ensemble, or use data with more members",
        )
