"""Tables as text: columns of cells or plain rows to Markdown, LaTeX and CSV, by pandas."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

import pandas as pd

from ens10.errors import MissingDataError, printable

ABSENT = "–"
_BOUNDS = {"": "value", "_lower": "lower", "_upper": "upper"}
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
MARKDOWN = {c: f"\\{c}" for c in "\\|*_`<>"}


@dataclass(frozen=True)
class Column:
    """A column of a table as text: heading, cells, and whether it is set to the right."""

    heading: str
    cells: tuple[str, ...]
    numeric: bool = True


def number(value: float, form: str) -> str:
    """Format a number with a true minus sign, and without the sign of a rounded zero.

    Args:
        value: NaN for "–".
        form: such as ".3f" or "+.1f".
    """
    if math.isnan(value):
        return ABSENT
    text = format(value, form)
    return text.replace("-", "−") if text.strip("+-0.") else text.lstrip("+-")


def columns_of(
    headings: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int] = (0,)
) -> list[Column]:
    """Return the columns of a table that is made row by row.

    Args:
        headings: of the columns.
        rows: the cells of each row.
        text: places of the columns that are set to the left.
    """
    cells = pd.DataFrame(list(rows), columns=list(headings), dtype=object).items()
    return [
        Column(str(name), tuple(values), n not in text) for n, (name, values) in enumerate(cells)
    ]


def markdown_of(columns: Sequence[Column], *, escape: bool = True) -> str:
    """Return columns as a table in GitHub's Markdown.

    Args:
        columns: of the table.
        escape: False for cells that are Markdown already.
    """
    frame = _frame(columns, MARKDOWN if escape else {})
    rule = ["---:" if c.numeric else "---" for c in columns]
    lines = [frame.columns, rule, *frame.itertuples(index=False, name=None)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def fill_section(page: str, name: str, text: str) -> str:
    """Replace the text between the marks `<!-- NAME -->` and `<!-- end -->` of a page.

    Raises:
        MissingDataError: the page does not have the marks.
    """
    marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not marks.search(page):
        raise MissingDataError("page", [f"a place for the {name}"], "Add its two marks")
    return marks.sub(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", page)


def latex_of(columns: Sequence[Column], notes: Sequence[str] = ()) -> str:
    """Return columns as a LaTeX tabular, with notes as comments above it."""
    shape = "".join("r" if c.numeric else "l" for c in columns)
    table: str = _frame(columns, _LATEX).to_latex(index=False, column_format=shape)
    return "".join(f"% {printable(note)}\n" for note in notes) + table


def csv_of(
    headings: Sequence[str],
    rows: Iterable[Sequence[Any] | Mapping[str, Any]],
    digits: str = "",
) -> str:
    """Return plain rows as CSV; None and NaN become empty cells.

    Args:
        headings: of the columns; of rows that are mappings, the keys that are written.
        rows: the values of each row.
        digits: format of floats, such as ".9g"; "" for as many digits as each needs.
    """

    def cell(value: Any) -> str:
        if value is None or value != value:
            return ""
        return format(value, digits) if isinstance(value, float) else str(value)

    # as text: pandas would turn whole numbers of a column with gaps into floats
    frame = pd.DataFrame(list(rows), columns=list(headings), dtype=object).map(cell)
    text: str = frame.to_csv(index=False, lineterminator="\n")
    return text


def csv_of_records(kind: type, records: Iterable[Any], digits: str = "") -> str:
    """Return dataclasses as CSV: a column for each attribute, and three for one with bounds.

    Args:
        kind: the dataclass; attributes of the type `Interval` have bounds.
        records: its instances.
        digits: as for `csv_of`.
    """
    paths: dict[str, tuple[str, ...]] = {}
    for one in fields(kind):
        if "Interval" in str(one.type):
            paths |= {f"{one.name}{end}": (one.name, part) for end, part in _BOUNDS.items()}
        else:
            paths[one.name] = (one.name,)
    rows = [
        [
            reduce(lambda value, name: getattr(value, name, None), path, one)
            for path in paths.values()
        ]
        for one in records
    ]
    return csv_of(list(paths), rows, digits)


def _frame(columns: Sequence[Column], special: Mapping[str, str]) -> pd.DataFrame:
    """Return the cells as text, special characters escaped; columns may share a heading."""
    cells = [[escape_markup(text, special) for text in c.cells] for c in columns]
    headings = [escape_markup(c.heading, special) for c in columns]
    return pd.DataFrame(list(zip(*cells, strict=True)), columns=headings)


def escape_markup(text: str, special: Mapping[str, str]) -> str:
    """Return text in one line, with the special characters of its markup escaped."""
    return "".join(special.get(c, c) for c in printable(" ".join(text.split())))
