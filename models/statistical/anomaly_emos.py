"""EMOS of standardised anomalies: one set of coefficients, and a climatology for each place."""

import warnings
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ens10.errors import ArgumentError, DataNote
from ens10.loader.batch import Batch
from ens10.metrics.distributions import Normal
from ens10.models.domain import current
from ens10.models.statistical import emos
from ens10.models.statistical.base import SpooledMethod, require_same_grid
from ens10.models.statistical.harmonics import annual_cycle, check_harmonics
from ens10.models.statistical.newton import Floats, minimise
from ens10.models.statistical.place_regression import PlaceRegression
from ens10.models.statistical.regression import Regression, root_of_exponentials
from ens10.models.statistical.score_terms import score_of
from ens10.models.statistical.spool import Blocks, Spool
from ens10.models.statistical.standardise import Samples

_FLOOR = 1e-8  # smallest variance of a climate, in common units
_DATES_PER_COEFFICIENT = 3
_FEWEST_PLACES = 3  # with truth, of which the regression predicts others


class AnomalyEMOS(SpooledMethod):
    """EMOS of standardised anomalies (SAMOS), which also forecasts places without past truth.

    Truth y and ensemble mean m are standardised by mean and deviation of their climates at the
    place and time of year, the ensemble's deviation s by that of m; one set of coefficients holds
    for the anomalies of all places: y' ~ N(m' + a + b (m' - centre), c^2 + d^2 s'^2), of least
    mean CRPS (Dabernig et al. 2017, doi:10.1002/qj.2975, whose climates are additive models). Mean
    and logarithm of the deviation of a climate are sums of harmonics of the year.

    The climate of the ensemble mean, and the difference of that of the truth from it, are
    regressed on the place (`PlaceRegression`). At a place of the training the climate is the most
    probable one, given its dates and the regression of the other places, whose error is the spread
    of the prior: with few dates it is near the regression. At a place without truth it is the
    regression; coefficients of their own, fitted with the climates that the other places
    predict, account for its error there. With n dates, the share n / (n + 3 (1 + 2 H)) of the
    coefficients is that of places with truth.

    Args:
        harmonics: number H of harmonics of the climates.

    Raises:
        ArgumentError: negative harmonics.
    """

    takes_new_points = True
    may_be_nan = ("climate",)  # at a new place without an altitude, where others have one

    def __init__(self, harmonics: int = 1) -> None:
        super().__init__()
        check_harmonics(harmonics)
        self.harmonics = harmonics
        size = 2 * (1 + 2 * harmonics)
        self.raw, self.difference = PlaceRegression(size), PlaceRegression(size)
        self.climate: Tensor
        self.seen: Tensor
        self.coefficients: Tensor
        self.units: Tensor
        # of truth and ensemble mean: mean and log deviation, in units of all places
        self.register_buffer("climate", torch.zeros(2, 2, 1 + 2 * harmonics, 0, 0))
        self.register_buffer("seen", torch.zeros(0, 0))  # share of the second coefficients
        self.register_buffer("coefficients", torch.zeros(2, 5))  # at unseen and seen places
        self.register_buffer("units", torch.zeros(2))  # centre and scale of all places
        self._coordinates: Floats | None = None

    @property
    def fitted_parameters(self) -> int:
        """Number of coefficients: of the climates, and of the anomalies."""
        return self.climate.numel() + self.coefficients.numel()

    def place(self, coordinates: Floats) -> None:
        """Set latitude, longitude and altitude of the training's points, (3, H, W)."""
        self._coordinates = coordinates
        unknown = int(np.isnan(coordinates[2]).sum())
        if 0 < unknown < coordinates[2].size:
            note = f"{unknown} of {coordinates[2].size} points of the training have no altitude"
            warnings.warn(DataNote(f"{note}; AnomalyEMOS uses that of none"), stacklevel=2)

    def move(self, places: npt.NDArray[np.int64], coordinates: Floats) -> None:
        """Take other points: those of the training, and new ones.

        Deviations of new climates are limited to the range of the training's.

        Args:
            places: (W,) column of the training for each new column, -1 for a place without truth.
            coordinates: (3, 1, W) of all.

        Raises:
            ArgumentError: new points, and less than three with truth in the training.
        """
        known = torch.from_numpy(places >= 0)
        columns = torch.from_numpy(places[places >= 0])
        if not known.all():
            _require_places(self.seen.cpu().numpy())
            self.raw.note_extrapolation(coordinates.reshape(3, -1)[:, places < 0])
        predicted, logs = self._predicted(coordinates), self.climate[:, 1].double().cpu().numpy()
        limits = (edge(logs, (-2, -1), keepdims=True) for edge in (np.nanmin, np.nanmax))
        predicted[:, 1] = np.clip(predicted[:, 1], *limits)
        climate = torch.as_tensor(predicted).to(self.climate)
        climate[..., known] = self.climate[..., columns]
        seen = climate.new_zeros(1, len(places))
        seen[:, known] = self.seen[:, columns]
        self.climate, self.seen = climate, seen

    def _predicted(self, coordinates: Floats) -> Floats:
        """Return the climates that the regression predicts, (2, 2, K, H, W)."""
        points = coordinates.reshape(3, -1)
        raw, difference = self.raw.predict(points), self.difference.predict(points)
        both = np.stack([raw + difference, raw]).swapaxes(1, 2)
        return both.reshape(2, 2, 1 + 2 * self.harmonics, *coordinates.shape[1:])

    def _fields(self, batch: Batch) -> list[Tensor]:
        return [batch["target"], batch["raw_mean"], batch["raw_std"]]

    def _fit(self, spool: Spool) -> dict[str, Tensor | Floats]:
        if self._coordinates is None or self._coordinates.shape[1:] != spool.area.shape:
            reason = "AnomalyEMOS needs the coordinates of the points"
            raise ArgumentError("method", reason, "Fit on a prepared store, or call its `place`")
        fit = _ClimateFit(spool, self.harmonics)
        start = spool.maps(lambda points: fit.fit_points(points, None, None))
        start = start.reshape(len(start), -1).T
        counts, raw = start[:, -1], start[:, fit.size : -1]
        if not counts.all():
            _require_places(counts)
        weights = counts / (counts + fit.fewest) * fit.enough(counts)
        weights = weights if weights.any() else np.ones_like(weights)
        places = self._coordinates.reshape(3, -1)
        predicted_raw = self.raw.fit(places, raw, weights)
        truth = predicted_raw + self.difference.fit(places, start[:, : fit.size] - raw, weights)
        prior = np.concatenate([truth, predicted_raw], 1)
        variance = fit.prior_variance(start[:, :-1], prior, counts)
        maps = spool.maps(lambda points: fit.fit_points(points, prior[points], variance))[:-1]
        climate = maps.reshape(2, 2, -1, *spool.area.shape)
        left_out = prior.T.reshape(climate.shape)
        return {
            "climate": climate,
            "seen": (counts / (counts + fit.fewest)).reshape(spool.area.shape),
            "coefficients": np.concatenate([fit.fit_anomalies(c) for c in (left_out, climate)]),
            "units": np.array([fit.centre, fit.scale]),
        }

    def forward(self, batch: Batch) -> Normal:
        """Return a normal with mu and sigma (N, H, W); NaN where the raw ensemble is."""
        self._require_solved()
        require_same_grid(self, self.seen, batch)
        climate, seen = map(current().of_samples, (self.climate, self.seen))
        cycle = annual_cycle(batch["dates"], self.harmonics).to(climate)
        truth, raw = torch.einsum("nk,vqknhw->vqnhw", cycle, climate)
        unseen_one, seen_one = self.coefficients[..., None, None, None]
        bias, slope, centre, c, d = unseen_one + seen * (seen_one - unseen_one)
        middle, scale = self.units
        anomaly = ((batch["raw_mean"] - middle) / scale - raw[0]) * torch.exp(-raw[1])
        spread = batch["raw_std"] / scale * torch.exp(-raw[1])
        deviation = torch.exp(truth[1])
        location = truth[0] + deviation * (anomaly + bias + slope * (anomaly - centre))
        sigma = deviation * torch.hypot(c.expand_as(spread), d * spread)
        return Normal(middle + scale * location, scale * sigma)


