"""Tables and lines that the commands print."""

import math
import os
import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ens10 import catalog
from ens10.errors import listing, printable

_PIPED_WIDTH = 120

if TYPE_CHECKING:
    from ens10.convert import Verification
    from ens10.inspection import Row


def print_info() -> None:
    """Print what ENS-10 is: variables, levels, dates, size, licence, citation."""
    console = _console(markup=True)
    rows, columns = catalog.GRID_SHAPE
    days = catalog.month_days()
    first, last = catalog.HINDCAST_YEARS[0], catalog.HINDCAST_YEARS[-1]
    console.print(
        "[bold]ENS-10[/]: ECMWF ensemble re-forecasts for post-processing, with ERA5 as truth"
    )
    facts = {
        "members": f"{len(catalog.MEMBERS)}, exchangeable",
        "start dates": f"{len(days)} a year (MMDD {days[0]} to {days[-1]}), {first}-{last}, 00 UTC:"
        f" {len(days) * len(catalog.HINDCAST_YEARS)} in all",
        "lead times": ", ".join(map(str, catalog.STEPS_HOURS)) + " h",
        "grid": f"{rows} x {columns} (0.5 degree), 90N to 90S, 0E to 359.5E",
        "levels": ", ".join(map(str, catalog.LEVELS_HPA)) + " hPa",
        "targets": "geopotential at 500 hPa, temperature at 850 hPa, 2 m temperature, at 48 h",
        "files": f"output.{{sfc,pl}}.{catalog.MODEL_YEAR}MMDD, GRIB edition 1, about 3 TB",
        "data licence": catalog.DATA_LICENCE,
    }
    for name, fact in facts.items():
        console.print(f"  {name:<13}{fact}", highlight=False)
    table = Table("name", "GRIB", "param", "kind", "units", "what it is", box=None, padding=(0, 2))
    for v in catalog.VARIABLES.values():
        table.add_row(v.name, v.short_name, str(v.param_id), v.kind, v.units, v.long_name)
    console.print(table)
    console.print(f"Cite: {catalog.CITATION}", highlight=False)


def print_rows(title: str, rows: "Sequence[Row]") -> None:
    """Print the table of `ens10 inspect`, with notes and errors in full below it."""
    console = _console()
    header = ("variable", "level", "dates", "steps", "members", "missing", "min", "mean", "max",
              "units", "status")  # fmt: skip
    table = Table(*header, box=None, padding=(0, 1))
    fields = [row for row in rows if row.dates or row.level]
    for row in fields:
        statistics = (row.minimum, row.mean, row.maximum)
        numbers = ["" if math.isnan(value) else f"{value:.6g}" for value in statistics]
        steps = ",".join(map(str, row.steps[:4])) + ("..." if len(row.steps) > 4 else "")
        cells = (
            row.name, row.level, str(row.dates or "?"), steps, str(row.members or "?"),
            str(row.missing), *numbers, row.units, "ok" if row.status == "ok" else "look below",
        )  # fmt: skip
        table.add_row(*map(printable, cells))
    _line(console, title, "bold")
    console.print(table)
    lines = [f"dates: {row.first_date} to {row.last_date}" for row in fields if row.first_date]
    lines += [f"grid: {row.grid}" for row in fields if row.grid]
    for line in dict.fromkeys(lines):
        _line(console, line)
    for note, rows_of_note in _notes(fields).items():
        _line(console, f"{rows_of_note}: {note}")
    for row in rows:
        if row.status != "ok":
            _line(console, f"{_row_name(row)}: {row.status}", "red")


def _notes(rows: "Sequence[Row]") -> dict[str, str]:
    """Return the names of the rows of each note; the rows of one file often have the same note."""
    notes = dict.fromkeys(part for row in rows for part in row.note.split("; ") if part)
    rows_of_note = {}
    for note in notes:
        row_names = [_row_name(row) for row in rows if note in row.note.split("; ")]
        all_rows = len(row_names) == len(rows) > 1
        rows_of_note[note] = f"all {len(rows)} rows" if all_rows else listing(row_names)
    return rows_of_note


def _row_name(row: "Row") -> str:
    return f"{row.name} {row.level}".removesuffix("?").strip()


def _line(console: Console, text: str, style: str = "") -> None:
    """Print a line without wrapping, since paths may be long."""
    console.print(printable(text), style=style, highlight=False, soft_wrap=True)


def _console(*, markup: bool = False) -> Console:
    """Return a console that is wider than 80 columns if the output is piped.

    Names of files and variables may contain brackets and colons, which are no markup.
    """
    plain = Console(markup=markup, emoji=False)
    if plain.is_terminal:
        return plain
    return Console(markup=markup, emoji=False, width=_PIPED_WIDTH)


def print_store(path: Path) -> None:
    """Print the channels, sizes and truth of a store."""
    from ens10.channels import channel_names
    from ens10.store import forecasts, open_store, store_kinds

    dataset = forecasts(path)
    sizes = ", ".join(f"{n} {name}" for name, n in dataset.sizes.items())
    print(printable(f"{path}: {', '.join(channel_names(dataset))}; {sizes}"))
    if "truth" not in store_kinds(path):
        print("No truth: a model needs it (--truth)")
        return
    truth = open_store(path, "truth")
    steps = ", ".join(map(str, truth["step"].to_numpy().tolist()))
    methods = {field.attrs.get("regridded") for field in truth.data_vars.values()} - {None}
    line = f"Truth: {', '.join(channel_names(truth))} at step {steps}, {truth.sizes['time']} dates"
    print(printable("; ".join([line, *(f"interpolated: {method}" for method in methods)])))


def print_verification(path: Path, verification: "Verification") -> None:
    """Print the result of `ens10 verify`: a line for each fault, and a summary."""
    console = _console()
    faults = [
        *(f"{name}: {reason}" for name, reason in verification.damaged),
        *(f"{name}: missing" for name in verification.missing),
        *(f"{name}: should not be there" for name in verification.extra),
        *(f"{name}: differs from the source at {place}" for name, place in verification.differing),
    ]
    for line in faults:
        _line(console, line, "red")
    for name in verification.repaired:
        _line(console, f"{name}: written again")
    size = f"{verification.chunks} files, {verification.bytes / 1e9:.2f} GB read"
    sample = f", {verification.sampled} fields decoded again" if verification.sampled else ""
    if verification.ok:
        _line(console, f"{path}: intact ({size}{sample})", "green")
    else:
        _line(console, f"{path}: {len(faults)} wrong ({size}). Repair it with --repair", "red")


def print_environment() -> None:
    """Print the versions of this package and its dependencies, and the machine."""
    print(f"ens10 {version('ens10')}")
    print(f"python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores")
    names = {re.split(r"[;\[<>=!~ ]", requirement)[0] for requirement in requires("ens10") or ()}
    for name in sorted(names - {"ens10"}):
        try:
            print(f"{name} {version(name)}")
        except PackageNotFoundError:
            print(f"{name} not installed")
