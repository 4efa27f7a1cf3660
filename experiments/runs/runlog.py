"""The log of a run, RUN/log/metrics.csv, whose rows are saved in checkpoints too."""

import csv
import io
import math
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor

from ens10.durable import write_whole

FOLDER, FILE = "log", "metrics.csv"
Row = dict[str, str]


class RunLog(Logger):
    """RUN/log/metrics.csv: one row for each stage of an epoch.

    The rows are kept in memory and in each checkpoint, and the file is written as a whole with
    each checkpoint. A fit that is resumed takes the rows from its checkpoint, so that no epoch is
    missing and none is there twice, whenever the fit was killed.

    Args:
        run: folder of the run.
    """

    def __init__(self, run: Path) -> None:
        super().__init__()
        self._run = run
        self.rows: list[Row] = []

    @property
    def path(self) -> Path:
        """Path of the log file."""
        return self._run / FOLDER / FILE

    @property
    def name(self) -> str:
        """Empty: a run has one log."""
        return ""

    @property
    def version(self) -> str:
        """Name of the log's folder in the run folder."""
        return FOLDER

    @property
    def save_dir(self) -> str:
        """The folder of the run."""
        return str(self._run)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Add a row, unless it is the same as the last one."""
        row = {key: _text(value) for key, value in metrics.items()}
        row["step"] = _text(len(self.rows) if step is None else step)
        if row not in self.rows[-1:]:
            self.rows.append(row)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kw: Any) -> None:
        """Do nothing: the configuration of a run is in its config.yaml."""

    @rank_zero_only
    def finalize(self, status: str) -> None:  # noqa: ARG002
        """Write the rows that were added since the last checkpoint."""
        self.write()

    @rank_zero_only
    def write(self) -> None:
        """Write the file as a whole; remove it if there are no rows.

        Raises:
            OSError: no space is left; the old file is as it was.
        """
        if not self.rows:
            self.path.unlink(missing_ok=True)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, self.to_csv())

    def to_csv(self) -> str:
        """Return all rows as CSV, columns in alphabetical order."""
        text = io.StringIO()
        names = sorted({name for row in self.rows for name in row})
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def best_validation(self) -> str:
        """Return the least validation loss and its epoch in words; "" if none was logged."""
        losses = [(float(r["val_loss"]), int(r["epoch"])) for r in self.rows if "val_loss" in r]
        if not losses:
            return ""
        loss, epoch = min(losses, key=lambda pair: math.inf if math.isnan(pair[0]) else pair[0])
        if len(losses) == 1:
            return f"validation loss {loss:.4g}"
        return f"best validation loss {loss:.4g} in epoch {epoch} (the first is 0)"

    def load_csv(self, text: str) -> None:
        """Replace the rows by those of a text that `to_csv` returned."""
        rows = csv.DictReader(io.StringIO(text))
        self.rows = [{name: value for name, value in row.items() if value} for row in rows]

    def load_file(self, last_epoch: int) -> None:
        """Read the rows from the log file, for older checkpoints that hold no rows.

        Args:
            last_epoch: rows of later epochs are left out.
        """
        self.load_csv(self.path.read_text(encoding="utf-8") if self.path.is_file() else "")
        beyond = str(last_epoch + 1)
        self.rows = [row for row in self.rows if float(row.get("epoch", beyond)) <= last_epoch]


def _text(value: Any) -> str:
    return str(value.item() if isinstance(value, Tensor) else value)
