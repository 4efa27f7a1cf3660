"""The table of scores that `verify` knows: one entry makes a score.

A score is finished from weighted means of fields. An entry of `MEANS` names a field that cases
offer (`cases.Case`); an entry of `SCORES` the means that a score is made of, and how.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics.calibration import spread_inflation
from ens10.metrics.verification.cases import OWN
from ens10.metrics.verification.distributions import case_of

Floats = npt.NDArray[np.float64]
Units = Literal["truth", "truth2", "1"]
Finish = Callable[[Mapping[str, Floats], int | None], Floats]


@dataclass(frozen=True)
class Mean:
    """A weighted mean whose sums are kept.

    Attributes:
        units: of the field: the truth's, their square, or none.
        on_map: whether sums over dates are kept at every grid point too.
        by_efi: whether the raw ensemble's extreme forecast index is needed for it.
    """

    units: Units = "truth"
    on_map: bool = False
    by_efi: bool = False


@dataclass(frozen=True)
class Score:
    """One score.

    Attributes:
        long_name: in words; {} is where the number goes that belongs to the name.
        means: what it is made of, by their names in `MEANS`.
        units: of the score.
        finish: from the means, in that order, and the number of members.
        skill: name of its skill score against a reference; "" if it has none.
        number: what the number behind the name is, such as a threshold; "" for none.
        least_members: with fewer, it is undefined.
        usual: whether it is among those that are made when none are named.
    """

    long_name: str
    means: tuple[str, ...]
    units: Units = "truth"
    finish: Callable[[Sequence[Floats], int | None], Floats] = lambda means, _: means[0]
    skill: str = ""
    number: str = ""
    least_members: int = 1
    usual: bool = True


def _ratio_of_roots(means: Sequence[Floats], members: int | None) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = np.sqrt(spread_inflation(members) * means[1] / means[0])
    return ratio


def _ratio(means: Sequence[Floats], members: int | None) -> Floats:  # noqa: ARG001
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio: Floats = means[0] / means[1]
    return ratio


MEANS: dict[str, Mean] = {
    "crps": Mean(on_map=True),
    "crps_fair": Mean(on_map=True),
    "error": Mean(),
    "error2": Mean("truth2"),
    "variance": Mean("truth2"),
    "log_score": Mean("1"),
    "brier": Mean("1"),
    "quantile_score": Mean(),
    "coverage": Mean("1"),
    "width": Mean(),
    "eecrps": Mean(by_efi=True),
    "abs_efi": Mean("1", by_efi=True),
}
SCORES: dict[str, Score] = {
    "crps": Score("mean continuous ranked probability score", ("crps",), skill="crpss"),
    "crps_fair": Score(
        "mean fair continuous ranked probability score",
        ("crps_fair",),
        skill="crpss_fair",
        least_members=2,
    ),
    "rmse": Score(
        "root mean squared error of the mean",
        ("error2",),
        finish=lambda means, _: np.sqrt(means[0]),
    ),
    "bias": Score("mean of the forecast less the truth", ("error",), usual=False),
    "spread_error": Score(
        "ratio of spread to root mean squared error",
        ("error2", "variance"),
        "1",
        _ratio_of_roots,
        least_members=2,
    ),
    "log_score": Score("mean logarithmic score", ("log_score",), "1", usual=False),
    "brier": Score(
        "Brier score of values above {}", ("brier",), "1",
        skill="brier_skill", number="threshold", usual=False,
    ),
    "quantile_score": Score(
        "mean quantile score at level {}", ("quantile_score",),
        skill="quantile_skill", number="level", usual=False,
    ),
    "coverage": Score(
        "share of truth within the central interval of probability {}", ("coverage",), "1",
        number="share", usual=False,
    ),
    "width": Score(
        "mean width of the central interval of probability {}", ("width",),
        number="share", usual=False,
    ),
    # Both normalisations are made of the same sums, and have the same skill.
    "eecrps": Score(
        "mean of CRPS times |EFI|", ("eecrps", "abs_efi"), skill="eecrpss", usual=False,
    ),
    "eecrps_weighted": Score(
        "mean CRPS weighted by |EFI|", ("eecrps", "abs_efi"), finish=_ratio, usual=False,
    ),
}  # fmt: skip
HISTOGRAM = "histogram"  # counts of ranks and PIT values, which are no mean
HERSBACH = "hersbach"  # sums from which the CRPS is decomposed, of ensembles
TABLES = (HISTOGRAM, HERSBACH)


@dataclass(frozen=True)
class Named:
    """A score as it was asked for, such as "brier_273.15".

    Attributes:
        name: as it was asked for.
        score: its entry.
        number: what belongs to the name, or None.
    """

    name: str
    score: Score
    number: float | None = None

    @property
    def means(self) -> tuple[str, ...]:
        """Names of its means, with the number."""
        if self.number is None:
            return self.score.means
        return tuple(f"{mean}_{self.number:g}" for mean in self.score.means)

    @property
    def skill(self) -> str:
        """Name of its skill score, with the number; "" if it has none."""
        if not self.score.skill or self.number is None:
            return self.score.skill
        return f"{self.score.skill}_{self.number:g}"

    @property
    def long_name(self) -> str:
        """In words."""
        return self.score.long_name.format(self.number)


def mean_of_name(name: str) -> tuple[str, float | None]:
    """A mean's entry in `MEANS` and its number, from its name such as "brier_273.15"."""
    if name in MEANS:
        return name, None
    base, _, number = name.rpartition("_")
    return base, float(number)


