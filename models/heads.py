"""Heads: from a network's output to a predictive distribution."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
import torch
from scipy import special
from torch import Tensor, nn

from ens10.errors import ArgumentError, UnknownNameError
from ens10.loader.batch import Batch
from ens10.metrics import Estimator
from ens10.metrics.distributions import Distribution, Ensemble, Normal
from ens10.metrics.distributions.base import ClosedForm
from ens10.metrics.distributions.bernstein import Bernstein
from ens10.metrics.distributions.registry import FAMILIES, from_moments
from ens10.metrics.distributions.spline import SplineFlow
from ens10.models.specification import InitialValues
from ens10.models.statistical.base import StatisticalMethod
from ens10.models.statistical.coupling import couple
from ens10.models.statistical.seasonal_emos import SeasonalEMOS
from ens10.models.statistical.sliding_window import SlidingWindow
from ens10.models.statistical.targets import TargetMethods, by_target

Spacing = Literal["ensemble", "quantiles"]


class Head(InitialValues, nn.Module):
    """Maps the output of a network to a predictive distribution.

    Attributes:
        out_channels: number of channels that the network must output.
        takes_members: True if it takes the outputs of each member, (N, M, out_channels, H, W).
        is_unbounded: True if its forecasts can be below 0, which precipitation and wind speed
            never are; `ens10 fit` then names a better model for these.
    """

    out_channels: int
    takes_members: bool = False
    is_unbounded: bool = False

    @abstractmethod
    def forward(self, outputs: Tensor, batch: Batch) -> Distribution | tuple[Distribution, ...]:
        """Return the forecast from `outputs` (N, out_channels, H, W) and the raw ensemble."""


class ResidualNormalHead(Head):
    """A normal distribution as a residual on the raw ensemble (Ashkboos et al. 2022).

    mu = m + s * o0 and sigma = s * exp(o1), where m is the mean and s the standard deviation of
    the raw ensemble at that point and date: an output of 0 is the raw ensemble.

    s is at least `floor`, so that a raw spread of 0 gives a positive sigma and the network can
    still correct the point. o1 is clamped to [-7, 7], so that sigma stays within a factor of about
    1100 of s and exp never overflows; outside this range o1 gets no gradient. Where the raw
    ensemble is NaN the forecast is NaN, and the network gets no gradient from there.

    Args:
        floor: smallest s, in units of the target, e.g. 0.001 K. Choose a smaller one for a target
            whose spread is itself that small, such as precipitation in m.

    Examples:
        >>> import torch
        >>> from ens10.models import ResidualNormalHead
        >>> raw = {"raw_mean": torch.full((1, 1, 1), 280.0), "raw_std": torch.full((1, 1, 1), 2.0)}
        >>> forecast = ResidualNormalHead()(torch.ones(1, 2, 1, 1), raw)  # o0 = o1 = 1
        >>> forecast.mu.item(), round(forecast.sigma.item(), 3)
        (282.0, 5.437)

    Raises:
        ArgumentError: a floor that is not positive.
    """

    splittable = True
    out_channels = 2
    is_unbounded = True
    max_log_scale = 7.0

    def __init__(self, floor: float = 1e-3) -> None:
        super().__init__()
        self.floor = checked_floor(floor)

    def forward(self, outputs: Tensor, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W) from outputs (N, 2, H, W)."""
        raw = RawEnsemble.of(batch, self.floor)
        return Normal(*raw.location_and_scale(outputs, self.max_log_scale), positive=True)


