"""The score table as text: columns of cells, and from them Markdown, LaTeX and CSV."""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ens10.errors import MissingDataError
from ens10.experiments.tables import Row
from ens10.metrics import Interval
from ens10.metrics.uncertainty import REPLICATES, blocks_in_words

ABSENT = "–"
NOT_CLEAR = "≈"  # marks a difference whose interval holds 0
_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "≈": r"$\approx$",
    "Δ": r"$\Delta$",
    "±": r"$\pm$",
}
_MARKDOWN = {c: f"\\{c}" for c in "\\|*_`<>"}
_CSV_PARTS = ("", "_lower", "_upper")
_WEIGHTS = {
    "cell": "grid points weighted by the exact area of their cells",
    "cos": "grid points weighted by the cosine of latitude",
    "none": "grid points unweighted",
}


@dataclass(frozen=True)
class Column:
    """A column as a reader sees it."""

    heading: str
    cells: tuple[str, ...]
    numeric: bool = True


def columns(rows: Sequence[Row], *, seconds: bool = False) -> list[Column]:
    """The columns that hold anything, with as many digits as fit the units.

    Args:
        rows: of `score_table`.
        seconds: whether to show how long each fit took, which differs from run to run.
    """
    units = f" ({rows[0].units})" if rows and rows[0].units else ""
    digits = _decimals(rows[0].crps.value) if rows else 0

    def made(heading: str, cell: Callable[[Row], str]) -> Column:
        return Column(heading, tuple(map(cell, rows)))

    found = [
        Column("Model", tuple(row.model for row in rows), numeric=False),
        Column("Forecast", tuple(map(_forecast, rows)), numeric=False),
        made(f"CRPS{units}", lambda row: _with_bounds(row.crps, digits)),
        made("CRPSS (%)", lambda row: _with_bounds(row.crpss, 1, 100)),
        made("Attained skill (%)", lambda row: _with_bounds(row.attained, 1, 100)),
        made(f"Δ CRPS to row above{units}", lambda row: _difference(row.difference, digits)),
        made(f"Fair CRPS{units}", lambda row: _with_bounds(row.crps_fair, digits)),
        made(f"RMSE{units}", lambda row: _with_bounds(row.rmse, digits, bounds=False)),
        made("Spread/error", lambda row: _with_bounds(row.spread_error, 3, bounds=False)),
        made("Parameters", lambda row: _count(row.parameters)),
    ]
    if seconds:
        found.append(made("Fit (s)", lambda row: _seconds(row.seconds)))
    return [column for column in found if set(column.cells) != {ABSENT}]


def notes(rows: Sequence[Row]) -> list[str]:
    """What a reader has to know of the numbers: estimators, intervals, weights."""
    first = rows[0]
    if first.method == "bootstrap":
        shown = (i for r in rows for i in (r.crps, r.crpss, r.attained, r.difference, r.crps_fair))
        how = f"{REPLICATES} circular block bootstrap samples, {blocks_in_words(shown)}"
    else:
        how = "Student's t on jackknife values, which takes dates as independent"
    told = [
        "CRPS (lower is better): plain estimator for members, closed form for normals; "
        f"{_WEIGHTS.get(first.weights, first.weights)}.",
        f"In brackets: {100 * first.confidence:g} % confidence interval over the "
        f"{first.dates} test dates ({how}); comparisons are paired date by date.",
    ]
    if any(row.difference for row in rows):
        told.append(f"{NOT_CLEAR} marks a difference whose interval holds 0.")
    return told


def markdown(rows: Sequence[Row]) -> str:
    """The table in GitHub's Markdown with its notes; the same scores give the same bytes."""
    told = " ".join(_escaped(note, _MARKDOWN) for note in notes(rows))
    return f"{markdown_of(columns(rows))}\n{told}\n"