def named(name: str) -> Named:
    """A score by its name.

    Raises:
        UnknownNameError: no such score.
        ArgumentError: a number that is missing, or not within (0, 1) where it is a probability.
    """
    if name in SCORES:
        if SCORES[name].number:
            what = SCORES[name].number
            raise ArgumentError("scores", f"{name} needs a {what}", f"Write it as {name}_0.9")
        return Named(name, SCORES[name])
    base, _, number = name.rpartition("_")
    if base not in SCORES or not SCORES[base].number:
        known = [k + (f"_{v.number.upper()}" if v.number else "") for k, v in SCORES.items()]
        raise UnknownNameError("scores", name, [*known, *TABLES])
    try:
        value = float(number)
    except ValueError:
        value = np.nan
    probability = SCORES[base].number in ("level", "share")
    if not np.isfinite(value) or (probability and not 0 < value < 1):
        wanted = "a probability between 0 and 1" if probability else "a number"
        raise ArgumentError("scores", f"{name}: {number!r} is not {wanted}")
    return Named(f"{base}_{value:g}", SCORES[base], value)


def undefined(score: str, kind: str, members: int | None) -> str:
    """Why a score is undefined for a forecast, or ""."""
    offered = case_of(kind).offers | OWN.keys()
    entry = SCORES.get(score)
    needed = {score} if entry is None else {*entry.means}
    if not needed <= offered:
        what = {"normal": "a normal forecast", "ensemble": "an ensemble"}.get(
            kind, f"forecasts of kind {kind!r}"
        )
        return f"{score} is undefined for {what}"
    if entry is not None and members is not None and members < entry.least_members:
        return f"{score} is undefined for an ensemble of {members} member"
    return ""


def available(kind: str, members: int | None) -> tuple[str, ...]:
    """The names of the scores that are made of a forecast when none are named."""
    usual = [name for name, score in SCORES.items() if score.usual]
    return tuple(s for s in (*usual, HISTOGRAM) if not undefined(s, kind, members))


def wanted(
    scores: Sequence[str] | None, kind: str, members: int | None
) -> tuple[list[Named], tuple[str, ...]]:
    """The scores that are asked for, and the tables.

    Raises:
        UnknownNameError: no such score.
        ArgumentError: one that this forecast has not.
    """
    names = available(kind, members) if scores is None else scores
    found = []
    for name in names:
        one = None if name in TABLES else named(name)
        base = name if one is None or one.number is None else name.rpartition("_")[0]
        if reason := undefined(base, kind, members):
            raise ArgumentError("scores", reason)
        if one is not None:
            found.append(one)
    return found, tuple(name for name in TABLES if name in names)
