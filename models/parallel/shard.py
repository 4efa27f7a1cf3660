"""The domain of a process that holds a part of the grid."""

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.models.domain import Cut, Domain, Edges, Sides
from ens10.models.parallel.exchange import Exchange
from ens10.models.parallel.halo import Frame
from ens10.models.parallel.operations import Convolve, Pad, Sum


class Shard(Domain):
    """One process's part of the grid; implements `Domain` by halo exchange and sums.

    Args:
        rows: partition of the rows.
        columns: partition of the columns.
        exchange: communication with the processes of the other parts.
    """

    def __init__(self, rows: Cut, columns: Cut, exchange: Exchange) -> None:
        self.rows, self.columns, self.exchange = rows, columns, exchange
        self.size = exchange.size

    @property
    def local_slices(self) -> tuple[slice, slice]:
        """Rows and columns of this process, on the grid of the data."""
        return self.rows.local_slice, self.columns.local_slice

    def shape(self, fields: Tensor) -> tuple[int, int]:
        """Return rows and columns of the whole grid, on the network level of `fields`."""
        height, width = fields.shape[-2:]
        return self.rows.of_size(height).total, self.columns.of_size(width).total

    def origin(self, fields: Tensor) -> tuple[int, int]:
        """Return row and column in the whole grid, on its level, of the first point of `fields`."""
        height, width = fields.shape[-2:]
        return self.rows.of_size(height).start, self.columns.of_size(width).start

    def part(self, grid_map: Tensor) -> Tensor:
        """Return this process's part of a map, differentiably; dimensions of length 1 stay."""
        for dim, cut in ((-2, self.rows), (-1, self.columns)):
            if grid_map.shape[dim] > 1:
                level = cut.of_total(grid_map.shape[dim])
                grid_map = grid_map.narrow(dim, level.start, level.size)
        return grid_map

    def pad(self, fields: Tensor, sides: Sides, edges: Edges) -> Tensor:
        """Pad fields (N, C, h, w) by values of neighbouring parts or grid edges, differentiably."""
        self._require_room(fields, sides)
        padded: Tensor = Pad.apply(fields, Frame(self.exchange, sides, edges))  # type: ignore[no-untyped-call]
        return padded

    def convolve(
        self,
        fields: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        half: int,
        edges: Edges,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolve with `half` rows and columns of padding on each side, differentiably."""
        if stride > 1:
            self._require_steps(fields, stride)
        # zeros beyond columns that are not split are left to the convolution
        pads_columns = self.columns.parts == 1 and edges.columns == "zeros"
        wide = 0 if pads_columns else half
        sides = Sides(half, half, wide, wide)
        self._require_room(fields, sides)
        device = fields.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            fields, weight = fields.to(dtype), weight.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        frame = Frame(self.exchange, sides, edges)
        options = ((stride, stride), (0, half - wide), (dilation, dilation), groups)
        outputs: Tensor = Convolve.apply(fields, weight, bias, frame, options)  # type: ignore[no-untyped-call]
        return outputs

    def sum(self, parts: Tensor) -> Tensor:
        """Sum over all processes that hold parts of a sample (all-reduce), differentiably."""
        total: Tensor = Sum.apply(parts, self.exchange)  # type: ignore[no-untyped-call]
        return total

    def total(self, parts: Tensor) -> Tensor:
        """Sum over all processes that hold parts of a sample, without gradient."""
        return self.exchange.total(parts)

    def _require_steps(self, fields: Tensor, stride: int) -> None:
        """Refuse a stride that does not divide the first rows of all parts, on all processes."""
        for cut, length, name in zip(
            (self.rows, self.columns), fields.shape[-2:], ("lat", "lon"), strict=True
        ):
            step = cut.of_size(length).step
            if step % stride:
                raise ArgumentError(
                    name,
                    f"a layer has stride {stride}, but the parts begin at multiples of {step}",
                    "Set the network's `halvings` to the number of times that it halves the grid, "
                    'and `odd` to "repeated"',
                )

    def _require_room(self, fields: Tensor, sides: Sides) -> None:
        """Refuse a halo wider than the neighbouring parts, on all processes alike."""
        height, width = fields.shape[-2:]
        checks = (
            (self.rows, height, sides[:2], "rows"),
            (self.columns, width, sides[2:], "columns"),
        )
        for cut, length, widths, name in checks:
            least = cut.room(length)
            if cut.parts > 1 and max(widths) > least:
                raise ArgumentError(
                    "lat" if name == "rows" else "lon",
                    f"a layer needs {max(widths)} {name} beyond its part, but on this level of "
                    f"the network a process has only {least}",
                    f"Split the {name} over fewer processes",
                )
