"""The command line: try learning rates, train all arms, and write the tables."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from jsonargparse import Namespace

from ens10.experiments.runner.results import Results
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runner.tasks import WorldSize
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.experts import tables
from ens10.experiments.studies.experts.cells import (
    CONTENT,
    EPOCHS,
    INPUTS,
    OPTIMUM,
    RAW,
    ExpertCell,
    arms_of,
)
from ens10.experiments.studies.json_cells import Result
from ens10.experiments.studies.study import compute, run_study, study_parser
from ens10.synthetic.world import WorldKind
from ens10.usage import count, positive, reports_errors

RATES = (0.3, 1.0, 3.0)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    parser = study_parser("experts", "What experts bring to a network, at equal schedules.")
    parser.add_argument("--targets", nargs="+", default=["t2m"], choices=list(CONTENT["arms"]))
    parser.add_argument("--arms", nargs="+", help="those alone whose names contain one of these")
    text = "search the best form of experts by validation, instead of training the arms"
    parser.add_argument("--search", action="store_true", help=text)
    parser.add_argument("--seeds", type=count, default=3)
    parser.add_argument("--world", choices=get_args(WorldKind), default="displaced")
    parser.add_argument("--store", type=Path, help="prepared data of all seeds, instead of worlds")
    parser.add_argument("--grid", default="46x96", help="rows x columns (default: %(default)s)")
    parser.add_argument("--years", type=count, default=10, help="from 1998 (default: %(default)s)")
    parser.add_argument("--dates", type=count, default=40, help="a year (default: %(default)s)")
    parser.add_argument("--inputs", nargs="+", default=list(INPUTS), metavar="NAME")
    parser.add_argument("--epochs", type=count, default=EPOCHS)
    text = "factors of the learning rate, tried once for the trunk and once for its experts"
    parser.add_argument("--tries", nargs="+", type=positive, default=list(RATES), help=text)
    parser.add_argument("--accelerator", choices=("cpu", "gpu"), default="cpu")
    options = parser.parse_args(arguments)
    return run_study(options, partial(_run, options), partial(_write, options))


def _run(options: Namespace) -> Outcome:
    outcome = Outcome()
    for target in options.targets:
        outcome = _run_target(options, target)
        if outcome.failed:
            break
    return outcome


def _run_target(options: Namespace, target: str) -> Outcome:
    sizes = {name: options[name] for name in ("grid", "years", "dates", "world")}
    size = WorldSize.from_options(**sizes, steps=(48,))
    common = {
        "work": options.work,
        "out": options.out,
        "target": target,
        "size": size,
        "store": options.store,
        "inputs": tuple(options.inputs),
        "epochs": options.epochs,
        "accelerator": options.accelerator,
    }
    trunk = tables.trunk_of(target)
    tries = [
        ExpertCell(arm, 0, factor=factor, **common)
        for arm in trunk.values()
        for factor in options.tries
    ]
    references = [RAW] if options.store else [RAW, OPTIMUM]
    seeds = range(options.seeds)
    scored = [
        ExpertCell(name, seed, **common)
        for name in references
        for seed in ([0] if options.store else seeds)
    ]
    outcome = compute([*scored, *tries], options)
    if outcome.failed:
        return outcome
    factors = tables.chosen_factors(_read(options, target)[1])

    def cells(arms: Sequence[str], seeds: Sequence[int]) -> list[ExpertCell]:
        return [
            ExpertCell(arm, seed, factor=factors[tables.convolution_of(arm)], **common)
            for seed in seeds
            for arm in arms
        ]

    if options.search:
        return _search(options, target, cells)
    arms = [
        arm for arm in arms_of(target)
        if not options.arms or any(part in arm for part in options.arms)
    ]  # fmt: skip
    arms.sort(key=lambda arm: arm.startswith("permuted"))  # after those whose gates they take
    return compute(cells(arms, seeds), options)


def _search(
    options: Namespace,
    target: str,
    cells: Callable[[Sequence[str], Sequence[int]], list[ExpertCell]],
) -> Outcome:
    """Search the best form of experts, and train it and the network without experts.

    Forms are tried with the first seed, the best one is trained with all. The search ends early if
    a cell fails or another process computes it: the next call goes on.
    """
    best = None
    while best is None:
        scores, _ = _read(options, target)
        steps, best = tables.walk_of(scores)
        arms = [tables.arm_of(form, target) for form in ([best] if best else steps[-1])]
        if best:
            arms.append(tables.trunk_of(target)["plain"])
        outcome = compute(cells(arms, range(options.seeds) if best else [0]), options)
        if outcome.missing:
            break
    return outcome


def _read(options: Namespace, target: str) -> tuple[tables.Scores, list[Result]]:
    with Results(options.out).temporary_folder(None) as folder:
        return tables.read_scores(folder, target)


def _write(options: Namespace, cells_folder: Path, _: Outcome) -> str:
    files, texts = {}, []
    for target in options.targets:
        scores, tried = tables.read_scores(cells_folder, target)
        for name, headings, rows, left in (
            ("table", tables.ARM_HEADINGS, tables.arm_rows(scores, target), (0, 1, 2)),
            ("contrasts", tables.CONTRAST_HEADINGS, tables.contrast_rows(scores, target), (0, 6)),
            ("tries", tables.TRY_HEADINGS, tables.try_rows(tried), (0,)),
            ("search", tables.SEARCH_HEADINGS, tables.search_rows(scores, target), (0, 1)),
            ("best", tables.CONTRAST_HEADINGS, tables.best_rows(scores, target), (0, 6)),
        ):
            if not rows:
                continue
            text = markdown_of(columns_of(headings, rows, left))
            files[f"{name}-{target}.md"] = text
            files[f"{name}-{target}.csv"] = csv_of(headings, rows)
            texts += [text] if name != "tries" else []
    write_files(options.out, files)
    return "\n".join(texts)


if __name__ == "__main__":
    sys.exit(main())
