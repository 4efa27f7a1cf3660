"""EMOS of amounts that cannot be below 0, such as precipitation, in families with a shape.

At each point and date, with ensemble mean m, variance v and share q of members above a threshold,
in units of the point's mean amount,

    location = m + a + b u + e h,    scale^2 = exp(2 c) + exp(2 d) v' + exp(2 g) m',    third f,

where u and h are m and q standardised over the dates, and v' and m' have mean 1. Location and scale
are mean and deviation before censoring (`ens10.metrics.distributions.amounts`). All coefficients
may follow the year, and are shrunk towards those of all points together.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.loader.batch import Batch
from ens10.metrics.distributions.amounts import AmountFamily, amount, check_amount_family
from ens10.metrics.distributions.base import ClosedForm
from ens10.models.domain import current
from ens10.models.statistical.base import (
    SpooledMethod,
    check_not_negative,
    members_of,
    require_same_grid,
)
from ens10.models.statistical.harmonics import annual_cycle, check_harmonics
from ens10.models.statistical.newton import Floats, minimise
from ens10.models.statistical.regression import Regression, fit_together, root_of_exponentials
from ens10.models.statistical.score_terms import ScoreTerms, with_differences
from ens10.models.statistical.spool import Points, Spool

_COMMON_SAMPLES = 1 << 15  # that the common coefficients are fitted to, at 16 points at least
_FEWEST_DATES = 10
_STEP = 1e-4  # of the differences that give second derivatives, relative to the scale
_MOST_STEPS = 15  # of Newton's method at a point, which starts near the minimum
_LARGEST_LOG = 20.0
_COEFFICIENTS, _CONSTANTS = 7, 7
_LINK = root_of_exponentials(_LARGEST_LOG, 0.0)


def _predictors(mean: Any, std: Any, wet: Any, constants: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Return the uncorrected location, u, h, v' and m', arrays or tensors of one shape.

    Args:
        mean: ensemble mean.
        std: its deviation.
        wet: share of wet members.
        constants: unit, centre and width of the mean, of the share, mean variance, mean of the
            mean, the last two over the unit; each broadcasts to the fields.
    """
    unit, centre, width, share, share_width, variance, level = constants
    over = mean / unit
    u, h = (mean - centre) / width, (wet - share) / share_width
    return over, u, h, (std / unit) ** 2 / variance, over * (over > 0) / level


def _amount_score(family: AmountFamily) -> ScoreTerms:
    """Return the CRPS of `amount` by location, scale and third parameter, and its derivatives."""

    def of(parameters: Sequence[Any], y: Floats) -> tuple[ClosedForm, Sequence[Floats]]:
        forecast = amount(family, parameters[0], parameters[1], parameters[2])
        numbers = [torch.as_tensor(p).detach().numpy() for p in forecast.values_by_name.values()]
        return forecast, np.broadcast_arrays(*numbers, y)

    def value(parameters: Sequence[Floats], _: Sequence[Floats], y: Floats) -> Floats:
        forecast, arrays = of([torch.tensor(p) for p in parameters], y)
        kernel: Any = forecast.kernels["crps"]
        return np.asarray(kernel.apply_to_numpy(kernel.value, *arrays))

    @torch.inference_mode(False)  # also where a window is fitted within a prediction
    @torch.enable_grad()
    def slopes(parameters: Sequence[Floats], _: Sequence[Floats], y: Floats) -> list[Floats]:
        points = [torch.tensor(p, requires_grad=True) for p in parameters]
        forecast, arrays = of(points, y)
        kernel: Any = forecast.kernels["crps"]
        partials: Any = kernel.apply_to_numpy(kernel.partials, *arrays)
        pairs = [
            (p, torch.tensor(by))
            for p, by in zip(forecast.values_by_name.values(), partials, strict=False)
            if isinstance(p, Tensor) and p.requires_grad
        ]
        outputs, directions = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(outputs, points, directions, allow_unused=True)
        first = [np.zeros_like(y) if g is None else g.numpy() for g in gradients]
        first[1] = first[1] * parameters[1]  # by the logarithm
        return first

    return with_differences(value, slopes, _STEP)


