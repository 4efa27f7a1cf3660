"""Tables and lines that the commands print."""

import math
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ens10 import catalog
from ens10.errors import listing

_PIPED_WIDTH = 120

if TYPE_CHECKING:
    from ens10.convert import Verification
    from ens10.inspection import Row


def print_info() -> None:
    """What ENS-10 is: variables, levels, dates, size, licence, citation."""
    console = _console()
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
    """The table of `ens10 inspect`; notes and what is wrong are printed in full below it."""
    console = _console()
    header = ("variable", "level", "dates", "steps", "members", "missing", "min", "mean", "max",
              "units", "status")  # fmt: skip
    table = Table(*header, box=None, padding=(0, 1))
    fields = [row for row in rows if row.dates or row.level]
    for row in fields:
        statistics = (row.minimum, row.mean, row.maximum)
        numbers = ["" if math.isnan(value) else f"{value:.6g}" for value in statistics]
        steps = ",".join(map(str, row.steps[:4])) + ("..." if len(row.steps) > 4 else "")
        table.add_row(
            row.name, row.level, str(row.dates or "?"), steps, str(row.members or "?"),
            str(row.missing), *numbers, row.units, "ok" if row.status == "ok" else "look below",
        )  # fmt: skip
    _line(console, title, "bold")
    console.print(table)
    for line in dict.fromkeys(f"dates: {row.first} to {row.last}" for row in fields if row.first):
        _line(console, line)
    for line in dict.fromkeys(f"grid: {row.grid}" for row in fields if row.grid):
        _line(console, line)
    for note, places in _notes(fields).items():
        _line(console, f"{places}: {note}")
    for row in rows:
        if row.status != "ok":
            _line(console, f"{_place(row)}: {row.status}", "red")


def _notes(rows: "Sequence[Row]") -> dict[str, str]:
    """Each note with the rows that it is about: those of one file often share it."""
    notes = dict.fromkeys(part for row in rows for part in row.note.split("; ") if part)
    places = {}
    for note in notes:
        row_names = [_place(row) for row in rows if note in row.note.split("; ")]
        all_rows = len(row_names) == len(rows) > 1
        places[note] = f"all {len(rows)} rows" if all_rows else listing(row_names)
    return places


def _place(row: "Row") -> str:
    return f"{row.name} {row.level}".removesuffix("?").strip()


def _line(console: Console, text: str, style: str = "") -> None:
    """One line as it is: paths may hold brackets, which are markup to rich, and be long."""
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def _console() -> Console:
    """A console that does not squeeze tables into 80 columns when the output is piped."""
    plain = Console()
    return plain if plain.is_terminal else Console(width=_PIPED_WIDTH)


def print_store(path: Path) -> None:
    """What `ens10 prepare` made."""
    from ens10.channels import channel_names
    from ens10.store import forecasts, open_store, store_kinds

    dataset = forecasts(path)
    sizes = ", ".join(f"{n} {name}" for name, n in dataset.sizes.items())
    print(f"{path}: {', '.join(channel_names(dataset))}; {sizes}")
    if "truth" not in store_kinds(path):
        print("No truth: a model needs it (--truth)")
        return
    truth = open_store(path, "truth")
    steps = ", ".join(map(str, truth["step"].to_numpy().tolist()))
    methods = {field.attrs.get("regridded") for field in truth.data_vars.values()} - {None}
    line = f"Truth: {', '.join(channel_names(truth))} at step {steps}, {truth.sizes['time']} dates"
    print(line, *(f"interpolated: {method}" for method in methods), sep="; ")


def print_verification(path: Path, found: "Verification") -> None:
    """What `ens10 verify` found: a line for all, and one for each thing that is wrong."""
    console = _console()
    faults = [
        *(f"{name}: {reason}" for name, reason in found.damaged),
        *(f"{name}: missing" for name in found.missing),
        *(f"{name}: should not be there" for name in found.extra),
        *(f"{name}: differs from the source at {place}" for name, place in found.differing),
    ]
    for line in faults:
        _line(console, line, "red")
    for name in found.repaired:
        _line(console, f"{name}: made anew")
    size = f"{found.chunks} files, {found.bytes / 1e9:.2f} GB read"
    sample = f", {found.sampled} fields decoded again" if found.sampled else ""
    if found.ok:
        _line(console, f"{path}: whole ({size}{sample})", "green")
    else:
        _line(console, f"{path}: {len(faults)} wrong ({size}). Mend it with --repair", "red")


def print_environment() -> None:
    """Versions of this package and what it needs, and the machine."""
    print(f"ens10 {version('ens10')}")
    print(f"python {platform.python_version()}, {platform.platform()}, {os.cpu_count()} cores")
    names = {requirement.split(";")[0] for requirement in requires("ens10") or ()}
    for name in sorted({_bare(name) for name in names} - {"ens10"}):
        try:
            print(f"{name} {version(name)}")
        except PackageNotFoundError:
            print(f"{name} not installed")


def _bare(requirement: str) -> str:
    for n, character in enumerate(requirement):
        if character in "[<>=!~ ":
            return requirement[:n]
    return requirement
