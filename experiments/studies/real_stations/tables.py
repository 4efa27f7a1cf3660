"""The table of one target: methods with intervals over dates, and published values."""

from collections.abc import Sequence

import xarray as xr

from ens10.experiments.reproduce.published import Value
from ens10.experiments.scoring.writers import ABSENT, columns_of, csv_of, markdown_of
from ens10.experiments.studies.leave_one_year_out import Line, lines_of
from ens10.experiments.studies.real_stations.methods import States, crps_of
from ens10.experiments.studies.study import with_bounds


def scored_lines(step: float, states: States, factor: float = 1.0) -> list[Line]:
    """Return a line for each method, with differences to raw.

    Args:
        step: lead time in hours.
        states: of the scores, by method.
        factor: from the units of the states to those of the table.
    """
    return lines_of(step, {name: _times(factor, one) for name, one in states.items()})


def _times(factor: float, states: xr.Dataset) -> xr.Dataset:
    crps = crps_of(states)
    return crps.assign(crps_sum=crps["crps_sum"] * factor)


def markdown(lines: Sequence[Line], published: Sequence[Value], units: str, note: str) -> str:
    """Return the table, from worst to best method, and the published values below.

    Args:
        lines: of one target and lead time.
        published: values of others for the same dates.
        units: of the CRPS.
        note: what data, last sentence below the table.
    """
    rows = []
    for line in sorted(lines, key=lambda one: -one.crps.value):
        changes = [ABSENT, ABSENT]
        if line.method != "raw":
            changes = [with_bounds(line.difference, "+.3f"), with_bounds(line.crpss, "+.3f")]
        rows.append([line.method, with_bounds(line.crps, ".4f"), *changes])
    rows += [[f"{value.line} ({value.source})", value.value, ABSENT, ABSENT] for value in published]
    heads = ["method", f"CRPS ({units})", f"CRPS less raw ({units})", "CRPSS against raw"]
    table = markdown_of(columns_of(heads, rows, text=range(4)), escape=False)
    return f"{table}\n{lines[0].dates:,} test dates; {note}\n"


def to_csv(lines: Sequence[Line], published: Sequence[Value]) -> str:
    """Return all numbers as CSV; published values have no interval, and name their source."""
    bounds = ("value", "lower", "upper")
    rows = [
        [n.step, n.method, "", n.dates]
        + [getattr(i, part) for i in (n.crps, n.difference, n.crpss) for part in bounds]
        for n in lines
    ]
    rows += [[lines[0].step, v.line, v.source, None, v.number, *8 * [None]] for v in published]
    scores = [f"{s}{p}" for s in ("crps", "difference", "crpss") for p in ("", "_lower", "_upper")]
    return csv_of(["step", "method", "source", "dates", *scores], rows, ".6g")
