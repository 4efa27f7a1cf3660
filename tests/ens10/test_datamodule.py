"""The Lightning data module, from a store and from a lazy dataset."""

from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import xarray as xr
from batchtools import lazy

from ens10.errors import ArgumentError, FileError, MissingDataError, UnknownNameError
from ens10.loader import Batches, EnsembleDataModule, Fields, Patches
from ens10.loader.datamodule import as_tensors
from ens10.loader.order import Share, order
from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.networks import MLP
from ens10.protocol import Protocol

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*"),
]
INPUTS = ["t2m", "u10", "sst"]


def trainer(epochs=1, **settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
             "enable_model_summary": False, "accelerator": "cpu"}  # fmt: skip
    return pl.Trainer(max_epochs=epochs, **quiet, **settings)


def model(channels):
    torch.manual_seed(0)
    return PostProcessor(MLP(channels, hidden=8), ResidualNormalHead())


class Stop(pl.Callback):
    """Saves a checkpoint after some batches, and ends the training as an interruption does."""

    def __init__(self, path, batches):
        self.path, self.batches = path, batches

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.global_step == self.batches:
            trainer.save_checkpoint(self.path)
            raise KeyboardInterrupt


class Watch(pl.Callback):
    """Notes the dates of every training batch."""

    def __init__(self):
        self.dates = []

    def on_train_batch_start(self, trainer, module, batch, index):
        self.dates.append((trainer.current_epoch, batch["dates"].tolist()))


def test_training_visits_the_order_of_the_sampler(store):
    watch = Watch()
    data = EnsembleDataModule(str(store), "t2m", INPUTS, seed=5, batch_size=2)
    trainer(3, callbacks=[watch], num_sanity_val_steps=0).fit(model(7), data)
    held = data.batches("train").dates.astype("datetime64[s]").astype(np.int64)
    for epoch in range(3):
        seen = [day for e, days in watch.dates if e == epoch for day in days]
        want = held[order(len(held), seed=5, epoch=epoch, shuffle=True)]
        assert seen == want.tolist()


@pytest.mark.parametrize(
    ("done", "threads"),
    [
        (2, 0),
        (9, 2),
        pytest.param(6, 2, marks=pytest.mark.slow),
        pytest.param(8, 0, marks=pytest.mark.slow),
    ],
)
def test_a_run_goes_on_in_mid_epoch(store, tmp_path, done, threads):
    """The same batches and the same weights as without the interruption."""

    def data():
        return EnsembleDataModule(
            str(store), "t2m", INPUTS, seed=5, batch_size=2, threads=threads, ring=3
        )

    watch, whole = Watch(), model(7)
    trainer(3, callbacks=[watch], num_sanity_val_steps=0).fit(whole, data())
    assert len(watch.dates) == 12
    first, second = Watch(), Watch()
    stopped = trainer(3, callbacks=[first, Stop(tmp_path / "c.ckpt", done)])
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        stopped.fit(model(7), data())
    again = model(7)
    trainer(3, callbacks=[second]).fit(again, data(), ckpt_path=tmp_path / "c.ckpt",
                                       weights_only=False)  # fmt: skip
    assert first.dates + second.dates == watch.dates
    for name, weight in whole.state_dict().items():
        if not name.startswith("means."):
            assert torch.equal(again.state_dict()[name], weight), name


@pytest.mark.parametrize("kind", ["points", "patches", "slabs", "members"])
def test_every_kind_reaches_the_module(store, kind):
    data = EnsembleDataModule(str(store), "t2m", INPUTS, kind=kind if kind != "patches" else
                              Patches((4, 4), 2), cache=0.5, ensemble=3)  # fmt: skip
    data.setup("fit")
    got, want = next(iter(data.train_dataloader())), next(iter(data.batches("train")))
    for key, values in want.items():
        np.testing.assert_array_equal(got[key].numpy(), values)
    assert data.batches("train").samples.members == 3
    assert data.batches("train").kind.features == ("members" if kind == "members" else "moments")


def test_ranks_train_in_step_and_count_each_date_once(store):
    parts = []
    for rank in range(3):
        data = EnsembleDataModule(str(store), "t2m", INPUTS)
        data.trainer = SimpleNamespace(
            global_rank=rank, world_size=3, num_devices=3, current_epoch=0,
            strategy=SimpleNamespace(root_device=torch.device("cpu")),
        )  # fmt: skip
        parts.append((len(data.train_dataloader()), list(data.test_dataloader())))
    assert [count for count, _ in parts] == [2, 2, 2]
    tested = [batch for _, batches in parts for batch in batches]
    dates = [int(b["dates"]) for b in tested if b["weights"].any()]
    held = Batches(store, "t2m", INPUTS, "test").dates.astype("datetime64[s]").astype(int)
    assert sorted(dates) == held.tolist()


