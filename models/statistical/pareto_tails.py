"""The generalised Pareto distribution of the excess over a high quantile, or below a low one.

Excesses over a high threshold follow it in the limit (Pickands 1975, doi:10.1214/aos/1176343003):

    P(excess > x) = (1 + shape x / scale)^(-1 / shape),   exp(-x / scale) for shape 0
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float64]
PROBABILITY = 0.1  # of a tail
# of the tail: 0.95 to 0.9999 of the whole distribution
SHARES = (0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.001)
_FEWEST = 10
_MAX_SHAPE = 0.5  # from which on the variance is infinite


def mean_and_shape(excesses: Floats) -> tuple[float, float]:
    """Return the mean excess and the shape, by probability-weighted moments.

    Hosking and Wallis (1987), doi:10.1080/00401706.1987.10488243.

    Args:
        excesses: (N,), above 0; the shape of fewer than ten is NaN, as is the mean of none.
    """
    count = len(excesses)
    if count == 0:
        return np.nan, np.nan
    mean = float(excesses.mean())
    if count < _FEWEST:
        return mean, np.nan
    above = 1 - (np.arange(1, count + 1) - 0.35) / count
    weighted = float((np.sort(excesses) * above).mean())
    return mean, 2 - mean / (mean - 2 * weighted)


def common_shape(shapes: Floats) -> float:
    """Return the median of shapes at many points, within the range of a finite variance."""
    known = shapes[np.isfinite(shapes)]
    return float(np.clip(np.median(known), -_MAX_SHAPE, _MAX_SHAPE)) if len(known) else 0.0


def excess_quantiles(mean: Tensor, shape: Tensor) -> Tensor:
    """Return the excesses that are exceeded with the probabilities `SHARES`.

    Args:
        mean: mean excess, (H, W), target units.
        shape: of all points, 0-dimensional.

    Returns:
        Excesses (S, H, W), rising.
    """
    shares = torch.tensor(SHARES, dtype=mean.dtype, device=mean.device)
    logs = -torch.log(shares)
    # (s^-shape - 1) / shape, which is the logarithm for shape 0
    near_zero = shape.abs() < 1e-6
    safe = torch.where(near_zero, 1, shape)
    unit = torch.where(near_zero, logs, torch.expm1(safe * logs) / safe)
    return mean * (1 - shape) * unit[:, None, None]
