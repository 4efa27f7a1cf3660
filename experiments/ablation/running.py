"""The process of one cell of an ablation.

python -m ens10.experiments.ablation.running loss --variant log_score --seed 0 --work W --out O
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ens10.experiments.ablation.carrying import use_training
from ens10.experiments.ablation.cells import Place, VariantCell, find_cell, write_overlay
from ens10.experiments.ablation.spec import load_ablation
from ens10.experiments.commands import tells_errors
from ens10.experiments.matrix.cells import write_key
from ens10.experiments.matrix.claims import end_with
from ens10.experiments.matrix.running import add_parent, finish_cell, run_cell


def run_variant(cell: VariantCell) -> None:
    """Does a cell, with its own training or another's.

    Raises:
        Ens10Error: as `run_cell` and `use_training`.
    """
    write_overlay(cell.overlay_file, cell.overlay)
    if cell.training is None:
        run_cell(cell)
        return
    use_training(cell, cell.training)
    write_key(cell.begun, cell.identity)
    finish_cell(cell)


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 with one line on bad input."""
    parser = argparse.ArgumentParser(prog="python -m ens10.experiments.ablation.running")
    parser.add_argument("ablation", help="name, or a YAML")
    parser.add_argument("--variant", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget")
    parser.add_argument("--store", type=Path)
    add_parent(parser)
    given = parser.parse_args(arguments)
    end_with(given.parent)
    place = Place(given.work, given.out, given.budget, given.store)
    run_variant(find_cell(load_ablation(given.ablation), given.variant, given.seed, place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