class AmountEMOS(SpooledMethod):
    """EMOS of amounts of 0 or more at each grid point, with an annual cycle, of least mean CRPS.

    For precipitation with a censored, shifted gamma distribution (Scheuerer and Hamill 2015,
    doi:10.1175/MWR-D-15-0061.1; Baran and Nemoda 2016, doi:10.1002/env.2391) or a censored extreme
    value distribution (Scheuerer 2014, doi:10.1002/qj.2183), and for wind speed with a truncated
    one. Predictors of the location are mean and share of wet members, of the squared scale the
    variance and the mean, since the error of precipitation grows with its amount (see the module's
    text). Points with fewer than ten valid dates keep mean and spread of the raw ensemble.

    Training batches are kept in a temporary file, 16 bytes for each date and point; main memory
    holds a few blocks of points, which are fitted in parallel.

    Args:
        family: "csgd", "censored_gev", or a truncated or censored normal or logistic.
        harmonics: number of harmonics of the coefficients; 0 for none.
        threshold: value above which a member counts as wet, target units.
        strength: strength of the ridge: number of dates that the common coefficients count for at
            each point.

    Raises:
        ArgumentError: negative harmonics, strength or threshold; batches without members.
        UnknownNameError: another family.
    """

    may_be_nan = ("constants",)

    def __init__(
        self,
        family: AmountFamily = "csgd",
        harmonics: int = 0,
        threshold: float = 0.0,
        strength: float = 10.0,
    ) -> None:
        super().__init__()
        check_harmonics(harmonics)
        check_amount_family(family)
        check_not_negative("strength", strength)
        check_not_negative("threshold", threshold)
        self.family, self.harmonics = family, harmonics
        self.threshold, self.strength = threshold, strength
        self.coefficients: Tensor
        self.constants: Tensor
        self.register_buffer("coefficients", torch.zeros(_COEFFICIENTS, 1 + 2 * harmonics, 0, 0))
        self.register_buffer("constants", torch.zeros(_CONSTANTS, 0, 0))

    @property
    def fitted_parameters(self) -> int:
        """Number of coefficients: seven and their annual cycles, at each point."""
        return self.coefficients.numel()

    def _raw(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return mean, deviation and share of wet members, (N, H, W)."""
        members = members_of(self, batch)
        wet = (members > self.threshold).to(members.dtype).mean(1)
        return batch["raw_mean"], batch["raw_std"], wet

    def _fields(self, batch: Batch) -> list[Tensor]:
        return [*self._raw(batch), batch["target"]]

    def _fit(self, spool: Spool) -> dict[str, Floats]:
        fit = _AmountFit(spool, self.family, self.harmonics, self.strength)
        prior = fit.fit_common()
        maps = spool.maps(lambda points: fit.fit_points(points, prior), 4)
        coefficients = maps[:-_CONSTANTS].reshape(_COEFFICIENTS, -1, *spool.area.shape)
        return {"coefficients": coefficients, "constants": maps[-_CONSTANTS:]}

    def forward(self, batch: Batch) -> ClosedForm:
        """Return the forecast, parameters (N, H, W); NaN where the raw ensemble is."""
        self._require_solved()
        require_same_grid(self, self.constants[0], batch)
        coefficients, constants = map(current().of_samples, (self.coefficients, self.constants))
        cycle = annual_cycle(batch["dates"], self.harmonics).to(coefficients)
        a, b, e, c, d, g, third = torch.einsum("nk,qknhw->qnhw", cycle, coefficients)
        location, u, h, v, m = _predictors(*self._raw(batch), constants)
        location = location + a + b * u + e * h
        logs = 2 * torch.stack([c, d, g]).clamp(-_LARGEST_LOG, _LARGEST_LOG)
        square = (logs.exp() * torch.stack([torch.ones_like(v), v, m])).sum(0)
        scale = (0.5 * square.log()).exp()  # no root: a csgd of large shift shows the last bit
        unit = constants[0]
        return amount(self.family, location * unit, scale * unit, third, unit)


class _AmountFit:
    """Fits of `AmountEMOS` to one training set."""

    def __init__(self, spool: Spool, family: AmountFamily, harmonics: int, strength: float) -> None:
        self.spool, self.family, self.strength = spool, family, strength
        self.cycle: Floats = annual_cycle(torch.from_numpy(spool.dates), harmonics).numpy()

    def fit_common(self) -> Floats:
        """Fit the common coefficients, (7 K,), at a sample of points."""
        points = self.spool.some_points(max(16, _COMMON_SAMPLES // len(self.cycle)))
        start = np.zeros((_COEFFICIENTS, self.cycle.shape[1]))
        start[3:6, 0], start[6, 0] = 0.5 * np.log(0.3), -1.5 if self.family == "csgd" else 0.0
        problem, enough, _ = self._problem(points, start.reshape(-1), 0.0)
        weights = self.spool.area.reshape(-1)[points] * enough
        # weak, since a coefficient without effect would wander
        return fit_together(problem, start.reshape(-1), weights)

    def fit_points(self, points: Points, prior: Floats) -> Floats:
        """Fit some points: coefficients and constants, (P, 7 K + 7)."""
        problem, enough, constants = self._problem(points, prior, self.strength)
        theta = minimise(np.tile(prior, (len(enough), 1)), problem, _MOST_STEPS)
        raw = np.zeros((_COEFFICIENTS, self.cycle.shape[1]))
        raw[3, 0] = raw[5, 0] = -_LARGEST_LOG / 2  # scale: the raw deviation alone
        raw[6, 0] = -_LARGEST_LOG / 2 if self.family == "csgd" else 0.0
        theta[~enough] = raw.reshape(-1)
        constants[~enough] = [1.0, 0.0, np.inf, 0.0, np.inf, 1.0, 1.0]
        return np.concatenate([theta, constants], 1)

    def _problem(
        self, points: Points, prior: Floats, strength: float
    ) -> tuple[Regression, npt.NDArray[np.bool_], Floats]:
        """Return the problems, a mask of points with enough dates, and the constants (P, 7)."""
        data = self.spool.read(points)
        valid = np.isfinite(data).all(0)
        mean, std, wet, truth = np.where(valid, data, 0.0)
        count = valid.sum(1, keepdims=True)
        w = valid / np.maximum(count, 1)

        def average(x: Floats) -> Floats:
            return np.asarray((w * x).sum(1, keepdims=True))

        centre, share = average(mean), average(wet)
        unit = np.maximum(centre, average(truth))
        least = 1e-3 * float(np.median(unit[unit > 0])) if (unit > 0).any() else 1.0
        unit = np.maximum(unit, least)
        width = np.sqrt(average((mean - centre) ** 2))
        share_width = np.sqrt(average((wet - share) ** 2))
        width = np.where(width <= 1e-6 * unit, np.inf, width)
        share_width = np.where(share_width <= 1e-6, np.inf, share_width)
        variance = np.maximum(average((std / unit) ** 2), 1e-6)
        level = np.maximum(centre / unit, 1e-3)
        constants = (unit, centre, width, share, share_width, variance, level)
        start, u, h, v, m = _predictors(mean, std, wet, constants)
        problem = Regression(
            _amount_score(self.family),
            _LINK,
            truth / unit,
            w,
            (1.0, u, h),
            (1.0, v, m),
            third=1,
            offset=start,
            cycle=self.cycle if self.cycle.shape[1] > 1 else None,
            prior=np.tile(prior, (len(w), 1)),
            penalty=np.tile(strength / np.maximum(count, 1), len(prior)),
        )
        return problem, count[:, 0] >= _FEWEST_DATES, np.concatenate(constants, 1)
