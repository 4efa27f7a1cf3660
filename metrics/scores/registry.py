"""Registry of scores: those of this package's modules, and those that users register."""

import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, get_args

import numpy as np

import ens10.metrics.scores as package
from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._dispatch import as_array
from ens10.metrics.distributions.registry import distribution_class
from ens10.metrics.scores import standard
from ens10.metrics.statistic import Floats, Metric, PointStatistic, Units

HISTOGRAM = "histogram"  # counts of ranks and PIT values, which are not means
HERSBACH = "hersbach"  # sums from which the CRPS of ensembles is decomposed
TABLES = (HISTOGRAM, HERSBACH)
_CUSTOM: set[str] = set()  # names that `register_score` added
_CUSTOM_NAME = re.compile(r"[a-z][a-z0-9_]*[a-z]")  # a name that ends in a number has a number


def _modules() -> list[Any]:
    """Return the modules of this package that define scores, the standard ones first."""
    names = sorted(one.name for one in pkgutil.iter_modules(package.__path__))
    modules = [import_module(f"{package.__name__}.{n}") for n in names if n != "registry"]
    return [standard, *(m for m in modules if m is not standard and hasattr(m, "METRICS"))]


STATISTICS: dict[str, PointStatistic] = {
    one.name: one for module in _modules() for one in module.STATISTICS
}
METRICS: dict[str, Metric] = {one.name: one for module in _modules() for one in module.METRICS}


@dataclass(frozen=True)
class NamedMetric:
    """A score as a user writes it, such as "brier_273.15".

    Attributes:
        name: name of the score, with its number.
        score: its entry in `METRICS`.
        number: the number in the name, or None.
    """

    name: str
    score: Metric
    number: float | None = None

    @property
    def means(self) -> tuple[str, ...]:
        """Return the names of its means, with the number."""
        if self.number is None:
            return self.score.means
        return tuple(f"{mean}_{self.number:g}" for mean in self.score.means)

    @property
    def skill(self) -> str:
        """Return the name of its skill score, with the number; "" if it has none."""
        if not self.score.skill or self.number is None:
            return self.score.skill
        return f"{self.score.skill}_{self.number:g}"

    @property
    def long_name(self) -> str:
        """Return its name in words."""
        return self.score.long_name.format(self.number)


def statistic_of(mean: str) -> tuple[PointStatistic, float | None]:
    """Return the statistic of a mean and its number, from a name such as "brier_273.15"."""
    if mean in STATISTICS:
        return STATISTICS[mean], None
    base, _, number = mean.rpartition("_")
    return STATISTICS[base], float(number)


def metric_of(name: str) -> NamedMetric:
    """Return a score by its name.

    Raises:
        UnknownNameError: no such score.
        ArgumentError: a number that is missing, or not within (0, 1) where it is a probability.
    """
    if name in METRICS:
        if METRICS[name].number:
            kind = METRICS[name].number
            raise ArgumentError("scores", f"{name} needs a {kind}", f"Write it as {name}_0.9")
        return NamedMetric(name, METRICS[name])
    base, _, number = name.rpartition("_")
    if base not in METRICS or not METRICS[base].number:
        names = [k + (f"_{v.number.upper()}" if v.number else "") for k, v in METRICS.items()]
        raise UnknownNameError("scores", name, [*names, *TABLES])
    try:
        value = float(number)
    except ValueError:
        value = np.nan
    probability = METRICS[base].number in ("level", "share")
    if not np.isfinite(value) or (probability and not 0 < value < 1):
        required = "a probability between 0 and 1" if probability else "a number"
        raise ArgumentError("scores", f"{name}: {number!r} is not {required}")
    return NamedMetric(f"{base}_{value:g}", METRICS[base], value)


# units that a threshold may be written in: that of the truth, factor and offset to it
_THRESHOLD_UNITS = {
    "mm": ("m", 1e-3, 0.0),
    "m": ("m", 1.0, 0.0),
    "K": ("K", 1.0, 0.0),
    "C": ("K", 1.0, 273.15),
    "m/s": ("m s-1", 1.0, 0.0),
    "km/h": ("m s-1", 1 / 3.6, 0.0),
    "kn": ("m s-1", 1852 / 3600, 0.0),
}
_WITH_UNIT = re.compile(rf"(.+)_([-+.\de]*\d)({'|'.join(_THRESHOLD_UNITS)})")


def convert_threshold(name: str, units: str) -> str:
    """Convert the threshold in the name of a score to the truth's units, and drop the unit.

    Args:
        name: such as "brier_5mm", which is "brier_0.005" for a truth in m; others are unchanged.
        units: of the truth.

    Raises:
        ArgumentError: a unit that is not one of the truth's quantity.
    """
    match = _WITH_UNIT.fullmatch(name)
    if not match:
        return name
    base, number, unit = match.groups()
    base_units, factor, offset = _THRESHOLD_UNITS[unit]
    if base_units != units:
        reason = f"{name}: the truth is in {units}, which is not compared with {unit}"
        raise ArgumentError("scores", reason, f"Write the threshold in {units}")
    return f"{base}_{float(number) * factor + offset:g}"


