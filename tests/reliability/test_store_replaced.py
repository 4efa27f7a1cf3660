"""A store that is prepared again during a training: its own values to the end, or an error."""

import shutil
from contextlib import nullcontext

import numpy as np
import pytest

from ens10 import prepare
from ens10.errors import Ens10Error
from ens10.loader import Batches
from ens10.synthetic import World


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Two worlds of the same form, each with its store."""
    folder = tmp_path_factory.mktemp("worlds")
    for seed in (0, 1):
        world = World(
            "4x8", range(2000, 2008), 2, ["t2m", "u10"], seed=seed, members=3, steps=(48,)
        )
        world.write(folder / f"world{seed}")
        prepare_again(folder / f"world{seed}", folder / f"store{seed}.zarr")
    return folder


def prepare_again(world, store):
    prepare(world, store, truth=world / "truth", workers=1, force=True)


def dates(store):
    """Features and truth of each date of the training, in order."""
    for batch in Batches(store, "t2m", ["t2m"], "train", batch_size=1, shuffle=False):
        yield batch["features"][0].copy(), batch["target"][0].copy()


CHANGES = {
    "another world": (lambda store, folder: prepare_again(folder / "world1", store), "checksum"),
    "the same world": (lambda store, folder: prepare_again(folder / "world0", store), None),
    "removed": (lambda store, folder: shutil.rmtree(store), "the chunk is missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_no_training_reads_two_stores(worlds, tmp_path, name):
    change, message = CHANGES[name]
    store = shutil.copytree(worlds / "store0.zarr", tmp_path / "s.zarr")
    expected, count = list(dates(worlds / "store0.zarr")), 0
    outcome = pytest.raises(Ens10Error, match=f"s.zarr.*{message}") if message else nullcontext()
    with outcome:
        for n, values in enumerate(dates(store)):
            if n == 1:
                change(store, worlds)
            np.testing.assert_array_equal(values[0], expected[n][0])
            np.testing.assert_array_equal(values[1], expected[n][1])
            count += 1
    assert len(expected) == 10
    assert 2 <= count < 10 if message else count == 10
