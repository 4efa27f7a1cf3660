"""A tiny store, and one uninterrupted run that all interrupted ones must equal."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))  # realruns


@pytest.fixture(scope="session")
def store(prepared):
    return prepared("8x16", range(2000, 2006), 4, seed=0, steps=(48,)) / "store.zarr"


@pytest.fixture(scope="session")
def whole(store, shared):
    """A fit of three epochs of four batches that nothing interrupted."""
    from stops import fit

    return shared("whole", lambda folder: fit(store, folder / "mlp")) / "mlp"


@pytest.fixture(autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)
