"""Regressions of location, scale and perhaps a third parameter of a distribution.

Many problems are solved at once. Each block b of coefficients follows the year, and has a predictor
x_b and one parameter of the distribution:

    eta_b = cycle(t) . theta_b,    location = offset + sum of x_b eta_b,    third = eta_b,

and the scale is a function of its eta_b and x_b (a `Link`). The objective is the weighted mean
score plus sum of penalty (theta - prior)^2 / 2. With J_b the derivative by eta_b of block b's
parameter (of the scale, its logarithm) and S the derivatives of the score by the parameters, each
entry of the gradient is a sum of S_r J_b cycle, and each of the Hessian one of
(S_rs J_b J_c + S_r dJ_b/deta_c) cycle cycle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from ens10.models.statistical.newton import Evaluation, Floats, minimise
from ens10.models.statistical.score_terms import ScoreTerms, Terms
from ens10.models.statistical.spool import Blocks

LOCATION, SCALE, THIRD = range(3)  # places of the parameters in `Terms`
# Floors in standardised units: they keep the residual over the scale finite
VARIANCE_FLOOR = 1e-8
_SCALE_FLOOR = 1e-6
Predictors = Sequence[Floats | float]  # (P, N), or 1 for a constant


class Scale(NamedTuple):
    """A scale, and derivatives of its logarithm by eta_b, arrays (P, N).

    Args:
        value: the scale.
        slopes: first derivative by each eta_b.
        curvatures: part of the second derivative by each eta_b alone.
        cross: its other part, for every pair of blocks, is `cross` times both slopes.
    """

    value: Floats
    slopes: Predictors
    curvatures: Predictors
    cross: float


Link = Callable[[Sequence[Floats], Predictors], Scale]


def root_of_squares(eta: Sequence[Floats], x: Predictors) -> Scale:
    """Return sqrt(sum of eta_b^2 x_b + 1e-8); an eta of exactly 0 has no slope."""
    products = [e * v for e, v in zip(eta, x, strict=True)]
    square = sum((e * p for e, p in zip(eta, products, strict=True)), VARIANCE_FLOOR)
    slopes, curvatures = ([p / square for p in parts] for parts in (products, x))
    return Scale(np.sqrt(square), slopes, curvatures, -2.0)


def root_of_exponentials(largest: float, floor: float) -> Link:
    """Return the link sqrt(sum of exp(2 eta_b) x_b + floor).

    Args:
        largest: largest magnitude of eta_b, at which no step of the search overflows.
        floor: smallest squared scale.
    """

    def link(eta: Sequence[Floats], x: Predictors) -> Scale:
        pairs = zip(eta, x, strict=True)
        terms = [np.exp(2 * np.clip(e, -largest, largest)) * v for e, v in pairs]
        square = np.asarray(sum(terms, floor))
        slopes = [term / square for term in terms]
        return Scale(np.sqrt(square), slopes, [2 * slope for slope in slopes], -2.0)

    return link


def sum_of_exponentials(eta: Sequence[Floats], x: Predictors) -> Scale:
    """Return the scale sum of exp(eta_b) x_b + 1e-6; above 50 an eta counts as 50."""
    terms = [np.exp(np.minimum(e, 50.0)) * v for e, v in zip(eta, x, strict=True)]
    value = np.asarray(sum(terms, _SCALE_FLOOR))
    slopes = [term / value for term in terms]
    return Scale(value, slopes, slopes, -1.0)


@dataclass
class Regression:
    """Regression problems of P points with N samples; arrays (P, N) unless stated otherwise.

    Args:
        score: score of the family, with its derivatives.
        link: scale as a function of its coefficients and predictors.
        y: observations.
        w: weights; those of a point sum to 1, or all are 0.
        location: predictors of the location.
        scale: predictors of the scale.
        third: number of further parameters of the family, 0 or 1.
        offset: location without correction.
        bounds: lower and upper, of bounded families.
        cycle: (N, K), the functions of the year at the dates; None for the constant alone.
        prior: (P, D), centre of the penalty; D = K times the number of blocks.
        penalty: (P, D), its strength.
    """

    score: ScoreTerms
    link: Link
    y: Floats
    w: Floats
    location: Predictors
    scale: Predictors
    third: int = 0
    offset: Floats | float = 0.0
    bounds: Sequence[Floats] = ()
    cycle: Floats | None = None
    prior: Floats | float = 0.0
    penalty: Floats | float = 0.0

    def select(self, mask: npt.NDArray[np.bool_]) -> Self:
        """Return the problems of the points for which `mask` (P,) is True."""

        def part(value: Floats | float) -> Floats | float:
            return value[mask] if isinstance(value, np.ndarray) else value

        single = {k: part(getattr(self, k)) for k in ("y", "w", "offset", "prior", "penalty")}
        several = {k: [*map(part, getattr(self, k))] for k in ("location", "scale", "bounds")}
        return replace(self, **single, **several)  # type: ignore[arg-type]

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return mean score plus penalty with gradient and Hessian in theta (P, D)."""
        value, gradient, hessian = self.mean_score(theta)
        departure = theta - self.prior
        value = value + 0.5 * (self.penalty * departure**2).sum(1)
        index = np.arange(theta.shape[1])
        hessian[:, index, index] += self.penalty
        return value, gradient + self.penalty * departure, hessian

    def mean_score(self, theta: Floats) -> Evaluation:
        """Return the mean score alone, with gradient and Hessian; theta is (P, D) or (1, D)."""
        eta = self._at_dates(theta)  # of location, scale and third parameter, in this order
        first_scale = len(self.location)
        first_third = first_scale + len(self.scale)
        products = [x * e for x, e in zip(self.location, eta[:first_scale], strict=True)]
        scale = self.link(eta[first_scale:first_third], self.scale)
        parameters = [np.asarray(sum(products, self.offset)), scale.value, *eta[first_third:]]
        parameters = [np.broadcast_to(p, self.y.shape) for p in parameters]
        terms = self.score(parameters, self.bounds, self.y)
        return (self.w * terms.value).sum(1), *self._by_coefficients(terms, scale)

    def _by_coefficients(self, terms: Terms, scale: Scale) -> tuple[Floats, Floats]:
        """Return gradient (P, D) and Hessian (P, D, D) of the mean score, by the chain rule.

        Blocks b and c have the parameters r and s. Blocks are in the order of their parameters, so
        that c >= b has s >= r, as the keys of `Terms.second`; the Hessian's other half is the same.
        """
        jacobian: Predictors = [*self.location, *scale.slopes, *[1.0] * self.third]  # J_b
        first_scale, count = len(self.location), len(jacobian)
        parameter_of = [LOCATION] * first_scale + [SCALE] * len(scale.slopes) + [THIRD] * self.third
        by_scale = terms.first[SCALE]
        weighted_by_scale = self.w * by_scale
        # for the scale, dJ_b/deta_c has a part cross J_b J_c, which S_rs takes in
        second = {
            **terms.second,
            (SCALE, SCALE): terms.second[SCALE, SCALE] + by_scale * scale.cross,
        }
        points, size = len(self.y), 1 if self.cycle is None else self.cycle.shape[1]
        gradient = np.empty((points, count, size))
        hessian = np.empty((points, count, size, count, size))
        for b, r in enumerate(parameter_of):
            weighted = self.w * jacobian[b]
            gradient[:, b] = self._sums(weighted, terms.first[r], self.cycle)
            with_second = {s: weighted * second[r, s] for s in range(r, parameter_of[-1] + 1)}
            for c in range(b, count):
                factor, other = with_second[parameter_of[c]], jacobian[c]  # S_rs J_b J_c
                if b == c and r == SCALE:  # and S_r dJ_b/deta_b
                    curvature = scale.curvatures[b - first_scale]
                    factor, other = factor * other + weighted_by_scale * curvature, 1.0
                block = self._sums(factor, other, self._products).reshape(-1, size, size)
                hessian[:, b, :, c], hessian[:, c, :, b] = block, block
        return gradient.reshape(points, -1), hessian.reshape(points, count * size, -1)

    @cached_property
    def _products(self) -> Floats | None:
        """The products of two functions of the year, (N, K K)."""
        if self.cycle is None:
            return None
        products: Floats = np.einsum("nj,nk->njk", self.cycle, self.cycle)
        return products.reshape(len(self.cycle), -1)

    def _at_dates(self, theta: Floats) -> Sequence[Floats]:
        """Return eta of each block, (P, N), or (P, 1) without annual cycle."""
        if self.cycle is None:
            return list(theta.T[:, :, None])
        eta = theta.reshape(len(theta), -1, self.cycle.shape[1]) @ self.cycle.T
        return list(eta.swapaxes(0, 1))

    @staticmethod
    def _sums(factor: Floats, other: Floats | float, functions: Floats | None) -> Floats:
        """Return the sums over the samples of the product times each function, (P, F)."""
        if functions is not None:
            return np.asarray((factor * other) @ functions)
        if isinstance(other, float):
            return np.asarray(factor.sum(1, keepdims=True) * other)
        # one pass, without a temporary
        return np.asarray(np.einsum("pn,pn->p", factor, other))[:, None]