def markdown_of(made: Sequence[Column]) -> str:
    """Any columns as a table in GitHub's Markdown."""
    lines = [
        [_escaped(c.heading, _MARKDOWN) for c in made],
        ["---:" if c.numeric else "---" for c in made],
        *_lines(made, _MARKDOWN),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def filled(page: str, name: str, text: str) -> str:
    """A page with other text between its marks `<!-- NAME -->` and `<!-- end -->`.

    Raises:
        MissingDataError: it does not have the marks.
    """
    marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not marks.search(page):
        raise MissingDataError("page", [f"a place for the {name}"], "Add its two marks")
    return marks.sub(lambda found: f"{found[1]}\n{text}\n\n{found[2]}", page)


def latex(rows: Sequence[Row]) -> str:
    """The table as a LaTeX tabular with the rules of the package booktabs."""
    return latex_of(columns(rows), notes(rows))


def latex_of(made: Sequence[Column], told: Sequence[str] = ()) -> str:
    """Any columns as a LaTeX tabular, with notes as comments above it."""
    head = " & ".join(_escaped(c.heading, _LATEX) for c in made)
    shape = "".join("r" if c.numeric else "l" for c in made)
    parts = [
        *(f"% {note}" for note in told),
        rf"\begin{{tabular}}{{{shape}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
        *(rf"{' & '.join(line)} \\" for line in _lines(made, _LATEX)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(parts) + "\n"


def to_csv(rows: Sequence[Row]) -> str:
    """All columns in full precision, intervals as three columns each; empty where undefined."""
    intervals = {f.name for f in fields(Row) if "Interval" in str(f.type)}
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    head = (_csv_names(f.name, f.name in intervals) for f in fields(Row))
    writer.writerow(name for names in head for name in names)
    for row in rows:
        cells = (_csv_cells(getattr(row, f.name), f.name in intervals) for f in fields(Row))
        writer.writerow(cell for part in cells for cell in part)
    return file.getvalue()


def _csv_names(name: str, interval: bool) -> list[str]:
    return [f"{name}{part}" for part in _CSV_PARTS] if interval else [name]


def _csv_cells(value: Any, interval: bool) -> list[str]:
    if isinstance(value, Interval):
        parts = (value.value, value.lower, value.upper)
        return ["" if math.isnan(x) else repr(x) for x in parts]
    if value is None:
        return [""] * (len(_CSV_PARTS) if interval else 1)
    return [str(value)]


def _lines(made: Sequence[Column], special: Mapping[str, str]) -> list[list[str]]:
    cells = ([_escaped(text, special) for text in c.cells] for c in made)
    return [list(line) for line in zip(*cells, strict=True)]


def _escaped(text: str, special: Mapping[str, str]) -> str:
    return "".join(special.get(c, c) for c in " ".join(text.split()))


def _forecast(row: Row) -> str:
    if row.members is None:
        return row.forecast
    return f"{row.members} member{'s' if row.members > 1 else ''}"


def _decimals(value: float) -> int:
    """Decimals that show four digits of a value."""
    if not math.isfinite(value) or value == 0:
        return 3
    return min(9, max(0, 3 - math.floor(math.log10(abs(value)))))


def _number(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    # a rounded -0.000 would claim a sign that it does not have
    zero = not any(c in "123456789" for c in text)
    return text.lstrip("-") if zero else text.replace("-", "−")


def _with_bounds(
    made: Interval | None, decimals: int, factor: float = 1, *, bounds: bool = True
) -> str:
    if made is None or math.isnan(made.value):
        return ABSENT
    value = _number(factor * made.value, decimals)
    if not bounds or math.isnan(made.lower):
        return value
    lower, upper = (_number(factor * x, decimals) for x in (made.lower, made.upper))
    return f"{value} [{lower}, {upper}]"


def _difference(made: Interval | None, decimals: int) -> str:
    text = _with_bounds(made, decimals)
    unclear = made is not None and made.lower <= 0 <= made.upper
    return f"{text} {NOT_CLEAR}" if unclear else text


def _count(number: int | None) -> str:
    return ABSENT if number is None else f"{number:,}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return ABSENT
    return f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"