class TargetHeads(Head):
    """A head for each of several targets, on channels of its own of the network's output.

    The losses of the targets are divided by `scales` and averaged, so that a target with large
    numbers, such as geopotential, does not outweigh the others: the loss is in units of the raw
    ensemble's spread.

    Args:
        heads: one for each target, in the order of the data's targets.
        scales: of the losses, in units of the targets; None for the mean spread of the raw ensemble
            over training dates, grid points and lead times, which is set when training starts and
            saved with the weights.

    Examples:
        >>> import torch
        >>> from ens10.models import ResidualNormalHead, TargetHeads
        >>> heads = TargetHeads([ResidualNormalHead(), ResidualNormalHead()])
        >>> fields = torch.ones(1, 2, 4, 8)  # (N, T, H, W)
        >>> forecasts = heads(torch.zeros(1, 4, 4, 8), {"raw_mean": fields, "raw_std": fields})
        >>> [tuple(forecast.mean.shape) for forecast in forecasts]
        [(1, 4, 8), (1, 4, 8)]

    Raises:
        ArgumentError: fewer than two heads, heads of which only some take members, or scales that
            are not positive or of another number than the heads.
    """

    splittable = True
    may_be_nan = ("scales",)

    def __init__(self, heads: Sequence[Head], scales: Sequence[float] | None = None) -> None:
        super().__init__()
        if len(heads) < 2:
            reason = f"{len(heads)} head for several targets"
            raise ArgumentError("heads", reason, "Name one for each; for one target the head alone")
        if len({head.takes_members for head in heads}) > 1:
            reason = "some take the outputs of members, others do not"
            raise ArgumentError("heads", reason, "Choose heads of one kind")
        if scales is not None and (len(scales) != len(heads) or not min(scales) > 0):
            reason = f"{list(scales)} for {len(heads)} heads"
            raise ArgumentError("scales", reason, "Name a positive number for each, or none")
        self.heads = nn.ModuleList(heads)
        self.takes_members = heads[0].takes_members
        self.out_channels = sum(head.out_channels for head in heads)
        self._sizes = [head.out_channels for head in heads]
        self.scales: Tensor
        unknown = [math.nan] * len(heads)
        self.register_buffer("scales", torch.tensor(unknown if scales is None else list(scales)))

    def forward(self, outputs: Tensor, batch: Batch) -> tuple[Distribution, ...]:
        """Return the forecast of each target from its channels of the outputs."""
        target_outputs = torch.split(outputs, self._sizes, -3)
        parts = zip(self.heads, target_outputs, by_target(batch), strict=True)
        return tuple(head(channels, target_batch) for head, channels, target_batch in parts)


class RawEnsemble(NamedTuple):
    """Mean and spread (N, H, W) of the raw ensemble, and the mask of missing points."""

    mean: Tensor
    spread: Tensor
    missing: Tensor

    @classmethod
    def of(cls, batch: Batch, floor: float) -> "RawEnsemble":
        """Return the raw mean and standard deviation of a batch, the latter at least `floor`."""
        return cls.of_moments(batch["raw_mean"], batch["raw_std"], floor)

    @classmethod
    def of_moments(cls, mean: Tensor, std: Tensor, floor: float) -> "RawEnsemble":
        """Return mean and spread; spread at least `floor`, and 1 where a moment is not finite."""
        missing = ~(mean.isfinite() & std.isfinite())
        return cls(mean, torch.where(missing, 1, std).clamp(min=floor), missing)

    def location_and_scale(self, outputs: Tensor, limit: float) -> tuple[Tensor, Tensor]:
        """Return location mean + spread * o0 and scale spread * exp(o1), o1 clamped to +-`limit`.

        Args:
            outputs: (N, 2, H, W).
            limit: bound of o1.

        Returns:
            (N, H, W) each, masked.
        """
        # float32 also under mixed precision: half precision cannot represent Z500
        shift, log_scale = outputs.to(self.mean.dtype).unbind(1)
        mu = self.mean + self.spread * shift
        sigma = self.spread * log_scale.clamp(-limit, limit).exp()
        return self.mask_missing(mu), self.mask_missing(sigma)

    def mask_missing(self, values: Tensor) -> Tensor:
        """Return values (N, H, W) or (N, K, H, W), NaN and without gradient where missing."""
        where = self.missing if values.ndim == self.missing.ndim else self.missing.unsqueeze(1)
        return values.masked_fill(where, torch.nan)


