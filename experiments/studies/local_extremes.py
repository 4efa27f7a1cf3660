"""Skill of runs above local thresholds: what is extreme differs from place to place.

    python -m ens10.experiments.studies.local_extremes OUT RUN... --references RAW...
        --climatology STORE

Thresholds are the 95 and 99 % quantiles of the truth at each point and calendar month, of years
that are not scored. Skill is the share of the raw ensemble's score that a run removes, in percent,
with 95 % bounds over dates.
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ens10.errors import MissingDataError
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.commands import refuse_file
from ens10.experiments.runs.provenance import read_provenance
from ens10.experiments.scoring.score import score_forecast
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.study import with_bounds
from ens10.metrics import Interval
from ens10.usage import command_parser, reports_errors

SKILLS = {
    "CRPS": "crpss",
    "Brier score, 95 %": "brier_local_skill_0.95",
    "Brier score, 99 %": "brier_local_skill_0.99",
    "twCRPS, 95 %": "twcrps_local_skill_0.95",
    "twCRPS, 99 %": "twcrps_local_skill_0.99",
}
HEADINGS = ("target", "model", *SKILLS)


def skills_of(run: Path, raw: Path, climatology: Path) -> list[str]:
    """Return the target of a run, its name, and its skills (%) with bounds.

    Args:
        run: with predictions of the test.
        raw: run of the raw ensemble of the same target.
        climatology: prepared store with truth of other years.
    """
    with TemporaryDirectory() as folder:  # the run keeps its own scores
        score_forecast(run, reference=raw, climatology=climatology, out=folder)
        with (Path(folder) / "scores.csv").open() as file:
            scores = {row["score"]: row for row in csv.DictReader(file)}
    skills = [
        Interval(*(100 * float(scores[name][key]) for key in ("value", "lower", "upper")))
        for name in SKILLS.values()
    ]
    return [read_provenance(run)["target"], run.name, *(with_bounds(s, ".1f") for s in skills)]


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Score the runs, write and print the table; exit status 1, with one line, on bad input."""
    parser = command_parser("python -m ens10.experiments.studies.local_extremes")
    parser.add_argument("out", type=Path, help="folder of the table")
    parser.add_argument("runs", type=Path, nargs="+", help="with predictions")
    text = "runs of the raw ensemble, one for each target"
    parser.add_argument("--references", type=Path, nargs="+", required=True, help=text)
    text = "prepared store, whose truth in other years gives the thresholds"
    parser.add_argument("--climatology", type=Path, required=True, help=text)
    options = parser.parse_args(arguments)
    refuse_file(options.out)
    raw = {read_provenance(run)["target"]: run for run in options.references}
    rows = []
    for run in options.runs:
        target = read_provenance(run)["target"]
        if target not in raw:
            raise MissingDataError(run, [f"a raw run of {target}"], "Add it to --references")
        rows.append(skills_of(run, raw[target], options.climatology))
    rows.sort()
    text = markdown_of(columns_of(HEADINGS, rows, text=[0, 1]))
    write_files(options.out, {"table.md": text, "table.csv": csv_of(HEADINGS, rows)})
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
