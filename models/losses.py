"""Losses: from a predictive distribution and the truth to one value at each grid point."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import (
    Estimator,
    crps_ensemble,
    energy_score,
    spectral_crps,
    variogram_score,
)
from ens10.metrics.crps import spread_factor
from ens10.metrics.distributions import Distribution, Ensemble
from ens10.models.domain import current
from ens10.models.specification import InitialValues


class Loss(InitialValues, nn.Module):
    """A loss at each point; the training step takes the weighted mean over points.

    Attributes:
        needs_grid: True if neighbouring columns must be neighbours in space, unlike stations.
    """

    needs_grid: bool = False

    @abstractmethod
    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the loss of `forecast` against `target` (N, H, W) at each point, (N, H, W).

        Raises:
            ArgumentError: the forecast is of a kind that the loss is not defined for.
        """

    def evaluate(self, forecast: Distribution, target: Tensor, weights: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss, (N, H, W); points with `weights` (N, H, W) of 0 have no truth.

        Losses of whole fields leave these points out; other losses ignore the weights.
        """
        value: Tensor = self(forecast, target)
        return value


class CRPSLoss(Loss):
    """The CRPS of the forecast itself, in the target's units.

    Examples:
        >>> import torch
        >>> from ens10.metrics.distributions.normal import Normal
        >>> from ens10.models import CRPSLoss
        >>> forecast = Normal(torch.full((1, 1, 1), 280.0), torch.ones(1, 1, 1))
        >>> round(CRPSLoss()(forecast, torch.full((1, 1, 1), 280.0)).item(), 4)
        0.2337
    """

    splittable = True

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the CRPS at each point, (N, H, W)."""
        score: Tensor = forecast.crps(target)
        return score


class LogScoreLoss(Loss):
    """Minus the logarithm of the density at the truth, in nats (Good 1952).

    doi:10.1111/j.2517-6161.1952.tb00104.x. Ensembles and Bernstein quantile functions have no
    density and are refused. It is unbounded: a truth far outside an overconfident forecast costs
    its squared distance, so a smaller learning rate than with the CRPS may be needed.
    """

    splittable = True

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the logarithmic score at each point, (N, H, W)."""
        score: Tensor = forecast.log_score(target)
        return score


class ThresholdCRPSLoss(Loss):
    """The threshold-weighted CRPS: outcomes beyond the thresholds count as the thresholds.

    Gneiting and Ranjan 2011, doi:10.1198/jbes.2010.08110; see `Distribution.twcrps`. The gradient
    is 0 where forecast and truth lie entirely beyond a threshold: combine this loss with the CRPS
    in a `SumLoss`.

    Args:
        lower: values below count as this threshold, in units of the target.
        upper: values above count as this threshold, in units of the target.

    Raises:
        ArgumentError: thresholds in the wrong order.
    """

    splittable = True

    def __init__(self, lower: float = -math.inf, upper: float = math.inf) -> None:
        super().__init__()
        if not lower < upper:
            raise ArgumentError("lower", f"{lower} is not below upper, {upper}")
        self.lower, self.upper = lower, upper

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the threshold-weighted CRPS at each point, (N, H, W)."""
        score: Tensor = forecast.twcrps(target, self.lower, self.upper)
        return score


class SumLoss(Loss):
    """A weighted sum of losses, such as the almost fair CRPS and 0.1 of a spectral term.

    In a configuration:

        loss:
          class_path: ens10.models.SumLoss
          init_args:
            losses:
              - ens10.models.MembersCRPSLoss
              - class_path: ens10.models.SpectralCRPSLoss
                init_args: {estimator: almost_fair}
            factors: [1.0, 0.1]

    Args:
        losses: the terms.
        factors: weights of the terms; all 1 if None.

    Raises:
        ArgumentError: no terms, or factors that are not finite or of another number than the terms.
    """

    splittable = True

    def __init__(self, losses: Sequence[Loss], factors: Sequence[float] | None = None) -> None:
        super().__init__()
        if not losses:
            raise ArgumentError("losses", "no loss is given", "Choose at least one")
        loss_factors = [1.0] * len(losses) if factors is None else [float(f) for f in factors]
        if len(loss_factors) != len(losses) or not all(math.isfinite(f) for f in loss_factors):
            raise ArgumentError("factors", f"{loss_factors} for {len(losses)} losses")
        self.losses, self.factors = nn.ModuleList(losses), loss_factors

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the weighted sum of the losses at each point, (N, H, W)."""
        terms = zip(self.factors, self.losses, strict=True)
        return sum((f * loss(forecast, target) for f, loss in terms), torch.zeros_like(target))

    def evaluate(self, forecast: Distribution, target: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted sum of the losses at each point, (N, H, W)."""
        total = torch.zeros_like(target)
        for factor, loss in zip(self.factors, self.losses, strict=True):
            total = total + factor * cast("Loss", loss).evaluate(forecast, target, weights)
        return total


Over = Literal["row", "field", "patch"]


class _MembersLoss(Loss):
    """Base of losses that need a forecast of members.

    Args:
        estimator: "plain", "fair" or "almost_fair"; see `ens10.metrics.crps_ensemble`.
        alpha: weight of the fair score in "almost_fair"; unused otherwise.

    Raises:
        UnknownNameError: another estimator.
        ArgumentError: an alpha outside [0, 1].
    """

    def __init__(self, estimator: Estimator = "plain", alpha: float = 0.95) -> None:
        super().__init__()
        if estimator not in get_args(Estimator):
            raise UnknownNameError("estimator", estimator, get_args(Estimator))
        if not 0 <= alpha <= 1:
            raise ArgumentError("alpha", f"{alpha} is not between 0 and 1")
        self.estimator, self.alpha = estimator, alpha

    def _members(self, forecast: Distribution) -> Tensor:
        if not isinstance(forecast, Ensemble):
            raise ArgumentError(
                "loss",
                f"{type(self).__name__} needs members, the forecast is {type(forecast).__name__}",
                "Choose a head that forecasts members, such as MembersHead, or another loss",
            )
        members: Tensor = forecast.members
        return members


class MembersCRPSLoss(_MembersLoss):
    """The CRPS of members by the chosen estimator, which may differ from the head's.

    "fair" is unbiased if members are drawn independently from the forecast distribution (Ferro
    2014, doi:10.1002/qj.2270), "almost_fair" is a mixture with "plain" that leaves no member
    unconstrained (Lang et al. 2024, arXiv:2412.15832). Members that the network couples are not
    independent, and can improve both scores while over-dispersed.

    Args:
        estimator: "plain", "fair" or "almost_fair".
        alpha: weight of the fair score in "almost_fair"; unused otherwise.

    Raises:
        UnknownNameError: another estimator.
        ArgumentError: an alpha outside [0, 1].
    """

    splittable = True

    def __init__(self, estimator: Estimator = "almost_fair", alpha: float = 0.95) -> None:
        super().__init__(estimator, alpha)

    def forward(self, forecast: Distribution, target: Tensor) -> Tensor:
        """Return the CRPS at each point, (N, H, W)."""
        score: Tensor = crps_ensemble(
            self._members(forecast),
            target,
            estimator=self.estimator,
            alpha=self.alpha,
            member_dim=1,
        )
        return score


class _FieldsLoss(_MembersLoss):
    """A loss of members over many points at once, without those that have no truth."""

    @abstractmethod
    def forward(
        self, forecast: Distribution, target: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return the loss of `forecast` against `target`; without weights every point has truth."""

    def evaluate(self, forecast: Distribution, target: Tensor, weights: Tensor) -> Tensor:
        """Return the loss, ignoring points whose weight is 0."""
        return self.forward(forecast, target, weights)

    def _differences(
        self, forecast: Distribution, target: Tensor, weights: Tensor | None
    ) -> Tensor:
        """Return members - truth, 0 where either is missing."""
        members = self._members(forecast)
        missing = members.isnan().any(1)
        if weights is not None:
            missing = missing | (weights == 0)
        return (members - target.unsqueeze(1)).masked_fill(missing.unsqueeze(1), 0)


class SpectralCRPSLoss(_FieldsLoss):
    """The CRPS of zonal Fourier coefficients, which measures variability at every scale.

    Every point gets `ens10.metrics.spectral_crps` of its row of the globe, so that the step's mean
    is the mean over rows with area weights. In the units of the target; combine it with the CRPS in
    a `SumLoss` (with factor 0.1 in FourCastNet 3, Bonev et al. 2025, arXiv:2507.12144, for
    spherical harmonics). Longitudes have to go round the Earth: not for patches. Differences from
    the truth at points without truth or members are 0.

    Args:
        estimator: "plain", "fair" or "almost_fair".
        alpha: weight of the fair score in "almost_fair"; unused otherwise.

    Raises:
        UnknownNameError: another estimator.
        ArgumentError: an alpha outside [0, 1].
    """

    splittable = True
    needs_grid = True

    def forward(
        self, forecast: Distribution, target: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return at each point the score of its row, (N, H, W).

        Raises:
            ArgumentError: rows that are split between processes.
        """
        _require_whole_rows(target, "SpectralCRPSLoss")
        score: Tensor = spectral_crps(
            self._differences(forecast, target, weights),
            torch.zeros_like(target),
            estimator=self.estimator,
            alpha=self.alpha,
            member_dim=1,
            longitude_dim=3,
        )
        return score.unsqueeze(-1).expand_as(target)


class EnergyLoss(_FieldsLoss):
    """The energy score of rows, patches or whole fields, which measures dependence between points.

    Gneiting and Raftery 2007, doi:10.1198/016214506000001437. The norm is the root mean square over
    the points of a row, of a patch (see `LossPatches`) or of a date's field (for fields with the
    step's weights, if any), so that the score is in units of the target, and equals the CRPS for
    constant fields. Every point gets the score of its row, patch or date, so that the step's mean
    is the mean over rows or patches by area, or over dates. Differences from the truth at points
    without truth or members are 0.

    Args:
        over: points that make one vector: a "row", a "field" or a "patch", which is more sensitive
            to the dependence between neighbours than a field.
        estimator: "plain", "fair" or "almost_fair".
        alpha: weight of the fair score in "almost_fair"; unused otherwise.
        patch: rows and columns of a patch.

    Raises:
        UnknownNameError: another estimator, or another choice of points.
        ArgumentError: an alpha outside [0, 1], or a patch of less than two points.
    """

    splittable = True

    def __init__(
        self,
        over: Over = "field",
        estimator: Estimator = "plain",
        alpha: float = 0.95,
        patch: Sequence[int] = (6, 8),
    ) -> None:
        super().__init__(estimator, alpha)
        if over not in get_args(Over):
            raise UnknownNameError("over", over, get_args(Over))
        self.over, self.patches = over, LossPatches(patch)
        self.needs_grid = over == "patch"

    def forward(
        self, forecast: Distribution, target: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return at each point the score of its row, patch or date, (N, H, W).

        Raises:
            ArgumentError: over rows or patches that are split between processes.
        """
        if self.over == "row":
            _require_whole_rows(target, "EnergyLoss over rows")
        differences = self._differences(forecast, target, weights)
        if self.over == "patch":
            return self._patch_scores(differences)
        area = torch.ones_like(target) if weights is None else weights
        dims = (2,) if self.over == "row" else (1, 2)
        total = area.sum(dims, keepdim=True)
        split = self.over == "field" and current().is_split
        if split:
            total = current().total(total)
        share = (area / torch.where(total > 0, total, 1)).sqrt().unsqueeze(1)
        if split:
            return self._split_scores(differences * share).view(-1, 1, 1).expand_as(target)
        score: Tensor = energy_score(
            differences * share,
            torch.zeros_like(target),
            estimator=self.estimator,
            alpha=self.alpha,
            member_dim=1,
            variable_dim=tuple(dim + 1 for dim in dims),
        )
        return score.reshape(total.shape).expand_as(target)

    def _patch_scores(self, differences: Tensor) -> Tensor:
        """Return the energy scores (N, H, W) of the patches of differences (N, M, H, W)."""
        vectors = self.patches.of(differences)
        score: Tensor = energy_score(
            vectors / math.sqrt(vectors.shape[-1]),
            torch.zeros_like(vectors[:, 0]),
            estimator=self.estimator,
            alpha=self.alpha,
            member_dim=1,
            variable_dim=3,
        )
        return self.patches.at_points(score, differences.shape[-2:])

    def _split_scores(self, differences: Tensor) -> Tensor:
        """Return energy scores (N,) of differences (N, M, h, w) on parts of fields."""
        M = differences.shape[1]
        factor = spread_factor(M, self.estimator, self.alpha)
        local_squares: Tensor = _SquaredNorms.apply(differences)  # type: ignore[no-untyped-call]
        squares = current().sum(local_squares)
        # no gradient of norms that are 0, as `energy_score` has it
        norms = torch.where(squares > 0, squares, 1).sqrt() * (squares > 0)
        score: Tensor = norms[:, :M].mean(1) - norms[:, M:].sum(1) * (factor / M**2)
        return score


class VariogramLoss(_FieldsLoss):
    """The variogram score of patches, which measures the dependence between neighbouring points.

    Scheuerer and Hamill 2015, doi:10.1175/MWR-D-14-00269.1; see `ens10.metrics.variogram_score`.
    The score is the mean over all pairs of points of a patch, so that its size hardly matters, and
    has the unit of the target to the power of 2 `order`. Every point gets the score of its patch
    (see `LossPatches`), so that the step's mean is the mean over patches by area. Patches in which
    a point has no truth or no members get 0. The score ignores a bias common to all points: combine
    it with the CRPS in a `SumLoss`.

    Args:
        order: power p of the differences.
        estimator: "plain" or "fair", which is unbiased if members are independent draws.
        patch: rows and columns of a patch; time grows with the square of their product.

    Raises:
        UnknownNameError: another estimator.
        ArgumentError: an order that is not positive, or a patch of less than two points.
    """

    splittable = "its pairs of points would cross the border"

    needs_grid = True

    def __init__(
        self,
        order: float = 0.5,
        estimator: Literal["plain", "fair"] = "fair",
        patch: Sequence[int] = (6, 8),
    ) -> None:
        super().__init__(estimator)
        if estimator not in ("plain", "fair"):
            raise UnknownNameError("estimator", estimator, ("plain", "fair"))
        if not order > 0:
            raise ArgumentError("order", f"{order} is not positive")
        self.order, self.patches = order, LossPatches(patch)

    def forward(
        self, forecast: Distribution, target: Tensor, weights: Tensor | None = None
    ) -> Tensor:
        """Return at each point the score of its patch, (N, H, W).

        Raises:
            ArgumentError: fields that are split between processes.
        """
        members = self._members(forecast)
        missing = members.isnan().any(1)
        if weights is not None:
            missing = missing | (weights == 0)
        # a common value is subtracted before rounding; the score depends on differences only
        common = target.masked_fill(missing, 0).mean((1, 2), keepdim=True)
        truth = (target - common).masked_fill(missing, 0)
        fields = (members - common.unsqueeze(1)).masked_fill(missing.unsqueeze(1), 0)
        points = self.patches.points
        score: Tensor = variogram_score(
            self.patches.of(fields),
            self.patches.of(truth),
            estimator=self.estimator,
            order=self.order,
            member_dim=1,
            variable_dim=3,
        ) / (points * (points - 1))
        score = score.masked_fill(self.patches.of(missing).any(-1), 0)
        return self.patches.at_points(score, target.shape[-2:])


class LossPatches:
    """Division of fields into rectangles of equal size, each of whose points make one vector.

    Rectangles start at the first row and column; the last ones end at the last row and column, and
    overlap with those before if the size does not divide the grid. A patch must not be larger
    than the grid.

    Args:
        size: rows and columns of a patch.

    Raises:
        ArgumentError: less than two points.
    """

    def __init__(self, size: Sequence[int]) -> None:
        if len(size) != 2 or min(size) < 1 or size[0] * size[1] < 2:
            raise ArgumentError("patch", f"{list(size)}", "Use [rows, columns], such as [6, 8]")
        self.size = (int(size[0]), int(size[1]))

    @property
    def points(self) -> int:
        """The number of points of a patch."""
        return self.size[0] * self.size[1]

    def of(self, fields: Tensor) -> Tensor:
        """Divide fields (..., H, W) into patches, (..., patches, points), row by row.

        Raises:
            ArgumentError: fields that are split between processes, or smaller than a patch.
        """
        grid = fields.shape[-2:]
        if current().is_split or any(n < s for n, s in zip(grid, self.size, strict=True)):
            reason = f"{list(self.size)} for a grid or part of {list(grid)} points"
            raise ArgumentError("patch", reason, "Choose a smaller patch, and split no samples")
        first = [_starts(n, s) for n, s in zip(grid, self.size, strict=True)]
        rows, columns = (
            start[:, None] + torch.arange(s) for start, s in zip(first, self.size, strict=True)
        )
        tiles = fields[..., rows[:, None, :, None], columns[None, :, None, :]]
        return tiles.flatten(-4, -3).flatten(-2)

    def at_points(self, scores: Tensor, grid: Sequence[int]) -> Tensor:
        """Assign to each point the score (..., patches) of its first patch, (..., H, W)."""
        first = [_starts(n, s) for n, s in zip(grid, self.size, strict=True)]
        row, column = (
            (torch.arange(n)[:, None] < start + s).int().argmax(1)
            for n, start, s in zip(grid, first, self.size, strict=True)
        )
        by_place = scores.reshape(*scores.shape[:-1], *(len(start) for start in first))
        return by_place[..., row[:, None], column]


def _starts(length: int, size: int) -> Tensor:
    """Return the first row of each patch, if patches of `size` rows cover `length` rows."""
    count = -(-length // size)
    return (torch.arange(count) * size).clamp(max=length - size)


class _SquaredNorms(torch.autograd.Function):
    """Squared norms of fields and of the differences of all pairs; saves only the fields.

    Called with (N, M, h, w); gives (N, M + M (M - 1) / 2), pairs in the order (0, 1), (0, 2), ...
    """

    @staticmethod
    def forward(ctx: Any, fields: Tensor) -> Tensor:
        """Return the sums of squares over the points."""
        ctx.save_for_backward(fields)
        away = (fields[:, i + 1 :] - fields[:, i, None] for i in range(fields.shape[1] - 1))
        # one member at a time: all pairs at once would be M / 2 times the fields
        sums = [fields.square().sum((2, 3)), *(x.square().sum((2, 3)) for x in away)]
        return torch.cat(sums, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Return the gradient for the fields."""
        (fields,) = ctx.saved_tensors
        M = fields.shape[1]
        twice = 2 * gradient[..., None, None]
        by_fields: Tensor = twice[:, :M] * fields
        first = M
        for i in range(M - 1):
            factors = twice[:, first : first + M - 1 - i]
            first += M - 1 - i
            away = (fields[:, i + 1 :] - fields[:, i, None]) * factors
            by_fields[:, i + 1 :] += away
            by_fields[:, i] -= away.sum(1)
        return by_fields


def _require_whole_rows(target: Tensor, loss: str) -> None:
    """Refuse columns that are split between processes, on all processes alike."""
    columns = current().shape(target)[1]
    if columns != target.shape[-1]:
        raise ArgumentError(
            "lon",
            f"{loss} needs whole rows of {columns} points, but a process has {target.shape[-1]}",
            "Split rows only: set lat to the number of parts and lon to 1",
        )
