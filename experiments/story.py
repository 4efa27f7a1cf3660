"""The words of a report: what was compared, what came out, how to read it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ens10.experiments.finished import FinishedRun
from ens10.experiments.reporting.groups import step_of
from ens10.experiments.tables import Row, columns
from ens10.experiments.writers import ABSENT, Column
from ens10.grid import is_global
from ens10.metrics.figures.maps import degrees
from ens10.stations import STATION

_SPLITS = {"train": "Training dates", "val": "Validation dates", "test": "Test dates"}
_WEIGHTS = {"cell": "exact cell areas", "cos": "cosine of latitude", "none": "none"}


def lead(rows: Sequence[Row], reference: str) -> str:
    """One sentence that says what came out."""
    models = [row for row in rows if row.kind == "model" and row.model != reference]
    if not models:
        return f"{len(rows)} forecast{'s' * (len(rows) > 1)}, scored on {rows[0].dates} dates."
    best = min(models, key=lambda row: row.crps.value)
    cells = {c.heading.split(" (")[0]: c.cells[rows.index(best)] for c in columns(rows)}
    text = f"Lowest CRPS of {len(models)} model{'s' * (len(models) > 1)}: {best.model}, "
    text += f"{cells['CRPS'].split(' [')[0]} {best.units}".rstrip()
    if best.crpss is not None:
        text += f"; skill {cells['CRPSS'].split(' [')[0]} % against {reference}"
    if best.attained is not None:
        text += f", {cells['Attained skill'].split(' [')[0]} % of what is possible here"
    return f"{text}. Scored on {best.dates} test dates."


def compared(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Target, lead, dates, grid, weights and protocol; what is not known is shown as –."""
    first = runs[0].states
    told = {"Target": _target(runs), "Lead time": _agreed(runs, step_of)}
    told |= {
        label: _agreed(runs, lambda run, split=split: _split(run, split))  # type: ignore[misc]
        for split, label in _SPLITS.items()
    }
    if any(run.provenance.get("dates_in_gap") for run in runs):
        told["Dates dropped between splits"] = _agreed(
            runs, lambda run: str(run.provenance.get("dates_in_gap", 0))
        )
    told["Scored"] = _scored(runs[0])
    told["Grid"] = _grid(runs[0])
    told["Weights of grid points"] = _WEIGHTS.get(str(first.attrs.get("weights")), ABSENT)
    told["Protocol"] = _agreed(runs, lambda run: run.provenance.get("protocol"))
    return told


def _target(runs: Sequence[FinishedRun]) -> str:
    name = _agreed(runs, lambda run: run.provenance.get("target"))
    units = _agreed(runs, lambda run: run.provenance.get("target_units") or run.units or None)
    return name if units == ABSENT else f"{name} ({units})"


def _split(run: FinishedRun, split: str) -> str | None:
    count = (run.provenance.get("dates") or {}).get(split)
    if count is None:
        return None
    years = (run.provenance.get("years") or {}).get(split) or []
    return f"{count} ({_ranges(years)})" if years else str(count)


def _ranges(years: Sequence[int]) -> str:
    """Years with runs of neighbours drawn together: 1998–2003, 2005."""
    parts: list[list[int]] = []
    for year in sorted(set(years)):
        if parts and year == parts[-1][-1] + 1:
            parts[-1].append(year)
        else:
            parts.append([year])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)


def _scored(run: FinishedRun) -> str:
    when = run.states["valid_time" if "valid_time" in run.states.coords else "time"].to_numpy()
    days = np.sort(when, axis=None).astype("datetime64[D]")
    what = "valid" if "valid_time" in run.states.coords else "started"
    return f"{days.size} dates, {what} {days[0]} to {days[-1]}"


def _grid(run: FinishedRun) -> str:
    if STATION in run.states.dims:
        return f"{run.states.sizes[STATION]} stations"
    if "latitude" not in run.states.coords or "longitude" not in run.states.coords:
        return ABSENT
    lat, lon = run.states["latitude"].to_numpy(), run.states["longitude"].to_numpy()
    north, south = (degrees(round(float(edge), 2), "NS") for edge in (lat.max(), lat.min()))
    where = f"{north} to {south}"
    where += ", global" if is_global(lon) else ", regional"
    return f"{lat.size} × {lon.size} (latitude × longitude), {where}"


def provenance(runs: Sequence[FinishedRun]) -> list[Column]:
    """Seed, commit and data of each run."""

    def told(heading: str, value: Callable[[FinishedRun], Any]) -> Column:
        return Column(heading, tuple(_text(value(run)) for run in runs), numeric=False)

    return [
        told("Run", lambda run: run.name),
        told("Kind", lambda run: run.kind),
        told("Seed", lambda run: run.provenance.get("seed")),
        told("Commit", lambda run: run.provenance.get("commit")),
        told("Data", lambda run: (run.provenance.get("data") or {}).get("store")),
        told("Checksum of data", lambda run: (run.provenance.get("data") or {}).get("checksum")),
    ]


def versions(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """Versions of the packages, by package."""
    packages: list[str] = []
    for run in runs:
        found = run.provenance.get("versions") or {}
        packages += [name for name in found if name not in packages]
    return {
        f"Version of {name}": _agreed(
            runs,
            lambda run, name=name: (run.provenance.get("versions") or {}).get(name),  # type: ignore[misc]
        )
        for name in packages
    } or {"Versions": ABSENT}


def _agreed(runs: Sequence[FinishedRun], value: Callable[[FinishedRun], Any]) -> str:
    """The one value that all who tell it tell; else each with the runs that tell it."""
    who: dict[str, list[str]] = {}
    for run in runs:
        if (told := value(run)) is not None:
            who.setdefault(str(told), []).append(run.name)
    if len(who) < 2:
        return next(iter(who), ABSENT)
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in who.items())


def _text(value: Any) -> str:
    return ABSENT if value is None else str(value)


def no_reference(reference: str) -> str:
    """Why there is no skill in the table."""
    return (
        f"No run is called {reference}, so there is nothing to measure skill against: CRPSS and "
        "attained skill are left out. Add that run to the report to see them."
    )
