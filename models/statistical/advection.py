"""Predictors of displaced forecasts: products of wind with the ensemble mean around a point."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.channels import split
from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.models.domain import Edges, Sides, current
from ens10.models.host_flag import HostFlag
from ens10.models.statistical.base import GridBuffers
from ens10.models.statistical.harmonics import CycleSums, annual_cycle
from ens10.models.statistical.newton import Floats
from ens10.models.statistical.spool import Points

Dates = npt.NDArray[np.int64]
_STRETCH = 5.0  # most columns that count as one: beyond 78 degrees of latitude on a square grid
_SURFACE_WINDS = ("u10", "v10")
_BLOCK = 3  # neighbours in each direction, with the point itself


class Advection(GridBuffers):
    """Six predictors of the error that a displacement of the forecast makes.

    If weather is displaced by d, the error of the forecast f is -d . grad f to first order. A
    displacement that follows the wind (u, v) therefore needs the products of wind and gradient as
    predictors. With the deviation f' of the ensemble mean from its annual cycle at each point
    (what belongs to the place, such as the gradient at a coast, does not move) they are

        f'_x, f'_y, u f'_x, v f'_x, u f'_y, v f'_y

    where x is to the east and y to the north: differences of neighbouring points, divided by the
    distance in rows and by the typical size of f'_x and f'_y. Winds are features of the batch.

    Args:
        harmonics: number of harmonics of the annual cycle.

    Attributes:
        winds: (2,) positions of u and v among the features; see `place`.
        stretch: (2, H, 1) factors of differences to the east and to the north; see `place`.
        periodic: True if the first and last column are neighbours.
        climate: (1 + 2 harmonics, 2, H, W) annual cycle of the gradient.
        scale: typical size of the gradient's departures from it.
        size: number of fields around a point that are multiplied by 1, u and v.
    """

    size: ClassVar[int] = 2
    winds: Tensor
    stretch: Tensor
    periodic: Tensor
    climate: Tensor
    scale: Tensor

    def __init__(self, harmonics: int = 1) -> None:
        super().__init__()
        self.harmonics = harmonics
        self.register_buffer("winds", torch.full((2,), -1))
        self.register_buffer("stretch", torch.ones(2, 1, 1))
        self.register_buffer("periodic", torch.zeros((), dtype=torch.bool))
        self._periodic_flag = HostFlag()
        self.register_buffer("climate", torch.zeros(1 + 2 * harmonics, self.size, 0, 0))
        self.register_buffer("scale", torch.ones(()))
        self._sums: CycleSums | None = None

    def place(
        self,
        channels: Sequence[str],
        target: str,
        latitude: Sequence[float],
        longitude: Sequence[float],
    ) -> None:
        """Set the wind's positions among the features, and the distances of the grid.

        The Lightning modules call it when a fit with an `EnsembleDataModule` starts.

        Args:
            channels: names of the features, such as "u10:mean".
            target: name of the target; the wind is taken at its level.
            latitude: degrees north, by row.
            longitude: degrees east, by column, evenly spaced.

        Raises:
            ArgumentError: the wind at the target's level is not among the features, or a grid of
                fewer than two rows and columns.
        """
        _, level = split(target)
        names = [f"{wind}_{level}" for wind in "uv"] if level else list(_SURFACE_WINDS)
        missing = [name for name in names if f"{name}:mean" not in channels]
        if missing:
            reason = f"{' and '.join(missing)} not among them: the advection of {target} needs wind"
            raise ArgumentError("inputs", reason, "Add the wind, or set advection to false")
        if min(len(latitude), len(longitude)) < 2:
            reason = "the advection of the forecast needs a grid of two rows and columns"
            raise ArgumentError("advection", reason, "Set it to false")
        rows = float(np.mean(np.diff(latitude)))
        columns = float(np.mean(np.diff(longitude)))
        distance = np.cos(np.radians(latitude)) * abs(columns / rows)
        stretch = 1 / np.maximum(distance, 1 / _STRETCH)
        self.winds = torch.tensor([list(channels).index(f"{name}:mean") for name in names])
        # rows from north to south and columns from east to west change the sign
        signed = np.stack([stretch * np.sign(columns), np.full(len(stretch), np.sign(rows))])
        self.stretch = torch.from_numpy(signed)[..., None].float()
        self.periodic.fill_(bool(abs(abs(columns) * len(longitude) - 360) < abs(columns) / 2))

    def _with_edges(self, fields: Tensor) -> Tensor:
        """Return fields (N, H, W) with one more row and column on each side."""
        edges = Edges(
            "replicate", "circular" if self._periodic_flag.of(self.periodic) else "replicate"
        )
        return current().pad(fields[:, None], Sides(1, 1, 1, 1), edges)[:, 0]

    def gradient(self, fields: Tensor) -> Tensor:
        """Return the gradient to the east and to the north, per spacing of rows, (N, 2, H, W)."""
        wide = self._with_edges(fields)
        east = (wide[:, 1:-1, 2:] - wide[:, 1:-1, :-2]) / 2
        north = (wide[:, 2:, 1:-1] - wide[:, :-2, 1:-1]) / 2
        both = torch.stack([east, north], 1)
        return torch.nan_to_num(both * current().part(self.stretch))

    def around(self, fields: Tensor) -> Tensor:
        """Return what is multiplied by 1, u and v, (N, `size`, H, W): here the gradient."""
        return self.gradient(fields)

    def features(self, batch: Batch) -> Tensor:
        """Return the features of the batch that are predictors too: here all."""
        features: Tensor = batch["features"]
        return features

    @property
    def _winds_among_predictors(self) -> list[int]:
        return [int(place) for place in self.winds]

    def collect(self, batch: Batch) -> Tensor:
        """Return the fields around each point; add them to the sums of their annual cycle.

        The method writes them, (N, `size`, H, W), to its temporary file.

        Raises:
            ArgumentError: `place` was not called.
        """
        if int(self.winds[0]) < 0:
            raise ArgumentError(
                "advection",
                "needs the names of the features and the grid",
                "Fit with an EnsembleDataModule, or call the method's `advection.place` before",
            )
        fields = self.around(batch["raw_mean"])
        self._sums = self._sums or CycleSums(self.harmonics)
        valid = (batch["weights"] > 0).expand_as(batch["raw_mean"])
        rows = torch.cat([valid] * self.size, 1)
        self._sums.add(fields.flatten(1, 2), rows, batch["dates"])
        return fields

    def solve(self) -> None:
        """Compute the annual cycle of the fields from the collected batches."""
        if self._sums is None:
            raise ArgumentError("advection", "no batch was collected")
        mean, variance, _ = self._sums.finish()
        self.climate = torch.nan_to_num(mean.reshape(len(mean), self.size, -1, mean.shape[-1])).to(
            self.climate
        )
        self.scale = variance[0].nanmean().sqrt().clamp(min=1e-12).to(self.scale)
        self._sums = None

    def expand(self, data: Floats, points: Points, dates: Dates, features: int) -> Floats:
        """Replace the fields around some points by these fields times 1, u and v.

        Args:
            data: (F, P, N) fields of the temporary file, of which the last are those of `around`.
            points: points of the grid, numbered row by row.
            dates: (N,) valid dates in seconds.
            features: index of the first feature among the fields.

        Returns:
            (F + 2 `size`, P, N).
        """
        own, fields = data[: -self.size], data[-self.size :]
        cycle = annual_cycle(torch.from_numpy(dates), self.harmonics).numpy()
        climate = self.climate.double().flatten(2).numpy()[..., points]
        fields = fields - np.einsum("kgp,nk->gpn", climate, cycle)
        fields /= float(self.scale)
        wind = data[[features + place for place in self._winds_among_predictors]]
        products = (fields[:, None] * wind).reshape(-1, *data.shape[1:])
        return np.concatenate([own, fields, products])

    def forward(self, batch: Batch) -> Tensor:
        """Return the predictors of a batch, (N, 3 `size`, H, W)."""
        cycle = annual_cycle(batch["dates"], self.harmonics).to(self.climate)
        mean = torch.einsum("nk,kghw->nghw", cycle, current().part(self.climate))
        fields = (self.around(batch["raw_mean"]) - mean) / self.scale
        wind = batch["features"][:, self.winds]
        return torch.cat([fields, (fields[:, :, None] * wind[:, None]).flatten(1, 2)], 1)


class Neighbours(Advection):
    """Predictors from the 3 x 3 neighbours of a point, times 1, u and v: 27, and u and v.

    They are the ensemble mean at the point and the differences of its eight neighbours from it,
    which include the gradient of `Advection`; the arguments are the same. In this form a ridge
    penalty draws coefficients to those of a smooth field: on the validation dates of a displaced
    world it was better than the nine values, and than central differences of order 0 to 2. Of the
    features of the batch only the winds are predictors: with all of them validation was worse.
    """

    size: ClassVar[int] = _BLOCK**2

    def around(self, fields: Tensor) -> Tensor:
        """Return differences of the block of neighbours from the value in its middle, and it.

        Args:
            fields: (N, H, W).

        Returns:
            (N, 9, H, W), by rows; a neighbour without a value makes no difference.
        """
        wide = self._with_edges(fields)
        rows, columns = fields.shape[-2:]
        places = [divmod(n, _BLOCK) for n in range(self.size)]
        block = [wide[..., i : i + rows, j : j + columns] - fields for i, j in places]
        block[self.size // 2] = fields
        return torch.nan_to_num(torch.stack(block, 1))

    def features(self, batch: Batch) -> Tensor:
        """Return the winds."""
        features: Tensor = batch["features"][:, self.winds]
        return features

    @property
    def _winds_among_predictors(self) -> list[int]:
        return [0, 1]
