"""The parts of a report's page that are drawn: maps, calibration, learning."""

from collections.abc import Mapping
from html import escape

import xarray as xr

from ens10.experiments import page
from ens10.experiments.finished import FinishedRun
from ens10.experiments.maps import skill_map
from ens10.experiments.reporting.charts import (
    Dot,
    curves,
    histogram,
    interval_chart,
    losses,
    relative,
    reliability,
)
from ens10.experiments.reporting.choices import choice
from ens10.experiments.reporting.diagnostics import QUANTILE, Diagnosis
from ens10.experiments.reporting.groups import Group
from ens10.experiments.reporting.mapimages import Kind, Scale, colour_bar, map_picture, scale_of
from ens10.experiments.reporting.svg import label, panels
from ens10.experiments.tables import columns
from ens10.metrics import finish_mean, reliability_diagram

Diagnoses = Mapping[str, Diagnosis]
Fields = Mapping[str, xr.DataArray]
_INDEPENDENT = 0.01  # share of points that err for themselves: neighbours and dates are alike


def crps_chart(group: Group) -> str:
    """CRPS of each forecast with its interval; the optimum is a line."""
    rows = [row for row in group.rows if row.kind != "optimum"]
    best = next((row for row in group.rows if row.kind == "optimum"), None)
    column = next(c for c in columns(group.rows) if c.heading.startswith("CRPS"))
    named = dict(zip([row.model for row in group.rows], column.cells, strict=True))
    dots = [Dot(r.model, r.crps, named[r.model], r.model == group.reference) for r in rows]
    confidence = 100 * group.rows[0].confidence
    axis = f"{column.heading}, lower is better; {confidence:g} % interval"
    if best is None:
        return interval_chart(dots, axis)
    what = f"the best forecast that is possible, {named[best.model].split(' [')[0]}"
    return interval_chart(dots, axis, rule=best.crps.value, told=what)


def _units(units: str) -> str:
    return f" ({units})" if units not in ("", "1") else ""


def maps(group: Group, diagnoses: Diagnoses, number: int) -> str:
    """Maps of skill, CRPS, bias and spread, a tab each.

    Args:
        group: of runs.
        diagnoses: by the names of runs that have predictions.
        number: of the group in the page.
    """
    units = _units(group.rows[0].units)
    kinds: dict[str, tuple[Fields, Kind, str, str]] = {
        "Skill": (
            _skills(group), "better", f"CRPSS against {group.reference} (%)",
            f"Blue: better than {group.reference}; red: worse.",
        ),
        "CRPS": (_crps(group), "no", f"CRPS{units}", "Bright: large errors."),
        "Bias": (
            {n: d.bias for n, d in diagnoses.items()}, "deviation",
            f"mean of the forecast less the truth{units}",
            "Red: forecasts are too high; blue: too low.",
        ),
        "Spread": (
            {n: d.spread for n, d in diagnoses.items()}, "no", f"spread{units}",
            "Root of the mean variance.",
        ),
        "Spread/error": (
            {n: d.ratio for n, d in diagnoses.items()}, "ratio", "spread over error",
            "Purple: too sure, the spread is smaller than the error; orange: not sure enough.",
        ),
    }  # fmt: skip
    made = {}
    for n, (name, (fields, kind, what, told)) in enumerate(kinds.items()):
        drawn = {run: field for run, field in fields.items() if bool(field.notnull().any())}
        if drawn:
            made[name] = _tab(drawn, kind, what, told, f"{number}-{n}")
    if not made:
        return page.paragraphs("No maps: these runs were scored without them.")
    shown = choice(made, "Quantity on the maps", name="quantity", level=4)
    return f"{shown}\n{page.paragraphs(*_map_notes(group, diagnoses), kind='note')}"


def _skills(group: Group) -> Fields:
    against = group.against
    if against is None or "crps_map_sum" not in against.states:
        return {}
    others = [r for r in group.runs if r is not against and "crps_map_sum" in r.states]
    return {run.name: 100 * skill_map(run.states, against.states) for run in others}


def _crps(group: Group) -> Fields:
    held = [run for run in group.runs if "crps_map_sum" in run.states]
    return {run.name: finish_mean(run.states, "crps_map") for run in held}


def _tab(fields: Fields, kind: Kind, what: str, told: str, number: str) -> str:
    scale = scale_of(list(fields.values()), kind)
    made = [(escape(name), _map(name, field, scale, what)) for name, field in fields.items()]
    below = page.paragraphs(f"{told} Grey: nothing to show.", kind="note")
    return f"{colour_bar(scale, what, number)}\n{below}\n{panels(made, wide=True, kind='map')}"


