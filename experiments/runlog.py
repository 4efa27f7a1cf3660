"""The log of a run: one CSV file, written at each epoch, that a resumed fit goes on with."""

import csv
from pathlib import Path

import torch
from pytorch_lightning.loggers import CSVLogger

FOLDER, FILE = "log", "metrics.csv"


class RunLog(CSVLogger):
    """RUN/log/metrics.csv.

    Lightning begins a new file whenever it logs to a folder; here the epochs up to the checkpoint
    that a fit is resumed from stay, and a kill loses no epoch that was finished.

    Args:
        run: folder of the run.
        checkpoint: that the fit goes on from; None if it starts anew.
    """

    def __init__(self, run: Path, checkpoint: Path | str | None) -> None:
        super().__init__(save_dir=run, name="", version=FOLDER, flush_logs_every_n_steps=1)
        rows = _rows(run / FOLDER / FILE, _epoch_of(checkpoint)) if checkpoint else []
        if rows:
            # Asking for the writer is what deletes the old file.
            for row in rows:
                self.experiment.log_metrics(row, int(row["step"]))
            self.save()


def _rows(path: Path, last_epoch: int) -> list[dict[str, float]]:
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
    return [_whole(row) for row in rows if row.get("epoch", last_epoch + 1) <= last_epoch]


def _whole(row: dict[str, float]) -> dict[str, float]:
    return {key: int(v) if key in ("epoch", "step") else v for key, v in row.items()}


def _epoch_of(checkpoint: Path | str) -> int:
    """The last epoch that a checkpoint holds."""
    return int(torch.load(checkpoint, map_location="cpu", weights_only=True)["epoch"])
