"""Standardisation of the error of an ensemble mean, of the mean and of the spread at each point."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ens10.models.statistical.newton import Floats
from ens10.models.statistical.spool import Blocks

Mask = npt.NDArray[np.bool_]


@dataclass
class Samples:
    """Samples of P problems, arrays (P, N).

    Args:
        error: truth minus ensemble mean.
        mean: ensemble mean.
        spread: predictor of the scale, such as the ensemble variance.
        w: weights, 0 where a field is missing; they need not sum to 1.
    """

    error: Floats
    mean: Floats
    spread: Floats
    w: Floats

    @classmethod
    def of(cls, data: Floats, weights: Floats | Mask, merge: bool = False) -> Self:
        """Return the samples of some points.

        Args:
            data: (3, P, N) truth, ensemble mean and deviation; NaN where one is missing.
            weights: (P, N), or a shape that broadcasts to it.
            merge: True for one problem of all points, P = 1.
        """
        valid = np.isfinite(data).all(0)
        truth, mean, std = np.where(valid, data, 0.0)
        fields = [truth - mean, mean, std**2, np.asarray(weights * valid, np.float64)]
        return cls(*(x.reshape(1, -1) for x in fields)) if merge else cls(*fields)


@dataclass
class Units:
    """Constants of the standardisation, (P, 1) each.

    Args:
        count: number of samples of positive weight.
        weight: sum of the weights.
        bias: mean error.
        scale: standard deviation of the error, above its rounding.
        centre: mean of the ensemble mean.
        width: its standard deviation; infinite if it is nearly constant.
        spread: mean of the predictor of the scale; infinite if it is nearly 0.
        slope: regression coefficient of the error, over its scale, on (mean - centre) / width.
    """

    count: Floats
    weight: Floats
    bias: Floats
    scale: Floats
    centre: Floats
    width: Floats
    spread: Floats
    slope: Floats

    @classmethod
    def of(cls, blocks: Blocks[Samples]) -> Self:
        """Compute the constants in two passes over the samples."""

        def sums(*functions: Callable[[Samples], Floats]) -> Floats:
            return blocks.sum(lambda s: np.array([f(s).sum(1, keepdims=True) for f in functions]))

        count, weight, *totals = sums(
            lambda s: np.sign(s.w),
            lambda s: s.w,
            lambda s: s.w * s.error,
            lambda s: s.w * s.mean,
            lambda s: s.w * s.spread,
        )
        weight = np.maximum(weight, 1e-300)
        bias, centre, spread = (total / weight for total in totals)
        squares = sums(
            lambda s: s.w * (s.error - bias) ** 2,
            lambda s: s.w * (s.mean - centre) ** 2,
            lambda s: s.w * (s.error - bias) * (s.mean - centre),
        )
        scale, width = np.sqrt(squares[:2] / weight)
        # float32 data: what is below a millionth of the values themselves is rounding
        scale = np.maximum(scale, 1e-6 * (np.abs(bias) + 1e-6 * np.abs(centre)))
        scale = np.maximum(scale, 1e-30)
        # a nearly constant mean determines no slope, a spread of 0 no factor: both predictors are 0
        width = np.where(width <= 1e-9 * (np.abs(centre) + scale), np.inf, width)
        spread = np.where(spread <= 1e-12 * scale**2, np.inf, spread)
        slope = squares[2] / weight / width / scale
        return cls(count, weight, bias, scale, centre, width, spread, slope)
