"""A head of normal distributions transformed by monotone rational-quadratic splines."""

import math

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions.spline import SplineFlow
from ens10.models.heads import Head, RawEnsemble, checked_floor


class SplineHead(Head):
    """A rational-quadratic spline flow as a residual on the raw ensemble (Durkan et al. 2019).

    arXiv:1906.04032. The forecast is m + s (o_0 + exp(o_1) T(Z)), where m is the mean and s the
    standard deviation of the raw ensemble, Z is standard normal and T is a monotone spline of K
    pieces on [-B, B], the identity outside. Of the other 3 K - 1 outputs, K and K, clamped to [-2,
    2], give its widths and heights by softmax; the last K - 1, clamped to [-1, 1], are the
    logarithms of its slopes at the inner knots, in units of the harmonic mean of the slopes of the
    adjacent pieces (in the paper they are the slopes themselves, without clamping, which allows
    kinks that need many nodes to integrate). An output of 0 is the normal distribution of the raw
    ensemble.

    s is at least `floor`, in units of the target, and o_1 is clamped to [-7, 7]; both as in
    `ResidualNormalHead`. A store of predictions holds the quantiles at 1 % to 99 %; see
    `SplineFlow` for the CRPS.

    Args:
        pieces: number of pieces K; `out_channels` is 3 K + 1.
        reach: half-width B of the spline, in standard deviations.
        floor: smallest s, e.g. 0.001 K.

    Raises:
        ArgumentError: fewer than two pieces, or a reach or floor that is not positive.
    """

    max_log_scale = 7.0
    max_log_share, max_log_slope = 2.0, 1.0

    def __init__(self, pieces: int = 8, reach: float = 4.0, floor: float = 1e-3) -> None:
        super().__init__()
        if pieces < 2:
            raise ArgumentError("pieces", f"{pieces} is less than 2")
        if not 0 < reach < math.inf:
            raise ArgumentError("reach", f"{reach} is not a positive number")
        self.pieces, self.reach, self.floor = pieces, reach, checked_floor(floor)
        self.out_channels = 3 * pieces + 1

    def forward(self, outputs: Tensor, batch: Batch) -> SplineFlow:
        """Return the forecast from outputs (N, 3 K + 1, H, W)."""
        raw, K = RawEnsemble.of(batch, self.floor), self.pieces
        # float32 also under mixed precision, see ResidualNormalHead
        outputs = outputs.to(raw.mean.dtype)
        limit = self.max_log_scale
        mu = raw.mean + raw.spread * outputs[:, 0]
        sigma = raw.spread * outputs[:, 1].clamp(-limit, limit).exp()
        x, y = (self._knots(outputs[:, start : start + K]) for start in (2, 2 + K))
        steep = (y[:, 1:] - y[:, :-1]) / (x[:, 1:] - x[:, :-1])
        low, high = steep[:, :-1], steep[:, 1:]
        bend = outputs[:, 2 + 2 * K :].clamp(-self.max_log_slope, self.max_log_slope).exp()
        ends = torch.ones_like(outputs[:, :1])
        slopes = torch.cat([ends, 2 * low * high / (low + high) * bend, ends], dim=1)
        return SplineFlow(*(raw.masked(part) for part in (mu, sigma, x, y, slopes)))

    def _knots(self, outputs: Tensor) -> Tensor:
        """Return K + 1 knots from -B to B."""
        shares = outputs.clamp(-self.max_log_share, self.max_log_share).softmax(1)
        inner = self.reach * (2 * shares[:, :-1].cumsum(1) - 1)
        end = torch.full_like(outputs[:, :1], self.reach)
        return torch.cat([-end, inner, end], dim=1)