def of_a_part(rank, rows, asked):
    """A trainer whose strategy splits the rows of samples in two, of 2 x 2 processes."""

    def share(grid):
        asked.append(grid)
        bounds = ((0, 3, grid[0]), (0, grid[1]))
        return Share(rank, 2, slice(*rows), slice(0, grid[1]), bounds)

    strategy = SimpleNamespace(root_device=torch.device("cpu"), share=share)
    ranks = {"global_rank": 3, "world_size": 4, "num_devices": 4}
    return SimpleNamespace(**ranks, current_epoch=0, strategy=strategy)


@pytest.mark.parametrize("kind", ["fields", "members", Fields(features="members")])
def test_a_process_reads_its_part_of_its_dates(store, kind):
    asked, data = [], EnsembleDataModule(str(store), "t2m", INPUTS, kind=kind, seed=5)
    alone = data.batches("train")  # asked for before there was a trainer
    data.trainer = of_a_part(1, (3, 8), asked)
    data.setup("fit")
    assert set(asked) == {(8, 16)}
    assert data.batches("train") is data.batches("train") is not alone
    assert data.batches("test").samples is alone.samples  # the store is opened once
    want = list(Batches(store, "t2m", INPUTS, kind=kind, seed=5, rank=1, world=2, even="drop"))
    got = list(data.train_dataloader())
    assert len(got) == len(want)
    for mine, full in zip(got, want, strict=True):
        assert mine["dates"].tolist() == full["dates"].tolist()
        for key in set(full) - {"dates"}:
            np.testing.assert_array_equal(mine[key].numpy(), full[key][..., 3:8, :])
    list(data.test_dataloader())
    read = data.batches("train").bytes_read, data.batches("test").bytes_read
    assert data.bytes_read == sum(read) > max(read)


@pytest.mark.parametrize("kind", ["points", "slabs", Patches((4, 4), 2)])
def test_kinds_without_whole_fields_are_not_split(store, kind):
    data = EnsembleDataModule(str(store), "t2m", INPUTS, kind=kind)
    data.trainer = of_a_part(0, (0, 3), [])
    with pytest.raises(ArgumentError, match=r"kind: .* are not split between 2 processes"):
        data.setup("fit")


@pytest.mark.parametrize(
    "kind", ["grib", *(pytest.param(k, marks=pytest.mark.slow) for k in ("memory", "zarr"))]
)
def test_training_from_a_lazy_dataset(tiny, store, tmp_path, kind):
    """The same weights and predictions as from the store, with nothing prepared."""
    forecasts, truth = lazy(tiny)
    if kind == "memory":
        forecasts, truth = forecasts.load(), truth.load()
    elif kind == "zarr":
        forecasts.to_zarr(tmp_path / "z", consolidated=False)
        forecasts = xr.open_zarr(tmp_path / "z", consolidated=False)
    results = []
    for source in ({"store": forecasts, "truth": truth}, {"store": str(store)}):
        data = EnsembleDataModule(**source, target="t2m", inputs=INPUTS, batch_size=4)
        trained, run = model(7), trainer(1)
        start = trained.network.layers[0].weight.detach().clone()
        run.fit(trained, data)
        loss = run.callback_metrics["val_loss"]
        assert not torch.equal(start, trained.network.layers[0].weight)
        forecast = run.predict(trained, data)[0].forecast
        results.append((trained.network.layers[0].weight.detach(), loss, forecast.mu))
    for streamed, stored in zip(*results, strict=True):
        torch.testing.assert_close(streamed, stored, rtol=1e-4, atol=1e-4)


def test_tensors_hold_the_numpy_values(store):
    plain = Batches(store, "t2m", INPUTS, members=True, batch_size=3)
    data = EnsembleDataModule(str(store), "t2m", INPUTS, members=True, batch_size=3)
    loader = data.train_dataloader()
    assert len(loader) == len(plain)
    for want, got in zip(plain, loader, strict=True):
        assert set(got) == set(want)
        for key, values in want.items():
            assert isinstance(got[key], torch.Tensor)
            np.testing.assert_array_equal(got[key].numpy(), values)
            assert got[key].numpy().dtype == values.dtype
    one = plain.batch(plain.index[:1])
    tensor = as_tensors(one)["features"]
    one["features"][...] = 7  # no copy on the way
    assert torch.equal(tensor, torch.full_like(tensor, 7))


