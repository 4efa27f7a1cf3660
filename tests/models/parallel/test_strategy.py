"""Split trainings under Lightning equal serial ones: weights, logged values, checkpoints."""

import pytest
import torch
from trainings import train, wide

from ens10.convert import prepare
from ens10.errors import ArgumentError
from ens10.models.parallel import SpatialStrategy
from ens10.synthetic import World


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = World("17x24", range(2000, 2006), 4, seed=0, steps=(48,))
    folder = tmp_path_factory.mktemp("parallel")
    made.write(folder / "world")
    prepare(made.folder, folder / "store.zarr", truth=made.folder / "truth")
    return folder / "store.zarr"


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


@pytest.mark.parametrize(("lat", "lon"), [(2, 1), (4, 1), (2, 2)])
def test_three_steps_with_clipping_equal_serial_ones(ranks, store, lat, lon):
    assert_same(ranks(lat * lon, train, store, lat, lon), train(store))


def train_with(store, options):
    return train(store, **options)


def test_split_longitude_with_accumulation(ranks, store):
    options = {"make": wide, "accumulate_grad_batches": 2, "limit_train_batches": 4}
    assert_same(
        ranks(2, train_with, store, options | {"lat": 1, "lon": 2}), train(store, **options)
    )


def test_parts_and_data_parallel_together(ranks, store):
    alone = ranks(2, train_with, store, {"lat": 1, "limit_train_batches": 2})
    both = ranks(4, train_with, store, {"lat": 2, "limit_train_batches": 2})
    for rank, other in enumerate(both):
        assert_same([other], alone[rank // 2])


def test_parameters_in_shards_and_a_checkpoint_of_them(ranks, store, tmp_path):
    options = {"lat": 2, "parameters": "sharded", "save": tmp_path / "sharded.ckpt"}
    assert_same(ranks(2, train_with, store, options), train(store))
    whole = train(store, max_epochs=2)
    again = {"max_epochs": 2, "checkpoint": tmp_path / "sharded.ckpt"}
    assert_same([train(store, **again)], (whole[0], whole[1][1:]))
    assert_same(ranks(2, train_with, store, options | again), (whole[0], whole[1][1:]))


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
