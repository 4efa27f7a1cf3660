"""A case study as files: one picture, one table, one page."""

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ens10.command_options import CaseOptions, EventOptions
from ens10.durable import clear_leftovers, write_whole
from ens10.errors import ArgumentError
from ens10.experiments.reporting.case import Event, Numbers, event_facts, numbers_of, read_event
from ens10.experiments.reporting.case_inputs import (
    file_name,
    format_extremes,
    in_words,
    most_extreme,
)
from ens10.experiments.reporting.figures import case_figure
from ens10.experiments.reporting.pages import page
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.runs.locks import hold_lock
from ens10.experiments.scoring.writers import ABSENT, Column, csv_of_records, number
from ens10.metrics.figures.style import png
from ens10.options import chosen, takes

PAGE, PICTURE, TABLE = "index.html", "case.png", "numbers.csv"
_LOCK = "case.lock"


@takes(EventOptions)
def write_case(
    runs: Sequence[Path | str],
    date: str,
    region: str,
    out: Path | str | None = None,
    options: EventOptions | None = None,
    **named: Any,
) -> tuple[Event, Path]:
    """Write `index.html`, `case.png` and `numbers.csv` of one event.

    Args:
        runs: as for `read_event`.
        date: valid date.
        region: name, or "S,W,N,E".
        out: folder to write into; None for `case-DATE-REGION` here.
        options: as for `read_event`.
        **named: single options.

    Returns:
        The event, and the path of `index.html`.

    Raises:
        Ens10Error: as `read_event`; a file at `out`.
    """
    if out is not None:
        refuse_file(out)
    event = read_event(runs, date, region, options, **named)
    numbers = numbers_of(event)
    folder = Path(f"case-{when(event.valid)}-{file_name(region)}" if out is None else out)
    picture = png(case_figure(event))
    folder.mkdir(parents=True, exist_ok=True)
    content = _page(event, numbers, picture)
    with hold_lock(folder / _LOCK, "ens10 case", wait=True):
        clear_leftovers(folder, PICTURE, TABLE, PAGE)
        write_whole(folder / PICTURE, picture)
        write_whole(folder / TABLE, csv_of_records(Numbers, numbers, ".9g"))
        write_whole(folder / PAGE, content)
    return event, folder / PAGE


@takes(CaseOptions)
def run_case(runs: Sequence[Path], options: CaseOptions | None = None, **named: Any) -> str:
    """Run `ens10 case`; return what it prints.

    Args:
        runs: as for `read_event`.
        options: of the command; None for its defaults.
        **named: single options.

    Raises:
        ArgumentError: neither a date with a region nor `--worst`.
        Ens10Error: as `write_case` and `most_extreme`.
    """
    options = chosen(CaseOptions, options, named)
    date, region = options.date, options.region
    if options.worst is not None:
        return format_extremes(most_extreme(runs[0], options.worst, region, options.step))
    if date is None or region is None:
        argument = "date" if date is None else "region"
        raise ArgumentError(f"--{argument}", "not given", "List events to choose from: --worst 10")
    event, path = write_case(runs, date, region, options.out, options)
    return f"{in_lines(event)}\nWrote {path}"


def when(moment: np.datetime64) -> str:
    """Return a time as a date, with hour and minute unless it is midnight."""
    text = str(moment.astype("M8[m]"))
    return text[:10] if text.endswith("T00:00") else text.replace(":", "")


def in_lines(event: Event) -> str:
    """Return the event and the scores of each forecast as lines for a terminal."""
    units = f" {event.units}" if event.units not in ("", "1") else ""
    lines = [_title(event)]
    for row in numbers_of(event):
        gained = "" if np.isnan(row.skill) else f", {100 * row.skill:+.1f} % against raw"
        lines.append(f"  {row.name}: CRPS {row.crps:.4g}{units}{gained}")
    return "\n".join(lines)


def columns(numbers: Sequence[Numbers], units: str) -> list[Column]:
    """Return the columns of the table, without those that have no number."""
    u = f" ({units})" if units not in ("", "1") else ""

    def make_column(
        heading: str, values: Sequence[float], digits: int, factor: float = 1.0
    ) -> Column:
        return Column(heading, tuple(number(factor * value, f".{digits}f") for value in values))

    scale = max((abs(row.crps) for row in numbers if np.isfinite(row.crps)), default=1.0)
    digits = max(0, 3 - int(np.floor(np.log10(scale)))) if scale > 0 else 3
    all_columns = [
        Column("Forecast", tuple(row.name for row in numbers), numeric=False),
        make_column(f"Mean{u}", [row.centre for row in numbers], min(digits, 2)),
        make_column(f"Mean error{u}", [row.error for row in numbers], digits),
        make_column(f"RMSE of the mean{u}", [row.rmse for row in numbers], digits),
        make_column(f"Spread{u}", [row.spread for row in numbers], digits),
        make_column(f"CRPS{u}", [row.crps for row in numbers], digits),
        make_column(f"Gain over raw{u}", [row.gain for row in numbers], digits),
        make_column("CRPSS (%)", [row.skill for row in numbers], 1, 100),
        make_column("Better than raw (% of area)", [row.better for row in numbers], 0, 100),
        make_column(f"CRPS by |EFI|{u}", [row.crps_extreme for row in numbers], digits),
    ]
    return [column for column in all_columns if set(column.cells) != {ABSENT}]


def _title(event: Event) -> str:
    return f"{event.target} on {when(event.valid)}, {in_words(event.region)}"


def _page(event: Event, numbers: Sequence[Numbers], picture: bytes) -> str:
    best = min(numbers, key=lambda row: row.crps)
    lead = (
        f"Forecasts of {when(event.start)} for {when(event.valid)}, and what happened. Of these, "
        f"{best.name} has the lowest CRPS over the region. One event is an example: "
        "whether a model is better is told by all test dates (ens10 report)."
    )
    return page(
        "case",
        f"Case study: {_title(event)}",
        lead,
        picture=b64encode(picture).decode("ascii"),
        forecasts=len(numbers),
        columns=columns(numbers, event.units),
        extreme=event.efi is not None,
        event=_facts(event),
    )


def _facts(event: Event) -> dict[str, str]:
    units = f" {event.units}" if event.units not in ("", "1") else ""
    facts = {
        "Start": when(event.start),
        "Valid": when(event.valid),
        "Region": in_words(event.region),
        "Model climate": event.climate,
    }
    for name, value in event_facts(event).items():
        if name == "points":
            facts["Grid points"] = f"{value:.0f}"
        elif "EFI" in name:
            facts[name] = number(value, ".2f")
        else:
            facts[name] = f"{number(value, '.2f')}{units}"
    return facts
