"""Time and memory that a fit takes, over all the processes that resume it."""

import time
from typing import Any

import pytorch_lightning as pl

from ens10.experiments.runs.provenance import peak_memory_mb


class FitCost(pl.Callback):
    """Time and memory of a fit, saved in its checkpoints.

    A resumed fit adds to the values of its checkpoint. Work after the last checkpoint of a killed
    process is repeated, and therefore counted once. With several processes the values are those of
    the first. Memory includes pages of the store that the process has mapped.
    """

    def __init__(self) -> None:
        self._start_time, self._start_cpu_time = time.perf_counter(), time.process_time()
        self._previous: dict[str, float] = {}

    def totals(self) -> dict[str, float]:
        """Return `seconds`, `cpu_seconds` (processor time) and `memory_mb` (the peak) so far."""
        seconds = time.perf_counter() - self._start_time
        cpu_seconds = time.process_time() - self._start_cpu_time
        return {
            "seconds": self._previous.get("seconds", 0.0) + seconds,
            "cpu_seconds": self._previous.get("cpu_seconds", 0.0) + cpu_seconds,
            "memory_mb": max(self._previous.get("memory_mb", 0), peak_memory_mb()),
        }

    def rounded(self) -> dict[str, Any]:
        """Return the cost so far as the provenance of a run holds it."""
        totals = self.totals()
        costs = {name: round(value, 1) for name, value in totals.items()}
        return {**costs, "memory_mb": int(totals["memory_mb"])}

    def state_dict(self) -> dict[str, Any]:
        """Return the cost so far, for the checkpoint."""
        return self.totals()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Read the cost of the previous processes from the checkpoint."""
        self._previous = dict(state_dict)
