"""A tiny world, its store, and one finished run of each shipped configuration."""

import pytest

from ens10.synthetic import World


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """One thread from the start: the session's runs, too, are compared to the last bit."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def world(prepared):
    return World.load(prepared("8x16", range(2000, 2006), 4, seed=0, steps=(48,)) / "world")


@pytest.fixture(scope="session")
def store(world):
    return world.folder.parent / "store.zarr"


@pytest.fixture(scope="session")
def runs(store, shared):
    """Folder of each run, fitted, predicted and scored."""
    import realruns

    def fill(folder):
        for name in realruns.NAMES:
            realruns.finish(realruns.fit(name, store, folder / name))

    folder = shared("runs", fill)
    return {name: folder / name for name in realruns.NAMES}
