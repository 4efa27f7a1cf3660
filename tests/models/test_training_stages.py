"""Stages of training: which weights move in which epoch, also after a resumption."""

from itertools import pairwise

import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from ens10.errors import ArgumentError, UnknownNameError
from ens10.models import TrainingStages

STAGES = [{"parts": ["bias"], "epochs": 2}, {"parts": ["spread"], "epochs": 1}]


class Two(pl.LightningModule):
    """Two parts with batch normalisation and a third that belongs to no stage."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.spread = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.last = nn.Linear(3, 1)
        self.history = []

    def training_step(self, batch):
        return self.last(self.bias(batch) + self.spread(batch)).square().mean()

    def on_train_epoch_start(self):
        self.history.append({k: v.clone() for k, v in self.state_dict().items()})

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01, weight_decay=0.1)


class SaveWithin(pl.Callback):
    """Saves a checkpoint after the first batch of the second epoch."""

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 3:
            trainer.save_checkpoint(f"{trainer.default_root_dir}/within.ckpt", weights_only=False)


def train(epochs, folder, resume=None):
    torch.manual_seed(0)
    model = Two()
    data = torch.utils.data.DataLoader(torch.randn(16, 3), batch_size=8)
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder, enable_checkpointing=False,
        callbacks=[TrainingStages(STAGES), SaveWithin()],
    )  # fmt: skip
    trainer.fit(model, data, ckpt_path=resume)
    trainer.save_checkpoint(folder / "last.ckpt", weights_only=False)
    model.on_train_epoch_start()
    return model


def moved(before, after):
    """Parts of which a weight or a statistic differs between two states."""
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:The number of training batches")
def test_each_stage_moves_its_own_parts_and_the_end_moves_all(tmp_path):
    history = train(5, tmp_path).history
    by_epoch = [moved(a, b) for a, b in pairwise(history)]
    assert by_epoch == [
        *[{"bias", "last"}] * 2, {"spread", "last"}, *[{"bias", "spread", "last"}] * 2
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:The number of training batches")
def test_a_resumed_training_is_in_the_stage_of_its_epoch(tmp_path):
    train(2, tmp_path)
    history = train(3, tmp_path, tmp_path / "last.ckpt").history
    assert moved(history[0], history[1]) == {"spread", "last"}


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:The number of training batches")
@pytest.mark.filterwarnings("ignore:.*your dataloader is not resumable.*")
def test_an_epoch_that_is_resumed_keeps_the_statistics_of_parts_that_rest(tmp_path):
    train(2, tmp_path)
    before = torch.load(tmp_path / "within.ckpt", weights_only=False)["state_dict"]
    after = train(2, tmp_path, tmp_path / "within.ckpt").state_dict()
    assert moved(before, after) == {"bias", "last"}


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:The number of training batches")
def test_stages_that_are_not_reached_are_pointed_out(tmp_path, capsys):
    train(2, tmp_path)
    assert capsys.readouterr().err.count("the stages have 3 epochs, max_epochs is 2.") == 1
    train(3, tmp_path)
    assert "stages" not in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:.*does not have many workers.*")
def test_wrong_stages(tmp_path):
    with pytest.raises(ArgumentError, match=r"network contains network\.bias"):
        TrainingStages([{"parts": [name], "epochs": 1} for name in ("network.bias", "network")])
    for stage in ({"parts": [], "epochs": 2}, {"parts": ["bias"], "epochs": 0}):
        with pytest.raises(ArgumentError, match="stages"):
            TrainingStages([stage])
    trainer = pl.Trainer(max_epochs=1, logger=False, enable_checkpointing=False,
                         callbacks=[TrainingStages([{"parts": ["biass"], "epochs": 1}])],
                         enable_progress_bar=False, enable_model_summary=False,
                         accelerator="cpu", default_root_dir=tmp_path)  # fmt: skip
    with pytest.raises(UnknownNameError, match="biass"):
        trainer.fit(Two(), torch.utils.data.DataLoader(torch.randn(4, 3), batch_size=2))