def checked_floor(floor: float) -> float:
    """Return the floor of the raw spread if it is valid.

    Raises:
        ArgumentError: it is not positive.
    """
    if not floor > 0:
        raise ArgumentError("floor", f"{floor} is not positive", "Pass a number in target units")
    return floor


class HeadOnMethod(Head):
    """A head whose forecast starts at that of a statistical method, or at the raw ensemble.

    Attributes:
        method: the method; of several lead times a copy for each; None for the raw ensemble.
        floor: smallest spread, in units of the target.
    """

    method: StatisticalMethod | TargetMethods | None
    floor: float

    def __init__(self, method: StatisticalMethod | None) -> None:
        super().__init__()
        if method and any(isinstance(part, SlidingWindow) for part in method.modules()):
            reason = "a sliding window has no coefficients for the training dates"
            raise ArgumentError("method", reason, "Pass the method without a window")
        self.method = method

    def _method_forecast(self, batch: Batch) -> Normal:
        """Return the method's forecast, without gradient.

        Raises:
            ArgumentError: the method was not solved, or its forecast is not a normal distribution.
        """
        method = cast("StatisticalMethod", self.method)
        with torch.no_grad():
            forecast = method(batch)
        if not isinstance(forecast, Normal):
            raise ArgumentError(
                "method",
                f"{type(method).__name__} forecasts {type(forecast).__name__}, "
                f"{type(self).__name__} needs a normal distribution",
                "Take EMOS, or SeasonalEMOS with family normal",
            )
        return forecast

    def _reference(self, batch: Batch) -> RawEnsemble:
        """Return mean and spread of the method's forecast, or of the raw ensemble.

        Raises:
            ArgumentError: the method was not solved, or its forecast is not a normal distribution.
        """
        if self.method is None:
            return RawEnsemble.of(batch, self.floor)
        base = self._method_forecast(batch)
        return RawEnsemble.of_moments(base.mu, base.sigma, self.floor)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        if self.method is not None:
            self.method = TargetMethods.of_state(self.method, state_dict, f"{prefix}method.")
        super()._load_from_state_dict(state_dict, prefix, *args)


