"""Regions found by clusterwise regression: one regression for all points of a region."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.domain import current
from ens10.models.statistical.advection import Advection
from ens10.models.statistical.base import SpooledMethod, require_same_grid
from ens10.models.statistical.harmonics import annual_cycle, check_harmonics
from ens10.models.statistical.newton import Floats
from ens10.models.statistical.spool import Points, Spool

_POINTS = 4096  # that the regressions are fitted to, at most
_STARTS = 20  # of which the one of the smallest error is taken
_ROUNDS = 100  # at most, of a start
_RIDGE = 0.01  # of the coefficients of features of variance 1


class RegionalRegression(SpooledMethod):
    """Clusterwise linear regression: regions of grid points and one regression for each region.

    After Spaeth (1979, doi:10.1007/BF02265317): the error of the ensemble mean is
    y - m = c_r . x, where x are 1, harmonics of the year and the features of the batch, and r is
    the region of the point. In turn each point joins the region whose regression has the smallest
    mean squared error at its training dates, and the regressions are fitted to their points, until
    no point changes. The algorithm is run from 20 starts, and the solution of the smallest error is
    kept; each start uses regressions of single points, drawn with a probability proportional to the
    remaining error. The scale is the raw deviation times a factor of each region. Regions are
    numbered by size.

    Args:
        regions: number E of regions.
        harmonics: number of annual harmonics among the predictors.
        advection: True for the gradient of the ensemble mean and its products with the wind as
            further predictors, where regions differ in how the flow displaces the forecast; see
            `Advection`.

    Attributes:
        region: (H, W) from 0, after the fit.

    Raises:
        ArgumentError: fewer than one region, negative harmonics.

    Examples:
        >>> import torch
        >>> from ens10.models.statistical import RegionalRegression
        >>> g = torch.Generator().manual_seed(0)
        >>> wind = torch.randn(100, 1, 2, 6, generator=g)
        >>> slope = torch.tensor([[1.0] * 4 + [-1.0] * 2] * 2)
        >>> raw = {"raw_mean": torch.full((100, 2, 6), 280.0), "raw_std": torch.ones(100, 2, 6)}
        >>> batch = {"features": wind, **raw, "target": 280 + slope * wind[:, 0],
        ...          "weights": torch.ones(100, 2, 6), "dates": torch.arange(100) * 86400}
        >>> method = RegionalRegression(regions=2)
        >>> method.collect(batch)
        >>> method.solve()
        >>> method.region.tolist()
        [[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1]]
    """

    region: Tensor
    coefficients: Tensor
    factors: Tensor

    def __init__(self, regions: int = 4, harmonics: int = 1, advection: bool = False) -> None:
        super().__init__()
        if regions < 1:
            raise ArgumentError("regions", f"{regions} is less than 1")
        check_harmonics(harmonics)
        self.regions, self.harmonics = regions, harmonics
        self.advection = Advection() if advection else None
        self.register_buffer("region", torch.zeros(0, 0, dtype=torch.long))
        self.register_buffer("coefficients", torch.zeros(regions, 0))
        self.register_buffer("factors", torch.ones(regions))

    def _fields(self, batch: Batch) -> list[Tensor]:
        if batch["features"].ndim != 4:
            raise ArgumentError("kind", "regions need features of the ensemble, not of members")
        fields = [batch["target"] - batch["raw_mean"], batch["raw_std"], batch["features"]]
        return fields if self.advection is None else [*fields, self.advection.collect(batch)]

    def _fit(self, spool: Spool) -> dict[str, Tensor | Floats]:
        if self.advection is not None:
            self.advection.solve()

        def read(points: Points) -> Floats:
            data = spool.read(points)
            if self.advection is None:
                return data
            return self.advection.expand(data, points, spool.dates, 2)

        cycle = annual_cycle(torch.from_numpy(spool.dates), self.harmonics).numpy().T
        sample = spool.some_points(_POINTS)
        sums = _sums(read(sample), cycle)
        weights = spool.area.reshape(-1)[sample]
        coefficients = _cluster(sums, weights / weights.sum(), self.regions)

        def assign(points: slice) -> Floats:
            block_sums = _sums(read(points), cycle)
            errors = _errors(block_sums, coefficients)
            return np.stack([errors.argmin(1), errors.min(1), block_sums[3]], 1)

        maps = spool.maps(assign, len(cycle) + spool.fields)
        region, errors, spread = maps.reshape(3, -1)
        counts = np.bincount(region.astype(int), minlength=self.regions)
        order = np.argsort(-counts, kind="stable")
        names = np.argsort(order)[region.astype(int)]
        area = spool.area.reshape(-1)
        mean_of = [np.bincount(names, area * values, self.regions) for values in (errors, spread)]
        factors = np.sqrt(mean_of[0] / np.where(mean_of[1] > 0, mean_of[1], 1))
        return {
            "region": names.reshape(spool.area.shape),
            "coefficients": coefficients[order],
            "factors": np.where(factors > 0, factors, 1.0),
        }

    def shares(self) -> Tensor:
        """Return 1 for the region of each point, 0 for the others, (E, H, W)."""
        indicators = functional.one_hot(self.region, self.regions)
        return indicators.movedim(-1, 0).to(self.coefficients.dtype)

    def forward(self, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W)."""
        self._require_solved()
        require_same_grid(self, self.region, batch)
        cycle = annual_cycle(batch["dates"], self.harmonics).to(self.coefficients)
        count = cycle.shape[1]
        shares = current().part(self.shares())
        by_time = torch.einsum("nk,ek->ne", cycle, self.coefficients[:, :count])
        correction = torch.einsum("ne,ehw->nhw", by_time, shares)
        slopes = torch.einsum("ek,ehw->khw", self.coefficients[:, count:], shares)
        features = batch["features"]
        if self.advection is not None:
            features = torch.cat([features, self.advection(batch)], 1)
        correction = correction + (features * slopes).sum(1)
        factor = torch.einsum("e,ehw->hw", self.factors, shares)
        return Normal(batch["raw_mean"] + correction, batch["raw_std"] * factor, positive=True)


