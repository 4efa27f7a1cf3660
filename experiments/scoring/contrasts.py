"""Contrasts of two methods: what one gains on the other, with bounds, and a verdict.

Where each seed has a world of its own, seeds are pairs. Where all seeds are trainings on the same
data, the variance is that over dates (block bootstrap of the mean over seeds) plus that over
trainings, s_A^2 / n_A + s_B^2 / n_B; it is 0 for methods without random numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, sqrt

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from ens10.metrics import Interval, benjamini_hochberg, holm, interval

Floats = npt.NDArray[np.float64]
CONTRAST_COLUMNS = ("lower", "upper", "by seed", "p", "verdict")  # after words and value
TIE = 0.3  # percent, within which an interval is called a tie


@dataclass(frozen=True)
class Contrast:
    """What one method gains on another, in percent.

    Attributes:
        value: mean over seeds.
        lower: 95 % bound.
        upper: 95 % bound.
        p: of the hypothesis that there is no difference, not corrected; NaN without bounds.
        by_seed: the gain of each seed.
    """

    value: float
    lower: float
    upper: float
    p: float
    by_seed: tuple[float, ...]


def over_worlds(gains: Sequence[Floats]) -> Contrast:
    """Return the contrast of seeds that are worlds: Student's t over them; one world, its dates.

    Args:
        gains: for each world the gain of each date, in percent.
    """
    n = len(gains)
    if n < 2:
        return over_trainings(gains)
    by_seed = tuple(float(np.mean(part)) for part in gains)
    value, error = float(np.mean(by_seed)), float(np.std(by_seed, ddof=1)) / sqrt(n)
    p = 2 * float(stdtr(n - 1, -abs(value) / error)) if error else float(value == 0)
    half = float(stdtrit(n - 1, 0.975)) * error
    return Contrast(value, value - half, value + half, p, by_seed)


def over_trainings(gains: Sequence[Floats], variance: float = 0.0) -> Contrast:
    """Return the contrast of seeds that are trainings on the same data.

    Args:
        gains: for each seed the gain of each date, in percent, in order of time.
        variance: of the mean gain over trainings, s_A^2 / n_A + s_B^2 / n_B.
    """
    by_seed = tuple(float(np.mean(part)) for part in gains)
    return with_trainings(interval(np.mean(gains, axis=0)), variance, by_seed)


def with_trainings(dates: Interval, variance: float, by_seed: Sequence[float]) -> Contrast:
    """Add the variance over trainings to an interval over dates, and return both as a contrast.

    Args:
        dates: of the mean gain over seeds, in percent.
        variance: of that mean over trainings, s_A^2 / n_A + s_B^2 / n_B.
        by_seed: the gain of each seed.
    """
    quantile = float(ndtri(0.975))
    error = float(np.hypot((dates.upper - dates.lower) / 2 / quantile, sqrt(variance)))
    value, half = dates.value, quantile * error
    p = 2 * float(ndtr(-abs(value) / error)) if error else float(value == 0)
    return Contrast(value, value - half, value + half, p, tuple(by_seed))


def pooled_variance(trainings: Sequence[Sequence[float]]) -> float:
    """Return the variance over trainings, pooled over the models of a family; 0 if none has two.

    Args:
        trainings: for each model of the family the score of each training.
    """
    degrees = [len(scores) - 1 for scores in trainings if len(scores) > 1]
    squares = [len(s) * float(np.var(s)) for s in trainings if len(s) > 1]
    return sum(squares) / sum(degrees) if degrees else 0.0


def corrected(contrasts: Sequence[Contrast], *, primary: bool) -> list[float]:
    """Return the p values of a family of contrasts, corrected for their number.

    Args:
        contrasts: of the family.
        primary: True for contrasts that were named beforehand, which are corrected by Holm's
            method; otherwise the false discovery rate is controlled.
    """
    if not contrasts:
        return []
    p = np.array([contrast.p for contrast in contrasts])
    tests = holm(p) if primary else benjamini_hochberg(p)
    return [float(value) for value in tests["adjusted"]]


def verdict(lower: float, upper: float, p: float | None = None) -> str:
    """Return what an interval and a corrected p value say of a contrast.

    Args:
        lower: 95 % bound, percent.
        upper: 95 % bound.
        p: corrected; None to take the interval alone.
    """
    if isnan(lower) or isnan(upper):
        return "no interval"
    if p is None or p <= 0.05:
        if lower > 0:
            return "gains"
        if upper < 0:
            return "loses"
    return "tie" if lower > -TIE and upper < TIE else "not distinguished"


def leaders(models: Sequence[str], contrasts: Mapping[tuple[str, str], Contrast]) -> dict[str, str]:
    """Return for each model that is level with a better one the name of that leader.

    From the best model down, the leader is the last model on which the leader before it gains. A
    model that the leader does not gain on is level with it: the verdict is "tie" or "not
    distinguished". So a long chain of small differences has several leaders.

    Args:
        models: names, the best first.
        contrasts: what the better model of each pair gains on the worse, for all pairs of names
            in their order; their p values are corrected together.

    Examples:
        >>> from ens10.experiments.scoring.contrasts import Contrast, leaders
        >>> level = Contrast(0.1, -0.1, 0.3, 0.4, (0.1,))
        >>> apart = Contrast(2.0, 1.5, 2.5, 1e-9, (2.0,))
        >>> leaders("ABC", {("A", "B"): level, ("A", "C"): apart, ("B", "C"): apart})
        {'B': 'A'}
    """
    p_values = corrected(list(contrasts.values()), primary=False)
    gains = {
        pair
        for (pair, one), p in zip(contrasts.items(), p_values, strict=True)
        if verdict(one.lower, one.upper, p) == "gains"
    }
    leader, found = models[0] if models else "", {}
    for model in models[1:]:
        if (leader, model) in gains:
            leader = model
        else:
            found[model] = leader
    return found


def contrast_row(words: str, contrast: Contrast, p: float) -> list[str]:
    """Return a row of a table of contrasts: words, value, and `CONTRAST_COLUMNS`.

    Args:
        words: what is compared.
        contrast: in percent.
        p: corrected.
    """
    values = (f"{x:+.2f}" for x in (contrast.value, contrast.lower, contrast.upper))
    gains = [f"{gain:+.2f}" for gain in contrast.by_seed]
    by_seed = " ".join(gains[:1] if len(set(gains)) == 1 else gains)  # one without random numbers
    p_text = "–" if isnan(p) else f"{p:.3f}" if p >= 0.001 else "<0.001"
    return [words, *values, by_seed, p_text, verdict(contrast.lower, contrast.upper, p)]