@dataclass
class Pooled:
    """One problem: the coefficients that all points have in common.

    Args:
        points: the problems of the P points.
        share: (P,) weight of each point, which sum to 1.
    """

    points: Regression
    share: Floats

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return the weighted mean over the points, for one theta (1, D), without penalty."""
        parts = self.points.mean_score(theta)
        value, gradient, hessian = (np.tensordot(self.share, part, 1)[None] for part in parts)
        return value, gradient, hessian

    def select(self, mask: npt.NDArray[np.bool_]) -> Self:  # noqa: ARG002
        """Return the problem itself: there is only one."""
        return self


@dataclass
class BlockSum:
    """Problems whose samples are in several blocks, of which the objectives are added.

    Args:
        blocks: the problems of each block; weights of a problem sum to 1 over the blocks.
    """

    blocks: Blocks[Regression]

    def evaluate(self, theta: Floats) -> Evaluation:
        """Return the sums over the blocks."""
        parts = zip(*self.blocks.apply(lambda block: block.evaluate(theta)), strict=True)
        value, gradient, hessian = (np.sum(part, axis=0) for part in parts)
        return value, gradient, hessian

    def select(self, mask: npt.NDArray[np.bool_]) -> "BlockSum":
        """Return the problems for which `mask` (P,) is True."""
        return BlockSum(self.blocks.map(lambda block: block.select(mask)))


def fit_together(points: Regression, start: Floats, weights: Floats) -> Floats:
    """Fit the coefficients that all points have in common, (D,).

    Args:
        points: the problems of the P points.
        start: (D,).
        weights: (P,) weight of each point. If all are 0, the start is returned.
    """
    if not weights.any():
        return start
    return np.asarray(minimise(start[None], Pooled(points, weights / weights.sum()))[0])