def _map(name: str, field: xr.DataArray, scale: Scale, what: str) -> str:
    low, middle, high = (float(v) for v in field.quantile([0.05, 0.5, 0.95]))
    told = f"Map for {name} of {what}: median {label(float(f'{middle:.3g}'))}, "
    ends = (label(float(f"{v:.3g}")) for v in (low, high))
    return map_picture(field, scale, told + "nine points in ten from {} to {}".format(*ends))


def _map_notes(group: Group, diagnoses: Diagnoses) -> list[str]:
    told = [
        f"One point has only {group.rows[0].dates} dates, so small patches of colour are chance. "
        "Maps of one quantity share their colours."
    ]
    bare = [run.name for run in group.runs if run.name not in diagnoses]
    if bare:
        told.append(
            "Bias, spread and reliability need the predictions of a run, which are not there for "
            f"{', '.join(bare)}."
        )
    return told


def calibration(group: Group, diagnoses: Diagnoses) -> str:
    """Histograms, spread beside error, and reliability of an extreme event."""
    parts = [_histograms(group), _spread(group), _reliability(group, diagnoses)]
    shown = [part for part in parts if part]
    return "\n".join(shown) or page.paragraphs(
        "No histograms and no spread: these runs were scored without them."
    )


def _histograms(group: Group) -> str:
    chosen: list[tuple[str, FinishedRun, str]] = []
    for run in sorted(group.runs, key=lambda run: run.name != group.reference):
        if run.name == group.reference and "rank_count" in run.states:
            chosen.append(("rank", run, "rank_count"))
        if "pit_count" in run.states:
            chosen.append(("PIT", run, "pit_count"))
    if not chosen:
        return ""
    heights = [relative(run.states[name]).max() for _, run, name in chosen]
    top = min(1.05 * max(float(max(heights)), 1.3), 4.0)
    made = [
        (
            f"{escape(run.name)} <small>{what}</small>",
            histogram(run.states[name], run.name, top, reference=run.name == group.reference),
        )
        for what, run, name in chosen
    ]
    before = f"{group.reference} is orange. " * (group.against is not None)
    told = (
        f"Where the truth falls in the forecast. {before}Calibrated forecasts follow the dashed "
        "line; a U has too little spread, a dome too much, a slope a bias. No band of chance is "
        "drawn: neighbouring points err together, so the number of points does not tell it."
    )
    return f"<h3>Rank and PIT histograms</h3>\n{panels(made)}\n{page.paragraphs(told, kind='note')}"


def _spread(group: Group) -> str:
    dots = []
    for row in group.rows:
        if (ratio := row.spread_error) is not None:
            bounds = f" [{ratio.lower:.3f}, {ratio.upper:.3f}]" * (ratio.lower == ratio.lower)
            reference = row.model == group.reference
            dots.append(Dot(row.model, ratio, f"{ratio.value:.3f}{bounds}", reference))
    if not dots:
        return ""
    told = "1, where the spread tells the size of the error"
    chart = interval_chart(dots, "Spread/error", rule=1.0, told=told)
    return f"<h3>Spread and error</h3>\n{chart}"


def _reliability(group: Group, diagnoses: Diagnoses) -> str:
    made = []
    for name, found in diagnoses.items():
        diagram = reliability_diagram(found.events, independent=_INDEPENDENT)
        drawn = reliability(diagram, name, reference=name == group.reference)
        made.append((escape(name), drawn))
    if not made:
        return ""
    told = (
        f"Probability of a truth above the {100 * QUANTILE:g}th percentile of all truth at its "
        "grid point (across), and how often that happened (up). Reliable forecasts follow the "
        "dashed line; below it they warn too often, above it too seldom. Grey bars: where "
        f"reliable forecasts lie by chance if one point in {1 / _INDEPENDENT:g} errs for itself."
    )
    return f"<h3>Reliability of extremes</h3>\n{panels(made)}\n{page.paragraphs(told, kind='note')}"


def learning(group: Group) -> str:
    """Training and validation loss of the runs that were trained by epochs."""
    learned = [run for run in group.runs if len(run.log) > 1]
    if not learned:
        return page.paragraphs("No curves: no run here was trained for more than one epoch.")
    key = (
        '<p class="note">Loss by epoch: '
        '<svg class="key" viewBox="0 0 36 8" aria-hidden="true">'
        '<polyline class="curve" points="0,4 36,4"/></svg> validation, '
        '<svg class="key" viewBox="0 0 36 8" aria-hidden="true">'
        '<polyline class="curve second" points="0,4 36,4"/></svg> training. The dot is the epoch '
        "with the lowest validation loss. Each panel has its own axis; steep beginnings are cut "
        "off.</p>"
    )
    made = []
    for run in learned:
        crps = all(epoch.val_loss == epoch.val_crps for epoch in run.log)
        what = f"CRPS{_units(run.units)}" if crps else "loss"
        title = f"{escape(run.name)} <small>{escape(what)}</small>"
        made.append((title, curves(run, losses(run))))
    return f"{key}\n{panels(made, wide=True)}"
