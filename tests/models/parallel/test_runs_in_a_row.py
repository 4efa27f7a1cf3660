"""Several runs in the same processes, and what is left behind when one ends."""

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from trainings import data_of, in_double, pretend_torchrun, split_of, train, trainer_of, unet

from ens10.models import PostProcessor, ResidualNormalHead
from ens10.models.layers.norm import BatchNorm2d
from ens10.models.networks import Network

SHORT = {"limit_train_batches": 1, "limit_val_batches": 1}


class Small(Network):
    """A network of one point, with running moments."""

    in_channels, out_channels = 23, 2

    def __init__(self):
        super().__init__()
        self.norm = BatchNorm2d(23)
        self.last = torch.nn.Conv2d(23, 2, 1)

    def forward(self, features):
        return self.last(self.norm(features))


def small():
    torch.manual_seed(0)
    return PostProcessor(Small(), ResidualNormalHead())


def split(lat, **options):
    return trainer_of(pretend_torchrun(), split_of(lat), **(SHORT | options))


def groups():
    return dist.distributed_c10d._world.pg_map.keys() | set()


def a_run_and_what_follows(store):
    before = groups()
    trainer, module, data = split(2, max_epochs=1), in_double(unet), data_of(store)
    trainer.fit(module, datamodule=data)
    trainer.test(module, datamodule=data, verbose=False)
    (forecast, *_) = trainer.predict(module, datamodule=data)
    after = groups()
    if dist.get_rank() == 0:  # alone: a group that it made here would wait for the other process
        data.batches("train")
    rows = data.share.rows
    left = groups()
    return before == after == left, (rows.start, rows.stop), tuple(forecast.forecast.mu.shape)


def test_no_group_is_left_and_shares_are_known_after_a_run(ranks, store):
    assert ranks(2, a_run_and_what_follows, store) == [
        (True, (0, 8), (1, 8, 24)),
        (True, (8, 17), (1, 9, 24)),
    ]


def failed(store):
    before = groups()
    try:
        train(store, 2, make=lambda: unet(5), **SHORT)
    except Exception as error:
        return before == groups(), type(error).__name__
    return "nothing"


def test_no_group_is_left_by_a_run_that_failed(ranks, store):
    assert ranks(2, failed, store) == 2 * [(True, "ArgumentError")]


def fitted_twice(store, lat, options):
    trainer = trainer_of(
        pretend_torchrun() if lat else 1,
        split_of(lat, **options) if lat else None,
        **SHORT,
        max_epochs=1,
    )
    module, data = in_double(unet), data_of(store)
    trainer.fit(module, datamodule=data)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, datamodule=data)
    return trainer.strategy.lightning_module_state_dict()


@pytest.mark.parametrize(
    "parameters", ["replicated", pytest.param("sharded", marks=pytest.mark.slow)]
)
def test_a_second_fit_goes_on(ranks, store, parameters):
    expected = fitted_twice(store, None, {})
    for found in ranks(2, fitted_twice, store, 2, {"parameters": parameters}):
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=0, atol=1e-10)


class Buffers(pl.Callback):
    """The running moments that the last validation was made with."""

    def on_validation_end(self, _, module):
        self.found = module.network.norm.running_mean.clone()


def moments_in_validation(store):
    buffers = Buffers()
    trainer = split(1, max_epochs=1, callbacks=[buffers])
    trainer.fit(in_double(small), datamodule=data_of(store))
    return buffers.found


def test_groups_with_dates_of_their_own_validate_the_model_of_the_first(ranks, store):
    first, second = ranks(2, moments_in_validation, store)
    assert first.any()
    torch.testing.assert_close(second, first, rtol=0, atol=0)


def started_apart(store, parameters):
    """A model that every process draws for itself, before and after it is set up."""
    torch.manual_seed(dist.get_rank())
    module = PostProcessor(Small(), ResidualNormalHead())
    module.network.norm.running_mean.normal_()
    strategy = split_of(1, parameters=parameters)
    trainer = trainer_of(pretend_torchrun(), strategy, **SHORT, max_steps=0)
    own = {name: value.clone() for name, value in module.state_dict().items()}
    trainer.fit(module, datamodule=data_of(store))
    return own, trainer.strategy.lightning_module_state_dict()


@pytest.mark.parametrize("parameters", ["replicated", "sharded"])
def test_all_begin_with_the_model_of_the_first(ranks, store, parameters):
    (expected, _), *_ = found = ranks(2, started_apart, store, parameters)
    for _, state in found:
        for name in ("network.last.weight", "network.norm.running_mean"):
            torch.testing.assert_close(state[name], expected[name], rtol=0, atol=0)
