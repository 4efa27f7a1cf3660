"""Scores of the world: reliability of perfect ensembles, and the skill of corrections."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from itertools import compress
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from ens10.errors import MissingDataError
from ens10.experiments.scoring.writers import columns_of, markdown_of
from ens10.experiments.studies.physical_world.fields import CHANNELS, GRID, Array
from ens10.experiments.studies.physical_world.production import (
    STEPS,
    PhysicalWorld,
    is_complete,
    read_unit,
    unit_path,
)
from ens10.grid import area_weights
from ens10.metrics import crps_ensemble, crps_normal, rank_histogram, spread_error_ratio

TARGETS = {  # name in tables: channel, units in tables, factor from the units of the files
    "t2m": (("t2m", 0), "K", 1.0),
    "z500": (("z", 500), "m2 s-2", 1.0),
    "t850": (("t", 850), "K", 1.0),
    "si10": (("si10", 0), "m s-1", 1.0),
    "tp": (("tp", 0), "mm", 1e3),
}
NOT_NORMAL = ("tp",)  # neither an additive bias nor a normal distribution
_FEWEST = 8  # dates that the annual cycle of the bias is fitted to
_MOST_DATES = 24  # that the coefficients of EMOS are fitted to
_POOLING = 0.3  # share of the zonal mean in the residual variance of a point


@dataclass(frozen=True)
class Case:
    """Forecasts and truth of one target and lead time.

    Attributes:
        forecast: (date, member, lat, lon).
        truth: (date, lat, lon).
        perfect: ensembles of the nature model, (date, member, lat, lon), of the dates in
            `score_mask`; None if there are none.
        starts: start dates.
        score_mask: True for the dates that are scored, (date,).
    """

    forecast: Array
    truth: Array
    perfect: Array | None
    starts: Sequence[dt.date]
    score_mask: Array

    @property
    def error(self) -> Array:
        """Error of the ensemble mean."""
        error: Array = self.forecast.mean(1) - self.truth
        return error


@dataclass(frozen=True)
class Line:
    """Scores of one target and lead time; area means over the scored dates.

    Attributes:
        target: name.
        units: of RMSE and CRPS.
        step: h.
        dates: number of scored dates.
        rmse: of the ensemble mean.
        spread_error: spread over error of the raw ensemble; 1 if reliable.
        bias_share: of the mean squared error, without the sampling variance of the bias.
        raw: CRPS of the members ("plain").
        unbiased: CRPS of the members after subtraction of the cross-validated bias; NaN for
            precipitation, whose bias is not additive.
        emos: CRPS of a normal distribution around the unbiased mean; NaN for precipitation.
        removed: share of the raw CRPS that EMOS removes, percent; NaN for precipitation.
        removed_error: standard error of `removed`, dates as independent.
        perfect_spread_error: spread over error of the perfect ensembles; NaN without them.
        perfect_ranks: sum over ranks of |frequency - 1/(M+1)| of the perfect ensembles.
        bound: fair CRPS of the perfect ensembles.
    """

    target: str
    units: str
    step: int
    dates: int
    rmse: float
    spread_error: float
    bias_share: float
    raw: float
    unbiased: float
    emos: float
    removed: float
    removed_error: float
    perfect_spread_error: float
    perfect_ranks: float
    bound: float


def read_cases(work: Path) -> dict[tuple[str, int], Case]:
    """Return forecasts and truth of all targets and lead times from the start dates simulated.

    Dates with perfect ensembles are scored; all dates if there are none.

    Raises:
        MissingDataError: fewer than 8 units are kept.
    """
    world = PhysicalWorld.load(work)
    complete_units = [unit for unit in world.units if is_complete(unit_path(work, *unit))]
    if len(complete_units) < _FEWEST:
        reason = f"{_FEWEST - len(complete_units)} units of at least {_FEWEST}"
        raise MissingDataError(work, [reason], "Run `simulate` again")
    positions = [CHANNELS.index(channel) for channel, _, _ in TARGETS.values()]
    contents = [
        {kind: part[..., positions, :, :] for kind, part in read_unit(work, *unit).items()}
        for unit in complete_units
    ]
    has_perfect = np.array(["perfect" in unit for unit in contents])
    is_scored = has_perfect if has_perfect.any() else np.ones(len(contents), bool)
    starts = [world.start(*unit) for unit in complete_units]
    cases = {}
    for t, (name, (_, _, factor)) in enumerate(TARGETS.items()):
        for s, step in enumerate(STEPS):
            forecast = factor * np.stack([unit["forecast"][:, s, t] for unit in contents])
            truth = factor * np.stack([unit["nature"][s, t] for unit in contents])
            perfect = [factor * unit["perfect"][:, s, t] for unit in contents if "perfect" in unit]
            reference = np.stack(perfect) if perfect else None
            cases[name, step] = Case(forecast, truth, reference, starts, is_scored)
    return cases


def folds(starts: Sequence[dt.date]) -> list[Array]:
    """Return masks of the dates of each fold: calendar years, or each date alone.

    Dates are left out one by one where another year has too few dates to fit to, as of a single
    year or of an unfinished world. Errors of forecasts that start a week apart are nearly
    independent.
    """
    years = np.array([start.year for start in starts])
    by_year = [years == year for year in sorted(set(years))]
    if min((~fold).sum() for fold in by_year) >= _FEWEST:
        return by_year
    return list(np.eye(len(starts), dtype=bool))


def area_mean(field: Array) -> Array:
    """Return the area mean over (lat, lon), the last two axes, with exact cell areas."""
    weights = area_weights(GRID.latitude()) / GRID.rows
    mean: Array = field.mean(-1) @ weights
    return mean


def predict_bias(error: Array, starts: Sequence[dt.date], at: Sequence[dt.date]) -> Array:
    """Predict the bias of each point by an annual cycle, shrunk towards zero.

    error = b_0 + b_1 cos(d) + b_2 sin(d) + noise is fitted at each point by least squares.

    Args:
        error: training errors, (date, lat, lon).
        starts: their dates.
        at: dates of the result.

    Returns:
        (date, lat, lon).
    """
    cycle = _per_point(_annual_design(starts), error.shape[1:])
    coefficients = _shrunken_regression(error, cycle)
    return _predict(coefficients, _per_point(_annual_design(at), error.shape[1:]))


def _per_point(design: Array, shape: tuple[int, ...]) -> Array:
    """Repeat predictors (date, predictor) at each point: (date, predictor, lat, lon)."""
    return np.broadcast_to(design[..., None, None], (*design.shape, *shape))


def _shrunken_regression(response: Array, design: Array) -> Array:
    """Return least squares coefficients at each point, shrunk towards zero (empirical Bayes).

    Each is multiplied by tau^2 / (tau^2 + s^2), with s^2 its sampling variance at the point and
    tau^2 its variance over the points without the mean sampling variance. A predictor that is zero
    at a point on all dates, as an eastward gradient at a pole, has the coefficient zero there.

    Args:
        response: (date, lat, lon).
        design: (date, predictor, lat, lon).

    Returns:
        (predictor, lat, lon).
    """
    inverse = np.linalg.pinv(np.einsum("dkyx,dlyx->yxkl", design, design), hermitian=True)
    moments = np.einsum("dkyx,dyx->yxk", design, response)
    coefficients = np.einsum("yxkl,yxl->kyx", inverse, moments)
    residual = response - _predict(coefficients, design)
    variance = (residual**2).sum(0) / (len(design) - design.shape[1])
    sampling = np.einsum("yxkk->kyx", inverse) * variance
    signal = np.maximum(area_mean(coefficients**2) - area_mean(sampling), 0.0)[:, None, None]
    shrunken: Array = signal / np.maximum(signal + sampling, np.finfo(float).tiny) * coefficients
    return shrunken


def _predict(coefficients: Array, design: Array) -> Array:
    prediction: Array = np.einsum("kyx,dkyx->dyx", coefficients, design)
    return prediction


def _annual_design(starts: Sequence[dt.date]) -> Array:
    angle = 2 * np.pi * np.array([start.timetuple().tm_yday for start in starts]) / 365.25
    return np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle)], axis=1)


def correct(case: Case) -> tuple[Array, Array]:
    """Return bias and EMOS's standard deviation of all dates, each from the other folds.

    EMOS is N(mean - bias, c s^2 + d v) with s^2 the ensemble variance, v the variance of the
    training residuals at the point (partly pooled along its latitude), and c and d of least CRPS
    over the training dates.

    Returns:
        Both (date, lat, lon).
    """
    error, variance = case.error, case.forecast.var(1, ddof=1)
    bias, sigma = np.empty_like(error), np.empty_like(error)
    for test in folds(case.starts):
        train = ~test
        past, ahead = list(compress(case.starts, train)), list(compress(case.starts, test))
        bias[test] = predict_bias(error[train], past, ahead)
        residual = error[train] - predict_bias(error[train], past, past)
        local = (residual**2).mean(0)
        local = (1 - _POOLING) * local + _POOLING * local.mean(-1, keepdims=True)
        factors = _fit_variance(residual, variance[train], local)
        sigma[test] = np.sqrt(factors[0] * variance[test] + factors[1] * local)
    return bias, sigma


def _fit_variance(residual: Array, variance: Array, local: Array) -> Array:
    """Return c and d of least CRPS of residuals (date, lat, lon)."""
    some = np.linspace(0, len(residual) - 1, min(len(residual), _MOST_DATES)).round().astype(int)

    def score(logarithms: Array) -> float:
        c, d = np.exp(logarithms)
        sigma = np.sqrt(c * variance[some] + d * local)
        return float(area_mean(crps_normal(residual[some], sigma, 0.0 * sigma)).mean())

    coarse = {"xatol": 0.01, "fatol": 1e-5 * score(np.log([0.5, 0.5]))}
    best = minimize(  # type: ignore[no-untyped-call]
        score, np.log([0.5, 0.5]), method="Nelder-Mead", options=coarse
    )
    factors: Array = np.exp(best.x)
    return factors


def evaluate(
    name: str, step: int, case: Case, correction: tuple[Array, Array] | None = None
) -> Line:
    """Return the scores of one case; its `correct` is computed if it is not given."""
    weights = np.broadcast_to(area_weights(GRID.latitude())[:, None], case.truth.shape[1:])
    bias, sigma = correction or correct(case)
    use = case.score_mask
    x, y, b = case.forecast[use], case.truth[use], bias[use]
    error, members = case.error[use], x.shape[1]
    raw = area_mean(crps_ensemble(x, y, estimator="plain", member_dim=1))
    unbiased = emos = np.full_like(raw, np.nan)
    if name not in NOT_NORMAL:
        unbiased = area_mean(crps_ensemble(x - b[:, None], y, estimator="plain", member_dim=1))
        emos = area_mean(crps_normal(x.mean(1) - b, sigma[use], y))
    gain = raw - emos
    ratio = spread_error_ratio(x.mean(1), x.var(1, ddof=1), y, members=members, weights=weights)
    return Line(
        target=name,
        units=TARGETS[name][1],
        step=step,
        dates=int(use.sum()),
        rmse=float(np.sqrt(area_mean(error**2).mean())),
        spread_error=float(ratio),
        bias_share=bias_share(error),
        raw=float(raw.mean()),
        unbiased=float(unbiased.mean()),
        emos=float(emos.mean()),
        removed=float(100 * gain.mean() / raw.mean()),
        removed_error=float(100 * gain.std(ddof=1) / np.sqrt(len(gain)) / raw.mean()),
        **_perfect_scores(case.perfect, y, weights),
    )


def flow_share(case: Case) -> float:
    """Return the share of the mean squared error that depends linearly on the forecast's flow.

    Errors without the bias of place and season (`predict_bias`) are regressed at each point on the
    forecast's own flow: the anomaly of the ensemble mean from its annual cycle, and the differences
    of the anomaly of the points east and west, and north and south. Each fold is predicted from the
    others; the result is 1 - (mean squared error with this prediction) / (without it), of the
    scored dates. It estimates a lower bound, and may be below zero where there is nothing to find.
    """
    mean, error = case.forecast.mean(1), case.error
    remaining, predicted = np.empty_like(error), np.empty_like(error)
    for test in folds(case.starts):
        train = ~test
        past = list(compress(case.starts, train))
        residual = error - predict_bias(error[train], past, case.starts)
        flow = _flow(mean - predict_bias(mean[train], past, case.starts), train)
        coefficients = _shrunken_regression(residual[train], flow[train])
        remaining[test] = residual[test]
        predicted[test] = _predict(coefficients, flow[test])
    use = case.score_mask
    after = area_mean((remaining[use] - predicted[use]) ** 2).mean()
    return float(1 - after / area_mean(remaining[use] ** 2).mean())


def _flow(anomaly: Array, train: Array) -> Array:
    """Return the predictors of `flow_share`, (date, predictor, lat, lon), with unit variance."""
    east = np.roll(anomaly, -1, -1) - np.roll(anomaly, 1, -1)
    predictors = np.stack([anomaly, east, np.gradient(anomaly, axis=-2)], axis=1)
    scale = np.sqrt((predictors[train] ** 2).mean(0))
    flow: Array = predictors / np.maximum(scale, np.finfo(float).tiny)
    return flow


def bias_share(error: Array) -> float:
    """Return the share of the time-mean error in the mean squared error, (date, lat, lon).

    The square of the mean error of D dates has the expectation bias^2 + variance / D; the last
    term is subtracted.
    """
    sampling = error.var(0, ddof=1) / len(error)
    return float(area_mean(error.mean(0) ** 2 - sampling) / area_mean((error**2).mean(0)))


def _perfect_scores(perfect: Array | None, y: Array, weights: Array) -> dict[str, float]:
    names = ("perfect_spread_error", "perfect_ranks", "bound")
    if perfect is None:
        return dict.fromkeys(names, np.nan)
    members = perfect.shape[1]
    mean, variance = perfect.mean(1), perfect.var(1, ddof=1)
    ratio = spread_error_ratio(mean, variance, y, members=members, weights=weights)
    fair = area_mean(crps_ensemble(perfect, y, estimator="fair", member_dim=1))
    values = (float(ratio), float(np.abs(rank_excess(perfect, y)).sum()), float(fair.mean()))
    return dict(zip(names, values, strict=True))


def rank_excess(members: Array, y: Array) -> Array:
    """Return the frequency of each rank of the truth minus 1/(M+1), (M + 1,)."""
    count = rank_histogram(members, y, member_dim=1, seed=0)["count"].to_numpy()
    excess: Array = count / count.sum() - 1 / len(count)
    return excess


def table(lines: Sequence[Line]) -> pd.DataFrame:
    """Return the scores as a table, one line for each target and lead time."""
    return pd.DataFrame([astuple(line) for line in lines], columns=[f.name for f in fields(Line)])


def markdown(frame: pd.DataFrame) -> str:
    """Return the table as Markdown, with rounded numbers."""
    names = {
        "target": "target", "step": "lead (h)", "dates": "dates", "rmse": "RMSE",
        "spread_error": "spread/error", "bias_share": "bias in MSE", "raw": "CRPS raw",
        "unbiased": "bias-corrected", "emos": "EMOS", "removed": "removed (%)",
        "perfect_spread_error": "perfect: spread/error", "perfect_ranks": "rank excess",
        "bound": "bound (fair CRPS)",
    }  # fmt: skip
    rows = []
    for _, line in frame.iterrows():
        cells = {key: _cell(key, line[key]) for key in names}
        cells["target"] = f"{line['target']} ({line['units']})"
        if np.isfinite(line["removed"]):
            cells["removed"] = f"{line['removed']:.1f} ± {line['removed_error']:.1f}"
        rows.append(list(cells.values()))
    return markdown_of(columns_of(list(names.values()), rows, text=range(len(names))))


def _cell(key: str, value: float | str) -> str:
    if isinstance(value, str) or key in ("step", "dates"):
        return str(value)
    if np.isnan(value):
        return "–"
    if key in ("spread_error", "bias_share", "perfect_spread_error"):
        return f"{value:.2f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
