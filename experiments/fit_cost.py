"""Time and memory that a fit takes, over all the processes that resume it."""

import time
from typing import Any

import pytorch_lightning as pl

from ens10.experiments.provenance import peak_memory_mb


class FitCost(pl.Callback):
    """Time and memory of a fit since its start, kept in its checkpoints.

    A killed process cannot write what it has spent. What it spent until its last checkpoint is in
    there, and what it did afterwards is done again.
    """

    def __init__(self) -> None:
        self._started, self._computed = time.perf_counter(), time.process_time()
        self._before: dict[str, float] = {}

    def spent(self) -> dict[str, float]:
        """Return `seconds`, `cpu_seconds` (processor time) and `memory_mb`, the most so far."""
        seconds = time.perf_counter() - self._started
        cpu_seconds = time.process_time() - self._computed
        return {
            "seconds": self._before.get("seconds", 0.0) + seconds,
            "cpu_seconds": self._before.get("cpu_seconds", 0.0) + cpu_seconds,
            "memory_mb": max(self._before.get("memory_mb", 0), peak_memory_mb()),
        }

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return self.spent()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Add to the cost that a checkpoint has kept."""
        self._before = dict(state_dict)
