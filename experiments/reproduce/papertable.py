"""The papers' tables: models by rows, 5-ENS and 10-ENS of each target, published values beside."""

import csv
import io
import math
from collections.abc import Sequence

from ens10.experiments.matrix.tasks import Task
from ens10.experiments.reproduce.published import UNVERIFIED, Published
from ens10.experiments.reproduce.results import SCORE_NAMES, Result
from ens10.experiments.writers import ABSENT, Column

_TITLES = {"t2m": "T2m", "t850": "T850", "z500": "Z500"}


def paper_columns(score: str, results: Sequence[Result], published: Published) -> list[Column]:
    """The columns of one score; empty if no cell has it.

    Args:
        score: "crps" or "eecrps".
        results: of one protocol.
        published: values to show beside them.
    """
    held = [result for result in results if score in result.values]
    if not held:
        return []
    models = list(dict.fromkeys(result.model for result in held))
    by_place = {(result.model, result.task): result for result in held}
    columns = [Column("Model", tuple(models), numeric=False)]
    for task in dict.fromkeys(result.task for result in held):
        placed = [by_place.get((model, task)) for model in models]
        most = max(len(result.values[score]) for result in placed if result)
        units = next(result.units for result in placed if result)
        heading = f"{title(task)} ({units})" if units else title(task)
        columns.append(Column(heading, tuple(_own(result, score, most) for result in placed)))
        theirs = [published.find(score, model, task.target, task.members) for model in models]
        if any(theirs):
            cells = tuple(value.text if value else ABSENT for value in theirs)
            columns.append(Column(f"{title(task)}, published", cells))
    return columns


def title(task: Task) -> str:
    """Target and size as the paper writes them."""
    return f"{_TITLES.get(task.target, task.target)} {task.members}-ENS"


def _own(result: Result | None, score: str, most: int) -> str:
    """Mean and spread; of how many seeds where others have more."""
    if result is None or score not in result.values:
        return ABSENT
    mean, spread, seeds = result.mean(score), result.spread(score), len(result.values[score])
    decimals = _decimals(mean)
    text = f"{mean:.{decimals}f}"
    text = text if math.isnan(spread) else f"{text} ± {spread:.{decimals}f}"
    return text if seeds == most else f"{text} ({seeds} of {most} seeds)"


def _decimals(value: float) -> int:
    """As the paper: three for kelvins, two for geopotentials."""
    return 2 if abs(value) >= 10 else 3


def notes(results: Sequence[Result], published: Published, *, synthetic: bool) -> list[str]:
    """What a reader has to know: data, seeds, estimators, and where published values come from.

    Args:
        results: of one protocol.
        published: whose sources are named.
        synthetic: whether the data are synthetic worlds, one for each seed.
    """
    seeds = sorted({len(result.runs) for result in results})
    counts = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    what = "each a synthetic world and a training of its own" if synthetic else "of the training"
    told = [
        f"Mean ± standard deviation over seeds ({counts}), {what}. Lower is better. Plain CRPS for "
        "members, closed form where there is one. EECRPS: CRPS weighted by the absolute extreme "
        "forecast index of all raw members.",
        f"Dates: {_dates(results)}.",
    ]
    if synthetic and len(seeds) > 1:
        told.append("Numbers of fewer seeds are of fewer worlds: do not compare them with others.")
    compare = (
        "these worlds are synthetic, with errors of their own: do not compare the numbers."
        if synthetic
        else "compare them with those of a store of all of ENS-10 under the protocol of its paper."
    )
    told.append(f"Published values are of ENS-10: {compare}")
    lines = {published.line_of(result.model) for result in results}
    told += [f"{line}: {note}." for line, note in published.notes.items() if line in lines]
    told += [
        f"Published: {source['cite']}, {source['link']}"
        + (f" ({source['note']})." if "note" in source else ".")
        for source in published.sources.values()
    ]
    return [*told, f"{UNVERIFIED} marks published values that no second source confirms."]


def _dates(results: Sequence[Result]) -> str:
    held = [run.provenance.get("dates") or {} for r in results for run in r.runs.values()]
    said = {
        ", ".join(f"{dates.get(s, '?')} {s}" for s in ("train", "val", "test")) for dates in held
    }
    return "; ".join(sorted(said))


def paper_csv(results: Sequence[Result], published: Published) -> str:
    """A line for each model, task and score, in full precision."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = ["protocol", "target", "members", "model", "score", "units", "seeds", "mean", "spread"]
    writer.writerow([*head, "published", "confirmed", "source"])
    for result in results:
        task = result.task
        for score in (name for name in SCORE_NAMES if name in result.values):
            value = published.find(score, result.model, task.target, task.members)
            numbers = [result.mean(score), result.spread(score)]
            shown = ["" if math.isnan(number) else repr(number) for number in numbers]
            theirs = [value.value, str(value.confirmed), value.source] if value else ["", "", ""]
            about = [task.rules.name, task.target, task.members, result.model, score, result.units]
            writer.writerow([*about, len(result.values[score]), *shown, *theirs])
    return text.getvalue()
