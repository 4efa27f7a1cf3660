"""A small displaced world, a U-Net for it and its score, which several studies share."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from ens10.convert import prepare
from ens10.experiments.runner.cell import Cell
from ens10.experiments.runner.forks import compute_cell
from ens10.experiments.runner.running import Outcome
from ens10.experiments.runner.tables import write_files
from ens10.experiments.runs.claims import make_once
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.scoring.writers import columns_of, csv_of, markdown_of
from ens10.experiments.studies.json_cells import JsonCell, Result, read_json_cells
from ens10.experiments.studies.study import run_study, study_parser
from ens10.loader.datamodule import EnsembleDataModule
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.layers import SameConv2d
from ens10.models.networks.base import start_at_zero
from ens10.models.networks.unet import UNetBody
from ens10.synthetic import World
from ens10.usage import count

WORLD: dict[str, Any] = {
    "grid": "16x32", "years": [*range(1998, 2008)], "dates": 13, "variables": ["t2m", "u10", "v10"],
    "steps": [48], "kind": "displaced",
}  # fmt: skip
ADAMW = partial(torch.optim.AdamW, weight_decay=0.001)
WIDTH = 16  # half of the paper's U-Net: 160,000 weights


def data_of(folder: Path, seed: int, batch: int, **changes: Any) -> EnsembleDataModule:
    """Return the data of T2m at 48 h in the world of a seed, which is made if it is missing.

    Args:
        folder: of world and store.
        seed: of the world and of the order of dates.
        batch: dates in a batch.
        **changes: of `WORLD`.
    """
    store, world, about = folder / "store.zarr", folder / "world", WORLD | changes

    def make() -> None:
        World(**about, seed=seed).write_once(world)
        prepare(world, store, truth=world / "truth", progress=False)

    make_once(store, make)
    options: dict[str, Any] = {"inputs": about["variables"], "batch_size": batch, "seed": seed}
    return EnsembleDataModule(str(store), extras=["location"], **options)


def unet_of(
    data: EnsembleDataModule,
    seed: int,
    epochs: int,
    rate: float,
    unet: type[UNetBody] = UNetBody,
    optimizer: Callable[..., torch.optim.Optimizer] = ADAMW,
) -> PostProcessor:
    """Return an untrained U-Net whose learning rate falls to zero along a cosine.

    Args:
        data: that it is trained on.
        seed: of the weights.
        epochs: of the training.
        rate: first learning rate.
        unet: class of the network.
        optimizer: makes it, without its learning rate.
    """
    torch.manual_seed(seed)
    conv = partial(SameConv2d, periodic_longitude=True)
    network = unet(
        len(data.batches("train").channels),
        2,
        lambda _, before, after: conv(before, after),
        WIDTH,
        periodic_longitude=True,
    )
    start_at_zero(network.last)
    return PostProcessor(
        network,
        ResidualNormalHead(),
        optimizer=partial(optimizer, lr=rate),
        scheduler=partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=epochs),
    )


def crps_on_test_dates(model: PostProcessor, data: EnsembleDataModule) -> float:
    """Return the CRPS on the test dates, K."""
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False}
    with suppress_lightning_warnings():
        trainer = pl.Trainer(accelerator="cpu", devices=1, **quiet)
        return float(trainer.test(model, data, verbose=False)[0]["test_crps"])


def change_of(values: Sequence[float], references: Sequence[float]) -> str:
    """Return the change from references in percent: the mean over seeds, least and most."""
    change = 100 * (np.array(values) / np.array(references) - 1)
    return f"{change.mean():+.2f} ({change.min():+.2f} to {change.max():+.2f})"


def tables_of(
    results: Collection[Result], labels: Mapping[str, str], columns: Mapping[str, str]
) -> dict[str, str]:
    """Return the tables of a study: means over seeds, and the numbers of each seed.

    Args:
        results: of cells, each with its variant, its seed and its CRPS.
        labels: of the variants, in order; the first is the reference of changes.
        columns: headings of other numbers, by their names in the results.
    """
    crps = {(r["variant"], r["seed"]): r["crps"] for r in results}
    rows = []
    for variant, label in labels.items():
        if not (group := [r for r in results if r["variant"] == variant]):
            continue
        references = [(next(iter(labels)), r["seed"]) for r in group]
        has_all = all(one in crps for one in references)
        values = [r["crps"] for r in group]
        words = change_of(values, [crps[one] for one in references]) if has_all else ""
        means = [float(np.mean([r[name] for r in group])) for name in ("crps", *columns)]
        texts = [f"{mean:,.0f}" if mean >= 1000 else f"{mean:.4g}" for mean in means]
        rows.append([label, texts[0], words, *texts[1:]])
    heads = ["", "CRPS (K)", "change in % (of the seeds)", *columns.values()]
    names = ("seed", "variant", "crps", *columns)
    return {
        "table.md": markdown_of(columns_of(heads, rows)),
        "table.csv": csv_of(names, results, ".9g"),
    }


def compute_here(cells: Iterable[Cell]) -> Outcome:
    """Compute the missing cells in this process: they take seconds, and a new process as many."""
    for cell in cells:
        if cell.status() != "complete":
            print(cell.name, flush=True)
            compute_cell(cell)
    return Outcome()


def run_seeds(
    name: str, cell: type[JsonCell], labels: Mapping[str, str], columns: Mapping[str, str],
    arguments: Sequence[str] | None,
) -> int:  # fmt: skip
    """Run the command of a study: each variant with each seed, then the tables.

    Args:
        name: of the study's module.
        cell: class of its cells.
        labels: of the variants; see `tables_of`.
        columns: see `tables_of`.
        arguments: of the command.
    """
    parser = study_parser(name)
    parser.add_argument("--variants", nargs="+", default=list(labels), choices=list(labels))
    parser.add_argument("--seeds", type=count, default=3)
    options = parser.parse_args(arguments)
    where = (options.work, options.out)
    cells = [cell(v, n, *where) for n in range(options.seeds) for v in options.variants]

    def write(folder: Path, _: Outcome) -> str:
        files = tables_of(read_json_cells(folder, tuple(columns)).values(), labels, columns)
        write_files(options.out, files)
        return files["table.md"]

    return run_study(options, partial(compute_here, cells), write)