def _require_places(seen: Floats) -> None:
    """Refuse to forecast places without truth if fewer than three places have it.

    Raises:
        ArgumentError: there are fewer.
    """
    number = int((seen > 0).sum())
    if number < _FEWEST_PLACES:
        reason = f"{number} with truth in the training do not tell the climate of others"
        raise ArgumentError("stations", reason, f"Train on {_FEWEST_PLACES} or more")


class _ClimateFit:
    """Climates of truth and ensemble mean at each place, and the EMOS of their anomalies.

    A climate is normal with mean and log deviation that follow the year, fitted by likelihood. With
    n dates and a normal prior the most probable one has the penalty 1 / (n variance of the prior).

    Args:
        spool: truth, mean and deviation.
        harmonics: H.

    Attributes:
        size: number of coefficients of a climate, 2 (1 + 2 H).
        fewest: dates that determine them.
        centre: mean of the ensemble mean at all places: subtracted before a fit.
        scale: deviation about it, the unit of the climates.

    Raises:
        ArgumentError: too few training dates for the harmonics.
    """

    def __init__(self, spool: Spool, harmonics: int) -> None:
        self.spool = spool
        self.cycle: Floats = annual_cycle(torch.from_numpy(spool.dates), harmonics).numpy()
        self.size = 2 * self.cycle.shape[1]
        self.fewest = _DATES_PER_COEFFICIENT * self.cycle.shape[1]
        if len(spool.dates) < self.fewest:
            reason = f"{len(spool.dates)} training dates do not determine a climatology"
            raise ArgumentError("dates", reason, f"Use {self.fewest} or more, or fewer harmonics")
        sums = self._blocks().sum(lambda s: np.array([s.w.sum(), (s.w * s.mean).sum()]))
        self.centre = float(sums[1] / max(sums[0], 1e-300))
        squares = self._blocks().sum(lambda s: (s.w * (s.mean - self.centre) ** 2).sum())
        scale = float(np.sqrt(squares / max(sums[0], 1e-300)))
        self.scale = max(scale, 1e-6 * abs(self.centre), 1e-30)

    def _samples(self, points: slice) -> Samples:
        return Samples.of(self.spool.read(points), self.spool.area.reshape(-1)[points, None])

    def _blocks(self) -> Blocks[Samples]:
        return Blocks([partial(self._samples, points) for points in self.spool.blocks()])

    def fit_points(self, points: slice, prior: Floats | None, variance: Floats | None) -> Floats:
        """Return the climates of truth and ensemble mean, and the number of dates, (P, 2 D + 1).

        Args:
            points: the places.
            prior: (P, 2 D) centre of the prior; None for one date's weight on plain moments.
            variance: (2 D,) of the prior.
        """
        data = self.spool.read(points)
        valid = np.asarray(np.isfinite(data).all(0))
        counts = valid.sum(1, keepdims=True)
        climates = []
        for n, field in enumerate(data[:2]):
            values = np.where(valid, (field - self.centre) / self.scale, 0.0)
            start = self._moments(values, valid, counts)
            centre, penalty = start, np.ones(self.size)
            if prior is not None and variance is not None:
                own = slice(n * self.size, (n + 1) * self.size)
                centre, penalty = prior[:, own], 1 / variance[own]
            problem = Regression(
                score_of("normal", "likelihood"),
                root_of_exponentials(50.0, _FLOOR),
                values,
                valid / np.maximum(counts, 1),
                (1.0,),
                (1.0,),
                cycle=self.cycle,
                prior=centre,
                penalty=np.tile(penalty, (len(values), 1)) / np.maximum(counts, 1),
            )
            climates.append(minimise(start, problem))
        return np.concatenate([*climates, counts], 1)

    def _moments(self, values: Floats, valid: npt.NDArray[np.bool_], counts: Floats) -> Floats:
        """Return a climate without cycle, with one date more at its mean plus or minus the unit."""
        start = np.zeros((len(values), self.size))
        mean = values.sum(1, keepdims=True) / np.maximum(counts, 1)
        squares = (valid * (values - mean) ** 2).sum(1)
        start[:, 0] = mean[:, 0]
        start[:, self.size // 2] = 0.5 * np.log((squares + 1) / (counts[:, 0] + 1))
        return start

    def enough(self, counts: Floats) -> npt.NDArray[np.bool_]:
        """Return where dates determine a climate; without such places, those with most dates."""
        return np.asarray(counts >= min(self.fewest, counts.max()))

    def prior_variance(self, fitted: Floats, prior: Floats, counts: Floats) -> Floats:
        """Return the variance of climates about their predictions, beyond that of sampling, (2 D,).

        Sampling variances are those of independent dates: s^2 / n of a mean, 1 / (2 n) of a log
        deviation, and twice as much of the harmonics. Places count by their dates.
        """
        half = self.size // 2
        enough = self.enough(counts)
        share = np.ones(half)
        share[1:] = 2
        total = np.zeros(2 * self.size)
        for n, climate in enumerate(np.split(fitted[enough], 2, 1)):
            variance = np.exp(2 * climate[:, half : half + 1])
            sampling = np.concatenate(
                [variance * share, np.tile(0.5 * share, (len(variance), 1))], 1
            )
            error = (climate - prior[enough, n * self.size : (n + 1) * self.size]) ** 2
            own = error - sampling / np.maximum(counts[enough, None], 1)
            weights = np.maximum(counts[enough], 1)
            total[n * self.size : (n + 1) * self.size] = np.average(own, 0, weights)
        return np.maximum(total, 1e-6)

    def fit_anomalies(self, climate: Floats) -> Floats:
        """Fit one EMOS to the anomalies from climates (2, 2, K, H, W), with coefficients (1, 5)."""
        maps = climate.reshape(2, 2, climate.shape[2], -1)

        def samples(points: slice) -> Samples:
            truth, mean, std = self.spool.read(points)
            at_dates = np.einsum("nk,vqkp->vqpn", self.cycle, maps[..., points])
            (y_mean, y_log), (m_mean, m_log) = at_dates
            y = ((truth - self.centre) / self.scale - y_mean) * np.exp(-y_log)
            m = ((mean - self.centre) / self.scale - m_mean) * np.exp(-m_log)
            data = np.stack([y, m, std / self.scale * np.exp(-m_log)])
            return Samples.of(data, self.spool.area.reshape(-1)[points, None], merge=True)

        return emos.fit(Blocks([partial(samples, points) for points in self.spool.blocks()]))
