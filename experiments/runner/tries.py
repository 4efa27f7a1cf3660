"""Tries of the learning rate, equally many for each network, compared by validation loss."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import Any

from ens10.experiments.runner.trainings import ModelCell
from ens10.experiments.runs.claims import claim
from ens10.experiments.scoring.run_results import LOG, read_log
from ens10.experiments.scoring.writers import columns_of, markdown_of
from ens10.partial import write_folder
from ens10.untrusted import parse_json, read_mapping

FOLDER = "tries"
_LOSS = "loss.json"
_RATE = "--model.init_args.optimizer.init_args.lr="
Rates = Mapping[ModelCell, Sequence["Try"]]


@dataclass(frozen=True)
class Try(ModelCell):
    """A training with one learning rate, of which only log and validation loss are kept.

    Args:
        factor: of the learning rate of the configuration or budget.
    """

    factor: float = 1.0

    @property
    def name(self) -> str:
        """Model, seed or variant in words, for progress and error messages."""
        return f"{super().name}, learning rate x {self.factor:g}"

    @property
    def scratch(self) -> Path:
        """Folder of the runs, claims and logs of this factor."""
        return super().scratch / FOLDER / f"{self.factor:g}"

    @property
    def place(self) -> str:
        """Its place in the archive, by factor, task, seed and model."""
        return f"{FOLDER}/{self.factor:g}/{super().place}"

    def compute(self) -> dict[str, bytes]:
        """Train, or resume; return the log and the least validation loss.

        Raises:
            Ens10Error: as `ens10 fit`.
        """
        self.fit()
        losses = [epoch.val_loss for epoch in read_log(self.run / LOG)]
        least = min((loss for loss in losses if loss is not None), default=inf)
        content = json.dumps({"val_loss": least}) + "\n"
        return {LOG: (self.run / LOG).read_bytes(), _LOSS: content.encode()}

    def loss(self, *, older: bool = False) -> float:
        """Return the least validation loss; infinite if the training failed.

        Args:
            older: whether a training of older code, data or configuration counts.
        """
        if self.status() not in (("complete", "older") if older else ("complete",)):
            return inf
        content: Any = parse_json(self.results.files(self.place)[_LOSS])
        return float(content["val_loss"])


def tries_of(cells: Sequence[ModelCell], factors: Sequence[float]) -> dict[ModelCell, list[Try]]:
    """Return the tries of each cell whose model has a learning rate.

    Args:
        cells: of one seed, with the learning rates of their configurations or budgets.
        factors: of these learning rates.
    """
    return {
        cell: [_try(cell, factor) for factor in factors]
        for cell in cells
        if _rate_of(cell) is not None
    }


def _try(cell: ModelCell, factor: float) -> Try:
    attributes = {field.name: getattr(cell, field.name) for field in fields(ModelCell)}
    return Try(**{**attributes, "overrides": with_rate(cell, factor).overrides}, factor=factor)


def with_rate(cell: ModelCell, factor: float) -> ModelCell:
    """Return the cell with its learning rate times a factor; the cell itself for 1."""
    rate = _rate_of(cell)
    if factor == 1 or rate is None:
        return cell
    return replace(cell, overrides=(*cell.overrides, f"{_RATE}{factor * rate:g}"))


def _rate_of(cell: ModelCell) -> float | None:
    """Return the learning rate of a cell; None if its model has none."""
    model = read_mapping(cell.config)["model"].get("init_args", {})
    rate = model.get("optimizer", {}).get("init_args", {}).get("lr")
    rates = [word.removeprefix(_RATE) for word in cell.overrides if word.startswith(_RATE)]
    return float(rates[-1]) if rates else rate


def best_of(tries: Sequence[Try], *, older: bool = False) -> Try:
    """Return the training with the least validation loss; of equals, the rate changed least.

    Args:
        tries: of one cell.
        older: see `Try.loss`.
    """
    return min(tries, key=lambda t: (t.loss(older=older), max(t.factor, 1 / t.factor)))


def reuse(best_try: Try, cell: ModelCell) -> None:
    """Copy the run of a try to the cell with its seed and settings, unless that has a run."""
    with claim(cell.claim) as has_claim:
        if not has_claim or not best_try.run.exists() or cell.run.exists():
            return
        if cell.status() != "complete":
            cell.write_start_key()  # before the folder is there: without a key it would be resumed
            write_folder(cell.run, lambda path: shutil.copytree(best_try.run, path))


def as_markdown(rates: Rates, earlier: str = "", *, older: bool = False) -> str:
    """Return a table of the least validation losses, with a row a model and a column a factor.

    Args:
        rates: tries of each cell.
        earlier: table of an earlier call with the same factors; its other models are kept.
        older: see `Try.loss`.
    """
    factors = sorted({one.factor for tries in rates.values() for one in tries})
    heads = ["Model", "Learning rate", *(f"x {factor:g}" for factor in factors), "Chosen"]
    rows = []
    for cell, tries in rates.items():
        losses = {one.factor: one.loss(older=older) for one in tries}
        loss_texts = [f"{losses[f]:.5g}" if losses.get(f, inf) < inf else "–" for f in factors]
        rate, best = _rate_of(cell) or 0.0, best_of(tries, older=older)
        rows.append([cell.model, f"{rate:g}", *loss_texts, f"{rate * best.factor:g}"])
    note = (
        "Least validation loss of a training with each learning rate, seed 0; the least is chosen."
    )
    head, rule, *new_rows = markdown_of(columns_of(heads, rows)).splitlines()
    lines = {_model_of(line): line for line in _rows_below(head, earlier)}
    lines |= {_model_of(line): line for line in new_rows}
    return "\n".join([head, rule, *lines.values(), "", note, ""])


def _rows_below(head: str, table: str) -> list[str]:
    """Return the rows of a Markdown table; none if its head is another."""
    rows = [line for line in table.splitlines() if line.startswith("|")]
    return rows[2:] if rows[:1] == [head] else []


def _model_of(row: str) -> str:
    return row.split("|")[1].strip()
