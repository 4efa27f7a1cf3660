"""Attention across the members of an ensemble, from dot products over the whole field.

A member attends to the other members, not to other points: with fields as tokens there is one
weight for each pair of members and head, (N, heads, M, M), however large the grid is.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ens10.errors import ArgumentError
from ens10.models.domain import current
from ens10.models.layers.norm import group_norm
from ens10.models.layers.pointwise import PointConv2d


class ChannelNorm(nn.Module):
    """Layer normalisation of fields.

    Without `grid`, the channels of each point are normalised separately, with a weight and a bias
    for each channel: the layer works on any grid, on any part of one, and commutes with rotations
    in longitude. With `grid`, channels and points are normalised together, with a weight and a bias
    for each of them, as in PoET: 2 C H W parameters, which act as an embedding of each point.

    Args:
        channels: number of channels of the fields.
        grid: rows and columns, or None.
    """

    splittable = True

    def __init__(self, channels: int, grid: tuple[int, int] | None = None) -> None:
        super().__init__()
        shape = (channels,) if grid is None else (channels, *grid)
        self.norm = nn.LayerNorm(shape)

    def forward(self, fields: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H, W).

        Raises:
            ArgumentError: the fields are on another grid than the parameters.
        """
        shape = self.norm.normalized_shape
        if len(shape) == 1:
            channels_last: Tensor = self.norm(fields.movedim(1, -1))
            return channels_last.movedim(-1, 1)
        domain = current()
        grid = domain.shape(fields)
        if (fields.shape[1], *grid) != tuple(shape):
            raise ArgumentError(
                "grid",
                f"fields of {grid} points (rows, columns) where the network has parameters for "
                f"{tuple(shape[1:])}",
                "Use data on the grid of the training, or leave grid out",
            )
        if not domain.is_split:
            outputs: Tensor = self.norm(fields)
            return outputs
        # layer normalisation is group normalisation with one group, whose sums span all processes
        weight, bias = domain.part(self.norm.weight), domain.part(self.norm.bias)
        return group_norm(fields, 1, weight, bias, self.norm.eps, domain)


