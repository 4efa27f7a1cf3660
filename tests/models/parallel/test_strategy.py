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


def test_periodic_longitude_accumulation_and_checkpoint(ranks, store, tmp_path):
    options = {"make": wide, "accumulate_grad_batches": 2, "limit_train_batches": 4}
    assert_same(
        ranks(2, partial_train, store, {"lat": 1, "lon": 2, **options}), train(store, **options)
    )


def partial_train(store, options):
    return train(store, **options)


def test_parts_that_do_not_divide_the_processes():
    with pytest.raises(ArgumentError, match="lat: 0 is not a positive number of parts"):
        SpatialStrategy(0)