class MethodHead(HeadOnMethod):
    """A normal distribution as a residual on that of a statistical method.

    mu = m + s * o0 and sigma = s * exp(o1), where m and s are mean and standard deviation of the
    method's forecast: an output of 0 gives the method's forecast. Training solves the method first,
    in one pass over the training dates (`ens10.models.warmstart`); its coefficients are buffers,
    saved in the checkpoint. Each lead time, and each target, has coefficients of its own.

    s is at least `floor`. o1 is clamped to [-7, 7], outside of which it gets no gradient. Where the
    method's forecast is NaN, so is this one, and the network gets no gradient from there.

    Args:
        method: statistical method with normal forecasts; by default EMOS at each grid point with an
            annual cycle.
        floor: smallest s, in units of the target, e.g. 0.001 K.

    Raises:
        ArgumentError: a floor that is not positive, or a method with a sliding window.
    """

    splittable = True
    out_channels = 2
    is_unbounded = True
    max_log_scale = 7.0

    def __init__(self, method: StatisticalMethod | None = None, floor: float = 1e-3) -> None:
        super().__init__(method or SeasonalEMOS(harmonics=1))
        self.floor = checked_floor(floor)

    def forward(self, outputs: Tensor, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W) from outputs (N, 2, H, W).

        Raises:
            ArgumentError: the method was not solved, or its forecast is not a normal distribution.
        """
        start = self._reference(batch)
        return Normal(*start.location_and_scale(outputs, self.max_log_scale), positive=True)


class FamilyHead(Head):
    """A distribution of a family as a residual on the raw ensemble.

    mu = m + s o_0 and sigma = c s exp(o_1), where m is the mean and s the standard deviation of the
    raw ensemble. c is chosen so that an output of 0 has the raw mean and deviation: 1 for the
    normal, sqrt(3) / pi for the logistic, sqrt((df - 2) / df) for Student's t. For a bounded family
    these are the moments before truncation or censoring.

    s is at least `floor`, in units of the target, and o_1 is clamped to [-7, 7]; both as in
    `ResidualNormalHead`. From a third output the shift or the shape of a family is computed, by the
    method `from_moments` of its class. Of "csgd" and "censored_gev", for precipitation, the floor
    is then the size of the smallest amounts, such as 1e-4 m: where all members are dry, an
    untrained network forecasts no rain with a probability of 63 % (csgd).

    Args:
        family: kind of a family with `head_channels`, such as "logistic", "truncated_normal" or
            "csgd". The error for another name lists all.
        lower: lower bound of a family that has one, in units of the target.
        upper: upper bound.
        df: degrees of freedom of "student_t", above 2.
        floor: smallest s, e.g. 0.001 K.

    Examples:
        >>> import torch
        >>> from ens10.models import FamilyHead
        >>> raw = {"raw_mean": torch.full((1, 1, 1), 280.0), "raw_std": torch.full((1, 1, 1), 2.0)}
        >>> forecast = FamilyHead("logistic")(torch.zeros(1, 2, 1, 1), raw)
        >>> forecast.mu.item(), round(forecast.sigma.item(), 3)  # 2 sqrt(3) / pi
        (280.0, 1.103)

    Raises:
        UnknownNameError: another family.
        ArgumentError: bounds that are missing, in the wrong order, or given for an unbounded
            family; df of at most 2; a floor that is not positive.
    """

    splittable = True
    max_log_scale = 7.0

    def __init__(
        self,
        family: str,
        lower: float = -math.inf,
        upper: float = math.inf,
        df: float = 8.0,
        floor: float = 1e-3,
    ) -> None:
        super().__init__()
        families = {kind: cls for kind, cls in FAMILIES.items() if cls.head_channels}
        if family not in families:
            raise UnknownNameError("family", family, families)
        check_bounds(family, lower, upper)
        self.out_channels = families[family].head_channels
        self.is_unbounded = math.isinf(max(lower, families[family].support[0]))
        if not df > 2:
            raise ArgumentError("df", f"{df} is not above 2", "The variance would be infinite")
        self.family, self.lower, self.upper, self.df = family, lower, upper, df
        self.floor = checked_floor(floor)

    def forward(self, outputs: Tensor, batch: Batch) -> ClosedForm:
        """Return the forecast, parameters (N, H, W), from outputs (N, 2 or 3, H, W)."""
        raw = RawEnsemble.of(batch, self.floor)
        # float32 also under mixed precision, see ResidualNormalHead
        shift, log_scale, *third = outputs.to(raw.mean.dtype).unbind(1)
        scale = log_scale.clamp(-self.max_log_scale, self.max_log_scale).exp()
        clamped = [x.clamp(-self.max_log_scale, self.max_log_scale) for x in third]
        parts = (raw.mean + raw.spread * shift, raw.spread * scale, *clamped)
        options = {"lower": self.lower, "upper": self.upper, "df": self.df}
        mean, std, *rest = map(raw.mask_missing, parts)
        shape = rest[0] if rest else None
        return from_moments(self.family, mean, std, shape, self.floor, **options)


def check_bounds(family: str, lower: float, upper: float) -> None:
    """Check that a family gets the bounds that it has, and at least one of them.

    Raises:
        ArgumentError: bounds that are missing, in the wrong order or not those of the family.
    """
    passed = {name for name, b in (("lower", lower), ("upper", upper)) if not math.isinf(b)}
    bounds = FAMILIES[family].bounds
    if not lower < upper:
        raise ArgumentError("lower", f"{lower} is not below upper, {upper}")
    if bounds and not passed:
        raise ArgumentError("lower", f"{family} has no bound", f"Pass {' or '.join(bounds)}")
    if passed and not bounds:
        raise ArgumentError("lower", f"{family} takes no bounds", "Choose a truncated family")
    for name in sorted(passed - set(bounds)):
        raise ArgumentError(name, f"{family} has no {name} bound")


_binomials: Any = special.comb  # which has no type hints


class BernsteinHead(Head):
    """A Bernstein quantile function as a residual on the raw ensemble (Bremnes 2020).

    doi:10.1175/MWR-D-19-0227.1. The coefficients are a_k = m + s (o_0 + b_k), where m is the mean
    and s the standard deviation of the raw ensemble, and the b_k have mean 0 and increments c_k
    exp(o_1 + o_k+1), k = 1 to d, so that they increase. o_0 shifts the forecast's mean, o_1 scales
    its spread, the others change its shape. The c_k approximate a standard normal: an output of 0
    is the normal distribution of the raw ensemble, to 0.08 s in its quantiles (root mean square, at
    degree 12) and with 99 % of its variance.

    s is at least `floor`, in units of the target, and o_1 + o_k+1 is clamped to [-7, 7]; both as in
    `ResidualNormalHead`. A store of predictions holds the quantiles at 1 % to 99 %; see
    `Bernstein`.

    Args:
        degree: degree d of the polynomials; `out_channels` is d + 2.
        floor: smallest s, e.g. 0.001 K.
        lower: smallest coefficient, target units, and so a bound of the forecast: 0 for
            precipitation and wind speed; -inf for none.

    Raises:
        ArgumentError: a degree below 1, or a floor that is not positive.
    """

    splittable = True
    max_log_rise = 7.0

    def __init__(self, degree: int = 12, floor: float = 1e-3, lower: float = -math.inf) -> None:
        super().__init__()
        self.lower, self.is_unbounded = lower, math.isinf(lower)
        if degree < 1:
            raise ArgumentError("degree", f"{degree} is less than 1")
        self.degree, self.floor = degree, checked_floor(floor)
        self.out_channels = degree + 2
        self.rises: Tensor
        rises = torch.from_numpy(np.diff(normal_coefficients(degree))).float()
        self.register_buffer("rises", rises, persistent=False)

    def forward(self, outputs: Tensor, batch: Batch) -> Bernstein:
        """Return the forecast from outputs (N, d + 2, H, W)."""
        raw = RawEnsemble.of(batch, self.floor)
        outputs = outputs.to(raw.mean.dtype)
        shift, log_rise = outputs[:, :1], outputs[:, 1:2] + outputs[:, 2:]
        log_rise = log_rise.clamp(-self.max_log_rise, self.max_log_rise)
        rises = self.rises.to(log_rise)[:, None, None] * log_rise.exp()
        risen = torch.cat([torch.zeros_like(shift), rises.cumsum(1)], dim=1)
        centred = risen - risen.mean(1, keepdim=True)
        coefficients = raw.mean.unsqueeze(1) + raw.spread.unsqueeze(1) * (shift + centred)
        if not math.isinf(self.lower):
            coefficients = coefficients.clamp(min=self.lower)
        return Bernstein(raw.mask_missing(coefficients))


def normal_coefficients(degree: int) -> np.ndarray:
    """Return increasing coefficients, (d + 1,), that approximate the quantile function of N(0, 1).

    They are c Phi^-1((k + e) / (d + 2 e)), with c and e fitted by least squares over probability;
    unconstrained least squares would not increase.
    """
    z = np.linspace(-9.0, 9.0, 2001)
    u = special.ndtr(z)
    weights = np.exp(-0.5 * z * z)
    k = np.arange(degree + 1)
    basis = _binomials(degree, k)[:, None] * u ** k[:, None] * (1 - u) ** (degree - k)[:, None]
    best = (np.inf, np.zeros(degree + 1))
    for e in np.geomspace(0.005, 0.5, 60):
        b = special.ndtri((k + e) / (degree + 2 * e))
        q = b @ basis
        c = (weights * q * z).sum() / (weights * q * q).sum()
        best = min(best, ((weights * (c * q - z) ** 2).sum(), c * b), key=lambda pair: pair[0])
    return best[1]


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

    splittable = True
    is_unbounded = True
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
        return SplineFlow(*(raw.mask_missing(part) for part in (mu, sigma, x, y, slopes)))

    def _knots(self, outputs: Tensor) -> Tensor:
        """Return K + 1 knots from -B to B."""
        shares = outputs.clamp(-self.max_log_share, self.max_log_share).softmax(1)
        inner = self.reach * (2 * shares[:, :-1].cumsum(1) - 1)
        end = torch.full_like(outputs[:, :1], self.reach)
        return torch.cat([-end, inner, end], dim=1)


class MembersHead(HeadOnMethod):
    """Corrected members as a residual on the raw ones: x_m + s * o_m.

    s is the standard deviation of the raw ensemble at that point and date, at least `floor`: an
    output of 0 is the raw ensemble. Where a raw member is NaN, all members are, and the network
    gets no gradient from there. The batch must carry the raw members (`data.members: true`).

    With a statistical method, the members are calibrated first: x_m becomes mu + sigma z_m, where
    mu and sigma are those of the method's forecast; s is then sigma. Training solves the method
    first, as of `MethodHead`. `spacing` chooses z_m: the raw member's deviation from the raw mean
    in units of the raw standard deviation, or Phi^-1((k - 1/2) / M), with k its rank among the M
    raw members (ensemble copula coupling, see `couple`). Deviations keep the shape of the raw
    ensemble, and with it the noise of a small sample: for a normal truth and M = 10 the plain CRPS
    of scaled deviations is 3.6 % above that of the distribution, that of the quantiles 0.8 %.

    Args:
        estimator: estimator of the CRPS in training and validation; "plain" scores the members as
            the forecast distribution. "fair" and "almost_fair" assume independent members, and
            reward too much spread if the network couples members.
        floor: smallest s, in units of the target, e.g. 0.001 K.
        method: statistical method with normal forecasts, such as SeasonalEMOS, or None.
        spacing: of calibrated members, "ensemble" (scaled deviations) or "quantiles".

    Raises:
        ArgumentError: a floor that is not positive, a method with a sliding window, or quantiles
            without a method.
        UnknownNameError: another spacing.
    """

    splittable = True
    out_channels = 1
    takes_members = True

    def __init__(
        self,
        estimator: Estimator = "plain",
        floor: float = 1e-3,
        method: StatisticalMethod | None = None,
        spacing: Spacing = "ensemble",
    ) -> None:
        super().__init__(method)
        if spacing not in get_args(Spacing):
            raise UnknownNameError("spacing", spacing, get_args(Spacing))
        if spacing == "quantiles" and method is None:
            raise ArgumentError("spacing", "quantiles need a calibrated forecast", "Set method")
        self.estimator, self.floor, self.spacing = estimator, checked_floor(floor), spacing

    def forward(self, outputs: Tensor, batch: Batch) -> Ensemble:
        """Return an ensemble of members (N, M, H, W) from outputs (N, M, 1, H, W).

        Raises:
            ArgumentError: the batch lacks the members, or has another number of them.
        """
        calibrated = None if self.method is None else self._method_forecast(batch)
        members = corrected_members(outputs, batch, self.floor, calibrated, self.spacing)
        return Ensemble(members, self.estimator)


class MembersNormalHead(HeadOnMethod):
    """Normal distribution with mean and standard deviation (n - 1) of the corrected members.

    Members are corrected as by `MembersHead`, of which an output of 0 gives the moments of the raw
    ensemble. A standard deviation below `floor` is `floor`, and gets no gradient.

    Args:
        floor: smallest sigma and smallest s, in units of the target, e.g. 0.001 K.
        method: statistical method that calibrates the members first, as in `MembersHead`, or None.

    Examples:
        >>> import torch
        >>> from ens10.models import MembersNormalHead
        >>> members = torch.tensor([279.0, 280.0, 281.0]).reshape(1, 3, 1, 1)
        >>> batch = {"members": members, "raw_std": torch.ones(1, 1, 1)}
        >>> forecast = MembersNormalHead()(torch.zeros(1, 3, 1, 1, 1), batch)
        >>> forecast.mu.item(), forecast.sigma.item()
        (280.0, 1.0)

    Raises:
        ArgumentError: a floor that is not positive, or a method with a sliding window.
    """

    splittable = True
    out_channels = 1
    takes_members = True
    is_unbounded = True

    def __init__(self, floor: float = 1e-3, method: StatisticalMethod | None = None) -> None:
        super().__init__(method)
        self.floor = checked_floor(floor)

    def forward(self, outputs: Tensor, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W) from outputs (N, M, 1, H, W).

        Raises:
            ArgumentError: the batch lacks the members, has another number of them, or only one.
        """
        calibrated = None if self.method is None else self._method_forecast(batch)
        members = corrected_members(outputs, batch, self.floor, calibrated)
        if members.shape[1] < 2:
            raise ArgumentError(
                "members", "one member has no standard deviation", "Use at least 2 members"
            )
        # clamped before the root, whose slope at 0 is infinite
        variance = members.var(dim=1).clamp(min=self.floor**2)
        return Normal(members.mean(dim=1), variance.sqrt(), positive=True)


