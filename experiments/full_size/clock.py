"""When each step of a training ended."""

import json
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from ens10.durable import write_whole

FILE = "steps.json"


class StepClock(pl.Callback):
    """Writes `steps.json` into the run folder: seconds and processor seconds after each step.

    Both are since the end of the first step, which compiles and fills caches; reading of batches
    is part of them.
    """

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._cpu: list[float] = []
        self._samples = self._first = 0

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,  # noqa: ARG002
        outputs: Any,  # noqa: ARG002
        batch: Any,
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Notes the time."""
        self._seconds.append(time.perf_counter())
        self._cpu.append(time.process_time())
        self._samples += len(batch["target"])
        if len(self._seconds) == 1:
            self._first = self._samples

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Writes the file."""
        content = {
            "steps": len(self._seconds) - 1,
            "samples": self._samples - self._first,
            "seconds": round(self._seconds[-1] - self._seconds[0], 3),
            "cpu_seconds": round(self._cpu[-1] - self._cpu[0], 3),
        }
        path = Path(trainer.default_root_dir) / FILE
        write_whole(path, json.dumps(content, indent=1) + "\n")
