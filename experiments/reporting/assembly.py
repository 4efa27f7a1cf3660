"""Assembly of a report's page: the data that its template shows of each group of runs."""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr
import yaml

from ens10.errors import FileError
from ens10.experiments.reporting import summary
from ens10.experiments.reporting.charts import (
    Dot,
    Kind,
    Scale,
    colour_bar,
    curves,
    histogram,
    interval_chart,
    label,
    loss_limits,
    map_picture,
    reliability,
    scale_of,
)  # fmt: skip
from ens10.experiments.reporting.diagnostics import QUANTILE, Diagnosis
from ens10.experiments.reporting.figures import histograms_of, skill_map
from ens10.experiments.reporting.groups import Group
from ens10.experiments.reporting.pages import page
from ens10.experiments.reporting.scorecard import Line, card_of_runs, card_table, overview
from ens10.experiments.runs.provenance import run_of
from ens10.experiments.scoring import members
from ens10.experiments.scoring.run_results import FinishedRun
from ens10.experiments.scoring.tables import columns, notes
from ens10.experiments.scoring.writers import ABSENT, Column
from ens10.metrics import finish_mean, reliability_diagram
from ens10.metrics.figures.diagrams import relative_frequency
from ens10.metrics.figures.style import in_units
from ens10.untrusted import read_mapping

CONFIG = "config.yaml"
_INDEPENDENT = 0.01  # share of points that err for themselves: neighbours and dates are alike
Diagnoses = Mapping[str, Diagnosis]
View = dict[str, Any]


def assemble(title: str, groups: Sequence[Group], diagnoses: Sequence[Diagnoses]) -> str:
    """Return the HTML page of a report.

    Args:
        title: plain text.
        groups: in the order in which they are shown.
        diagnoses: of each group, by the names of runs.
    """
    cards = [card_of_runs(group) for group in groups]
    views = [_view(*parts) for parts in zip(groups, cards, diagnoses, strict=True)]
    targets: dict[str, dict[str, View]] = {}
    for group, view in zip(groups, views, strict=True):
        targets.setdefault(group.target or ABSENT, {})[group.step or ABSENT] = view
    reference, side_by_side = groups[0].reference, None
    if len(groups) > 1 and any(group.reference_run for group in groups):
        side_by_side = overview([group.title for group in groups], cards, reference)
    rows = [row for group in groups for row in group.rows]
    return page(
        "report",
        title,
        summary.lead(groups),
        targets=targets,
        overview=side_by_side,
        with_ensembles=any(view["members"] or view["limited"] for view in views),
        quantile=QUANTILE,
        independent=_INDEPENDENT,
        reference=reference,
        with_skill=any(row.crpss for row in rows),
        with_optimum=any(row.attained for row in rows),
    )


def _view(group: Group, card: Sequence[Line], diagnoses: Diagnoses) -> View:
    """Return the data of a group for the template."""
    configs = {run.name: _config(group, run) for run in group.runs}
    return {
        "reference": group.reference,
        "against": group.reference_run,
        "dates": group.rows[0].dates,
        "in_short": summary.in_short(group, card),
        "compared": summary.describe_comparison(group.runs),
        "card": card_table(card, group.reference),
        "crps": _crps_chart(group),
        "scores": columns(group.rows),
        "notes": " ".join(notes(group.rows)),
        "maps": _maps(group, diagnoses),
        "bare": [run.name for run in group.runs if run.name not in diagnoses],
        "histograms": _histograms(group),
        "spread": _spread(group),
        "reliability": _reliability(group, diagnoses),
        "members": members.columns_of_members(group.runs, group.rows),
        "on_members": members.in_words(group.runs),
        "limited": _columns_by_members(group),
        "learning": [_learning(run) for run in group.runs if len(run.log) > 1],
        "cost": _cost(group),
        "provenance": summary.provenance(group.runs),
        "versions": summary.versions(group.runs),
        "configs": {name: text for name, text in configs.items() if text},
    }


def _crps_chart(group: Group) -> View:
    """Return the chart of each forecast's CRPS with its interval; the optimum is a line."""
    rows = [row for row in group.rows if row.kind != "optimum"]
    optimum = next((row for row in group.rows if row.kind == "optimum"), None)
    column = next(c for c in columns(group.rows) if c.heading.startswith("CRPS"))
    cells = dict(zip([row.model for row in group.rows], column.cells, strict=True))
    dots = [Dot(r.model, r.crps, cells[r.model], r.model == group.reference) for r in rows]
    confidence = 100 * group.rows[0].confidence
    axis = f"{column.heading}, lower is better; {confidence:g} % interval"
    if optimum is None:
        return interval_chart(dots, axis)
    rule_text = f"the best forecast that is possible, {cells[optimum.model].split(' [')[0]}"
    return interval_chart(dots, axis, rule=optimum.crps.value, rule_label=rule_text)


