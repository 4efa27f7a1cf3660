"""Split trainings under Lightning equal serial ones: weights, logged values, checkpoints."""

from contextlib import redirect_stderr
from io import StringIO

import pytest
import pytorch_lightning as pl
import torch
from trainings import data_of, pretend_torchrun, split_of, train, trainer_of, unet, wide

from ens10.errors import ArgumentError, LostProcessError
from ens10.models.parallel import SpatialStrategy
from ens10.models.parallel.failure_detection import one_error_for_lost_processes


def assert_same(found, expected, tolerance=1e-10):
    weights, logged = expected
    for theirs, their_losses in found:
        assert theirs.keys() == weights.keys()
        for name, value in weights.items():
            torch.testing.assert_close(
                theirs[name], value, rtol=0, atol=tolerance * max(1, float(value.abs().max()))
            )
        for mine, serial in zip(their_losses, logged, strict=True):
            assert mine == pytest.approx(serial, rel=1e-10)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("lat", "lon"), [(2, 2), pytest.param(2, 1, marks=SLOW), pytest.param(4, 1, marks=SLOW)]
)
def test_three_steps_with_clipping_equal_serial_ones(ranks, store, lat, lon):
    assert_same(ranks(lat * lon, train, store, lat, lon), train(store))


def train_with(store, options):
    return train(store, **options)


@SLOW
def test_split_longitude_with_accumulation(ranks, store):
    options = {"make": wide, "accumulate_grad_batches": 2, "limit_train_batches": 4}
    assert_same(
        ranks(2, train_with, store, options | {"lat": 1, "lon": 2}), train(store, **options)
    )


@SLOW
def test_parts_and_data_parallel_together(ranks, store):
    alone = ranks(2, train_with, store, {"lat": 1, "limit_train_batches": 2})
    both = ranks(4, train_with, store, {"lat": 2, "limit_train_batches": 2})
    for rank, other in enumerate(both):
        assert_same([other], alone[rank // 2])


@SLOW
def test_parameters_in_shards_and_a_checkpoint_of_them(ranks, store, tmp_path):
    options = {"lat": 2, "parameters": "sharded", "save": tmp_path / "sharded.ckpt"}
    assert_same(ranks(2, train_with, store, options), train(store))
    whole = train(store, max_epochs=2)
    again = {"max_epochs": 2, "checkpoint": tmp_path / "sharded.ckpt"}
    assert_same([train(store, **again)], (whole[0], whole[1][1:]))
    assert_same(ranks(2, train_with, store, options | again), (whole[0], whole[1][1:]))


@SLOW
def test_a_run_goes_on_with_other_numbers_of_processes(ranks, store, tmp_path):
    whole = train(store, max_epochs=3)
    first, second = tmp_path / "first.ckpt", tmp_path / "second.ckpt"
    train(store, save=first, max_epochs=1)
    options = {"lat": 4, "checkpoint": first, "save": second, "max_epochs": 2}
    ranks(4, train_with, store, options)
    options = {"lat": 2, "checkpoint": second, "max_epochs": 3}
    for weights, logged in ranks(2, train_with, store, options):
        assert_same([(weights, logged)], (whole[0], whole[1][2:]))


def test_parts_that_do_not_divide_the_processes():
    with pytest.raises(ArgumentError, match="lat: 0 is not a positive number of parts"):
        SpatialStrategy(0)


def chosen_lat(store):
    strategy = split_of()
    trainer = trainer_of(pretend_torchrun(), strategy, max_epochs=1, limit_train_batches=1)
    with redirect_stderr(StringIO()) as told:
        trainer.fit(unet(), datamodule=data_of(store))
    lines = [line for line in told.getvalue().splitlines() if line.startswith("ens10: ")]
    return trainer.strategy.distributed_sampler_kwargs["num_replicas"], lines


@SLOW
def test_auto_does_not_split_what_fits_and_says_why(ranks, store):
    (first, (line,)), second = ranks(2, chosen_lat, store)
    assert first == 2
    assert second == (2, [])  # the first process alone says it
    assert line.startswith("ens10: samples are not split, since one part fits: ")
    assert line.endswith("; set --trainer.strategy.lat 2 to split them")


def test_a_lost_process_is_one_error():
    said = "[/x/gloo/pair.cc:537] Read error: Connection reset by peer. This is typically caused by"
    wanted = pytest.raises(LostProcessError, match=r"process 3: .* late: Read error: Connection")
    with wanted, one_error_for_lost_processes(3):
        raise RuntimeError(said)
    with pytest.raises(RuntimeError, match="another matter"), one_error_for_lost_processes(3):
        raise RuntimeError("another matter")


class Fewer:
    """A loader without its last batches."""

    def __init__(self, batches, fewer):
        self.batches = batches[: len(batches) - fewer]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


class Uneven(pl.LightningDataModule):
    """A batch less in the second process."""

    def __init__(self, store):
        super().__init__()
        self.inner = data_of(store)

    def setup(self, stage):
        self.inner.trainer = self.trainer
        self.inner.setup(stage)

    def train_dataloader(self):
        return Fewer(list(self.inner.train_dataloader()), self.trainer.global_rank)


def uneven(store):
    trainer = trainer_of(pretend_torchrun(), split_of(2), max_epochs=1)
    try:
        trainer.fit(unet(), datamodule=Uneven(store))
    except ArgumentError as error:
        return str(error)
    return "nothing"


@SLOW
def test_loaders_of_unequal_length_are_refused_by_all(ranks, store):
    for text in ranks(2, uneven, store):
        assert "the processes have loaders of 6, 5 batches" in text


def unknown_module():
    module = unet()
    module.network.down_0.insert(1, torch.nn.Dropout(0.1))
    return module


def refused(store):
    try:
        train(store, 2, make=unknown_module)
    except ArgumentError as error:
        return str(error)
    return "nothing"


def test_an_unknown_module_is_named(ranks, store):
    for text in ranks(2, refused, store):
        assert "network.down_0.1" in text
        assert "Dropout" in text


def single():
    return unet().float()


@SLOW
def test_half_precision(ranks, store):
    # of one step: the next ones amplify the rounding of sums, which have another order
    options = {"make": single, "precision": "bf16-mixed", "limit_train_batches": 1}
    serial = train(store, **options)[1][0]["train_loss"]
    for _, logged in ranks(2, train_with, store, options | {"lat": 2}):
        assert logged[0]["train_loss"] == pytest.approx(serial, rel=3e-3)
