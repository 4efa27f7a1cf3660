"""Two processes see a batch that is not finite in one of them, with one error and clean weights."""

from datetime import UTC, datetime

import pytest
import pytorch_lightning as pl
from trainings import data_of, in_double, pretend_torchrun, split_of, trainer_of, unet

from ens10.errors import ArgumentError


class Spoil(pl.Callback):
    """Makes the truth NaN at one step, -1 for the last, in the last process only."""

    def __init__(self, step):
        self.step, self.dates = step, []

    def on_train_batch_start(self, trainer, _, batch, index):
        if index == self.step % trainer.num_training_batches:
            self.dates = batch["dates"].tolist()
            if trainer.global_rank == trainer.world_size - 1:
                batch["target"][0] = float("nan")
                batch["weights"][0] = 1.0


def spoiled(store, lat, bad):
    """The error, the dates of the batch, and the weights and moments."""
    module, spoil = in_double(unet), Spoil(bad)
    module.checks_on_device = True
    options = {"max_epochs": 1, "limit_train_batches": 4, "callbacks": [spoil]}
    strategy = split_of(lat)
    trainer = trainer_of(pretend_torchrun(), strategy, **options)
    text = ""
    try:
        trainer.fit(module, datamodule=data_of(store, resident=False))
    except ArgumentError as error:
        text = str(error)
    state = module.network.state_dict()
    return text, spoil.dates, {name: value.clone() for name, value in state.items()}


@pytest.mark.parametrize("lat", [1, 2])
@pytest.mark.parametrize("bad", [0, 1, -1])
def test_both_processes_raise_the_same_error(ranks, store, lat, bad):
    (first, _, weights), (second, dates, others) = ranks(2, spoiled, store, lat, bad)
    day = datetime.fromtimestamp(dates[0], UTC)
    assert first == second
    assert first.startswith(f"train_loss: not finite for valid date {day:%Y-%m-%dT%H}")
    for name, value in weights.items():
        assert value.isfinite().all(), name
        assert value.equal(others[name]) or "running" in name, name
