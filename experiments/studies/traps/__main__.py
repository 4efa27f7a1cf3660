"""The command: compute the missing cells, then write the tables and the figure."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ens10.durable import write_whole
from ens10.errors import FileError
from ens10.experiments.commands import add_cell_options, refuse_file, tells_errors
from ens10.experiments.runner.cell import Cell
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.running import Outcome, run_cells
from ens10.experiments.studies.traps import raw_ensemble, tables, training
from ens10.protocol import content_of

_STATIONS = ("ens10.loader", "ens10.models", "ens10.metrics", "ens10.experiments.studies.traps")


@dataclass(frozen=True)
class TrapCell(Cell):
    """The raw ensemble, or one protocol's training, with one seed.

    Args:
        protocol: name of a protocol, or "raw".
        seed: of the world and the training.
        work: folder of the worlds.
        out: folder of the results.
    """

    protocol: str
    seed: int
    work: Path
    out: Path

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.protocol}, seed {self.seed}"

    @property
    def place(self) -> str:
        """Its place in the archive, by seed and protocol."""
        return f"seed{self.seed}/{self.protocol}"

    @property
    def scratch(self) -> Path:
        """Folder of the seed's world, claims and logs."""
        return self.work / f"seed{self.seed}"

    def current_key(self) -> Key:
        """Return the key; the world is made from its numbers."""
        world = [training.GRID, training.VARIABLES, training.DATES, training.STEP]
        years = [training.TRAIN, training.VAL, training.TEST, training.FRESH]
        whole = {"world": world, "years": years, "seed": self.seed, "name": self.protocol}
        if self.protocol != training.RAW:
            whole["protocol"] = content_of(training.PROTOCOLS[self.protocol])
            whole["epochs"] = training.EPOCHS
            whole["network"] = "ens10.models.networks.UNet"
        return key_of(whole, "", _STATIONS)

    def compute(self) -> dict[str, bytes]:
        """Score the raw ensemble, or train and score."""
        store = training.store_of(self.work, self.seed)
        if self.protocol == training.RAW:
            result = {training.RAW: raw_ensemble.score_raw(store)}
        else:
            result = training.train_and_score(store, self.seed, self.protocol)
        return {tables.RESULT: (json.dumps(result, indent=1, sort_keys=True) + "\n").encode()}


def find_cells(work: Path, out: Path, seeds: Sequence[int]) -> list[TrapCell]:
    """Return all cells; those that the paper's table does not name come last."""
    names = [training.RAW, *(n for n in training.PROTOCOLS if n != training.SELECTION)]
    return [
        TrapCell(name, seed, work, out)
        for late in (False, True)
        for seed in seeds
        for name in names
        if (name in training.LATE) == late
    ]


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed, or with one line on bad input."""
    options = _parse(arguments)
    for folder in (options.work, options.out):
        refuse_file(folder)
    if options.page and not options.page.is_file():
        raise FileError(options.page, "no such page", "Give one with places for the tables")
    outcome = Outcome()
    if not options.tables:
        cells = find_cells(options.work, options.out, options.seeds)
        counts = {"workers": options.workers, "threads": options.threads}
        outcome = run_cells(cells, **counts, older=options.keep_older)
    with Results(options.out).unpacked(outcome.shown) as kept:
        results = tables.read_results(kept)
    print(tables.write_tables(results, options.out))
    place = options.out
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        write_whole(options.page, tables.fill(text, tables.tables(results)))
        place = options.page.parent / "figures"
    tables.draw(results, place / "traps.png")
    return int(outcome.failed)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ens10.experiments.studies.traps")
    parser.add_argument("work", type=Path, help="folder for the worlds")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(range(6)), metavar="N", help="default: 0 to 5"
    )
    parser.add_argument("--page", type=Path, help="docs/traps.md: write its tables and figure anew")
    add_cell_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
