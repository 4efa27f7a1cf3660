"""Paired differences of variants, over the dates of all seeds together and for each seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from ens10.experiments.ablation.spec import Ablation
from ens10.experiments.finished import SCORES, FinishedRun, check_comparable, mean_score
from ens10.experiments.matrix.cells import read_kept
from ens10.experiments.tables import FEW_DATES
from ens10.metrics import Interval, interval, summarise
from ens10.metrics.uncertainty import Method, Sums, difference_of, paired_sums

CRPS, EECRPS = "crps", "eecrps"


@dataclass(frozen=True)
class Kept:
    """A kept cell: its run, and the states of its EECRPS if there are any."""

    run: FinishedRun
    extremes: xr.Dataset | None

    def states(self, score: str) -> xr.Dataset | None:
        """The states that hold a score; None if it was not scored."""
        held = self.extremes if score == EECRPS else self.run.states
        return held if held is not None and f"{score}_sum" in held else None


@dataclass(frozen=True)
class Difference:
    """A score of a variant less that of another, on the same dates and seeds.

    Attributes:
        over_dates: of the mean over seeds; its bounds are over dates, with the trainings as they
            are.
        each: of each seed.
        other: mean of the other's score.
    """

    over_dates: Interval
    each: Mapping[int, float]
    other: float

    @property
    def clear(self) -> bool:
        """Whether the bounds do not hold 0 and all seeds agree."""
        bounds = self.over_dates
        signs = {np.sign(value) for value in self.each.values()}
        return bounds.lower * bounds.upper > 0 and len(signs) == 1


@dataclass(frozen=True)
class Line:
    """One variant.

    Attributes:
        name: of the variant.
        against: that it is compared with; None for the base.
        kept: by seed.
        differences: by score, "crps" and perhaps "eecrps"; empty for the base.
    """

    name: str
    against: str | None
    kept: Mapping[int, Kept]
    differences: Mapping[str, Difference]

    @property
    def units(self) -> str:
        """Of the CRPS."""
        return next(iter(self.kept.values())).run.units

    @property
    def dates(self) -> int:
        """Test dates of a seed."""
        return int(next(iter(self.kept.values())).run.states.sizes["time"])

    def mean(self, of: Callable[[FinishedRun], float]) -> float:
        """Of a number of each run, over seeds."""
        return float(np.mean([of(kept.run) for kept in self.kept.values()]))

    @property
    def crps(self) -> float:
        """Mean over seeds."""
        return self.mean(lambda run: mean_score(run.states, CRPS))

    @property
    def spread_error(self) -> float:
        """Ratio of spread to error; NaN if unknown."""

        def of(run: FinishedRun) -> float:
            scores = summarise(run.states, maps=False, method="student")
            return float(scores.get("spread_error", np.nan))

        return self.mean(of)

    def cost(self, key: str) -> float:
        """A number of the provenance, such as "cpu_seconds"; NaN if it is not told."""
        return self.mean(lambda run: float(run.provenance.get(key) or np.nan))


def read_lines(
    ablation: Ablation,
    out: Path,
    seeds: Sequence[int],
    *,
    same_data: bool,
    shown: set[Path] | None = None,
) -> list[Line]:
    """The variants that are there, in the ablation's order.

    Args:
        ablation: whose variants are looked for.
        out: folder of its results.
        seeds: to look for.
        same_data: whether seeds are trainings on the same data, whose dates are the same then.
        shown: folders of cells that count; None for all.

    Raises:
        FileError: a kept cell that cannot be read.
        ArgumentError, MissingDataError: variants that were scored on different points or dates.
    """
    held: dict[str, dict[int, Kept]] = {}
    for variant in ablation.variants:
        places = {seed: out / f"seed{seed}" / variant.name for seed in seeds}
        found = {
            seed: Kept(*read_kept(place))
            for seed, place in places.items()
            if (place / SCORES).exists() and (shown is None or place in shown)
        }
        if found:
            held[variant.name] = found
    lines = []
    for variant in (v for v in ablation.variants if v.name in held):
        others = held.get(variant.against or "", {})
        differences: dict[str, Difference] = {}
        for score in (CRPS, EECRPS):
            made = difference(held[variant.name], others, score, same_data=same_data)
            differences |= {score: made} if made else {}
        lines.append(Line(variant.name, variant.against, held[variant.name], differences))
    return lines


def difference(
    mine: Mapping[int, Kept], others: Mapping[int, Kept], score: str, *, same_data: bool
) -> Difference | None:
    """The paired difference over the seeds that both have; None if there are none.

    Dates of different worlds are put one after the other; dates of the same data are summed over
    the seeds first, so that a date is drawn with all its trainings.

    Args:
        mine: of the variant, by seed.
        others: of what it is compared with.
        score: "crps" or "eecrps".
        same_data: whether the seeds are trainings on the same data.
    """
    sums: dict[int, Sums] = {}
    for seed in sorted(set(mine) & set(others)):
        check_comparable([mine[seed].run, others[seed].run])
        states, reference = mine[seed].states(score), others[seed].states(score)
        if states is not None and reference is not None:
            order = np.argsort(states["time"].to_numpy(), kind="stable")
            paired = paired_sums(states, reference, score)
            sums[seed] = {name: values[order] for name, values in paired.items()}
    if not sums:
        return None
    together = _together(list(sums.values()), same_data)
    few = min(len(one["sum"]) for one in sums.values()) < FEW_DATES
    method: Method = "student" if few else "bootstrap"
    over_dates = interval(together, difference_of, method=method)
    each = {seed: _difference(one) for seed, one in sums.items()}
    total = {name: values.sum() for name, values in together.items()}
    return Difference(over_dates, each, float(total["reference_sum"] / total["reference_weight"]))


def _together(sums: Sequence[Sums], same_data: bool) -> Sums:
    names = sums[0]
    join = (lambda parts: np.sum(parts, axis=0)) if same_data else np.concatenate
    joined = {name: join([one[name] for one in sums]) for name in names}
    scored = joined["weight"] != 0
    return {name: values[scored] for name, values in joined.items()}


def _difference(sums: Sums) -> float:
    return float(difference_of({name: values.sum() for name, values in sums.items()}))