Sums = tuple[Floats, Floats, Floats, Floats]


def _sums(data: Floats, cycle: Floats) -> Sums:
    """Return means over dates of x x', x r, r^2 and s^2 at each point.

    Args:
        data: (2 + C, P, N) error, raw deviation and features; NaN where there is no truth.
        cycle: (1 + 2 H, N).

    Returns:
        (P, k, k), (P, k), (P,), (P,) with k = 1 + 2 H + C; zeros without valid dates.
    """
    valid = np.isfinite(data).all(0)
    data = np.where(valid, data, 0.0)
    x = np.concatenate([cycle[:, None] * valid, data[2:]]).transpose(1, 0, 2)  # (P, k, N)
    r, s, count = data[0], data[1], np.maximum(valid.sum(1), 1)
    return (
        x @ x.swapaxes(1, 2) / count[:, None, None],
        (x @ r[:, :, None])[..., 0] / count[:, None],
        (r * r).sum(1) / count,
        (s * s).sum(1) / count,
    )


def _errors(sums: Sums, coefficients: Floats) -> Floats:
    """Return the mean squared error of each regression at each point, (P, E)."""
    xx, xr, rr, _ = sums
    quadratic = ((coefficients @ xx) * coefficients).sum(2)
    errors: Floats = rr[:, None] - 2 * xr @ coefficients.T + quadratic
    return np.maximum(errors, 0.0)


def _cluster(sums: Sums, weights: Floats, regions: int) -> Floats:
    """Cluster from several starts; return the coefficients (E, k) of the smallest error."""
    random = np.random.default_rng(0)
    least_cost, best_coefficients = np.inf, np.zeros((regions, sums[1].shape[1]))
    for _ in range(_STARTS):
        coefficients = _start_coefficients(sums, weights, regions, random)
        errors = _errors(sums, coefficients)
        region = errors.argmin(1)
        for _ in range(_ROUNDS):
            coefficients = _refit(sums, weights, region, coefficients)
            errors, before = _errors(sums, coefficients), region
            region = errors.argmin(1)
            if bool((region == before).all()):
                break
        cost = float(weights @ errors.min(1))
        if cost < least_cost:
            least_cost, best_coefficients = cost, coefficients
    return best_coefficients


def _start_coefficients(
    sums: Sums, weights: Floats, regions: int, random: np.random.Generator
) -> Floats:
    """Return regressions (E, k) of points drawn in proportion to the remaining error."""
    xx, xr, rr, _ = sums
    weighted_errors, coefficients = weights * rr, []
    for _ in range(regions):
        total = weighted_errors.sum()
        point = random.choice(len(rr), p=weighted_errors / total if total > 0 else weights)
        coefficients.append(_ridge(xx[point], xr[point], 10 * _RIDGE))
        weighted_errors = weights * _errors(sums, np.array(coefficients)).min(1)
    return np.array(coefficients)


def _refit(sums: Sums, weights: Floats, region: npt.NDArray[np.int64], before: Floats) -> Floats:
    """Fit each region's regression to its points; keep the coefficients of empty regions."""
    xx, xr, _, _ = sums
    coefficients = before.copy()
    for e in range(len(before)):
        w = np.where(region == e, weights, 0.0)
        if (total := w.sum()) > 0:
            mean = np.tensordot(w, xx, 1) / total
            coefficients[e] = _ridge(mean, w @ xr / total, _RIDGE)
    return coefficients


def _ridge(xx: Floats, xr: Floats, strength: float) -> Floats:
    return np.asarray(np.linalg.solve(xx + strength * np.eye(len(xx)), xr))
