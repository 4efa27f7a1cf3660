"""From physical data to the standardised problem that the solver takes, and back.

Every step works on P independent problems at once; all tensors are float64, (P, 1) or (P, K).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ens10.models.statistical.normal_regression import Block, minimise

_FEWEST_DATES = 3  # a line through two points leaves no residual to learn a spread from
_SMALLEST_SIGMA = 1e-4  # the solver's floor, in its units (the root of its variance floor)


@dataclass
class _Scaling:
    """How a problem was standardised, (P, 1) each: r = error + ..., u by centre and width."""

    error: Tensor
    centre: Tensor
    width: Tensor
    variance: Tensor
    size: Tensor


def fit(blocks: Sequence[Block]) -> Tensor:
    """EMOS coefficients of least mean CRPS.

    Args:
        blocks: r truth, u ensemble mean, v ensemble variance, w weights that need not sum to 1.

    Returns:
        (P, 5): bias, slope, centre, c, d of mu = mean + bias + slope (mean - centre) and
        sigma = sqrt(c^2 + d^2 var). Problems with fewer than three samples of positive weight get
        0, 0, 0, 0, 1: the raw ensemble.
    """
    samples = _total([(block.w > 0).double() for block in blocks])
    standard, scaling = _standardised(blocks)
    start, scale = _start(standard, scaling)
    theta = minimise(start, [Block(b.r / scale, b.u, b.v, b.w) for b in standard])
    fitted = _physical(theta, scale, scaling)
    identity = fitted.new_tensor([0.0, 0.0, 0.0, 0.0, 1.0])
    return torch.where(samples >= _FEWEST_DATES, fitted, identity)


def _total(fields: Sequence[Tensor]) -> Tensor:
    """Sum over the samples of all blocks, (P, 1)."""
    return torch.stack([field.sum(1, keepdim=True) for field in fields]).sum(0)


def _mean(blocks: Sequence[Block], fields: Sequence[Tensor]) -> Tensor:
    """Weighted mean over the samples of all blocks, (P, 1)."""
    return _total([block.w * field for block, field in zip(blocks, fields, strict=True)])


def _standardised(blocks: Sequence[Block]) -> tuple[list[Block], _Scaling]:
    """Error of the ensemble mean, centred; mean, centred and of variance 1; variance of mean 1."""
    weight = _total([b.w for b in blocks]).clamp(min=1e-300)
    blocks = [Block(b.r - b.u, b.u, b.v, b.w / weight) for b in blocks]
    centre = _mean(blocks, [b.u for b in blocks])
    width = _mean(blocks, [(b.u - centre).square() for b in blocks]).sqrt()
    variance = _mean(blocks, [b.v for b in blocks])
    error = _mean(blocks, [b.r for b in blocks])
    square = _mean(blocks, [b.r.square() for b in blocks])
    # a mean that hardly moves tells no slope, a spread of 0 no share of it: both predictors 0
    still = width <= 1e-9 * (centre.abs() + square.sqrt())
    sharp = variance <= 1e-12 * square
    width = width.masked_fill(still, torch.inf)
    variance = variance.masked_fill(sharp, torch.inf)
    standard = [Block(b.r - error, (b.u - centre) / width, b.v / variance, b.w) for b in blocks]
    # float32 data: an error below a millionth of the values themselves is rounding
    size = 1e-6 * (square.sqrt() + 1e-6 * centre.abs())
    return standard, _Scaling(error, centre, width, variance, size.clamp(min=1e-30))


def _start(blocks: Sequence[Block], scaling: _Scaling) -> tuple[Tensor, Tensor]:
    """Least-squares regression of the error on the mean, and of its square on the variance.

    Returns:
        The solver's start (P, 4) and the root-mean-square of the residual (P, 1), its unit.
    """
    slope = _mean(blocks, [b.r * b.u for b in blocks])
    left = [b.r - slope * b.u for b in blocks]
    scale = _mean(blocks, [x.square() for x in left]).sqrt().maximum(scaling.size)
    share = _mean(
        blocks, [(x / scale).square() * (b.v - 1) for x, b in zip(left, blocks, strict=True)]
    )
    share = share / _mean(blocks, [(b.v - 1).square() for b in blocks]).clamp(min=1e-12)
    # inside (0, 1): a gamma or delta of 0 would never leave 0
    share = share.clamp(0.05, 0.95).masked_fill(scaling.variance.isinf(), 0)
    start = [torch.zeros_like(slope), slope / scale, (1 - share).sqrt(), share.sqrt()]
    return torch.cat(start, 1), scale


def _physical(theta: Tensor, scale: Tensor, scaling: _Scaling) -> Tensor:
    """Columns bias, slope, centre, c, d from the solver's alpha, beta, gamma, delta."""
    alpha, beta, gamma, delta = (column.unsqueeze(1) for column in (theta * scale).unbind(1))
    c = torch.hypot(gamma, _SMALLEST_SIGMA * scale)
    columns = [scaling.error + alpha, beta / scaling.width, scaling.centre, c]
    return torch.cat([*columns, delta / scaling.variance.sqrt()], 1)