def member_products(query: Tensor, key: Tensor) -> Tensor:
    """Return the dot products of all pairs of members over channels and points.

    They are sums over points, so that the products of the parts of a field add up to those of the
    field. The ensemble mean is subtracted from the keys: this changes each row by a constant, which
    the softmax in `member_weights` removes, and avoids the loss of digits in large, nearly equal
    products.

    Args:
        query: (N, M, heads, c, H, W).
        key: (N, M, heads, c, H, W).

    Returns:
        (N, heads, M, M), rows for queries; at least float32, since a sum over a field overflows
        half precision.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):  # or the product is in half precision
        queries, keys = (x.to(dtype).flatten(3).transpose(1, 2) for x in (query, key))
        keys = keys - keys.mean(dim=2, keepdim=True)
        return queries @ keys.transpose(-1, -2)


def member_weights(products: Tensor, size: int) -> Tensor:
    """Return the attention weights: the softmax of products / sqrt(size) over the keys.

    Args:
        products: result of `member_products`, summed over all parts of the field.
        size: number of terms of a product: channels of a head times points of the whole field.

    Returns:
        (N, heads, M, M); rows sum to 1.
    """
    return torch.softmax(products / size**0.5, dim=-1)


def weighted_perturbations(weights: Tensor, value: Tensor) -> Tensor:
    """Return the sum over members j of weights_ij (value_j - mean value), for each member i.

    Args:
        weights: result of `member_weights`, (N, heads, M, M).
        value: (N, M, heads, c, H, W), any part of the field.

    Returns:
        (N, M, heads, c, H, W).
    """
    perturbations = (value - value.mean(dim=1, keepdim=True)).flatten(3).transpose(1, 2)
    sums = weights.to(perturbations.dtype) @ perturbations  # (N, heads, M, c H W)
    return sums.transpose(1, 2).reshape(value.shape)


class MemberAttention(nn.Module):
    """Self-attention across members, Finn (2021), arXiv:2106.13924.

    Query, key and value are linear in the channels at each point. A pair of members has one weight
    for each head, from the dot product over the whole field. The weighted perturbations of the
    values about the ensemble mean pass an output projection, which starts at zero, and are added to
    the input. Any number of members is accepted; permuting them permutes the outputs. Identical
    members, and a single one, are unchanged.

    Args:
        channels: number of channels of the fields, a multiple of `heads`.
        heads: number of attention heads.
        grid: rows and columns, for normalisation with parameters at each point; see `ChannelNorm`.

    Raises:
        ArgumentError: channels that are not a multiple of heads.
    """

    splittable = True

    def __init__(self, channels: int, heads: int, grid: tuple[int, int] | None = None) -> None:
        super().__init__()
        if heads < 1 or channels % heads:
            raise ArgumentError("heads", f"{channels} channels are not a multiple of {heads} heads")
        self.heads = heads
        self.norm = ChannelNorm(channels, grid)
        self.query_key_value = PointConv2d(channels, 3 * channels, bias=False)
        self.project = PointConv2d(channels, channels)
        nn.init.zeros_(self.project.weight)
        nn.init.zeros_(self.project.bias)  # type: ignore[arg-type]

    def forward(self, fields: Tensor) -> Tensor:
        """(N, M, C, H, W) -> (N, M, C, H, W)."""
        N, M, C, H, W = fields.shape
        normalised = self.norm(fields.flatten(0, 1))
        projections = self.query_key_value(normalised).view(N, M, 3, self.heads, -1, H, W)
        query, key, value = projections.unbind(2)
        domain = current()
        rows, columns = domain.shape(fields)
        products = domain.sum(member_products(query, key))  # over all parts of the field
        weights = member_weights(products, C // self.heads * rows * columns)
        perturbations = weighted_perturbations(weights, value).reshape(N * M, C, H, W)
        update: Tensor = self.project(perturbations)
        return fields + update.view(fields.shape)


class FinnAttention(nn.Module):
    """Self-attention across members as in Finn's code, one map for each head, arXiv:2106.13924.

    Facts from the authors' code (github.com/tobifinn/ensemble_transformer, and for the stride
    github.com/ecmwf-lab/poet): one layer normalisation for query, key and value; these are linear
    in the channels without a bias and have one channel for each head; query and key pass a ReLU.
    The values, each with its weighted perturbations about the ensemble mean added, pass an output
    projection whose weights start at zero and are added to the input; a ReLU follows. With a
    stride, query and key are convolutions of stride x stride points that do not overlap, and the
    last incomplete rows and columns do not count. Here, zeros extend a grid smaller than that.

    `MemberAttention` differs: the output is not rectified, nor are query and key; the values are
    not added to their perturbations; each head has channels / heads channels. Here, identical
    members change, since the values pass the projection.

    Any number of members is accepted; permuting them permutes the outputs. A stride above 1 works
    on the whole grid only.

    Args:
        channels: number of channels of the fields.
        heads: number of attention heads, and channels of query, key and value.
        grid: rows and columns, for normalisation with parameters at each point; see `ChannelNorm`.
        stride: rows and columns of the filters of query and key, and between their points.

    Raises:
        ArgumentError: no head, or a stride that is not positive.
    """

    @property
    def splittable(self) -> bool | str:
        """True with a stride of 1 only."""
        text = "filters of query and key would cross the border; set stride to 1"
        return self.stride == 1 or text

    def __init__(
        self, channels: int, heads: int, grid: tuple[int, int] | None = None, stride: int = 1
    ) -> None:
        super().__init__()
        if heads < 1:
            raise ArgumentError("heads", f"{heads} is less than 1")
        if stride < 1:
            raise ArgumentError("stride", f"{stride} is not positive")
        self.stride = stride
        self.norm = ChannelNorm(channels, grid)
        self.query = nn.Conv2d(channels, heads, stride, stride, bias=False)
        self.key = nn.Conv2d(channels, heads, stride, stride, bias=False)
        self.value = PointConv2d(channels, heads, bias=False)
        self.project = PointConv2d(heads, channels)
        nn.init.zeros_(self.project.weight)

    def forward(self, fields: Tensor) -> Tensor:
        """(N, M, C, H, W) -> (N, M, C, H, W)."""
        domain = current()
        shape = domain.shape(fields)
        missing = [max(0, self.stride - length) for length in shape]
        # a list, which `torch.compile` traces, unlike a generator
        size = math.prod([max(1, length // self.stride) for length in shape])
        normalised = self.norm(fields.flatten(0, 1))

        # at least one window: zeros below and right of a grid that is smaller than the stride
        windows = functional.pad(normalised, (0, missing[1], 0, missing[0]))
        query, key, value = (  # (N, M, heads, 1, H, W)
            projected.unflatten(0, fields.shape[:2]).unsqueeze(3)
            for projected in (
                self.query(windows).relu(),
                self.key(windows).relu(),
                self.value(normalised),
            )
        )
        products = domain.sum(member_products(query, key))  # over all parts of the field
        weights = member_weights(products, size)
        values = (value + weighted_perturbations(weights, value)).squeeze(3)
        update = each_member(self.project, values)
        return (fields + update).relu()


def each_member(layer: nn.Module, fields: Tensor) -> Tensor:
    """Apply a layer for fields (N, C, H, W) to each member of (N, M, C, H, W)."""
    N, M = fields.shape[:2]
    outputs: Tensor = layer(fields.flatten(0, 1))
    return outputs.view(N, M, *outputs.shape[1:])
