"""The command: compute the variants of an ablation as cells, then write their table."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from jsonargparse import Namespace

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tasks import WorldSize, load_budget, store_of
from ens10.experiments.runs.commands import add_work_options, add_world_options, world_options_of
from ens10.experiments.studies.ablation.cells import (
    StudySettings,
    find_cells_of,
    overlay_for_store,
    write_overlay,
)
from ens10.experiments.studies.ablation.member_sensitivity import write_sensitivity
from ens10.experiments.studies.ablation.spec import Ablation, ablation_names, load_ablation
from ens10.experiments.studies.ablation.tables import Line, read_lines, write_pages
from ens10.experiments.studies.study import compute, run_study
from ens10.synthetic.world import WorldKind
from ens10.usage import command_parser, count, reports_errors


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    options = _parse(arguments)
    ablation = load_ablation(options.ablation)
    if options.overlays is not None:
        _write_overlays(ablation, options)
        return 0
    if options.work is None or options.out is None:
        raise ArgumentError("WORK", "a folder for data and runs and --out are needed")
    load_budget(options.budget)  # a name that is not known fails before anything is made
    study = ablation, options, ablation.size(**world_options_of(options))
    return run_study(options, partial(_run, *study), partial(_write, *study))


def _run(ablation: Ablation, options: Namespace, size: WorldSize) -> Outcome:
    seeds, work = range(options.seeds), options.work
    if options.store is None:
        work /= size.folder
        for seed in seeds:
            store_of(work / f"seed{seed}", seed, size, wait=True)
    elif not options.store.is_dir():
        raise FileError(options.store, "no such store", "Make it with `ens10 prepare`")
    settings = StudySettings(work, options.out, options.budget, options.store)
    cells, refusals = find_cells_of(ablation, seeds, settings)
    print(f"{len(cells)} cells: {len(ablation.variants)} variants, {options.seeds} seeds")
    return compute(cells, options, refusals)


def _write(
    ablation: Ablation, options: Namespace, size: WorldSize, cells_folder: Path, outcome: Outcome
) -> str:
    out, seeds = options.out / ablation.name, range(options.seeds)
    same_data, places = options.store is not None, outcome.places
    lines = read_lines(ablation, cells_folder, seeds, same_data=same_data, places=places)
    if not lines:
        raise MissingDataError(options.out, [v.name for v in ablation.variants], "See above")
    notes = [_describe(lines, options, size)]
    text = write_pages(ablation, lines, out, notes, outcome.missing)
    return f"{text}\n{write_sensitivity(ablation, lines, out)}" if ablation.worth else text


def _describe(lines: Sequence[Line], options: Namespace, size: WorldSize) -> str:
    """Return data, seeds and budget of the lines in a sentence."""
    record = next(iter(lines[0].runs.values())).provenance
    dates = record.get("dates") or {}
    counts = ", ".join(f"{dates.get(s, '?')} {s}" for s in ("train", "val", "test"))
    data = (
        f"`{options.store.name}`" if options.store else f"{size.world} worlds of {size.grid} points"
    )
    per_seed = "a training each" if options.store else "each a world and a training of its own"
    length = f"by the budget `{options.budget}`" if options.budget else "as long as configured"
    return (
        f"{record.get('target')}, protocol {record.get('protocol')}, {data}, dates: {counts}; "
        f"{options.seeds} seed{'s' if options.seeds > 1 else ''}, {per_seed}; trained {length}."
    )


def _write_overlays(ablation: Ablation, options: Namespace) -> None:
    """Write each variant as a YAML overlay, and print the commands that train with it."""
    for variant in ablation.variants:
        path = options.overlays / f"{variant.name}.yaml"
        store = options.store
        write_overlay(path, overlay_for_store(variant, store) if store else variant.overlay)
        print(f"ens10 fit --config {variant.config} --config {path} --data.store "
              f"{store or 'STORE'} --run runs/{variant.name}")  # fmt: skip


def _parse(arguments: Sequence[str] | None) -> Namespace:
    parser = command_parser(
        "python -m ens10.experiments.studies.ablation",
        "What one part of a model or of its data is worth: variants as cells, and the "
        "table of their paired differences. Resumable; several processes can share WORK.",
        epilog=f"Ablations: {', '.join(ablation_names())}.",
    )
    parser.add_argument("ablation", metavar="NAME", help="of the package, or a YAML of your own")
    parser.add_argument("work", type=Path, nargs="?", metavar="WORK", help="for data and runs")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="cells go to DIR, tables to DIR/NAME"
    )
    parser.add_argument("--store", type=Path, help="prepared data (default: synthetic worlds)")
    parser.add_argument("--seeds", type=count, default=1, metavar="N", help="default: 1")
    add_work_options(parser)
    parser.add_argument(
        "--overlays", type=Path, metavar="DIR",
        help="only write each variant as a YAML for `ens10 fit` (with --store: fitted to it)",
    )  # fmt: skip
    text = "kind of the synthetic worlds (default: that of the ablation, else pointwise)"
    parser.add_argument("--world", choices=get_args(WorldKind), help=text)
    add_world_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
