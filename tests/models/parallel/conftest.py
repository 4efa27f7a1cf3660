"""Processes that the tests of this folder share."""

import pytest
from ranks import Ranks


@pytest.fixture(scope="session")
def ranks():
    """Runs a function in several processes at once; see `Ranks`."""
    processes = Ranks()
    yield processes
    processes.stop()
