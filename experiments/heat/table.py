"""The table of the heat experiment, in Markdown and CSV, from the results of its cells."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from ens10.durable import write_whole
from ens10.errors import FileError
from ens10.untrusted import parse_json

Result = dict[str, Any]
# In the order of the table: what is compared, then what is changed in the published recipe.
CONFIGS = {
    "heat_smoe_true_map": "SMoE, true map given",
    "heat_conv": "convolution",
    "heat_coordconv": "CoordConv",
    "heat_condconv": "CondConv, 3 experts",
    "heat_lowrank": "low-rank locally connected, rank 3",
    "heat_lcn": "locally connected",
    "heat_smoe_recipe": "SMoE, published recipe",
    "heat_smoe_no_margins": "recipe without margins, damping 0.1, 0.3 epoch",
    "heat_smoe_rates": "recipe + rates",
    "heat_smoe_compared": "rates + comparison with all experts",
    "heat_smoe": "rates + comparison with all experts + balance",
    "heat_smoe_one_rival": "the same, compared with one expert a point",
    "heat_smoe_published_rates": "published rates + comparison with all experts + balance",
    "heat_smoe_undamped": "the same as `heat_smoe`, without damping",
}
_COLUMNS = ("config", "seed", "within", "mse", "agreement", "steps", "parameters", "cpu_seconds")


def read_results(folder: Path) -> list[Result]:
    """The results in a folder, in the order of `CONFIGS`, others after them by name.

    Raises:
        FileError: there are none, or a file is none.
    """
    results = []
    for file in sorted(folder.glob("*/seed*.json")):
        try:
            result = parse_json(file.read_bytes())
            results.append({name: result[name] for name in (*result, *_COLUMNS)})
        except (ValueError, KeyError, TypeError) as error:
            raise FileError(
                file, f"no result ({error!r})", "Remove it; its cell runs again"
            ) from error
    if not results:
        raise FileError(folder, "holds no results", "Run cells into it first")
    order = {name: place for place, name in enumerate(CONFIGS)}
    last = len(order)
    return sorted(results, key=lambda r: (order.get(r["config"], last), r["config"], r["seed"]))


def write_tables(results: Sequence[Result], folder: Path) -> None:
    """Writes table.md and table.csv."""
    write_whole(folder / "table.md", markdown(results))
    write_whole(folder / "table.csv", to_csv(results))


def markdown(results: Sequence[Result]) -> str:
    """A row for each configuration: each seed's scores, then means."""
    lines = [
        "| configuration | layer | within 1 % (%) | mean | MSE | map found (%) | steps "
        "| parameters | CPU s |",
        "|---|---|---|---:|---:|---|---:|---:|---:|",
    ]
    for config in dict.fromkeys(r["config"] for r in results):
        rows = [r for r in results if r["config"] == config]
        within = [100 * r["within"] for r in rows]
        found = [100 * r["agreement"] for r in rows if r["agreement"] is not None]
        cells = (
            f"`{config}`",
            CONFIGS.get(config, "–"),
            _each(within),
            f"{mean(within):.2f}",
            f"{mean(r['mse'] for r in rows):.1e}",
            _each(found) or "–",
            f"{rows[0]['steps']:,}",
            f"{rows[0]['parameters']:,}",
            f"{mean(r['cpu_seconds'] for r in rows):.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def to_csv(results: Sequence[Result]) -> str:
    """A line for each cell."""
    file = io.StringIO()
    writer = csv.DictWriter(file, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(results)
    return file.getvalue()


def _each(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values)
