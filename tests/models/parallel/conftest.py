"""Processes that the tests of this folder share."""

import pytest
from ranks import Ranks


@pytest.fixture(scope="session")
def ranks():
    """Runs a function in several processes at once; see `Ranks`."""
    processes = Ranks()
    yield processes
    processes.stop()


@pytest.fixture(scope="session")
def store(prepared):
    """A small world, prepared."""
    return prepared("17x24", range(2000, 2006), 4, seed=0, steps=(48,)) / "store.zarr"
