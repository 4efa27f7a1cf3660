"""The progress bar of a run, with the speed in dates a second."""

from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks.progress.rich_progress import (
    ProcessingSpeedColumn,
    RichProgressBar,
)
from pytorch_lightning.trainer.states import TrainerFn
from rich.progress import Task
from rich.text import Text

# of the batches beside those of training
_SPLITS: dict[TrainerFn | None, str] = {
    TrainerFn.FITTING: "val",
    TrainerFn.VALIDATING: "val",
    TrainerFn.TESTING: "test",
}


class DatesProgressBar(RichProgressBar):
    """Lightning's progress bar, with dates for batches in its speed."""

    def get_metrics(self, *of: Any) -> dict[str, Any]:
        """Return what the bar shows: no version of the log, of which a run has one."""
        return {name: one for name, one in super().get_metrics(*of).items() if name != "v_num"}

    def configure_columns(self, trainer: pl.Trainer) -> list[Any]:
        """Return the columns of the bar."""
        others = super().configure_columns(trainer)[:-1]
        return [*others, DatesPerSecond(self, trainer)]


class DatesPerSecond(ProcessingSpeedColumn):
    """Dates a second of all processes together.

    Args:
        bar: that the column is part of.
        trainer: with a data module of ens10.
    """

    def __init__(self, bar: RichProgressBar, trainer: pl.Trainer) -> None:
        super().__init__(style=bar.theme.processing_speed)
        self._bar, self._trainer = bar, trainer

    def render(self, task: Task) -> Text:
        """Return the speed of a task; a batch may hold a part of a date, or many dates."""
        data: Any = self._trainer.datamodule  # type: ignore[attr-defined]
        if task.id == self._bar.train_progress_bar_id:
            batches = data.batches("train")
        elif split := _SPLITS.get(self._trainer.state.fn):
            batches = data.batches(split)
        else:
            batches = data.batches(data.predict_split, 1)
        of_batch = len(batches.index) / max(len(batches), 1)  # a method may train on no date
        dates = (task.speed or 0.0) * of_batch
        return Text(f"{dates:.2f} dates/s", style=self.style)