def why_undefined(score: str, kind: str, members: int | None) -> str:
    """Return the reason why a score is undefined for a forecast, or "" if it is defined."""
    offers = distribution_class(kind).offers
    entry = METRICS.get(score)
    means = () if entry is None else (STATISTICS[mean] for mean in entry.means)
    needs = {score} if entry is None else {name for mean in means for name in mean.needs}
    if not needs <= offers:
        forecast_name = {"normal": "a normal forecast", "ensemble": "an ensemble"}.get(
            kind, f"forecasts of kind {kind!r}"
        )
        return f"{score} is undefined for {forecast_name}"
    if entry is not None and members is not None and members < entry.least_members:
        return f"{score} is undefined for an ensemble of {members} member"
    return ""


def default_scores(kind: str, members: int | None) -> tuple[str, ...]:
    """Return the names of the scores that are computed for a forecast by default."""
    usual = [name for name, score in METRICS.items() if score.usual]
    return tuple(s for s in (*usual, HISTOGRAM) if not why_undefined(s, kind, members))


def select_scores(
    scores: Sequence[str] | None, kind: str, members: int | None
) -> tuple[list[NamedMetric], tuple[str, ...]]:
    """Return the scores and the tables by their names; the default ones for None.

    Raises:
        UnknownNameError: no such score.
        ArgumentError: a score that is undefined for the forecast.
    """
    names = default_scores(kind, members) if scores is None else scores
    metrics = []
    for name in names:
        one = None if name in TABLES else metric_of(name)
        base = name if one is None else one.score.name
        if reason := why_undefined(base, kind, members):
            raise ArgumentError("scores", reason)
        if one is not None:
            metrics.append(one)
    return metrics, tuple(name for name in TABLES if name in names)


def required_inputs(scores: Sequence[str] | None) -> dict[str, list[NamedMetric]]:
    """Return the scores by the further input that they need: "efi", "climatology", "thresholds"."""
    inputs: dict[str, list[NamedMetric]] = {}
    for one in (metric_of(name) for name in scores or () if name not in TABLES):
        for needed in {str(STATISTICS[mean].needs_also) for mean in one.score.means} - {""}:
            inputs.setdefault(needed, []).append(one)
    return inputs


def register_score(
    name: str, field: Callable[[Any], Any], long_name: str, *, units: str = "truth"
) -> None:
    """Add a custom score to `verify` and `score_states`.

    The score is the weighted mean of a value at each point. Like other scores it has confidence
    bounds, groups (`by`), and with a reference the difference and the skill score NAME_skill,
    which is positive where the forecast's mean is lower.

    The score exists in this process alone: the command `ens10 score` lacks it, and worker
    processes (`scheduler="processes"`, dask.distributed) have it only if they import the module
    that registers it. Registering the same name again replaces the custom score.

    Args:
        name: lower-case letters, digits and underscores, ending with a letter.
        field: function from a `Pair`, one forecast of one date and its observations, to values of
            shape (H, W). A pair has `y`, the observations (H, W), `forecast`, the `Distribution`,
            `arrays`, its variables with (H, W) as their last axes, and methods that return
            fields: `crps()`, `error()` (mean less observation), `variance()`, `quantile(level)`,
            `above(threshold)` (a probability), as far as the kind of forecast has them. Points
            where observation or forecast is missing do not count, whatever the function returns
            there.
        long_name: name in words.
        units: units of the values: "truth" (those of the truth), "truth2" (their square) or "1".

    Raises:
        ArgumentError: an invalid name, or that of a score of the package. When it is scored:
            values of another shape.
        UnknownNameError: unknown units.
    """
    if not _CUSTOM_NAME.fullmatch(name):
        remedy = "Use small letters, digits and underscores, with a letter at the end"
        raise ArgumentError("name", f"{name!r} cannot be the name of a score", remedy)
    reserved = {*METRICS, *STATISTICS, *TABLES} | {s.skill for s in METRICS.values()}
    if name in reserved and name not in _CUSTOM:
        raise ArgumentError("name", f"{name!r} is taken", "Choose another one")
    if units not in get_args(Units):
        raise UnknownNameError("units", units, get_args(Units))

    def checked(pair: Any, number: float | None = None) -> Floats:  # noqa: ARG001
        values = as_array(field(pair), dtype=np.float64)
        if values.shape != pair.y.shape:
            reason = f"{name} gives values of shape {values.shape} for a grid of {pair.y.shape}"
            raise ArgumentError("scores", reason, "Return one value for each point")
        # a comparison makes False of a gap
        present: Floats = np.where(np.isnan(pair.field("crps")), np.nan, values)
        return present

    _CUSTOM.add(name)
    unit: Any = units
    STATISTICS[name] = PointStatistic(name, checked, unit, requires=())
    METRICS[name] = Metric(name, long_name, (name,), unit, skill=f"{name}_skill")
