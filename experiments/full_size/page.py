"""Puts the log and the plan into docs/full_size.md, between its marks.

python -m ens10.experiments.full_size.page [--page docs/full_size.md]
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ens10.durable import write_whole
from ens10.experiments.commands import tells_errors
from ens10.experiments.full_size.log import FILE, table
from ens10.experiments.reproduce.dryrun import DryRun, dry_run
from ens10.experiments.reproduce.dryrun_costs import Cost
from ens10.experiments.reproduce.dryrun_rates import kept_rates, read_rates
from ens10.experiments.studies.reproduce.command import Request
from ens10.experiments.writers import filled
from ens10.untrusted import read_mapping

TARGETS, MEMBERS = ("z500", "t850", "t2m"), (5, 10)


def plan_text(found: DryRun) -> str:
    """The plan of everything that the command does by default, in short."""
    whole, sizes = found.download, found.sizes
    assert found.prepare is not None
    hours, command = found.prepare
    parts = ", ".join(f"{name} {_gb(size)}" for name, size in sizes.items())
    files = _gb(sum(size for name, size in whole.items() if name.startswith("files")))
    shown = [cost for cost in found.costs if cost.task.target == "t2m"]
    asked = found.request
    told = (
        f"Of everything (`ens10 reproduce --plan`: {', '.join(TARGETS)}, 5 and 10 members, "
        f"protocol {asked.rules.name}, {asked.seeds} seeds, {len(found.costs)} cells a seed): "
        f"files of {files}, of which a store of {_gb(sum(sizes.values()))} is made ({parts}) in "
        f"{hours:.1f} hours of a core by `{command}`; all cells take {found.hours:,.0f} hours of "
        f"a core, {found.hours / 24:,.0f} days. Those of T2m:"
    )
    lines = [
        told,
        _table(shown),
        *(f"Left out: {name}: {why}" for name, why in found.refused.items() if "t2m" in name),
    ]
    return "\n\n".join(lines)


def _table(costs: Sequence[Cost]) -> str:
    head = ("model", "members", "epochs", "train", "predict, score", "cell", "memory", "from")
    rows = [f"| {' | '.join(head)} |", "|---|---:|---:|---:|---:|---:|---:|---|"]
    for cost in costs:
        hours = [cost.hours["train"], cost.hours["predict and score"], cost.total]
        cells = [cost.model, str(cost.task.members), str(cost.epochs)]
        cells += [f"{value:.2g} h" if value < 10 else f"{value:.0f} h" for value in hours]
        told = "measured" if cost.measured else "scaled"
        rows.append(f"| {' | '.join([*cells, f'{cost.memory_gb:.1f} GB', told])} |")
    return "\n".join(rows)


def _gb(size: float) -> str:
    return f"{size / 1e12:.2f} TB" if size >= 1e12 else f"{size / 1e9:.0f} GB"


def log_text(content: Mapping[str, Any]) -> str:
    """The log's table and sum, without its heading."""
    return table(content).partition("\n\n")[2].strip()


@tells_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """The command; exit status 1 with one line if something is not there."""
    parser = argparse.ArgumentParser(prog="python -m ens10.experiments.full_size.page")
    parser.add_argument("--page", type=Path, default=Path("docs/full_size.md"))
    given = parser.parse_args(arguments)
    request = Request(Path("out"), Path("work"), targets=TARGETS, members=MEMBERS)
    plan = plan_text(dry_run(request, read_rates()))
    log = log_text(read_mapping(kept_rates().parent / FILE))
    text = filled(given.page.read_text(encoding="utf-8"), "plan", plan)
    write_whole(given.page, filled(text, "log", log))
    return 0


if __name__ == "__main__":
    sys.exit(main())
