"""The command of the heat experiment.

    python -m ens10.experiments.heat --config heat_smoe --seed 0 --out FOLDER
    python -m ens10.experiments.heat table --seeds 0 1 2 --out FOLDER
    python -m ens10.experiments.heat figure --seed 0 --out FOLDER --file heat.png

A cell that FOLDER holds already is not run again; options that are not named here go to Lightning's
command line, e.g. `--trainer.max_steps 100 --data.runs 10`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ens10.durable import whole_file
from ens10.experiments.commands import tells_errors
from ens10.experiments.heat.figure import map_figure
from ens10.experiments.heat.run import run_cell, write_result
from ens10.experiments.heat.table import CONFIGS, read_results, write_tables

_COMMANDS = ("cell", "table", "figure")


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 with one line on bad input, 2 on bad usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given.pop(0) if given and given[0] in _COMMANDS else "cell"
    options, passed = _parser(name).parse_known_args(given)
    if name == "figure":
        figure = map_figure(read_results(options.out), options.seed)
        with whole_file(options.file) as file:
            figure.savefig(file, format=options.file.suffix[1:] or "png", dpi=150)
        return 0
    configs = [options.config] if name == "cell" else options.configs
    seeds = [options.seed] if name == "cell" else options.seeds
    for seed in seeds:
        for config in configs:
            _cell(config, seed, options.out, passed)
            if name == "table":
                write_tables(read_results(options.out), options.out)
    return 0


def _cell(config: str, seed: int, out: Path, passed: Sequence[str]) -> None:
    file = out / Path(config).stem / f"seed{seed}.json"
    if file.exists():
        return
    result = run_cell(config, seed, passed)
    write_result(result, file)
    agreement = result["agreement"]
    found = "" if agreement is None else f", map {100 * agreement:.1f} %"
    print(
        f"{result['config']} seed {seed}: within 1 % {100 * result['within']:.2f} %, "
        f"mse {result['mse']:.2e}{found}, {result['cpu_seconds']} s",
        flush=True,
    )


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m ens10.experiments.heat {name}", allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="of results")
    if name == "table":
        parser.add_argument("--configs", nargs="+", default=list(CONFIGS), metavar="NAME")
        parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N")
        return parser
    if name == "cell":
        parser.add_argument("--config", required=True, metavar="NAME", help="or a YAML file")
    else:
        parser.add_argument("--file", type=Path, required=True, help="the figure")
    parser.add_argument("--seed", type=int, default=0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
