"""The multilayer perceptron of the ENS-10 paper, applied at each grid point separately."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ens10.models.domain import current
from ens10.models.layers.embedding import PointEmbedding, require_grid
from ens10.models.networks.base import DataShape, Network

RESULT_VERSION = 1  # raise it when results change


class MLP(Network):
    """Linear - ReLU - Linear at each point, with the same weights everywhere.

    2562 parameters for 17 channels (mean and deviation of 7 variables, and the 3 location
    features) and 3586 for 25, as in Ashkboos et al. 2022.

    With `grid`, a learned embedding of each point is a further input, so that the weights can be
    shared although the points differ: that of stations in Rasp & Lerch (2018,
    doi:10.1175/MWR-D-18-0187.1), who use two channels.

    Args:
        in_channels: channels of the features, location features included, embedding not.
        hidden: width of the hidden layer.
        out_channels: output channels at each point.
        grid: rows and columns (H, W) of the data and the embedding, (1, N) for N stations; None for
            no embedding, so that any data are taken.
        embedding: channels of the embedding; None for 2 if there is a grid. A configuration that
            sets it and no grid has the grid of the data.
        ridge: weight of the embedding's mean square, in units of the loss.

    Examples:
        >>> import torch
        >>> from ens10.models.networks import MLP
        >>> MLP(in_channels=17)(torch.zeros(1, 17, 4, 8)).shape
        torch.Size([1, 2, 4, 8])
    """

    splittable = True
    pointwise = True

    def __init__(
        self,
        in_channels: int,
        hidden: int = 128,
        out_channels: int = 2,
        grid: Sequence[int] | None = None,
        embedding: int | None = None,
        ridge: float = 1e-4,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        size = 2 if embedding is None else embedding
        first = in_channels + (0 if grid is None else size)
        self.layers = nn.Sequential(
            nn.Linear(first, hidden), nn.ReLU(), nn.Linear(hidden, out_channels)
        )
        self.embedding = None
        if grid is not None:  # no smoothness: neighbours in a row of stations are no neighbours
            self.embedding = PointEmbedding(grid, size, ridge, smoothness=0.0)

    @classmethod
    def numbers_of_data(cls, shape: DataShape, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the number of channels, and the grid if there is an embedding."""
        grid = {"grid": list(shape.grid)} if arguments.get("embedding") else {}
        return super().numbers_of_data(shape, arguments) | grid

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        if self.embedding is not None:
            require_grid(features, self.embedding.grid, "the embedding of MLP")
            place = current().of_samples(self.embedding()).movedim(-3, 0)
            features = torch.cat([features, place.expand(len(features), -1, -1, -1)], dim=1)
        N, C, H, W = features.shape
        # one matrix product over all points: on a CPU three times faster than a 1x1 convolution
        points = features.permute(0, 2, 3, 1).reshape(-1, C)
        outputs: Tensor = self.layers(points)
        return outputs.view(N, H, W, self.out_channels).permute(0, 3, 1, 2)

    def penalty(self) -> Tensor | None:
        """Return the penalty on the size of the embedding, if there is one."""
        return None if self.embedding is None else self.embedding.penalty()
