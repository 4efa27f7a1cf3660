"""Convolution over features and coordinates."""

import math

import torch
from torch import Tensor, nn

from ens10.models.domain import current
from ens10.models.layers.padding import Poles, SameConv2d


class CoordConv2d(nn.Module):
    """A convolution over the input and its coordinates (Liu et al. 2018, arXiv:1807.03247).

    The coordinates are the row from -1 to 1 and, on a regional grid, the column from -1 to 1. On a
    periodic grid sine and cosine of the longitude replace the column, which avoids a seam.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: rows and columns of the filter, odd.
        periodic_longitude: True if the first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Raises:
        ArgumentError: an even kernel.
        UnknownNameError: another value of `poles`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        *,
        periodic_longitude: bool = False,
        poles: Poles = "zeros",
    ) -> None:
        super().__init__()
        self.periodic_longitude = periodic_longitude
        self.conv = SameConv2d(
            in_channels + (3 if periodic_longitude else 2),
            out_channels,
            kernel_size,
            periodic_longitude=periodic_longitude,
            poles=poles,
        )

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        place = coordinates(features, periodic_longitude=self.periodic_longitude)
        outputs: Tensor = self.conv(torch.cat([features, place], dim=1))
        return outputs


def coordinates(features: Tensor, *, periodic_longitude: bool = False) -> Tensor:
    """Return coordinate channels: row and column, or row, sine and cosine of longitude.

    Args:
        features: (N, C, H, W), for shape, dtype and device.
        periodic_longitude: True if the columns go once around the globe.
    """
    domain, N = current(), len(features)
    H, W = domain.shape(features)  # rows and columns are those of the whole grid

    def line(last: float, count: int) -> Tensor:
        first = -1 if last == 1 else 0
        return torch.linspace(first, last, count, dtype=features.dtype, device=features.device)

    maps = [line(1, H)[:, None]]
    if periodic_longitude:
        angle = line(2 * math.pi * (1 - 1 / W), W)[None]
        maps += [angle.sin(), angle.cos()]
    else:
        maps.append(line(1, W)[None])
    here = [domain.part(m).expand(features.shape[-2:]) for m in maps]
    return torch.stack(here).expand(N, -1, -1, -1)
