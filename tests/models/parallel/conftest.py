"""Processes that the tests of this folder share."""

import pytest
from ranks import Ranks

from ens10.convert import prepare
from ens10.synthetic import World


@pytest.fixture(scope="session")
def ranks():
    """Runs a function in several processes at once; see `Ranks`."""
    processes = Ranks()
    yield processes
    processes.stop()


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """A small world, prepared."""
    made = World("17x24", range(2000, 2006), 4, seed=0, steps=(48,))
    folder = tmp_path_factory.mktemp("parallel")
    made.write(folder / "world")
    prepare(made.folder, folder / "store.zarr", truth=made.folder / "truth")
    return folder / "store.zarr"
