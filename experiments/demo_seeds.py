"""The demonstration with several seeds, each a world and a training of its own.

    python -m ens10.experiments.demo_seeds FOLDER --seeds 3 --out experiments/results/demo

It is resumable: what a seed's folder holds already is not done again.
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ens10.durable import write_whole
from ens10.experiments.commands import tells_errors
from ens10.experiments.demo import MODELS, run_demo
from ens10.experiments.finished import read_runs
from ens10.experiments.matrix.order import skill_in_words, skill_note
from ens10.experiments.tables import Row, score_table

# The order that the world's construction says: each pair's first has the larger (worse) CRPS.
ORDER = (
    ("raw", "emos_global"),
    ("emos_global", "emos_local"),
    ("emos_global", "mlp"),
    ("emos_local", "unet"),
    ("mlp", "unet"),
    ("unet", "optimum"),
)


def paired_differences(runs: Sequence[Path]) -> list[tuple[str, Row]]:
    """For each pair of `ORDER`, the row of its second run, scored against the first.

    The row's `crpss` is the skill of the second against the first, with its paired interval.

    Args:
        runs: scored run folders, the optimum's among them.
    """
    found = {run.name: run for run in read_runs(runs)}
    lines = []
    for worse, better in ORDER:
        table = score_table([found[worse], found[better]], reference=worse)
        row = next(row for row in table if row.model == better)
        lines.append((f"{better} against {worse}", row))
    return lines


def summary(folders: dict[int, Path]) -> str:
    """Markdown: CRPS and attained skill of each model and seed, then the order with intervals.

    Args:
        folders: demonstration folder by seed.
    """
    seeds = list(folders)
    runs = {
        seed: [folders[seed] / "runs" / name for name in (*MODELS, "optimum")] for seed in seeds
    }
    tables = {seed: {r.model: r for r in score_table(read_runs(runs[seed]))} for seed in seeds}
    lines = ["| CRPS (K) / attained skill | " + " | ".join(f"seed {s}" for s in seeds) + " |"]
    lines.append("|---|" + "---:|" * len(seeds))
    for model in (*MODELS, "optimum"):
        rows = [tables[seed][model] for seed in seeds]
        cells = [f"{row.crps.value:.4f} / {_value(row)}" for row in rows]
        lines.append(f"| {model} | " + " | ".join(cells) + " |")
    lines += ["", "| CRPS skill, 95 % | " + " | ".join(f"seed {s}" for s in seeds) + " |"]
    lines.append("|---|" + "---:|" * len(seeds))
    shown = []
    paired = [paired_differences(runs[seed]) for seed in seeds]
    for group in zip(*paired, strict=True):
        skills = [row.crpss for _, row in group if row.crpss is not None]
        shown += skills
        cells = [skill_in_words(skill) for skill in skills]
        lines.append(f"| {group[0][0]} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", skill_note(shown)]) + "\n"


def _value(row: Row) -> str:
    return "–" if row.attained is None else f"{row.attained.value:.3f}"


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 with one line on bad input."""
    parser = argparse.ArgumentParser(prog="python -m ens10.experiments.demo_seeds")
    parser.add_argument("folder", type=Path, help="one demonstration a seed is made in it")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    options = parser.parse_args(arguments)
    folders = {seed: options.folder / f"seed{seed}" for seed in range(options.seeds)}
    for seed, folder in folders.items():
        page = run_demo(folder, seed=seed)
        kept = options.out / f"seed{seed}"
        kept.mkdir(parents=True, exist_ok=True)
        for name in ("table.md", "table.csv"):
            shutil.copyfile(page.parent / name, kept / name)
    text = summary(folders)
    write_whole(options.out / "table.md", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
