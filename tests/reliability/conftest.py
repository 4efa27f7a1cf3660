"""A tiny store, and one uninterrupted run that all interrupted ones must equal."""

import sys
from pathlib import Path

import pytest

from ens10.convert import prepare
from ens10.synthetic import World

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))  # realruns


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reliability")
    made = World("8x16", range(2000, 2006), 4, seed=0, steps=(48,))
    made.write(folder / "world")
    prepare(folder / "world", folder / "store.zarr", truth=folder / "world" / "truth")
    return folder / "store.zarr"


@pytest.fixture(scope="session")
def whole(store, tmp_path_factory):
    """A fit of three epochs of four batches that nothing interrupted."""
    from stops import fit

    return fit(store, tmp_path_factory.mktemp("whole") / "mlp")


@pytest.fixture(autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)
