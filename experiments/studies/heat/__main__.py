"""The command of the heat experiment.

    python -m ens10.experiments.studies.heat --config heat_smoe --seed 0 --out FOLDER
    python -m ens10.experiments.studies.heat table --seeds 0 1 2 --out FOLDER
    python -m ens10.experiments.studies.heat figure --seed 0 --out FOLDER --file heat.png

Options with a dot go to Lightning's command line, such as `--trainer.max_steps 100` or
`--data.runs 10`; they belong to a cell's key.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from jsonargparse import Namespace

from ens10.durable import whole_file
from ens10.experiments.commands import add_cell_options, refuse_file
from ens10.experiments.runner.results import Results
from ens10.experiments.runner.running import Outcome, run_cells
from ens10.experiments.studies.heat.tables import CONFIGS, map_figure, read_results, write_tables
from ens10.experiments.studies.heat.training import HeatCell
from ens10.usage import Parser, command_parser, reports_errors

_COMMANDS = ("cell", "table", "figure")


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit status 1 if a cell failed or with one line on bad input, 2 on usage."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words.pop(0) if words and words[0] in _COMMANDS else "cell"
    command_words, overrides = _split_words(words)
    options = _parser(name).parse_args(command_words)
    refuse_file(options.out)
    outcome = Outcome()
    if name != "figure" and not options.tables:
        outcome = _run(options, name, overrides)
    if name != "cell":
        with Results(options.out).temporary_folder() as cells_folder:
            results = read_results(cells_folder)
        if name == "table":
            write_tables(results, options.out)
        else:
            with whole_file(options.file) as file:
                form = options.file.suffix[1:] or "png"
                map_figure(results, options.seed).savefig(file, format=form, dpi=150)
    return int(outcome.failed)


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


def _run(options: Namespace, name: str, overrides: tuple[str, ...]) -> Outcome:
    configs = [options.config] if name == "cell" else options.configs
    seeds = [options.seed] if name == "cell" else options.seeds
    cells = [HeatCell(config, seed, options.out, overrides) for seed in seeds for config in configs]
    counts = {"workers": options.workers, "threads": options.threads}
    return run_cells(cells, **counts, older=options.keep_older)


def _parser(name: str) -> Parser:
    parser = command_parser(f"python -m ens10.experiments.studies.heat {name}")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="of results")
    if name == "figure":
        parser.add_argument("--file", type=Path, required=True, help="the figure")
        parser.add_argument("--seed", type=int, default=0)
        return parser
    add_cell_options(parser)
    if name == "table":
        parser.add_argument("--configs", nargs="+", default=list(CONFIGS), metavar="NAME")
        parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N")
    else:
        parser.add_argument("--config", required=True, metavar="NAME", help="or a YAML file")
        parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
