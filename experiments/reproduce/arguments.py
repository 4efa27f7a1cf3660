"""The options of `ens10 reproduce`, without imports that would slow down its help."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ens10.experiments.runs.commands import (
    add_work_options,
    add_world_options,
    world_options_of,
)
from ens10.usage import Parser

if TYPE_CHECKING:
    from ens10.experiments.reproduce.command import Request


def add_arguments(parser: Parser) -> None:
    """Add the options of `ens10 reproduce` to a parser."""
    parser.add_argument("--store", type=Path, help="prepared data (default: synthetic worlds)")
    parser.add_argument(
        "--protocol", default="clean", metavar="NAME", help="clean, paper, or a YAML file"
    )
    parser.add_argument(
        "--targets", nargs="+", default=["z500", "t850", "t2m"], metavar="CHANNEL",
        help="default: z500 t850 t2m",
    )  # fmt: skip
    parser.add_argument(
        "--members", nargs="+", type=int, default=[], metavar="N",
        help="default: those of the protocol, 5 10",
    )  # fmt: skip
    parser.add_argument(
        "--models", nargs="+", default=[], metavar="NAME", help="default: those of the papers"
    )
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="default: 3")
    add_work_options(parser)
    parser.add_argument("--out", type=Path, default=Path("reproduce"), metavar="DIR")
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="for data and runs (default: OUT/work)"
    )
    plan = parser.add_argument_group("before it is done")
    plan.add_argument(
        "--plan", nargs="?", const=True, metavar="FILE",
        help="only say what it would take: bytes, hours, memory of each cell; of ENS-10 itself, "
        "or of --store. FILE gets it as JSON",
    )  # fmt: skip
    plan.add_argument(
        "--probe", action="store_true", help="with --plan: time the models on this machine first"
    )
    plan.add_argument(
        "--rates", type=Path, metavar="FILE", help="with --plan: rates measured elsewhere"
    )
    add_world_options(parser)


def run(**values: Any) -> int:
    """Run `ens10 reproduce`; return the exit status.

    Args:
        **values: the options by name.

    Raises:
        ArgumentError: options of synthetic worlds with a store or a plan; options of a plan without
            `--plan`.
        Ens10Error: as `reproduce`.
    """
    from ens10.errors import ArgumentError
    from ens10.experiments.reproduce.command import Request, reproduce, usual_name
    from ens10.experiments.runner.tasks import WorldSize

    options = SimpleNamespace(**values)
    world_options = world_options_of(options, instead=("store", "plan"))
    for name in ("probe", "rates"):
        if getattr(options, name) and not options.plan:
            raise ArgumentError(f"--{name}", "is of a plan", "Add --plan")
    request = Request(
        options.out,
        options.work or options.out / "work",
        options.store,
        options.protocol,
        tuple(map(usual_name, options.targets)),
        tuple(options.members),
        tuple(options.models),
        options.seeds,
        options.budget,
        WorldSize.from_options(**world_options),
    )
    if options.plan:
        return _plan(options, request)
    counts = {"workers": options.workers, "threads": options.threads}
    return reproduce(request, **counts, older=options.keep_older, tables=options.tables)


def _plan(options: SimpleNamespace, request: "Request") -> int:
    from ens10.experiments.planning.rates import measure_rates, read_rates
    from ens10.experiments.reproduce.plan import plan_table, print_table, write_json

    rates = read_rates(options.rates)
    if options.probe:
        rates = measure_rates(rates, request.rows)
    content = plan_table(request, rates)
    print_table(content, options.workers * options.threads)
    if options.plan is not True:
        write_json(content, Path(options.plan))
    return int(bool(content["refused"]))
