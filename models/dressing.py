"""Head that forecasts a mixture of normal distributions around corrected raw members."""

import math

import torch
from torch import Tensor

from ens10.errors import ArgumentError
from ens10.loader.batch import Batch
from ens10.metrics.distributions import NormalMixture
from ens10.models.domain import Sides, current
from ens10.models.heads import HeadOnMethod, RawEnsemble, checked_floor, raw_members
from ens10.models.layers.neighbourhood import shifted_views
from ens10.models.layers.padding import Poles, edges_of
from ens10.models.statistical.base import StatisticalMethod

RESULT_VERSION = 1  # raise it when results change
_WIDE = 2.0  # scale of the wide component over that of the whole forecast, at the start
_RARE = 0.02  # its weight at the start


class DressingHead(HeadOnMethod):
    """A mixture of normals, one around each corrected raw member, and a wide component.

    A normal forecast has only a mean and a deviation; the members also contain the skewness and the
    clusters of the ensemble. Kernel dressing puts a normal distribution (the kernel) around each
    member (Roulston & Smith 2003, doi:10.3402/tellusa.v55i1.12082); a wide component covers truths
    outside the ensemble (Brocker & Smith 2008, doi:10.1111/j.1600-0870.2008.00333.x). All
    parameters are outputs of the network at each point. A weighted sum of the members' deviations
    at neighbouring points can correct an error of position.

    m and s are the mean and deviation of the reference forecast. e_i are the raw members'
    deviations from their mean, divided by their standard deviation (at least `floor`) and
    multiplied by s sqrt(1 - h^2). With the neighbours x + r_k, k = 1 to window^2, and the outputs
    o_0 to o_5 and a_k = o_(5 + k),

        mu_i = m + s o_0 + D_i,   D_i(x) = e_i(x) + sum_k a_k(x) e_i(x + r_k),
        sigma_i = h s exp(o_1),   w_i proportional to exp(o_2 D_i / rms(D)).

    The wide component has the mean m + s o_0 + s o_3, the deviation 2 s exp(o_4) and the weight
    1 / (1 + 49 exp(-o_5)). With outputs of 0 the forecast has the mean of the reference forecast
    and the deviation 1.03 s (the wide component has a weight of 2 %); where all members are equal,
    D is 0 and the deviation is smaller. o_1, o_4 and o_5 are clamped to [-7, 7], o_2 to [-2, 2].

    s is at least `floor`, in units of the target. Where the reference forecast or a member is NaN,
    so is the forecast. The members are in `batch["members"]`: `data.members: true`.

    Args:
        window: rows and columns of the neighbours whose deviations a point may take, odd; 1 for its
            own alone.
        kernel: deviation h of the dressing at the start, as a share of s, between 0 and 1.
        floor: smallest s, e.g. 0.001 K.
        method: statistical method with normal forecasts, such as SeasonalEMOS, as reference; None
            for the raw ensemble.
        periodic_longitude: True if first and last column are neighbours.
        poles: padding beyond the first and last row, "zeros" or "replicate".

    Examples:
        >>> import torch
        >>> from ens10.models import DressingHead
        >>> head, members = DressingHead(), torch.randn(1, 10, 4, 8)
        >>> raw = {"raw_mean": members.mean(1), "raw_std": members.std(1), "members": members}
        >>> forecast = head(torch.zeros(1, head.out_channels, 4, 8), raw)
        >>> forecast.mu.shape  # ten members and the wide component
        torch.Size([1, 11, 4, 8])
        >>> torch.allclose(forecast.mean, raw["raw_mean"], atol=1e-6)
        True

    Raises:
        ArgumentError: an even window, a kernel that is not between 0 and 1, a floor that is not
            positive, or a method with a sliding window.
        UnknownNameError: another value of `poles`.
    """

    splittable = True
    max_log_scale, max_tilt = 7.0, 2.0

    def __init__(
        self,
        window: int = 3,
        kernel: float = 0.6,
        floor: float = 1e-3,
        method: StatisticalMethod | None = None,
        periodic_longitude: bool = True,
        poles: Poles = "replicate",
    ) -> None:
        super().__init__(method)
        if window < 1 or window % 2 == 0:
            raise ArgumentError("window", f"{window} is not odd")
        if not 0 < kernel < 1:
            raise ArgumentError("kernel", f"{kernel} is not between 0 and 1")
        self.window, self.kernel, self.floor = window, kernel, checked_floor(floor)
        self.edges = edges_of(periodic_longitude, poles)
        self.out_channels = 6 + window**2

    def forward(self, outputs: Tensor, batch: Batch) -> NormalMixture:
        """Return a mixture of M + 1 normals (N, M + 1, H, W) from outputs (N, out_channels, H, W).

        Raises:
            ArgumentError: the batch has no members or only one, the method was not solved, or its
                forecast is not a normal distribution.
        """
        start = self._reference_and_mask(batch)
        # float32 also under mixed precision: half precision cannot represent Z500
        outputs = outputs.to(start.mean.dtype)
        shift, log_kernel, tilt, wide_shift, log_wide, log_odds = outputs[:, :6].unbind(1)
        log_kernel, log_wide, log_odds = (
            value.clamp(-self.max_log_scale, self.max_log_scale)
            for value in (log_kernel, log_wide, log_odds)
        )
        deviations = self._add_neighbours(self._deviations(batch, start), outputs[:, 6:])
        size = deviations.square().mean(1, keepdim=True).clamp(min=self.floor**2).sqrt()
        tilt = tilt.clamp(-self.max_tilt, self.max_tilt).unsqueeze(1)
        wide = torch.sigmoid(log_odds + math.log(_RARE / (1 - _RARE))).unsqueeze(1)
        weights = (1 - wide) * (tilt * deviations / size).softmax(1)

        centre = start.mean.masked_fill(start.missing, 0) + start.spread * shift
        mu = torch.cat(
            [centre.unsqueeze(1) + deviations, (centre + start.spread * wide_shift).unsqueeze(1)], 1
        )
        each = (self.kernel * start.spread * log_kernel.exp()).unsqueeze(1).expand_as(deviations)
        sigma = torch.cat([each, (_WIDE * start.spread * log_wide.exp()).unsqueeze(1)], 1)
        shares = torch.cat([weights, wide], 1)
        mu, sigma, shares = map(start.mask_missing, (mu, sigma, shares))
        return NormalMixture(mu, sigma, shares, positive=True)

    def _reference_and_mask(self, batch: Batch) -> RawEnsemble:
        """Return the reference's mean and spread, with points without a member as missing."""
        members = raw_members(batch)
        if members.shape[1] < 2:
            raise ArgumentError("members", "one member has no deviation", "Use at least 2 members")
        start = self._reference(batch)
        absent = ~members.isfinite().all(1)
        return start._replace(missing=start.missing | absent)

    def _deviations(self, batch: Batch, start: RawEnsemble) -> Tensor:
        """Return e (N, M, H, W), 0 where a member is missing."""
        members = batch["members"]
        deviations = members - members.mean(1, keepdim=True)
        deviations = deviations.masked_fill(start.missing.unsqueeze(1), 0)
        size = deviations.square().mean(1, keepdim=True).sqrt().clamp(min=self.floor)
        share = math.sqrt(1 - self.kernel**2)
        scaled: Tensor = share * start.spread.unsqueeze(1) * deviations / size
        return scaled

    def _add_neighbours(self, deviations: Tensor, weights: Tensor) -> Tensor:
        """Return D: e plus the sum of the neighbours' e times weights (N, window^2, H, W)."""
        half = self.window // 2
        padded = current().pad(deviations, Sides(half, half, half, half), self.edges)
        views = shifted_views(padded, self.window)
        total = deviations
        for weight, view in zip(weights.unbind(1), views, strict=True):
            total = torch.addcmul(total, weight.unsqueeze(1), view)
        return total