def _maps(group: Group, diagnoses: Diagnoses) -> dict[str, View]:
    """Return the maps of skill, CRPS, bias and spread, by quantity."""
    units, reference_run, reference = (
        in_units(group.rows[0].units),
        group.reference_run,
        group.reference,
    )
    runs = [run for run in group.runs if "crps_map_sum" in run.states]
    skills = {
        run.name: 100 * skill_map(run.states, reference_run.states)
        for run in runs
        if reference_run in runs and run is not reference_run
    } if reference_run else {}  # fmt: skip
    crps = {run.name: finish_mean(run.states, "crps_map") for run in runs}
    bias, spread, ratio = (
        {name: getattr(diagnosis, field) for name, diagnosis in diagnoses.items()}
        for field in ("bias", "spread", "ratio")
    )
    kinds: dict[str, tuple[Mapping[str, xr.DataArray], Kind, str, str]] = {
        "Skill": (
            skills, "better", f"CRPSS against {reference} (%)",
            f"Blue: better than {reference}; red: worse.",
        ),
        "CRPS": (crps, "no", f"CRPS{units}", "Bright: large errors."),
        "Bias": (
            bias, "deviation", f"mean of the forecast less the truth{units}",
            "Red: forecasts are too high; blue: too low.",
        ),
        "Spread": (spread, "no", f"spread{units}", "Root of the mean variance."),
        "Spread/error": (
            ratio, "ratio", "spread over error",
            "Purple: too confident, the spread is smaller than the error; orange: larger.",
        ),
    }  # fmt: skip
    views = {}
    for quantity, (fields, kind, caption, note) in kinds.items():
        valid = {name: field for name, field in fields.items() if bool(field.notnull().any())}
        if valid:
            scale = scale_of(list(valid.values()), kind)
            pictures = [_map(name, field, scale, caption) for name, field in valid.items()]
            bar = colour_bar(scale, caption)
            views[quantity] = {"bar": bar, "what": caption, "told": note, "pictures": pictures}
    return views


def _picture(title: str, svg: str, caption: str = "") -> View:
    return {"title": title, "what": caption, "svg": svg}


def _map(name: str, field: xr.DataArray, scale: Scale, caption: str) -> View:
    low, middle, high = (
        label(float(f"{v:.3g}")) for v in field.quantile([0.05, 0.5, 0.95]).to_numpy()
    )
    words = f"Map for {name} of {caption}: median {middle}, nine points in ten from {low} to {high}"
    return _picture(name, map_picture(field, scale, words))


def _histograms(group: Group) -> list[View]:
    histograms = histograms_of(group.runs, group.reference)
    top = min(
        1.05 * max([float(relative_frequency(counts).max()) for *_, counts in histograms] + [1.3]),
        4.0,
    )
    return [
        _picture(name, histogram(counts, name, top, reference=name == group.reference), caption)
        for name, caption, counts in histograms
    ]


def _spread(group: Group) -> View | None:
    dots = []
    for row in group.rows:
        if (ratio := row.spread_error) is not None:
            bounds = f" [{ratio.lower:.3f}, {ratio.upper:.3f}]" * (ratio.lower == ratio.lower)
            is_reference = row.model == group.reference
            dots.append(Dot(row.model, ratio, f"{ratio.value:.3f}{bounds}", is_reference))
    rule_text = "1, where the spread is as large as the error"
    return interval_chart(dots, "Spread/error", rule=1.0, rule_label=rule_text) if dots else None


def _reliability(group: Group, diagnoses: Diagnoses) -> list[View]:
    views = []
    for name, diagnosis in diagnoses.items():
        diagram = reliability_diagram(diagnosis.events, independent=_INDEPENDENT)
        views.append(_picture(name, reliability(diagram, name, reference=name == group.reference)))
    return views


def _columns_by_members(group: Group) -> list[Column]:
    """Return the CRPS of models of members by number of input members, as columns."""
    runs = [run for run in group.runs if run.sizes]
    table = [Column("Model", tuple(run.name for run in runs), numeric=False)]
    for size in sorted({size for run in runs for size in run.sizes}):
        scores = (run.sizes.get(size) for run in runs)
        cells = tuple(ABSENT if value is None else f"{value:.4f}" for value in scores)
        table.append(Column(f"M = {size}{in_units(runs[0].units)}", cells))
    return table if runs else []


def _learning(run: FinishedRun) -> View:
    return _picture(run.name, curves(run, loss_limits(run)), run.loss_name)


def _cost(group: Group) -> list[Column]:
    def column_of(heading: str, key: str, form: str) -> Column:
        values = (run.provenance.get(key) for run in group.runs)
        return Column(heading, tuple(ABSENT if v is None else format(v, form) for v in values))

    names = tuple(run.name for run in group.runs)
    all_columns = [
        column_of("Time of the fit (s)", "seconds", ",.1f"),
        column_of("Processor time (s)", "cpu_seconds", ",.1f"),
        column_of("Memory (MB)", "memory_mb", ",.0f"),
        column_of("Parameters", "parameters", ",d"),
    ]
    filled_columns = [column for column in all_columns if set(column.cells) != {ABSENT}]
    return [Column("Model", names, numeric=False), *filled_columns]


def _config(group: Group, run: FinishedRun) -> str:
    """Return the configuration of a run as YAML, without empty values; "" if there is none."""
    path = run_of(group.folders[run.name]) / CONFIG
    try:
        content = read_mapping(path)
    except FileError:
        return ""
    return yaml.safe_dump(_shorten(content), sort_keys=False, allow_unicode=True)


def _shorten(value: Any) -> Any:
    """Return a configuration without empty values, and with names in place of absolute paths."""
    if isinstance(value, dict):
        return {key: _shorten(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_shorten(item) for item in value]
    if isinstance(value, str) and value.startswith("/"):
        return value.rstrip("/").rpartition("/")[2]
    return value
