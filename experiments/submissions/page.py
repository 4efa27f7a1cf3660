"""A leaderboard: the page of all submissions in a folder, scored with one truth."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ens10.command_options import SubmitOptions
from ens10.durable import write_whole
from ens10.errors import ArgumentError, FileError, printable
from ens10.experiments.reporting.report import write_report
from ens10.experiments.runs import provenance
from ens10.experiments.scoring.score import write_states
from ens10.experiments.submissions.check import Verdict, check
from ens10.experiments.submissions.content import COST
from ens10.options import chosen, takes

REFUSED, ACCEPTED = "refused.md", "accepted"
_TITLE = "Leaderboard"


@takes(SubmitOptions)
def write_page(
    folder: Path | str,
    store: Path | str,
    out: Path | str,
    options: SubmitOptions | None = None,
    **named: Any,
) -> tuple[Path, list[Verdict]]:
    """Check all submissions of a folder, and write a report of those that are accepted.

    Args:
        folder: with submissions: folders, and files that end in .zip.
        store: of `ens10 prepare`, with forecasts and truth.
        out: folder of the page; `refused.md` in it lists the others with their reasons.
        options: of the command; None for its defaults.
        **named: single options.

    Returns:
        The page, and the verdict on each submission.

    Raises:
        FileError: no such folder, or no such store.
        ArgumentError: no submission, or none that is accepted.
    """
    options, out = chosen(SubmitOptions, options, named), Path(out)
    if not Path(folder).is_dir():
        raise FileError(folder, "no such folder", "Put submissions there")
    paths = sorted(p for p in Path(folder).iterdir() if p.is_dir() or p.suffix == ".zip")
    if not paths:
        raise ArgumentError("folder", f"{folder} holds no submissions", "Put them there")
    verdicts = [check(path, store, options) for path in paths]
    accepted = [verdict for verdict in verdicts if verdict.is_accepted]
    if not accepted:
        reasons = "; ".join(f"{one.name}: {one.refusals[0]}" for one in verdicts)
        raise ArgumentError("folder", f"no submission is accepted: {reasons}")
    runs = [_as_run(verdict, out / ACCEPTED) for verdict in _with_own_names(accepted)]
    page = write_report(runs, out, _TITLE)
    write_whole(out / REFUSED, _refused(verdicts))
    return page, verdicts


def _with_own_names(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
    """Give submissions of one name the names of their files."""
    names = [verdict.name for verdict in verdicts]
    for verdict in verdicts:
        if names.count(verdict.name) > 1:
            verdict.name = f"{verdict.name} ({verdict.path.name})"
    return verdicts


def _as_run(verdict: Verdict, folder: Path) -> Path:
    """Write the scores and the facts of a submission as those of a run."""
    run, claim, states = folder / verdict.path.name, verdict.claim, verdict.states
    if claim is None or states is None:
        raise ArgumentError("verdict", f"{verdict.path} was not scored", "Check it first")
    facts = {
        **{name: round(claim.cost[name], 3) for name in COST if name in claim.cost},
        "name": verdict.name,
        "kind": "reference" if verdict.name == "raw" else "model",
        "target": claim.target,
        "target_units": claim.units,
        "step": claim.step,
        "step_units": claim.step_units,
        "protocol": claim.protocol,
        "rules": claim.rules,
    }
    provenance.write(run, facts)
    write_states(states, run)
    return run


def _refused(verdicts: Sequence[Verdict]) -> str:
    """The submissions that are refused, and what was not checked of the others, in Markdown."""
    refused = [f"- {one.path.name}: {'; '.join(one.refusals)}" for one in verdicts if one.refusals]
    notes = [f"- {one.path.name}: {note}" for one in verdicts for note in one.notes]
    text = ["# Refused submissions", "", *(refused or ["None."]), ""]
    text += ["## Not checked", "", *notes, ""] if notes else []
    text += ["The cost of each training is claimed, and not checked.", "", Verdict.not_detected, ""]
    return printable("\n".join(text), keep="\n")
