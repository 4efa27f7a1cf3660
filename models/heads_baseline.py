"""A head whose network corrects the forecast of a statistical method."""

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.heads import Head, RawEnsemble, checked_floor
from ens10.models.statistical.base import StatisticalMethod
from ens10.models.statistical.seasonal_emos import SeasonalEMOS
from ens10.models.statistical.sliding_window import SlidingWindow


class MethodHead(Head):
    """A normal distribution as a residual on that of a statistical method.

    mu = m + s * o0 and sigma = s * exp(o1), where m and s are mean and standard deviation of the
    method's forecast: an output of 0 gives the method's forecast. Training solves the method first,
    in one pass over the training dates (`ens10.models.warmstart`); its coefficients are buffers,
    saved in the checkpoint.

    s is at least `floor`. o1 is clamped to [-7, 7], outside of which it gets no gradient. Where the
    method's forecast is NaN, so is this one, and the network gets no gradient from there.

    Args:
        method: statistical method with normal forecasts; by default EMOS at each grid point with an
            annual cycle.
        floor: smallest s, in units of the target, e.g. 0.001 K.

    Raises:
        ArgumentError: a floor that is not positive, or a method with a sliding window.
    """

    out_channels = 2
    max_log_scale = 7.0

    def __init__(self, method: StatisticalMethod | None = None, floor: float = 1e-3) -> None:
        super().__init__()
        self.method = method if method is not None else SeasonalEMOS(harmonics=1)
        if any(isinstance(part, SlidingWindow) for part in self.method.modules()):
            reason = "a sliding window has no coefficients for the training dates"
            raise ArgumentError("method", reason, "Pass the method without a window")
        self.floor = checked_floor(floor)

    def forward(self, outputs: Tensor, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W) from outputs (N, 2, H, W).

        Raises:
            ArgumentError: the method was not solved, or its forecast is not a normal distribution.
        """
        with torch.no_grad():
            base = self.method(batch)
        if not isinstance(base, Normal):
            raise ArgumentError(
                "method",
                f"{type(self.method).__name__} forecasts {type(base).__name__}, MethodHead needs "
                "a normal distribution",
                "Take EMOS, or SeasonalEMOS with family normal",
            )
        start = RawEnsemble.of_moments(base.mu, base.sigma, self.floor)
        return Normal(*start.moved(outputs, self.max_log_scale), positive=True)
