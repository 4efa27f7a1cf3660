"""Standardisation of EMOS problems for the solver, and conversion of its solution back.

Every step works on P independent problems at once; all arrays are float64, (P, 1) or (P, K).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ens10.models.statistical.newton import Floats
from ens10.models.statistical.normal_regression import Block, Samples, minimise

_FEWEST_DATES = 3  # a line through two points leaves no residual for the spread
_SMALLEST_SIGMA = 1e-4  # the solver's floor, in its units (the root of its variance floor)


@dataclass
class _Scaling:
    """Constants of the standardisation, (P, 1) each: r = error + ..., u by centre and width."""

    error: Floats
    centre: Floats
    width: Floats
    variance: Floats
    size: Floats


def fit(samples: Samples) -> Floats:
    """Return the EMOS coefficients of least mean CRPS.

    Args:
        samples: r truth, u ensemble mean, v ensemble variance, w weights that need not sum to 1.

    Returns:
        (P, 5): bias, slope, centre, c, d of mu = mean + bias + slope (mean - centre) and
        sigma = sqrt(c^2 + d^2 var). Problems with fewer than three samples of positive weight get
        0, 0, 0, 0, 1: the raw ensemble.
    """
    count = samples.sum(lambda b: (b.w > 0).sum(1, keepdims=True))
    standard, scaling = _standardised(samples)
    start, scale = _start(standard, scaling)
    theta = minimise(start, standard.map(lambda b: Block(b.r / scale, b.u, b.v, b.w)))
    fitted = _physical(theta, scale, scaling)
    return np.where(count >= _FEWEST_DATES, fitted, [0.0, 0.0, 0.0, 0.0, 1.0])


def _means(samples: Samples, *functions: Callable[[Block], Floats]) -> list[Floats]:
    """Return weighted means over the samples of all blocks, (P, 1) each, in one pass."""
    sums = samples.sum(lambda block: np.stack([block.mean(one(block)) for one in functions]))
    return list(sums)


def _standardised(samples: Samples) -> tuple[Samples, _Scaling]:
    """Standardise: error centred; ensemble mean centred, of variance 1; variance of mean 1."""
    weight = np.maximum(samples.sum(lambda b: b.w.sum(1, keepdims=True)), 1e-300)
    errors = samples.map(lambda b: Block(b.r - b.u, b.u, b.v, b.w / weight))
    centre, variance, error, square = _means(
        errors, lambda b: b.u, lambda b: b.v, lambda b: b.r, lambda b: b.r**2
    )
    width = np.sqrt(_means(errors, lambda b: (b.u - centre) ** 2)[0])
    size = np.sqrt(square)
    # a nearly constant mean determines no slope, a spread of 0 no factor: both predictors are 0
    width = np.where(width <= 1e-9 * (np.abs(centre) + size), np.inf, width)
    variance = np.where(variance <= 1e-12 * square, np.inf, variance)
    standard = errors.map(lambda b: Block(b.r - error, (b.u - centre) / width, b.v / variance, b.w))
    # float32 data: an error below a millionth of the values themselves is rounding
    size = 1e-6 * (size + 1e-6 * np.abs(centre))
    return standard, _Scaling(error, centre, width, variance, np.maximum(size, 1e-30))


def _start(samples: Samples, scaling: _Scaling) -> tuple[Floats, Floats]:
    """Regress by least squares the error on the mean, and its square on the variance.

    Returns:
        The solver's start (P, 4) and the root-mean-square of the residual (P, 1), its unit.
    """
    slope = _means(samples, lambda b: b.r * b.u)[0]
    residual = samples.map(lambda b: Block(b.r - slope * b.u, b.u, b.v, b.w))
    scale = np.maximum(np.sqrt(_means(residual, lambda b: b.r**2)[0]), scaling.size)
    share, spread = _means(
        residual, lambda b: (b.r / scale) ** 2 * (b.v - 1), lambda b: (b.v - 1) ** 2
    )
    # inside (0, 1): a gamma or delta of 0 would never leave 0
    share = np.clip(share / np.maximum(spread, 1e-12), 0.05, 0.95)
    share = np.where(np.isinf(scaling.variance), 0.0, share)
    start = [np.zeros_like(slope), slope / scale, np.sqrt(1 - share), np.sqrt(share)]
    return np.concatenate(start, 1), scale


def _physical(theta: Floats, scale: Floats, scaling: _Scaling) -> Floats:
    """Convert the solver's alpha, beta, gamma, delta to bias, slope, centre, c, d (columns)."""
    alpha, beta, gamma, delta = ((theta * scale)[:, i : i + 1] for i in range(4))
    c = np.hypot(gamma, _SMALLEST_SIGMA * scale)
    columns = [scaling.error + alpha, beta / scaling.width, scaling.centre, c]
    return np.concatenate([*columns, delta / np.sqrt(scaling.variance)], 1)
