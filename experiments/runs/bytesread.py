"""A callback that records how many bytes each process of a split run read."""

from pathlib import Path

import pytorch_lightning as pl
import torch

from ens10.experiments.runs import provenance
from ens10.loader.datamodule import EnsembleDataModule


class BytesRead(pl.Callback):
    """Write the bytes that each process read for its batches to `bytes_read` in provenance.json.

    Only for runs whose samples are split between processes; counted since the latest start.

    Args:
        run: folder of the run.
        data: the data module whose reading is counted.
    """

    def __init__(self, run: Path, data: EnsembleDataModule) -> None:
        self._run, self._data = run, data

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        """Write the bytes that each process read, by rank: the last hook that can communicate."""
        if self._data.share.is_full_grid:
            return
        byte_counts = torch.zeros(
            trainer.world_size, dtype=torch.int64, device=trainer.strategy.root_device
        )
        byte_counts[trainer.global_rank] = self._data.bytes_read
        # a sum: Lightning's way to gather is one that torch 2.13 warns of
        all_counts = trainer.strategy.reduce(byte_counts, reduce_op="sum")
        if trainer.is_global_zero:
            provenance.write(self._run, {"bytes_read": all_counts.tolist()})
