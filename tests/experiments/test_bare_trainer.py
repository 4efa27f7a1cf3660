"""A trainer of the user's own: its checkpoints, its predictions, its run."""

import csv
import re
from functools import partial

import pytest
import pytorch_lightning as pl
import torch
import xarray as xr
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.tuner import Tuner
from torch import nn

import ens10
from ens10.errors import ArgumentError, DataNote, FileError
from ens10.experiments.runs.lightning_warnings import suppress_lightning_warnings
from ens10.experiments.runs.predictions import PredictionWriter
from ens10.experiments.runs.reading import open_predictions
from ens10.loader import EnsembleDataModule
from ens10.models import DeepEnsemble, PostProcessor, ResidualNormalHead
from ens10.models.networks import MLP

PLAIN = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}


class Kept(nn.Module):
    """A module that keeps its arguments."""

    def __init__(self, hidden, factor):
        super().__init__()
        self.hidden, self.factor = hidden, factor
        self.layer = nn.Linear(2, hidden)


class Own(MLP):
    """A network of the user's own."""


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    with suppress_lightning_warnings():
        yield


@pytest.fixture(scope="module")
def data(store):
    return EnsembleDataModule(str(store), "t2m", batch_size=4, seed=5)


@pytest.fixture(scope="module")
def fitted(data, tmp_path_factory):
    """A model, fitted by a trainer that keeps its best checkpoint."""
    torch.manual_seed(0)
    optimizer = partial(torch.optim.AdamW, lr=0.05)
    model = PostProcessor(MLP(len(data.channels)), ResidualNormalHead(), optimizer=optimizer)
    best = ModelCheckpoint(tmp_path_factory.mktemp("best"), monitor="val_loss")
    trainer = pl.Trainer(max_epochs=3, callbacks=[best], **PLAIN)
    trainer.fit(model, datamodule=data)
    return trainer


def predictions_of(model, data, path):
    writer = PredictionWriter(path, data)
    trainer = pl.Trainer(callbacks=[writer], enable_checkpointing=False, **PLAIN)
    trainer.predict(model, datamodule=data, return_predictions=False)
    return open_predictions(path)[0].load()


def test_it_becomes_a_run(fitted, data, tmp_path):
    best = fitted.checkpoint_callback.best_model_path
    run = ens10.save_run(fitted, tmp_path / "mine")
    found = run.predict(quiet=True).load()
    model = PostProcessor.load_from_checkpoint(best)
    expected = predictions_of(model, data, tmp_path / "bare.zarr")
    xr.testing.assert_identical(found, expected)
    scores = run.score()
    assert repr(scores).startswith(scores.in_words())
    assert re.match(r"crps [\d.]+ \[", repr(scores))
    assert " spread/error " in repr(scores)
    assert run.report(tmp_path / "report").is_file()
    loss = float(fitted.callback_metrics["val_loss"])
    with (run.path / "log" / "metrics.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["val_loss"]) == pytest.approx(loss)
    with pytest.raises(FileError, match="holds files already"):
        ens10.save_run(fitted, tmp_path / "mine")
    with pytest.raises(ArgumentError, match="has not fitted a model on an EnsembleDataModule"):
        ens10.save_run(pl.Trainer(**PLAIN))


def test_a_checkpoint_builds_its_model(fitted, data, tmp_path):
    path = tmp_path / "x.ckpt"
    fitted.save_checkpoint(path)
    assert torch.load(path, weights_only=True)["ens10_model"]["class"] == "PostProcessor"
    model = PostProcessor.load_from_checkpoint(path)
    assert model.learning_rate == 0.05
    assert isinstance(model.configure_optimizers(), torch.optim.AdamW)
    batch = next(iter(data.test_dataloader()))
    fitted.lightning_module.eval()
    expected = fitted.lightning_module(batch).mu
    torch.testing.assert_close(model.eval()(batch).mu, expected, rtol=0, atol=0)
    given = PostProcessor.load_from_checkpoint(
        path, network=MLP(len(data.channels)), head=ResidualNormalHead()
    )
    torch.testing.assert_close(given.eval()(batch).mu, expected, rtol=0, atol=0)
    with pytest.raises(FileError, match="holds a PostProcessor, not a DeepEnsemble"):
        DeepEnsemble.load_from_checkpoint(path)


def test_a_checkpoint_names_no_code_that_is_not_trusted(data, tmp_path):
    def saved(name, **options):
        model = PostProcessor(Own(len(data.channels)), ResidualNormalHead(), **options)
        trainer = pl.Trainer(max_epochs=1, enable_checkpointing=False, **PLAIN)
        trainer.fit(model, datamodule=data)
        trainer.save_checkpoint(tmp_path / name)
        return tmp_path / name

    path = saved("own.ckpt")
    with pytest.raises(FileError, match=r"is code from outside|which is code from outside ens10"):
        PostProcessor.load_from_checkpoint(path)
    module = PostProcessor.load_from_checkpoint(path, trust=[__name__])
    assert type(module.network) is Own
    given = PostProcessor.load_from_checkpoint(path, network=MLP(len(data.channels)), trust=[])
    assert type(given.network) is MLP
    path = saved("function.ckpt", optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    with pytest.warns(DataNote, match="optimizer not in the checkpoint: the default is used"):
        module = PostProcessor.load_from_checkpoint(path, trust=[__name__])
    assert module.learning_rate == 0.001
    with pytest.raises(ArgumentError, match="a function, whose rate cannot be set"):
        PostProcessor(MLP(2), ResidualNormalHead(), optimizer=lambda p: p).learning_rate = 0.1


def test_the_learning_rate_finder_of_lightning_works(data, tmp_path):
    torch.manual_seed(0)
    options = {"optimizer": partial(torch.optim.Adam, lr=1e-6), "learning_rates": {"network": 2.0}}
    model = PostProcessor(MLP(len(data.channels)), ResidualNormalHead(), **options)
    trainer = pl.Trainer(max_epochs=20, default_root_dir=tmp_path, **PLAIN)
    found = Tuner(trainer).lr_find(model, datamodule=data, num_training=40).suggestion()
    assert found > 1e-6
    assert model.learning_rate == found
    rates = [group["lr"] for group in model.configure_optimizers().param_groups if group["params"]]
    assert rates == [pytest.approx(2 * found)]
    trainer = pl.Trainer(max_epochs=1, enable_checkpointing=False, **PLAIN)
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(tmp_path / "found.ckpt")
    assert PostProcessor.load_from_checkpoint(tmp_path / "found.ckpt").learning_rate == found


def test_a_module_is_compared_with_what_its_attributes_make():
    from ens10.models.specification import specification

    class Hidden(nn.Module):
        def __init__(self, hidden):
            super().__init__()
            self.layer = nn.Linear(2, hidden)

    with pytest.raises(ArgumentError, match="Hidden does not keep its argument hidden"):
        specification(Hidden(3))
    assert specification(Kept(3, 0.5))["init_args"] == {"hidden": 3, "factor": 0.5}
    for name, value in (("factor", 2.0), ("layer", nn.Linear(2, 4)), ("further", [1])):
        changed = Kept(3, 0.5)
        setattr(changed, name, value)
        if name == "factor":  # an argument: it is the present one
            assert specification(changed)["init_args"]["factor"] == 2.0
            continue
        with pytest.raises(ArgumentError, match="Kept is not what it was when it was made"):
            specification(changed)
    with pytest.raises(ArgumentError, match="Conv2d is not what it was"):  # its bias is a tensor
        specification(nn.Conv2d(2, 3, 1))