def test_state_of_a_checkpoint(store):
    data = EnsembleDataModule(str(store), "t2m", INPUTS)
    assert data.state_dict() == {}
    data.setup("fit")
    state = data.state_dict()
    assert state["channels"] == list(data.batches("train").normaliser.channels)
    assert state["channels"][-1] == "sst:mask"
    settings = {"protocol": Protocol(test=[2000], val=[2001])}
    fresh = EnsembleDataModule(str(store), "t2m", INPUTS, **settings)
    other = fresh.batches("test").normaliser
    assert not np.array_equal(other.mean, state["mean"].numpy())
    fresh.load_state_dict(state)
    for split in ("train", "val", "test"):
        again = fresh.batches(split).normaliser
        assert again.channels == tuple(state["channels"])
        np.testing.assert_array_equal(again.mean, state["mean"].numpy())
        np.testing.assert_array_equal(again.scale, state["scale"].numpy())
    for name, damage in (("scale", torch.zeros_like), ("mean", lambda values: values[:-1])):
        with pytest.raises(ArgumentError, match=f"checkpoint: damaged: {name} has "):
            fresh.load_state_dict(state | {name: damage(state[name])})
    fresh.load_state_dict({})
    assert fresh.batches("val").normaliser.channels == tuple(state["channels"])
    swapped = EnsembleDataModule(str(store), "t2m", ["u10", "t2m", "sst"])
    swapped.load_state_dict(state)
    with pytest.raises(ArgumentError, match="not those of the training"):
        swapped.setup("predict")


def test_all_splits_share_the_training_statistics(store):
    data = EnsembleDataModule(str(store), "t2m", INPUTS)
    first = data.batches("test").normaliser
    assert data.batches("train").normaliser is first
    assert data.batches("val").normaliser is first


def test_a_wrong_source_fails_before_training(store, tmp_path, tiny):
    class Forbidden(pl.Callback):
        def on_fit_start(self, *arguments):
            raise AssertionError("the fit has begun")

    forecasts, _ = lazy(tiny)
    cases = (
        ({"store": str(tmp_path / "none")}, FileError, "no such store"),
        ({"store": str(store), "target": "t2n"}, UnknownNameError, "did you mean 't2m'"),
        ({"store": str(store), "inputs": ["sts"]}, UnknownNameError, "did you mean 'sst'"),
        ({"store": forecasts, "target": "t2m@48"}, MissingDataError, "the truth"),
    )
    for settings, error, message in cases:
        with pytest.raises(error, match=message):
            trainer(callbacks=[Forbidden()]).fit(model(7), EnsembleDataModule(**settings))


@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
def test_no_validation_years(store):
    data = EnsembleDataModule(str(store), "t2m", INPUTS, protocol=Protocol(val=0))
    assert data.val_dataloader() == []
    run = trainer()
    run.fit(model(7), data)
    assert "train_loss" in run.callback_metrics
    assert "val_loss" not in run.callback_metrics


def test_split_of_predictions(store):
    data = EnsembleDataModule(str(store), "t2m", INPUTS, predict_split="val", batch_size=2)
    predictions = trainer().predict(model(7), data)
    dates = torch.cat([p.dates for p in predictions]).numpy()
    want = Batches(store, "t2m", INPUTS, "val").dates.astype("datetime64[s]").astype(np.int64)
    np.testing.assert_array_equal(dates, want)


@pytest.mark.parametrize(
    ("threads", "cores", "processes", "used"),
    [
        (None, 1, 1, 1),
        (None, 2, 1, 1),
        (None, 3, 1, 2),
        (None, 16, 8, 1),
        (None, 17, 8, 2),
        (0, 16, 1, 0),
        (5, 1, 1, 5),
    ],
)
def test_two_threads_read_where_cores_allow(monkeypatch, threads, cores, processes, used):
    monkeypatch.setattr("ens10.loader.datamodule.usable_cores", lambda: cores)
    data = EnsembleDataModule("store.zarr", threads=threads)
    data.trainer = SimpleNamespace(num_devices=processes)
    assert data._reader_threads == used
