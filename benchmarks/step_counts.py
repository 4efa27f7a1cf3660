"""What a training step of each configuration costs on a GPU, counted without one.

    python benchmarks/step_counts.py [NAME ...] [--breaks] [--out FILE.json]

The counts are those of `ens10.experiments.planning.step_counts`, under autocast to bfloat16, and
breaks of the graph of `torch.compile`. Two bounds on an H200 follow from them:

    K      the time if every operation ran at the device's rates: the sum over the operations of the
           larger of bytes / 4.18 TB/s and operations / 775 TFLOP/s
    saved  the time if batch, parameters with their moments and saved activations were moved once
           each way: what can be reached without recomputing
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cuda_steps as made
import torch
from torch import Tensor

from ens10.experiments.planning.step_counts import Subject, count_step, on_gpu
from ens10.models.losses import CRPSLoss
from ens10.models.matching import forecast_of
from ens10.models.statistical.base import StatisticalMethod

__all__ = ["count", "graph_breaks", "on_gpu"]
ROOT = Path(__file__).resolve().parents[1]
GRID, DATES = (361, 720), 4


def count(name: str, grid: tuple[int, int] = GRID, dates: int = DATES) -> dict[str, Any]:
    """Counts of one training step of a configuration, in bfloat16 with fused Adam.

    Args:
        name: of the configuration.
        grid: rows and columns.
        dates: in the batch.
    """

    def make() -> Subject:
        network, head, _ = made.model(name, grid)
        batch = made.date(network, grid, dates)
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)
        step = made.Step(network, head, batch, optimizer, torch.autocast("cuda", torch.bfloat16))
        return Subject(step, (*network.parameters(), *network.buffers()), batch)

    counts, saved, fused = count_step(make, ROOT / "benchmarks")
    total = counts.total
    return {
        "operations": total.operations,
        "GB": round(total.bytes / 1e9, 3),
        "GFLOP": round(total.flops / 1e9, 2),
        "synchronisations": sum(counts.syncs.values()),
        "places of synchronisations": dict(counts.syncs),
        "saved GB": round(saved / 1e9, 3),
        "K, ms": round(1e3 * total.seconds, 3),
        "saved once, ms": round(1e3 * fused, 3),
        "GB by place": {k: round(v / 1e9, 2) for k, v in counts.by_place.most_common(8)},
    }


def graph_breaks(
    name: str, grid: tuple[int, int] = (48, 96), device: str = "meta"
) -> dict[str, Any]:
    """Breaks of the graph of network, head and loss.

    Args:
        name: of the configuration.
        grid: rows and columns.
        device: "meta", which is not the CPU, or "cpu" where an operator asks for values.
    """
    torch._dynamo.reset()
    network, head, _ = made.model(name, grid)
    batch = {key: value.to(device) for key, value in made.date(network, grid, 2).items()}
    for method in (*network.modules(), *head.modules()):
        if isinstance(method, StatisticalMethod):
            method.is_solved  # noqa: B018  (the host reads it before the graph is made)
    network, head, loss = network.to(device), head.to(device), CRPSLoss()

    def evaluate(batch: dict[str, Tensor]) -> Tensor:
        values = loss.evaluate(forecast_of(network, head, batch), batch["target"], batch["weights"])
        return values.mean()

    enter = torch.amp._enter_autocast

    def enter_known(device: str, *options: Any) -> Any:
        return enter("cpu" if device == "meta" else device, *options)  # "meta" has no autocast

    try:
        with patch.object(torch.amp, "_enter_autocast", enter_known):
            found = torch._dynamo.explain(evaluate)(batch)
    except Exception as error:
        return {"graph breaks": None, "failed": f"{type(error).__name__}: {error}"[:300]}
    places = Counter(
        f"{Path(r.user_stack[-1].filename).name}:{r.user_stack[-1].lineno} "
        f"{str(r.reason).splitlines()[0]}"
        for r in found.break_reasons
    )
    broken = {"graph breaks": found.graph_break_count, "places of breaks": dict(places)}
    return broken if device == "meta" else {**broken, "graph on": device}


def table(rows: dict[str, Any]) -> str:
    """The counts as Markdown."""
    columns = ("operations", "GB", "GFLOP", "saved GB", "synchronisations", "K, ms")
    columns = (*columns, "saved once, ms", "graph breaks")
    lines = [f"| configuration | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for name, row in rows.items():
        cells = " | ".join(f"{row.get(column, '')}" for column in columns)
        lines.append(f"| `{name}` | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Counts the configurations that are named, or all, and adds them to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all of a network")
    parser.add_argument("--grid", default="361x720")
    parser.add_argument("--dates", type=int, default=DATES)
    parser.add_argument("--breaks", action="store_true", help="breaks of the graph, too")
    parser.add_argument("--device", default="meta", choices=("meta", "cpu"), help="of the graph")
    parser.add_argument("--out", type=Path, help="JSON, to which rows are added")
    given = parser.parse_args()
    grid = tuple(map(int, given.grid.split("x")))
    rows: dict[str, Any] = {}
    for name in given.names or made.networks():
        try:
            rows[name] = count(name, (grid[0], grid[1]), given.dates)
        except Exception as error:
            rows[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        if given.breaks:
            small = {"meta": (48, 96), "cpu": (16, 24)}[given.device]
            rows[name] |= graph_breaks(name, small, given.device)
        if given.out:
            old = json.loads(given.out.read_text()) if given.out.exists() else {}
            content = {**old, "torch": torch.__version__.split("+")[0], "grid": given.grid}
            content |= {"dates": given.dates, "rows": {**old.get("rows", {}), **rows}}
            given.out.write_text(json.dumps(content, indent=1) + "\n")
        print(table({name: rows[name]}).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
