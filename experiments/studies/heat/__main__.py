"""The command of the heat experiment.

    python -m ens10.experiments.studies.heat --config heat_smoe --seed 0 --out FOLDER
    python -m ens10.experiments.studies.heat table --seeds 0 1 2 --out FOLDER
    python -m ens10.experiments.studies.heat figure --seed 0 --out FOLDER --file heat.png

Options with a dot go to Lightning's command line, such as `--trainer.max_steps 100` or
`--data.runs 10`; they belong to a cell's key.
"""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jsonargparse import Namespace

from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.studies.heat.tables import CONFIGS, map_figure, read_results, write_tables
from ens10.experiments.studies.heat.training import HeatCell
from ens10.experiments.studies.study import compute, image_of, run_study, study_parser
from ens10.usage import Parser, reports_errors

_COMMANDS = ("cell", "table", "figure")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed or with one line on bad input, 2 on usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words.pop(0) if words and words[0] in _COMMANDS else "cell"
    command_words, overrides = _split_words(words)
    options = _parser(name).parse_args(command_words)
    options.tables = options.tables or name == "figure"
    return run_study(options, partial(_run, options, overrides), partial(_write, options, name))


def _split_words(words: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the options of this command, and those with a dot, which are Lightning's."""
    command_words: list[str] = []
    overrides: list[str] = []
    current = command_words
    for word in words:
        if word.startswith("--"):
            current = overrides if "." in word.partition("=")[0] else command_words
        current.append(word)
    return command_words, tuple(overrides)


def _run(options: Namespace, overrides: tuple[str, ...]) -> Outcome:
    where = (options.out / "work", options.out, overrides)
    cells = [HeatCell(name, seed, *where) for seed in options.seeds for name in options.configs]
    return compute(cells, options)


def _write(options: Namespace, name: str, cells_folder: Path, _: Outcome) -> str:
    if name == "table":
        return write_tables(read_results(cells_folder), options.out)
    if name == "figure":
        figure = map_figure(read_results(cells_folder), options.seeds[0])
        image = image_of(figure, format=options.file.suffix[1:] or "png")
        write_files(options.file.parent, {options.file.name: image})
    return ""


def _parser(name: str) -> Parser:
    """Return the parser; `--config` and `--seed` abbreviate `--configs` and `--seeds`."""
    parser = study_parser(f"heat {name}", work=None)
    seeds, configs = ([0, 1, 2], list(CONFIGS)) if name == "table" else ([0], [])
    parser.add_argument("--seeds", nargs="+", type=int, default=seeds, metavar="N")
    if name == "figure":
        parser.add_argument("--file", type=Path, required=True, help="the figure")
        return parser
    required, text = name == "cell", "or YAML files"
    parser.add_argument(
        "--configs", nargs="+", default=configs, required=required, metavar="NAME", help=text
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
