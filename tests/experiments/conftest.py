"""A tiny world, its store, and one finished run of each shipped configuration."""

import pytest

from ens10.convert import prepare
from ens10.synthetic import World


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """One thread from the start: the session's runs, too, are compared to the last bit."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    made = World("8x16", range(2000, 2006), 4, seed=0, steps=(48,))
    made.write(tmp_path_factory.mktemp("tiny") / "world")
    return made


@pytest.fixture(scope="session")
def store(world):
    path = world.folder.parent / "store.zarr"
    prepare(world.folder, path, truth=world.folder / "truth")
    return path


@pytest.fixture(scope="session")
def runs(store, tmp_path_factory):
    """Folder of each run, fitted, predicted and scored."""
    import realruns

    folder = tmp_path_factory.mktemp("runs")
    return {
        name: realruns.finish(realruns.fit(name, store, folder / name)) for name in realruns.NAMES
    }
