"""The tables of docs/reliability.md: kills, random damage, what was tried, names of tests.

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
    "fit-python": "`ens10.fit` with a network as object",
    "apply": "`apply` to Zarr",
    "apply-netcdf": "`apply` to netCDF",
    "bundle": "`bundle`",
    "submit": "`submit pack`",
    "download": "`download`",
    "download-flaky": "`download` from a server that cuts, lies and refuses",
    "reproduce": "`reproduce`",
    "runner": "`reproduce --workers 2`",
    "score": "`score`",
    "report": "`report`",
    "export": "`export`",
    "demo": "`demo`",
}  # fmt: skip

TESTS = {
    "signals": (
        "reliability/test_signals reliability/test_signals_of_processes"
        " ens10/test_signals_in_finalisers reliability/test_plateau"
    ),
    "checkpoints, files": (
        "reliability/test_checkpoints ens10/test_durable"
    ),
    "resuming": (
        "ens10/test_resume_inputs ens10/test_partial experiments/test_resume_apply"
    ),
    "what is replaced": (
        "ens10/test_partial ens10/test_convert experiments/test_resume_apply"
    ),
    "disks, limits, places": (
        "reliability/test_disk reliability/test_refusals ens10/test_machine_errors"
        " reliability/test_limits reliability/test_odd_names ens10/test_places"
        " ens10/test_compiled packaging/test_pythons"
    ),
    "kills, fuzz": (
        "reliability/test_killsweep reliability/test_reliability_tables"
        " fuzz/test_fuzz"
    ),
    "locks": (
        "reliability/test_locks"
    ),
    "predictions, scores, bytes": (
        "reliability/test_integrity reliability/test_netcdf_threads"
        " packaging/test_lowest ens10/test_order ens10/test_verifying"
    ),
    "files of other people": (
        "reliability/test_runs_of_others experiments/test_hostile_bundles"
        " ens10/test_printable ens10/test_untrusted ens10/test_packed16_hostile"
    ),
    "damaged sources": (
        "ens10/test_sections ens10/test_isolated ens10/test_absent_chunks"
    ),
    "training": (
        "ens10/test_record reliability/test_what_a_training_reads"
        " models/test_numerics_of_every_model ens10/test_memory"
    ),
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
        (n, sum(one["mutations"].values()), one["atheris"], one.get("compared", 0), one["finds"])
        for n, one in counts.items()
    ]
    rows.sort(key=lambda row: -row[1])
    rows.append(("all", *(sum(row[n] for row in rows) for n in (1, 2, 3, 4))))
    return [
        "| target | mutations | guided by coverage | values compared | failures |",
        "|---|---|---|---|---|",
        *("| " + " | ".join([name, *(f"{n:,}" for n in row)]) + " |" for name, *row in rows),
    ]


def tried():
    """What was tried by hand, and what it gave."""
    rows = json.loads((HERE / "tried.json").read_text())
    return ["| tried | held |", "|---|---|", *(f"| {r['tried']} | {r['held']} |" for r in rows)]


def tests():
    """The tests of each topic; those of what was tried are named in its JSON."""
    return [
        "| of | tests |",
        "|---|---|",
        *(
            f"| {topic} | {', '.join(f'`tests/{name}.py`' for name in names.split())} |"
            for topic, names in TESTS.items()
        ),
    ]


TABLES = {"kills": kills, "fuzz": fuzz, "tried": tried, "tests": tests}


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
