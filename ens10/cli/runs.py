"""Commands on runs and predictions: score, case, plan, report, reproduce, demo."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ens10.cli.score_names import SCORES
from ens10.command_options import (
    CaseOptions,
    DemoOptions,
    ReportOptions,
    ScoreOptions,
    SubmitOptions,
)
from ens10.errors import ArgumentError, printable
from ens10.options import add_options
from ens10.usage import Command, Parser, command_parser


def _score_options(parser: Parser) -> None:
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="RUN_OR_PREDICTIONS",
        help="run folder, or forecast store or netCDF file with the attribute forecast_kind",
    )  # fmt: skip
    add_options(parser, ScoreOptions)


def _score(paths: Sequence[Path], by: Sequence[str], **options: Any) -> int:
    from ens10.experiments.runs.reading import run_parts, same_part
    from ens10.experiments.scoring.score import score_forecast

    paths = [part for path in paths for part in run_parts(path)]
    reference = options.pop("reference")
    if options["out"] and len(paths) > 1:
        raise ArgumentError("--out", "several forecasts would write the same files", "Give one")
    points, progress = options.pop("cross_check"), sys.stderr.isatty()
    agrees = True
    for path in paths:
        options["reference"] = reference and same_part(reference, path)
        scores = score_forecast(path, by=by, points=points, progress=progress, **options)
        print(printable(f"{path}: {scores.in_words()}"))
        if by:
            print(printable(scores.table(), keep="\n"))
        if scores.cross_check:
            print(printable(f"{path}: {scores.cross_check}"))
            agrees &= scores.cross_check.agrees
    return int(not agrees)


def _case_options(parser: Parser) -> None:
    # a region may begin with a minus, which is no option
    parser._negative_number_matcher = re.compile(r"-\d.*")
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="with predictions")
    add_options(parser, CaseOptions)


def _case(**options: Any) -> None:
    from ens10.experiments.reporting.case_page import run_case

    print(printable(run_case(**options), keep="\n"))


def _plan_options(parser: Parser) -> None:
    parser.add_argument("--config", type=Path, required=True, metavar="FILE")
    parser.add_argument("--devices", type=int, metavar="N", help="needed but for --counts")
    parser.add_argument("--memory", type=float, metavar="GB", help="of a device, needed as well")
    parser.add_argument(
        "--counts", action="store_true",
        help="operations of a step on a GPU, and the bytes that they move, counted without one",
    )  # fmt: skip
    parser.add_argument("--grid", metavar="HxW", help="default: the network's, or 361x720")
    parser.add_argument(
        "--batch-size", type=int, metavar="B",
        help="dates of a step on all devices (default: the configuration's)",
    )  # fmt: skip
    parser.add_argument(
        "--machine", metavar="NAME", help="cpu or h200, to show the times that were measured there"
    )
    parser.add_argument("--precision", default="32", help="32 or bf16 (default: 32)")


def _plan(memory: float | None, counts: bool, **options: Any) -> None:
    from ens10.experiments.planning.plan import counts_of_config, plan_config, print_plan

    if counts:
        others = {"memory": memory} | {name: options.pop(name) for name in ("devices", "machine")}
        if given := [name for name, value in others.items() if value is not None]:
            raise ArgumentError(
                f"--{given[0]}", "has no use with --counts", "Leave out one of them"
            )
        counts_of_config(**options)
        return
    if memory is None or options["devices"] is None:
        command_parser("ens10 plan").error("the options --devices and --memory are required")
    print_plan(plan_config(memory_gb=memory, **options, progress=sys.stderr.isatty()))


def _report_options(parser: Parser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    add_options(parser, ReportOptions)


def _report(**options: Any) -> None:
    from ens10.experiments.reporting.report import write_report

    print(printable(f"Wrote {write_report(**options, progress=True)}"))


def _reproduce_options(parser: Parser) -> None:
    from ens10.experiments.reproduce.arguments import add_arguments

    add_arguments(parser)


def _reproduce(**options: Any) -> int:
    from ens10.experiments.reproduce.arguments import run

    return run(**options)


def _demo_options(parser: Parser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR")
    add_options(parser, DemoOptions)


def _demo(**options: Any) -> None:
    from ens10.experiments.demo import run_demo

    run_demo(**options)


def _submit_options(parser: Parser) -> None:
    parser.add_argument("action", choices=("pack", "check", "page"))
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="RUN_SUBMISSION_OR_FOLDER",
        help="pack: a run; check: submissions; page: a folder of submissions",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="PATH", help="pack: folder or .zip; page: DIR")
    parser.add_argument("--store", type=Path, metavar="STORE", help="check, page: your own store")
    add_options(parser, SubmitOptions)


def _submit(action: str, paths: Sequence[Path], **options: Any) -> int:
    out, store = options.pop("out"), options.pop("store")
    for name, value, actions in (("--out", out, "pack page"), ("--store", store, "check page")):
        if value is None and action in actions.split():
            raise ArgumentError(name, "is missing", f"`ens10 submit {action}` needs it")
    if action != "check" and len(paths) > 1:
        raise ArgumentError("paths", f"{len(paths)} are given", f"`submit {action}` takes one")
    if action == "pack":
        from ens10.experiments.submissions.content import pack_run

        print(printable(f"Wrote {pack_run(paths[0], out, **options)}"))
        return 0
    from ens10.experiments.submissions.check import check
    from ens10.experiments.submissions.page import write_page

    if action == "page":
        page, verdicts = write_page(paths[0], store, out, **options)
        print(printable(f"Wrote {page}"))
    else:
        verdicts = [check(path, store, **options) for path in paths]
    for verdict in verdicts:
        print(printable(str(verdict), keep="\n"))
    print(verdicts[0].not_detected)
    return int(action == "check" and not all(verdict.is_accepted for verdict in verdicts))


COMMANDS = {
    "score": Command(
        "score forecasts, with confidence intervals",
        _score,
        _score_options,
        "Scores a forecast in one pass and writes scores.nc (sums that add), scores.csv and, with "
        "--by, groups.csv beside it.",
        f"Scores: {', '.join(SCORES)}; acc and scores of local "
        "extremes need --climatology, eecrps --raw and --climate. "
        "A threshold may have a unit: brier_5mm, twcrps_20m/s. "
        "Groups: season, month, year, step, level, latitude_band, surface, region.",
    ),
    "case": Command(
        "maps and numbers of one event: raw, corrected, truth, EFI, CRPS",
        _case,
        _case_options,
        "Draws one event from the predictions of runs: case.png, numbers.csv and index.html.",
        "Regions: global, europe, conus, north_america, south_america, africa, asia, south_asia, "
        "australia, pacific, arctic, antarctic.",
    ),
    "plan": Command(
        "how to share a training out over devices",
        _plan,
        _plan_options,
        "Counts what a step of the configuration's network takes on every split of the devices, "
        "and prints memory and time by a model. Nothing is trained or measured.",
    ),
    "report": Command("tables, figures and one HTML page of runs", _report, _report_options),
    "submit": Command(
        "pack a run for a leaderboard, check submissions, make the page",
        _submit,
        _submit_options,
        "pack RUN --out FILE.zip writes bundle, predictions and what is claimed of them. check "
        "SUBMISSION... --store STORE scores them with your own truth and dates, and refuses what "
        "does not agree. page FOLDER --store STORE --out DIR makes a leaderboard.",
    ),
    "reproduce": Command(
        "every model of the papers, with your data beside the published values",
        _reproduce,
        _reproduce_options,
        "Every model of the papers: CRPS and EECRPS of 5-ENS and 10-ENS, mean and spread over "
        "seeds, skill, calibration and cost. Done on your data (--store), beside the published "
        "values, or on synthetic worlds. What is complete is not done again; several processes "
        "can share the folder. All targets, sizes and seeds take days on a few cores: begin with "
        "--targets t2m --members 10 --seeds 1.",
    ),
    "demo": Command("all of it on a synthetic world, in minutes", _demo, _demo_options),
}
