"""The page of a report from its groups of runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from ens10.errors import FileError
from ens10.experiments import members, page, story
from ens10.experiments.finished import FinishedRun
from ens10.experiments.reporting import sections, summary
from ens10.experiments.reporting.choices import choice
from ens10.experiments.reporting.diagnostics import Diagnosis
from ens10.experiments.reporting.groups import Group
from ens10.experiments.reporting.scorecard import Line, card_table, overview, score_card
from ens10.experiments.tables import columns, notes
from ens10.experiments.writers import ABSENT, Column
from ens10.untrusted import read_mapping

CONFIG = "config.yaml"


def assemble(
    title: str, groups: Sequence[Group], diagnoses: Sequence[Mapping[str, Diagnosis]]
) -> str:
    """The whole page.

    Args:
        title: plain text.
        groups: in the order in which they are shown.
        diagnoses: of each group, by the names of runs.
    """
    cards = [score_card(group) for group in groups]
    number = {group.title: n for n, group in enumerate(groups)}

    def each(part: Callable[[Group, int], str]) -> str:
        return by_group(groups, lambda group: part(group, number[group.title]))

    parts = {
        "In short": each(lambda g, n: page.points(summary.in_short(g, cards[n]))),
        "What was compared": each(lambda g, _: page.facts(story.compared(g.runs))),
        "Score card": _card(groups, cards),
        "Scores": each(lambda g, _: _scores(g)),
        "Maps": each(lambda g, n: sections.maps(g, diagnoses[n], n)),
        "Calibration": each(lambda g, n: sections.calibration(g, diagnoses[n])),
        "Ensembles": _ensembles(groups),
        "Learning curves": each(lambda g, _: sections.learning(g)),
        "Cost": each(lambda g, _: page.table(_cost(g), "What each fit took, on its machine")),
        "Where the numbers come from": each(lambda g, _: _provenance(g)),
        "How to read this": page.paragraphs(
            *story.reading([row for g in groups for row in g.rows], groups[0].reference)
        ),
    }
    return page.page(title, summary.lead(groups), {k: v for k, v in parts.items() if v})


def by_group(groups: Sequence[Group], part: Callable[[Group], str]) -> str:
    """A part of the page for each group: tabs of targets, in them a slider of lead times."""
    targets: dict[str, dict[str, str]] = {}
    for group in groups:
        targets.setdefault(group.target or ABSENT, {})[group.step or ABSENT] = part(group)
    inner = {
        target: choice(steps, "Lead time", name="step", level=4, slider=True)
        for target, steps in targets.items()
    }
    return choice(inner, "Target", name="target")


def _card(groups: Sequence[Group], cards: Sequence[Sequence[Line]]) -> str:
    """All groups beside each other if there are several, then each with its seasons."""
    number = {group.title: n for n, group in enumerate(groups)}
    single = by_group(groups, lambda g: card_table(cards[number[g.title]], g.reference))
    if len(groups) == 1 or not any(group.against for group in groups):
        return single
    titles = [group.title for group in groups]
    return f"{overview(titles, cards, groups[0].reference)}\n{single}"


def _scores(group: Group) -> str:
    told = [
        sections.crps_chart(group),
        page.paragraphs(
            "These intervals hold what all forecasts find hard alike, so they may overlap where "
            "the paired differences of the score card are clear.",
            kind="note",
        ),
        page.table(columns(group.rows), "Scores from worst to best, after the reference"),
        page.paragraphs(" ".join(notes(group.rows)), kind="note"),
    ]
    return "\n".join(told)


def _ensembles(groups: Sequence[Group]) -> str:
    """Forecasts by members, and models that were given fewer; "" if there are none."""
    found = [group for group in groups if members.columns_of_members(group.runs, group.rows)]
    sized = [group for group in groups if any(run.sizes for run in group.runs)]
    if not found and not sized:
        return ""

    def told(group: Group) -> str:
        parts = []
        if made := members.columns_of_members(group.runs, group.rows):
            caption = "Plain CRPS of ensembles of several sizes, and spread/error"
            parts.append(page.table(made, caption))
            parts.append(page.paragraphs(*members.in_words(group.runs), kind="note"))
        if given := _given(group):
            caption = "CRPS of models of members that are given the first M raw members"
            parts.insert(0, page.table(given, caption))
        return "\n".join(parts) or page.paragraphs("There is no forecast by members here.")

    return by_group(groups, told)


def _given(group: Group) -> list[Column]:
    """Measured scores of the models that take members, by how many they were given."""
    held = [run for run in group.runs if run.sizes]
    sizes = sorted({size for run in held for size in run.sizes})
    if not held:
        return []
    units = f" ({held[0].units})" if held[0].units not in ("", "1") else ""
    made = [Column("Model", tuple(run.name for run in held), numeric=False)]
    for size in sizes:
        cells = (run.sizes.get(size) for run in held)
        told = tuple(ABSENT if value is None else f"{value:.4f}" for value in cells)
        made.append(Column(f"M = {size}{units}", told))
    return made


def _cost(group: Group) -> list[Column]:
    def made(heading: str, key: str, form: str) -> Column:
        values = (run.provenance.get(key) for run in group.runs)
        return Column(heading, tuple(ABSENT if v is None else format(v, form) for v in values))

    names = tuple(run.name for run in group.runs)
    found = [
        made("Time of the fit (s)", "seconds", ",.1f"),
        made("Processor time (s)", "cpu_seconds", ",.1f"),
        made("Memory (MB)", "memory_mb", ",.0f"),
        made("Parameters", "parameters", ",d"),
    ]
    known = [column for column in found if set(column.cells) != {ABSENT}]
    return [Column("Model", names, numeric=False), *known]


def _provenance(group: Group) -> str:
    configs = [(run, _config(group, run)) for run in group.runs]
    told = [
        page.details(f"Configuration of {run.name}", page.preformatted(text))
        for run, text in configs
        if text
    ]
    table = page.table(story.provenance(group.runs), "Seed, code and data of each run")
    return "\n".join([table, page.facts(story.versions(group.runs)), *told])


def _config(group: Group, run: FinishedRun) -> str:
    """The resolved configuration of a run, without what has no value; "" if it is not there."""
    path = group.folders[run.name] / CONFIG
    try:
        content = read_mapping(path)
    except FileError:
        return ""
    return yaml.safe_dump(_short(content), sort_keys=False, allow_unicode=True)


def _short(value: Any) -> Any:
    """Without keys that have no value, and without the paths of a machine."""
    if isinstance(value, dict):
        return {key: _short(held) for key, held in value.items() if held is not None}
    if isinstance(value, list):
        return [_short(held) for held in value]
    if isinstance(value, str) and value.startswith("/"):
        return value.rstrip("/").rpartition("/")[2]
    return value