def raw_members(batch: Batch) -> Tensor:
    """Return the raw members of the target, (N, M, H, W).

    Raises:
        ArgumentError: the batch has none.
    """
    if "members" not in batch:
        raise ArgumentError("members", "the batch has no raw members", "Set data.members to true")
    members: Tensor = batch["members"]
    return members


def corrected_members(
    outputs: Tensor,
    batch: Batch,
    floor: float,
    calibrated: Normal | None = None,
    spacing: Spacing = "ensemble",
) -> Tensor:
    """Return members plus outputs in units of the spread, (N, M, H, W).

    Args:
        outputs: (N, M, 1, H, W).
        batch: with `members`.
        floor: smallest spread.
        calibrated: forecast whose mean and deviation the members get first, and whose deviation is
            the spread; None for the raw members and their spread.
        spacing: of calibrated members, see `MembersHead`.

    Raises:
        ArgumentError: the batch lacks the members, or has another number of them.
    """
    members = raw_members(batch)
    if outputs.shape[1] != members.shape[1]:
        raise ArgumentError(
            "members",
            f"outputs of {outputs.shape[1]} members for {members.shape[1]} raw members",
            "Use features and members of the same ensemble",
        )
    missing = ~(members.isfinite().all(dim=1) & batch["raw_std"].isfinite())
    spread = batch["raw_std"].masked_fill(missing, 1).clamp(min=floor)
    if calibrated is not None:
        missing |= ~(calibrated.mu.isfinite() & calibrated.sigma.isfinite())
        sigma = calibrated.sigma.masked_fill(missing, 1).clamp(min=floor)
        if spacing == "quantiles":
            members = couple(calibrated, members, batch["dates"]).members
        else:
            deviations = (members - batch["raw_mean"].unsqueeze(1)) / spread.unsqueeze(1)
            members = calibrated.mu.unsqueeze(1) + sigma.unsqueeze(1) * deviations
        spread = sigma
    # float32 also of half precision outputs, by promotion: half precision cannot represent Z500
    shift = spread.unsqueeze(1) * outputs.squeeze(2)
    corrected: Tensor = members + shift
    return corrected.masked_fill(missing.unsqueeze(1), float("nan"))
