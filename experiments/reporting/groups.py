"""Runs of a report by target and lead time: within a group they are compared with each other."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ens10.errors import ArgumentError
from ens10.experiments.runs.reading import run_parts
from ens10.experiments.scoring.run_results import (
    FinishedRun,
    check_comparable,
    check_names,
    read_run,
)
from ens10.experiments.scoring.tables import ScoreRow, score_table
from ens10.experiments.scoring.writers import ABSENT

_Key = tuple[str | None, str | None]
_UNITS = {"hours": "h", "hour": "h"}  # one unit, one name


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one target and lead time.

    Attributes:
        target: name in the runs' provenance; None if none of them has it.
        step: lead time with its units; None if none of them has it.
        runs: the reference, then from worst to best CRPS, the optimum last.
        rows: of `score_table`, in the same order.
        folders: of the runs, by their names.
        reference: name of the run that skill is measured against.
    """

    target: str | None
    step: str | None
    runs: tuple[FinishedRun, ...]
    rows: tuple[ScoreRow, ...]
    folders: Mapping[str, Path]
    reference: str

    @property
    def title(self) -> str:
        """Target and lead time."""
        return ", ".join(part for part in (self.target, self.step) if part) or ABSENT

    @property
    def slug(self) -> str:
        """The title as the name of a folder."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "unknown"

    @property
    def reference_run(self) -> FinishedRun | None:
        """The reference, if it is among the runs."""
        return next((run for run in self.runs if run.name == self.reference), None)


def read_groups(folders: Sequence[Path | str], reference: str) -> list[Group]:
    """Read the finished runs in folders and group them by target and lead time, in that order.

    A run without a target or lead time joins the other runs if these have only one.

    Raises:
        FileError: a folder that holds no scored run, or files that cannot be read.
        ArgumentError: no folders, two runs of a group with one name, or that cannot be compared.
        UnknownNameError: another reference than "raw" that a group does not have.
        MissingDataError: runs of a group on different dates.
    """
    if not folders:
        raise ArgumentError("runs", "there are none", "Give the folders of one or more runs")
    parts = [part for folder in folders for part in run_parts(folder)]
    pairs = [(run, part) for part in parts for run in _by_step(read_run(part))]
    keys = [(run.provenance.get("target"), step_of(run)) for run, _ in pairs]
    groups: dict[_Key, list[tuple[FinishedRun, Path]]] = {}
    for key, pair in zip(_complete_keys(keys), pairs, strict=True):
        groups.setdefault(key, []).append(pair)
    return [_group(key, groups[key], reference) for key in sorted(groups, key=_sort_key)]


def step_of(run: FinishedRun) -> str | None:
    """Return the lead time of a run in words; None if it is unknown or there are several."""
    step, units = run.provenance.get("step"), run.provenance.get("step_units")
    if "step" in run.states.coords:
        coordinate = run.states["step"]
        if coordinate.ndim:
            return None
        step, units = coordinate.item(), coordinate.attrs.get("units") or units
    if step is None:
        return None
    number = f"{step:g}" if isinstance(step, int | float) else str(step)
    unit = str(units or "")
    return f"{number} {_UNITS.get(unit, unit)}".strip()


def _by_step(run: FinishedRun) -> list[FinishedRun]:
    """Split a run that was scored at several lead times into one run for each.

    Maps and histograms are sums over all lead times and are left out.
    """
    states = run.states
    if "step" not in states.dims:
        return [run]
    without_step = [name for name, values in states.data_vars.items() if "step" not in values.dims]
    step_states = states.drop_vars(without_step)
    return [replace(run, states=step_states.isel(step=n)) for n in range(states.sizes["step"])]


def _complete_keys(keys: Sequence[_Key]) -> list[_Key]:
    """Return the keys; a missing target or step is filled in if all other runs have the same."""
    defaults: list[str | None] = []
    for part in range(2):
        values = {key[part] for key in keys} - {None}
        defaults.append(values.pop() if len(values) == 1 else None)
    return [(target or defaults[0], step or defaults[1]) for target, step in keys]


def _sort_key(key: _Key) -> tuple[str, float, str]:
    match = re.match(r"-?[\d.]+", key[1] or "")
    return key[0] or "", float(match.group()) if match else -1.0, key[1] or ""


def _group(key: _Key, pairs: Sequence[tuple[FinishedRun, Path]], reference: str) -> Group:
    runs, folders = [run for run, _ in pairs], [folder for _, folder in pairs]
    check_names(runs, folders)
    check_comparable(runs)
    rows = score_table(runs, reference)
    runs_by_name = {run.name: run for run in runs}
    folders_by_name = {run.name: folder for run, folder in pairs}
    sorted_runs = tuple(runs_by_name[row.model] for row in rows)
    return Group(*key, sorted_runs, tuple(rows), folders_by_name, reference)
