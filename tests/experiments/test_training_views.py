"""Trainings on views of dates: evaluated on plain dates, resumed as if not interrupted, refused."""

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import yaml
from realruns import StopAt, command, config_path

from ens10.errors import ArgumentError
from ens10.loader import EnsembleDataModule, Views, as_tensors
from ens10.models import PostProcessor, ResidualNormalHead, StatisticalPostProcessor
from ens10.models.layers.embedding import PointEmbedding
from ens10.models.layers.smoe import TensorGate
from ens10.models.networks import MLP, ConvNeXt
from ens10.models.statistical import EMOS

VIEWS = ("--data.kind", "ens10.loader.Views", "--data.kind.members", 2, "--data.kind.number", 3)


def fit(store, run, *options, config="mlp", status=0):
    words = ["--config", config_path(config), "--data.store", store, "--run", run, "--quiet"]
    command("fit", *words, "--trainer.max_epochs", 2, *options, status=status)
    return run


def weights(run):
    state = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    return {k: v for k, v in state.items() if not k.startswith("means.")}


@pytest.mark.slow
def test_the_option_trains_on_views_and_resumes(store, tmp_path):
    options = (*VIEWS, "--data.batch_size", 4)
    whole, plain = fit(store, tmp_path / "whole", *options), fit(store, tmp_path / "plain")
    StopAt.stopped = False
    stop = ["--trainer.callbacks+", "realruns.StopAt", "--trainer.callbacks.epoch", 1]
    parts = tmp_path / "parts"
    fit(store, parts, *options, *stop, "--trainer.callbacks.batch", 1, status=130)
    command("fit", "--run", parts, "--resume", "--quiet")
    want, got = weights(whole), weights(parts)
    assert all(torch.equal(want[name], got[name]) for name in want)
    assert not all(torch.equal(want[name], value) for name, value in weights(plain).items())
    kind = yaml.safe_load((whole / "config.yaml").read_text())["data"]["kind"]
    assert kind["init_args"]["members"] == 2


def test_evaluation_is_of_plain_dates(store):
    plain = EnsembleDataModule(str(store), "t2m", ["t2m", "u10"])
    views = EnsembleDataModule(str(store), "t2m", ["t2m", "u10"], kind=Views(members=2))
    for split in ("val", "test"):
        for want, got in zip(plain.batches(split), views.batches(split), strict=True):
            assert all(np.array_equal(want[key], got[key]) for key in want)
    assert len(next(iter(views.batches("train")))["dates"]) == 2
    for want, got in zip(plain.predict_dataloader(), views.predict_dataloader(), strict=True):
        assert torch.equal(want["features"], got["features"])


@pytest.mark.parametrize(
    ("make", "resident", "message"),
    [
        (
            lambda: PostProcessor(MLP(2, hidden=4), ResidualNormalHead()),
            True,
            "resident: patches, points and views",
        ),
        (lambda: StatisticalPostProcessor(EMOS()), "auto", "whole fields, not views"),
    ],
    ids=["dates in memory", "a statistical method"],
)
def test_what_is_refused(store, make, resident, message):
    data = EnsembleDataModule(str(store), "t2m", ["t2m"], kind=Views(members=2), resident=resident)
    with pytest.raises(ArgumentError, match=message):
        trainer().fit(make(), data)


def trainer():
    names = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    return pl.Trainer(max_epochs=1, accelerator="cpu", **dict.fromkeys(names, False))


class Gated(ConvNeXt):
    """A network with a gate at each point of half the grid."""

    def __init__(self, channels, grid):
        super().__init__(channels)
        self.gate = TensorGate(4, 1, grid)


def networks(grid):
    """Networks by the name of the part that is bound to places; "" if there is none."""
    embedded = MLP(4, hidden=4)
    embedded.map = PointEmbedding(grid, 2)
    return {
        "": ConvNeXt(4),
        "PointEmbedding": embedded,
        "TensorGate": Gated(4, (-(-grid[0] // 2), -(-grid[1] // 2))),
    }


@pytest.mark.parametrize("name", ["", "PointEmbedding", "TensorGate"])
def test_moved_views_need_a_network_without_places(store, name):
    for move in ({"roll": True}, {"mirror": True}):
        kind = Views(members=2, **move)
        data = EnsembleDataModule(str(store), "t2m", ["t2m", "u10"], kind=kind)
        model = PostProcessor(networks(data.grid)[name], ResidualNormalHead())
        if name:
            with pytest.raises(ArgumentError, match=f"cannot be moved: {name} is bound"):
                trainer().fit(model, data)
        else:
            trainer().fit(model, data)
    if name:  # subsets of members are not moved
        data = EnsembleDataModule(str(store), "t2m", ["t2m", "u10"], kind=Views(members=2))
        trainer().fit(PostProcessor(networks(data.grid)[name], ResidualNormalHead()), data)


def test_rolled_views_give_periodic_convolutions_the_same_gradient(store):
    """Roll is a symmetry of such a network, not an augmentation; mirror is none of its own."""
    torch.manual_seed(0)
    network = ConvNeXt(4, width=8, depth=1, periodic_longitude=True, zero_init=False).double()
    model = PostProcessor(network, ResidualNormalHead()).double()

    def gradient(**move):
        kind = Views(members=10, number=1, **move) if move else "fields"
        data = EnsembleDataModule(str(store), "t2m", ["t2m", "u10"], kind=kind, batch_size=4)
        batch = {
            key: values.double()
            for key, values in as_tensors(next(iter(data.batches("train")))).items()
        }
        losses = model._loss_map(batch)
        model.zero_grad()
        ((losses * batch["weights"]).sum() / batch["weights"].sum()).backward()
        return torch.cat([p.grad.flatten() for p in network.parameters()])

    plain = gradient()
    torch.testing.assert_close(gradient(roll=True), plain, rtol=1e-9, atol=1e-12)
    assert (gradient(mirror=True) - plain).abs().max() > 1e-3 * plain.abs().max()
