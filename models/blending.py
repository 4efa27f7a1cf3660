"""Blends of several forecasts of the same quantity, with weights learned date by date.

A blend learns from sums over past dates and points, so that each date is blended with what the
truth until its start tells. Forecasts are quantiles (K, points); each represents the probabilities
nearest to its level, as in the CRPS of stored quantiles. Pools:

- "linear": sum_i w_i F_i. Its CRPS is sum_i w_i E|X_i - y| - 1/2 sum_ij w_i w_j E|X_i - X_j|, of
  which both expectations are averaged over dates; the weights minimise it with w >= 0, sum 1.
- "beta": B(sum_i w_i F_i), B the distribution function of Beta(a, b), which is fitted by maximum
  likelihood to the PIT values of the linear pools of past dates (Ranjan and Gneiting 2010,
  doi:10.1111/j.1467-9868.2009.00726.x): a linear pool of calibrated forecasts is too wide.
- "emos": the normal with mean a + sum_i b_i m_i and variance c + d v, of the forecasts' means m_i
  and their mean variance v, by least squares of y and of the squared error (b, c, d >= 0).
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy.special import betaincinv, digamma, ndtri

from ens10.errors import ArgumentError, UnknownNameError

Pool = Literal["linear", "beta", "emos"]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
_minimize: Any = optimize.minimize  # scipy has no types
_root: Any = optimize.root
_lsq_linear: Any = optimize.lsq_linear
_LEAST_DATES = 5  # before, models have equal weights


def pool_weights(distance: Floats, difference: Floats) -> Floats:
    """Return the weights of the linear pool with the lowest CRPS.

    Args:
        distance: mean of E|X_i - y|, (N,).
        difference: mean of E|X_i - X_j|, (N, N).

    Returns:
        Weights (N,), 0 or more with sum 1.
    """
    count = len(distance)
    start = np.full(count, 1 / count)
    scale = max(float(np.abs(distance).max()), 1e-300)
    a, b = distance / scale, difference / scale
    found = _minimize(
        lambda w: w @ a - 0.5 * w @ b @ w,
        start,
        jac=lambda w: a - b @ w,
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    weights = np.clip(found.x, 0.0, None)
    shares: Floats = weights / weights.sum()
    return shares


def fit_beta(mean_log: float, mean_log_of_rest: float) -> tuple[float, float]:
    """Return the maximum likelihood of a and b from the means of log z and log(1 - z)."""

    def equations(x: Floats) -> Floats:
        a, b = np.exp(x)
        both = digamma(a + b)
        return np.array([digamma(a) - both - mean_log, digamma(b) - both - mean_log_of_rest])

    found = _root(equations, np.zeros(2), tol=1e-12)
    a, b = np.exp(found.x) if found.success else (1.0, 1.0)
    return float(a), float(b)


class Blend:
    """A blend of N models that learns from one date after another.

    Args:
        models: their number.
        levels: K probabilities of the quantiles, ascending.
        pool: "linear", "beta" or "emos".

    Attributes:
        dates: number of dates that were learned from.
        weights: of the linear pool, (N,); equal for the first dates.

    Raises:
        UnknownNameError: another pool.
        ArgumentError: fewer than two models.
    """

    def __init__(self, models: int, levels: Sequence[float], pool: Pool = "linear") -> None:
        if pool not in get_args(Pool):
            raise UnknownNameError("method", pool, get_args(Pool))
        if models < 2:
            raise ArgumentError("runs", f"{models} cannot be blended", "Name two or more")
        self._levels, self._pool = np.asarray(levels, np.float64), pool
        bounds = np.r_[0.0, 0.5 * (self._levels[1:] + self._levels[:-1]), 1.0]
        self._mass, self._offset = np.diff(bounds), self._levels - bounds[:-1]
        self.dates, self.weights = 0, np.full(models, 1 / models)
        self._sums = np.zeros((models, models + 1)), np.zeros((models, models + 1))
        self._logs = np.zeros(3)  # of the PIT z: weights of points, log z, log(1 - z)
        self._normal = np.zeros((models + 1, models + 1)), np.zeros(models + 1)
        self._spread = np.zeros((2, 2)), np.zeros(2)

    def learn(self, quantiles: Floats, truth: Floats, weights: Floats) -> None:
        """Learn from one past date.

        Args:
            quantiles: of each model, (N, K, points); NaN for a model that is missing.
            truth: (points,); points where it is NaN do not count.
            weights: of the points, such as areas.
        """
        is_there: Mask = np.logical_not(np.isnan(quantiles).all(axis=(1, 2)))
        used = np.isfinite(quantiles[is_there]).all(axis=(0, 1)) & np.isfinite(truth)
        if not is_there.any() or not used.any():
            return
        q, y, w = quantiles[:, :, used], truth[used], weights[used] / weights[used].sum()
        if self._pool == "beta":
            z = self._pit(q, y)
            self._logs += [1.0, w @ np.log(z), w @ np.log1p(-z)]
        if self._pool == "emos" and is_there.all():
            self._learn_moments(q, y, w)
        self._learn_distances(q, y, w, is_there)
        self.dates += 1

    def _learn_distances(self, q: Floats, y: Floats, w: Floats, is_there: Mask) -> None:
        total, count = self._sums
        for i in np.flatnonzero(is_there):
            total[i, -1] += self._mass @ np.abs(q[i] - y) @ w
            count[i, -1] += 1
            for j in np.flatnonzero(is_there[: i + 1]):
                apart = w @ _mean_difference(q[i], q[j], self._mass)
                for one, other in {(i, j), (j, i)}:
                    total[one, other] += apart
                    count[one, other] += 1
        if self.dates + 1 >= _LEAST_DATES and (count > 0).all():
            means = total / count
            self.weights = pool_weights(means[:, -1], means[:, :-1])

    def _learn_moments(self, q: Floats, y: Floats, w: Floats) -> None:
        """Add to the sums of the regressions of y, and of the squared error of its last fit."""
        means, variance = self._moments(q)
        variance = variance.mean(axis=0)
        if self.dates >= _LEAST_DATES:
            error2 = (y - self._mean(means)) ** 2
            design = np.stack([np.ones_like(variance), variance])
            matrix, right = self._spread
            self._spread = matrix + (design * w) @ design.T, right + (design * w) @ error2
        design = np.concatenate([np.ones((1, y.size)), means])
        matrix, right = self._normal
        self._normal = matrix + (design * w) @ design.T, right + (design * w) @ y

    def _moments(self, quantiles: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of each model, (N, points)."""
        mean = np.einsum("k,nkp->np", self._mass, quantiles)
        return mean, np.einsum("k,nkp->np", self._mass, (quantiles - mean[:, None]) ** 2)

    def _mean(self, means: Floats) -> Floats:
        matrix, right = self._normal
        models = len(means)
        if self.dates < _LEAST_DATES or not matrix.any():
            equal: Floats = means.mean(axis=0)
            return equal
        lowest = np.r_[-np.inf, np.zeros(models)]
        coefficients = _lsq_linear(*_square_root(matrix, right), (lowest, np.inf), tol=1e-12).x
        mean: Floats = coefficients[0] + coefficients[1:] @ means
        return mean

    def forecast(self, quantiles: Floats) -> Floats:
        """Return the quantiles of the blend, (K, points).

        Args:
            quantiles: of each model, (N, K, points); at points where a model is missing (NaN) the
                others share its weight, and in "emos" their mean stands for its own. The blend is
                NaN where all are missing.
        """
        gaps = np.isnan(quantiles).any(axis=1)  # (N, points)
        found = np.full(quantiles.shape[1:], np.nan)
        patterns, which = np.unique(gaps, axis=1, return_inverse=True)
        for n, pattern in enumerate(patterns.T):
            if not pattern.all():
                at = which.ravel() == n  # numpy 2.0 keeps a dimension
                found[:, at] = self._blended(
                    np.where(pattern[:, None, None], np.nan, quantiles[..., at])
                )
        return found

    def _blended(self, quantiles: Floats) -> Floats:
        """Return the blend at points where the same models are missing."""
        if self._pool == "emos":
            return self._normal_quantiles(quantiles)
        levels = self._levels
        if self._pool == "beta" and self.dates >= _LEAST_DATES:
            a, b = fit_beta(*(self._logs[1:] / self._logs[0]))
            levels = betaincinv(a, b, levels)
        return self._pooled(quantiles, levels)

    def _normal_quantiles(self, quantiles: Floats) -> Floats:
        means, variances = self._moments(quantiles)
        is_there: Mask = np.logical_not(np.isnan(means).all(axis=1))
        means = np.where(is_there[:, None], means, means[is_there].mean(axis=0))
        mean, variance = self._mean(means), variances[is_there].mean(axis=0)
        if self._spread[0].any():
            c, d = _lsq_linear(*_square_root(*self._spread), (0.0, np.inf), tol=1e-12).x
            variance = c + d * variance
        found: Floats = mean + ndtri(self._levels)[:, None] * np.sqrt(variance)
        return found

    def _shares(self, quantiles: Floats) -> Floats:
        """Return the weights of the models, (N,); 0 for one that is missing."""
        is_there = ~np.isnan(quantiles).all(axis=(1, 2))
        weights = np.where(is_there, self.weights, 0.0)
        if not weights.any():
            weights = np.where(is_there, 1.0, 0.0)
        shares: Floats = weights / np.sum(weights)
        return shares

    def _pooled(self, quantiles: Floats, levels: Floats) -> Floats:
        """Return quantiles of the linear pool."""
        shares = self._shares(quantiles)
        used = shares > 0
        values = quantiles[used].reshape(-1, quantiles.shape[-1])
        order = np.argsort(values, axis=0)
        ranked = np.take_along_axis(values, order, axis=0)
        mass = np.outer(shares[used], self._mass).ravel()[order]
        place = np.cumsum(mass, axis=0) - mass
        place += np.outer(shares[used], self._offset).ravel()[order]
        columns = zip(place.T, ranked.T, strict=True)
        return np.stack([np.interp(levels, *column) for column in columns], axis=1)

    def _pit(self, quantiles: Floats, truth: Floats) -> Floats:
        """Return the PIT of the linear pool, kept off 0 and 1 by half the share of a quantile."""
        shares = np.outer(self._shares(quantiles), self._mass)
        below = np.where(np.isnan(quantiles), 0.0, quantiles <= truth) * shares[..., None]
        least = 0.5 * self._mass.min()
        pit: Floats = np.clip(below.sum(axis=(0, 1)), least, 1 - least)
        return pit


def _mean_difference(a: Floats, b: Floats, mass: Floats) -> Floats:
    """Return E|X - Z| of independent X and Z with quantiles (K, points) of these probabilities.

    It is the integral of F (1 - G) + G (1 - F).
    """
    both = np.concatenate([a, b])
    order = np.argsort(both, axis=0)
    values, none = np.take_along_axis(both, order, axis=0), np.zeros_like(mass)
    f = np.cumsum(np.r_[mass, none][order], axis=0)[:-1]
    g = np.cumsum(np.r_[none, mass][order], axis=0)[:-1]
    found: Floats = ((f * (1 - g) + g * (1 - f)) * np.diff(values, axis=0)).sum(axis=0)
    return found


def _square_root(matrix: Floats, right: Floats) -> tuple[Floats, Floats]:
    """Return A and b of the least squares with the normal equations (A'A, A'b)."""
    values, vectors = np.linalg.eigh(matrix)
    root_of = np.sqrt(np.clip(values, values.max() * 1e-13, None))
    return root_of[:, None] * vectors.T, (vectors.T @ right) / root_of
