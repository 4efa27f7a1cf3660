"""The table of docs/performance.md, from the results of the benchmarks.

    python benchmarks/performance_page.py

A row whose code has changed since it was measured is marked: its figures are of older code.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from common import digests

from ens10.experiments.scoring.writers import fill_section

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
ROWS = ROOT / "benchmarks" / "performance_rows.yaml"
OLD = " †"
_SIGNS = {">=": "≥", "<=": "≤"}


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        what: is measured, in words.
        script: that measures it.
        lines: numbers of the lines of its result.
        unit: of the figures, after the last one.
        bounds: the best conceivable value of each figure, or one for all.
    """

    what: str
    script: str
    lines: Sequence[int] = (0,)
    unit: str = ""
    bounds: Sequence[str] = ()


def number(value: float) -> str:
    """Three digits, or more of a large number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def is_old(result: Mapping[str, Any]) -> bool:
    """Whether the code was changed since the result; True for one that does not tell its code."""
    recorded = result.get("code", {}).get("digests", {})
    return not recorded or recorded != digests(list(recorded))


def rows() -> list[Row]:
    """The rows of `performance_rows.yaml`."""
    return [Row(**row) for row in yaml.safe_load(ROWS.read_text())]


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The rows, in Markdown."""
    head = "| what | target | measured | bound | code | script |\n|---|---:|---:|---:|---|---|"
    return "\n".join([head, *(line_of(row, results[row.script]) for row in rows())])


def line_of(row: Row, result: Mapping[str, Any]) -> str:
    """One row, with the commit of its code, and marked if that has changed since."""
    lines: Sequence[Mapping[str, Any]] = result["lines"]
    what, chosen = row.what, [lines[n] for n in row.lines]
    if row.script == "networks":
        ranked = sorted(lines, key=lambda line: line["value"])
        chosen, what = [ranked[n] for n in (0, len(ranked) // 2, -1)], what.format(count=len(lines))
    figures = [number(line["value"]) for line in chosen]
    values = "; ".join(
        f if line["met"] else f"**{f}**" for f, line in zip(figures, chosen, strict=True)
    )
    targets = [_target(line) for line in chosen]
    target = targets[0] if len({*targets}) == 1 else "; ".join(targets)
    commit = result.get("code", {}).get("commit", "unknown")
    mark = OLD if is_old(result) else ""
    unit = f" {row.unit}" if row.unit else ""
    bound = "; ".join(row.bounds or result.get("bounds", ())) or "–"
    return f"| {what} | {target} | {values}{unit} | {bound} | {commit}{mark} | {row.script} |"


def _target(line: Mapping[str, Any]) -> str:
    sign, value = line["target"].split()
    return f"{_SIGNS[sign]} {number(float(value))}"


def results() -> dict[str, Mapping[str, Any]]:
    """The results by the name of the script."""
    return {p.stem: json.loads(p.read_text()) for p in RESULTS.glob("*.json")}


if __name__ == "__main__":
    PAGE.write_text(fill_section(PAGE.read_text(), "speeds", table(results())))
