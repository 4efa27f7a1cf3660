"""The command: every cell that is not there yet, then the table and the figure."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ens10.durable import write_whole
from ens10.errors import FileError
from ens10.experiments.commands import refuse_file, tells_errors
from ens10.experiments.traps.worlds import LATE, PROTOCOLS, RAW, SELECTION, store_of


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 with one line on bad input."""
    parser = argparse.ArgumentParser(prog="python -m ens10.experiments.traps")
    parser.add_argument("work", type=Path, help="folder for the worlds")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=list(range(6)), metavar="N", help="default: 0 to 5"
    )
    parser.add_argument("--page", type=Path, help="docs/traps.md: write its tables and figure anew")
    options = parser.parse_args(arguments)
    for folder in (options.work, options.out):
        refuse_file(folder)
    if options.page and not options.page.is_file():
        raise FileError(options.page, "no such page", "Give one with places for the tables")
    for seed, name in _missing(options.out, options.seeds):
        _do(options.work, options.out, seed, name)
    from ens10.experiments.traps.figure import draw
    from ens10.experiments.traps.table import fill, read_results, tables, write_tables

    results = read_results(options.out)
    print(write_tables(results, options.out))
    place = options.out
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        write_whole(options.page, fill(text, tables(results)))
        place = options.page.parent / "figures"
    draw(results, place / "traps.png")
    return 0


def _missing(out: Path, seeds: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Cells without result; those that the paper's table does not name come last."""
    names = [RAW, *(name for name in PROTOCOLS if name != SELECTION)]
    for late in (False, True):
        for seed in seeds:
            for name in names:
                if (name in LATE) == late and not _file(out, seed, name).exists():
                    yield seed, name


def _do(work: Path, out: Path, seed: int, name: str) -> None:
    """Writes results as soon as they are there."""
    from ens10.experiments.traps.unfitted import score_raw

    store, begun = store_of(work, seed), time.process_time()
    if name == RAW:
        found: dict[str, dict[str, Any]] = {RAW: score_raw(store)}
    else:
        from ens10.experiments.traps.cells import train_and_score

        found = train_and_score(store, seed, name)
    seconds = round(time.process_time() - begun, 1)
    for one, result in reversed(found.items()):  # the one that is looked for comes last
        path = _file(out, seed, one)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(result, indent=1, sort_keys=True) + "\n")
    print(f"{', '.join(found)}, seed {seed}: {seconds} s", flush=True)


def _file(out: Path, seed: int, name: str) -> Path:
    return out / f"seed{seed}" / f"{name}.json"


if __name__ == "__main__":
    sys.exit(main())
