"""The tables of docs/reliability.md that are made from JSON: kills, random damage, what was tried.

    python tests/reliability/reliabilitytables.py

writes them into the page, each between two comments with its name.
"""

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"
COMMANDS = {
    "prepare": "`prepare` of two dates",
    "prepare-zarr": "`prepare` from Zarr",
    "prepare-csv": "`prepare` from CSV",
    "prepare-regrid": "`prepare --regrid`",
    "predict": "`predict`",
    "fit": "`fit`",
    "apply": "`apply` to Zarr",
    "download": "`download`",
    "download-flaky": "`download` from a server that cuts, lies and refuses",
    "reproduce": "`reproduce`",
    "runner": "`reproduce --workers 2`",
    "score": "`score`",
    "report": "`report`",
    "export": "`export`",
    "demo": "`demo`",
}  # fmt: skip


def kills():
    """The kills of each command; those that earlier code was tried with are marked."""
    counts = json.loads((HERE / "kills.json").read_text())
    lines = ["| command | file operations | kills at them | at other moments | differences |"]
    lines.append("|---|---|---|---|---|")
    for name, label in COMMANDS.items():
        if name in counts:
            lines.append(_kills_of(label, counts[name]))
    return lines


def _kills_of(label, count):
    operations = sum(n for kind, n in count["operations"].items() if "sync" not in kind)
    elsewhere = count.get("at_random", 0)
    is_whole = count["every"] == 1
    place = "each" if is_whole else f"each {_ordinal(count['every'])}"
    at = f"{count['trials'] - elsewhere}, at {place}"
    if "at_random" not in count:
        at += " (earlier code)"
    differences = len(count["differences"])
    return f"| {label} | {operations} | {at} | {elsewhere} | {differences} |"


def _ordinal(n):
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"


def fuzz():
    """The inputs of each target, in the order of their number, and their sum."""
    counts = json.loads((HERE.parent / "fuzz" / "counts.json").read_text())
    rows = [
        (name, sum(one["mutations"].values()), one["atheris"], one["finds"])
        for name, one in counts.items()
    ]
    rows.sort(key=lambda row: -row[1])
    rows.append(("all", *(sum(row[n] for row in rows) for n in (1, 2, 3))))
    return [
        "| target | mutations | guided by coverage | failures |",
        "|---|---|---|---|",
        *(f"| {name} | {total:,} | {guided:,} | {finds} |" for name, total, guided, finds in rows),
    ]


def tried():
    """What was tried by hand, and what it gave."""
    rows = json.loads((HERE / "tried.json").read_text())
    return ["| tried | held |", "|---|---|", *(f"| {r['tried']} | {r['held']} |" for r in rows)]


TABLES = {"kills": kills, "fuzz": fuzz, "tried": tried}


def with_tables(page):
    """The page with its tables made anew."""
    for name, table in TABLES.items():
        pattern = rf"(<!-- table: {name} -->\n\n).*?(\n\n<!-- end -->)"
        text = "\n".join(table())
        page, count = re.subn(pattern, lambda m, t=text: m[1] + t + m[2], page, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page has {count} places for the table {name}")
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
