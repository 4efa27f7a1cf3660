"""Skill and cost of a U-Net that is trained on two sizes of the grid, and applied on the finer.

    python -m ens10.experiments.studies.mixed_sizes WORK --out experiments/results/mixed_sizes

Each seed has a displaced world on 46 x 96 points. Averages of its members and truth over 2 x 2
points are the coarse data, whose spread is that of the averaged members. Coarse batches have four
times the dates. Trainings on both sizes take coarse and fine epochs in turn, or coarse ones first.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ens10.convert import prepare
from ens10.experiments.runner.key import Key, key_of
from ens10.experiments.runs.claims import make_once
from ens10.experiments.studies.json_cells import JsonCell, Result
from ens10.experiments.studies.short_training import train_briefly
from ens10.experiments.studies.small_unet import (
    WORLD,
    crps_on_test_dates,
    data_of,
    run_seeds,
    unet_of,
)
from ens10.loader.datamodule import EnsembleDataModule
from ens10.loader.tensors import TorchBatches
from ens10.models.networks.unet import UNetBody
from ens10.source import open_source
from ens10.usage import reports_errors

GRID, ROWS, SMALLER = "46x96", 46, 2  # points; rows of them; points averaged in each direction
EPOCHS, BATCH, RATE = 16, 4, 0.003
FINE, COARSE = False, True
# the kind of each epoch, and whether the network has the spacing of the grid as an input
TRAININGS = {
    "fine": ([FINE] * EPOCHS, False),
    "short": ([FINE] * round(0.625 * EPOCHS), False),
    "coarse": ([COARSE] * EPOCHS, False),
    "mixed": ([COARSE, FINE] * (EPOCHS // 2), True),
    "mixed_plain": ([COARSE, FINE] * (EPOCHS // 2), False),
    "ordered": ([COARSE] * (EPOCHS // 2) + [FINE] * (EPOCHS // 2), True),
}
LABELS = {
    "fine": "fine",
    "short": "fine, 0.6 of the epochs",
    "coarse": "coarse",
    "mixed": "coarse and fine in turn, the spacing an input",
    "mixed_plain": "coarse and fine in turn",
    "ordered": "half of the epochs coarse, then fine, the spacing an input",
}
COLUMNS = {"coarse_crps": "CRPS on the coarse grid (K)", "seconds": "processor time (s)"}


class SpacingUNet(UNetBody):
    """A U-Net with the spacing of the grid as one more input: -0.5 if fine, 0.5 if coarse."""

    def __init__(self, in_channels: int, *rest: Any, **options: Any) -> None:
        super().__init__(in_channels + 1, *rest, **options)
        self.in_channels = in_channels

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_channels, H, W) -> (N, out_channels, H, W)."""
        spacing = torch.log2(torch.tensor(ROWS / features.shape[-2])) - 0.5
        one = spacing.to(features).expand(len(features), 1, *features.shape[-2:])
        return super().forward(torch.cat([features, one], 1))


class InTurn(EnsembleDataModule):
    """The fine data, which give coarse batches in some epochs of training.

    Args:
        store: of the fine data.
        coarse: the other data.
        epochs: the kind of each epoch.
        **options: of the fine data.
    """

    def __init__(
        self, store: str, coarse: EnsembleDataModule, epochs: Sequence[bool], **options: Any
    ) -> None:
        super().__init__(store, **options)
        self.coarse, self.epochs = coarse, epochs

    def train_dataloader(self) -> TorchBatches:
        """Return the batches of this epoch; the trainer asks in each."""
        assert self.trainer
        if self.epochs[self.trainer.current_epoch] is FINE:
            return super().train_dataloader()
        self.coarse.trainer = self.trainer
        return self.coarse.train_dataloader()


def averaged_store(store: Path) -> Path:
    """Return the store of the coarse data beside a world's store; it is made if it is missing."""
    world, coarse = store.parent / "world", store.with_name("coarse.zarr")

    def make() -> None:
        forecasts, truth = (
            open_source(path).coarsen(latitude=SMALLER, longitude=SMALLER).mean(keep_attrs=True)
            for path in (world, world / "truth")
        )
        prepare(forecasts, coarse, truth=truth, progress=False)

    make_once(coarse, make)
    return coarse


class SizesCell(JsonCell):
    """A training of `TRAININGS` with one seed."""

    def current_key(self) -> Key:
        """Return the key, which includes the settings of the world instead of a checksum."""
        training = [BATCH, RATE, GRID, SMALLER, *TRAININGS[self.variant]]
        about = {"world": WORLD, "training": training, "seed": self.seed}
        return key_of({**about, "variant": self.variant}, "", ("ens10.loader", "ens10.models"))

    def result(self) -> Result:
        """Train, and score on the fine and on the coarse grid."""
        epochs, has_spacing = TRAININGS[self.variant]
        fine = data_of(self.scratch, self.seed, BATCH, grid=GRID)
        options: dict[str, Any] = {"inputs": fine.inputs, "extras": fine.extras, "seed": self.seed}
        averaged = str(averaged_store(Path(str(fine.store))))
        coarse = EnsembleDataModule(averaged, batch_size=BATCH * SMALLER**2, **options)
        both = InTurn(str(fine.store), coarse, epochs, batch_size=BATCH, **options)
        unet = SpacingUNet if has_spacing else UNetBody
        model, start = unet_of(fine, self.seed, len(epochs), RATE, unet), time.process_time()
        every: dict[str, Any] = {"reload_dataloaders_every_n_epochs": 1, "limit_val_batches": 0}
        train_briefly(model, both, len(epochs), **every)
        seconds = time.process_time() - start
        facts = {
            "crps": crps_on_test_dates(model, fine),
            "coarse_crps": crps_on_test_dates(model, coarse),
            "seconds": round(seconds, 1),
        }
        return {"variant": self.variant, "seed": self.seed, **facts}


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    return run_seeds("mixed_sizes", SizesCell, LABELS, COLUMNS, arguments)


if __name__ == "__main__":
    # by its name, as the cells of other studies: their classes are found there
    from ens10.experiments.studies import mixed_sizes

    sys.exit(mixed_sizes.main())
