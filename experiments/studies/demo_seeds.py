"""The demonstration with several seeds, each a world and a training of its own.

    python -m ens10.experiments.studies.demo_seeds FOLDER --seeds 3 --out experiments/results/demo

The study is resumable: cells that are kept are not computed again.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jsonargparse import Namespace

from ens10.errors import MissingDataError
from ens10.experiments.demo import MODELS, config_path
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import comparisons, write_files
from ens10.experiments.runner.tasks import WorldSize, store_of
from ens10.experiments.runner.trainings import OPTIMUM, find_cells, keep_optimum
from ens10.experiments.scoring.run_results import read_runs
from ens10.experiments.scoring.tables import ScoreRow, markdown, score_table, to_csv
from ens10.experiments.scoring.writers import ABSENT, columns_of, markdown_of
from ens10.experiments.studies.study import compute, run_study, study_parser
from ens10.usage import count, reports_errors

SIZE = WorldSize(steps=(48,), kinds=("sfc",))  # as `ens10 demo` has it
# The order that follows from the world's construction: each pair's first has the larger CRPS.
ORDER = (
    ("raw", "emos_global"),
    ("emos_global", "emos_local"),
    ("emos_global", "mlp"),
    ("emos_local", "unet"),
    ("mlp", "unet"),
    ("unet", "optimum"),
)


def summary(folders: dict[int, Path]) -> str:
    """Return Markdown: CRPS and attained skill by model and seed, then the order with intervals.

    Args:
        folders: of the runs of each seed.
    """
    names = (*MODELS, OPTIMUM)
    runs = {seed: read_runs([folder / name for name in names]) for seed, folder in folders.items()}
    tables = [{row.model: row for row in score_table(seed_runs)} for seed_runs in runs.values()]
    heads = ["CRPS (K) / attained skill", *(f"seed {seed}" for seed in runs)]
    cells = [[name, *(_cell(rows[name]) for rows in tables)] for name in names]
    table = markdown_of(columns_of(heads, cells), escape=False)
    return f"{table}\n{comparisons(runs, ORDER)}"


def _cell(row: ScoreRow) -> str:
    attained = ABSENT if row.attained is None else f"{row.attained.value:.3f}"
    return f"{row.crps.value:.4f} / {attained}"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    parser = study_parser("demo_seeds", work="folder")
    parser.add_argument("--seeds", type=count, default=3)
    options = parser.parse_args(arguments)
    seeds = range(options.seeds)
    return run_study(
        options, partial(_run, options), lambda cells, _: write_tables(options.out, cells, seeds)
    )


def _run(options: Namespace) -> Outcome:
    seeds = range(options.seeds)
    for seed in seeds:
        store_of(options.folder / f"seed{seed}", seed, SIZE, wait=True)
    cells = find_cells(MODELS, seeds, options.folder, options.out, config_path("raw").parent)
    outcome = compute(cells, options)
    for seed in seeds:
        keep_optimum([cell for cell in cells if cell.seed == seed])
    return outcome


def write_tables(out: Path, cells_folder: Path, seeds: Sequence[int]) -> str:
    """Write the table of all seeds, `table.md`, and the tables of each seed; return the first.

    Args:
        out: folder of the tables.
        cells_folder: folder of the unpacked cells.
        seeds: seeds of the cells.

    Raises:
        MissingDataError: a cell is missing.
    """
    folders = {seed: cells_folder / f"seed{seed}" for seed in seeds}
    names = [f"seed{seed}/{name}" for seed in seeds for name in (*MODELS, OPTIMUM)]
    missing = [name for name in names if not (cells_folder / name).is_dir()]
    if missing:
        raise MissingDataError(out, missing, "Let all cells end")
    for seed, folder in folders.items():
        rows = score_table(read_runs([folder / name for name in (*MODELS, OPTIMUM)]))
        write_files(out / f"seed{seed}", {"table.md": markdown(rows), "table.csv": to_csv(rows)})
    text = summary(folders)
    write_files(out, {"table.md": text})
    return text


if __name__ == "__main__":
    sys.exit(main())
