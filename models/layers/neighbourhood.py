"""Attention of each grid point to its neighbours, and blocks of it for a network."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ens10.errors import ArgumentError
from ens10.models.domain import Sides, current
from ens10.models.layers.attention import ChannelNorm
from ens10.models.layers.neighbourhood_loops import CompiledAttention
from ens10.models.layers.padding import Poles, SameConv2d, edges_of
from ens10.models.layers.pointwise import PointConv2d


def shifted_views(padded: Tensor, window: int) -> list[Tensor]:
    """Return the neighbours of all points as views of fields that are padded by half a window.

    Args:
        padded: (..., H + window - 1, W + window - 1).
        window: rows and columns of the window, odd.

    Returns:
        window^2 views (..., H, W), one for each offset of a neighbour, by rows from the first.
    """
    rows, columns = (length - window + 1 for length in padded.shape[-2:])
    return [
        padded[..., row : row + rows, column : column + columns]
        for row in range(window)
        for column in range(window)
    ]


class NeighbourhoodAttention(nn.Module):
    """Self-attention of each grid point to the points of a square window around it.

    As in Ramachandran et al. 2019, arXiv:1906.05909, and Hassani et al. 2023, arXiv:2204.07143:
    query, key and value are linear in the channels at each point; the weight of a neighbour is the
    softmax, over the window, of query . (key + r) / sqrt(c), with c channels of a key and a learned
    r for each head and offset. A convolution has the same weights everywhere; here they depend on
    the fields at the point and at its neighbours: a point can take its value from upstream.

    Rows beyond the poles are padded with zeros or with the outermost row. Columns are periodic if
    `periodic_longitude` is set, else padded with zeros.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output, a multiple of `heads`.
        heads: number of attention heads.
        key_channels: channels of query and key of each head.
        window: rows and columns of the window, odd.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even window, no key channel, or channels that are not a multiple of heads.
        UnknownNameError: another value of `poles`.

    Examples:
        >>> import torch
        >>> from ens10.models.layers import NeighbourhoodAttention
        >>> NeighbourhoodAttention(3, 8)(torch.zeros(1, 3, 4, 8)).shape
        torch.Size([1, 8, 4, 8])
    """

    splittable = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 4,
        key_channels: int = 4,
        window: int = 3,
        periodic_longitude: bool = True,
        poles: Poles = "replicate",
    ) -> None:
        super().__init__()
        if heads < 1 or out_channels % heads:
            raise ArgumentError(
                "heads", f"{out_channels} channels are not a multiple of {heads} heads"
            )
        if window < 1 or window % 2 == 0:
            raise ArgumentError("window", f"{window} is not odd")
        if key_channels < 1:
            raise ArgumentError("key_channels", f"{key_channels} is not positive")
        self.heads, self.window = heads, window
        self.edges = edges_of(periodic_longitude, poles)
        self.query = PointConv2d(in_channels, heads * key_channels)
        self.key = PointConv2d(in_channels, heads * key_channels, bias=False)
        self.value = PointConv2d(in_channels, out_channels)
        self.offsets = nn.Parameter(torch.empty(window**2, heads, key_channels, 1, 1))
        nn.init.normal_(self.offsets, std=key_channels**-0.5)

    def forward(self, fields: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        half = self.window // 2
        padded = current().pad(fields, Sides(half, half, half, half), self.edges)
        shape = (self.heads, -1)
        key = self.key(padded).unflatten(1, shape)
        value = self.value(padded).unflatten(1, shape)
        query = self.query(fields).unflatten(1, shape) / key.shape[2] ** 0.5

        if _use_compiled(query, key, value, self.offsets):
            offsets = self.offsets[..., 0, 0]
            outputs = CompiledAttention.apply(query, key, value, offsets)  # type: ignore[no-untyped-call]
        elif torch.compiler.is_compiling():
            outputs = attend(query, key, value, self.offsets, self.window)
        else:
            outputs = _Attend.apply(query, key, value, self.offsets, self.window)  # type: ignore[no-untyped-call]
        return outputs.flatten(1, 2)  # type: ignore[no-any-return]


def attend(query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, window: int) -> Tensor:
    """Return attention to neighbours in torch's operations; see `CompiledAttention`.

    Args:
        query: (N, heads, c, H, W), divided by the root of c.
        key: (N, heads, c, H + window - 1, W + window - 1).
        value: (N, heads, d, H + window - 1, W + window - 1).
        offsets: (window^2, heads, c, 1, 1).
        window: rows and columns of the window.

    Returns:
        (N, heads, d, H, W).
    """
    products = [
        (query * (near + offset)).sum(2)
        for near, offset in zip(shifted_views(key, window), offsets, strict=True)
    ]
    weights = torch.stack(products).softmax(0).to(value.dtype)  # (window^2, N, heads, H, W)
    outputs: Tensor = sum(
        weight[:, :, None] * near
        for weight, near in zip(weights, shifted_views(value, window), strict=True)
    )
    return outputs


class _Attend(torch.autograd.Function):
    """The same with gradients that are added to parts of one map.

    Autograd fills a whole map with zeros for the gradient of each neighbour's view. Products are in
    single precision at least, as softmax and sums are under mixed precision on CUDA.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, offsets: Tensor, window: int
    ) -> Tensor:
        """Return the outputs of `attend`, whose arguments it is called with."""
        wide = torch.promote_types(query.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            offsets = offsets.to(query.dtype)
            # einsum takes ten times as long on a GPU
            products = [
                (query * (near + offset)).sum(2, dtype=wide)
                for near, offset in zip(shifted_views(key, window), offsets, strict=True)
            ]
            weights = torch.stack(products).softmax(0)
            shares = weights.to(value.dtype)[:, :, :, None]
            nears = shifted_views(value, window)
            outputs = shares[0] * nears[0]
            for share, near in zip(shares[1:], nears[1:], strict=True):
                outputs.addcmul_(share, near)
        ctx.window = window
        ctx.save_for_backward(query, key, value, offsets, weights)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of query, key, value and offsets."""
        query, key, value, offsets, weights = ctx.saved_tensors
        wide = weights.dtype
        with torch.autocast(query.device.type, enabled=False):
            by_value, by_weight = torch.zeros_like(value), torch.empty_like(weights)
            shares = weights.to(value.dtype)[:, :, :, None]
            views = zip(
                shifted_views(by_value, ctx.window), shifted_views(value, ctx.window), strict=True
            )
            for n, (by_near, near) in enumerate(views):
                by_near.addcmul_(shares[n], grad)
                by_weight[n] = (grad * near).sum(2, dtype=wide)
            by_product = weights * (by_weight - (weights * by_weight).sum(0))
            planes = by_product.to(query.dtype)[:, :, :, None]
            by_key, by_query = torch.zeros_like(key), torch.zeros_like(query)
            by_offset = torch.empty_like(offsets)
            views = zip(
                shifted_views(by_key, ctx.window), shifted_views(key, ctx.window), strict=True
            )
            for n, (by_near, near) in enumerate(views):
                by_near.addcmul_(planes[n], query)
                by_query.addcmul_(planes[n], near + offsets[n])
                by_offset[n] = (planes[n] * query).sum((0, 3, 4), keepdim=True)[0]
        return by_query, by_key, by_value, by_offset, None


def _use_compiled(*tensors: Tensor) -> bool:
    """Return True for CPU tensors that are all float32 or all float64, outside `torch.compile`."""
    if torch.compiler.is_compiling():
        return False
    dtype = tensors[0].dtype
    return dtype in (torch.float32, torch.float64) and all(
        tensor.device.type == "cpu" and tensor.dtype == dtype for tensor in tensors
    )


class NeighbourhoodBlock(nn.Module):
    """A pre-normalised transformer block whose tokens are grid points, for `LocationUNet(block=)`.

    It computes x + P(attention(norm(x))), then x + B(gelu(A(norm(x)))): `NeighbourhoodAttention`,
    1x1 convolutions A (to `expansion` times the channels), B and P, of which B and P start at zero,
    and a layer normalisation of the channels of each point (Vaswani et al. 2017, arXiv:1706.03762;
    Xiong et al. 2020, arXiv:2002.04745, for the place of the normalisation).

    Args:
        channels: number of channels of the fields, a multiple of `heads`.
        grid: not needed; networks pass it to their blocks.
        heads: number of attention heads.
        key_channels: channels of query and key of each head.
        window: rows and columns that a point attends to, odd.
        expansion: hidden channels over channels.
        attention: False for a convolution over the window in place of the attention, for
            comparison.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: `expansion` below 1, or an argument that `NeighbourhoodAttention` refuses.
        UnknownNameError: another value of `poles`.
    """

    splittable = True

    def __init__(
        self,
        channels: int,
        grid: Sequence[int] | None = None,  # noqa: ARG002
        heads: int = 4,
        key_channels: int = 4,
        window: int = 3,
        expansion: int = 2,
        attention: bool = True,
        periodic_longitude: bool = True,
        poles: Poles = "replicate",
    ) -> None:
        super().__init__()
        if expansion < 1:
            raise ArgumentError("expansion", f"{expansion} is not positive")
        edges: dict[str, Any] = {"periodic_longitude": periodic_longitude, "poles": poles}
        self.attention: nn.Module = (
            NeighbourhoodAttention(channels, channels, heads, key_channels, window, **edges)
            if attention
            else SameConv2d(channels, channels, window, **edges)
        )
        self.norms = nn.ModuleList([ChannelNorm(channels), ChannelNorm(channels)])
        self.project = PointConv2d(channels, channels)
        self.expand = PointConv2d(channels, expansion * channels)
        self.reduce = PointConv2d(expansion * channels, channels)
        for parameter in (*self.project.parameters(), *self.reduce.parameters()):
            nn.init.zeros_(parameter)

    def forward(self, fields: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C, H, W)."""
        fields = fields + self.project(self.attention(self.norms[0](fields)))
        outputs: Tensor = fields + self.reduce(functional.gelu(self.expand(self.norms[1](fields))))
        return outputs
