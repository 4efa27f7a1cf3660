"""Stores and datasets behind a URL: anything that fsspec opens, here its memory."""

import fsspec
import numpy as np
import pytest

from ens10 import open_store, prepare
from ens10.loader import Batches
from ens10.protocol import Protocol
from ens10.source import open_source
from ens10.synthetic import World

PROTOCOL = Protocol(test=[2001], val=[])


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    yield files
    for path in files.ls("/", detail=False):
        files.rm(path, recursive=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remote") / "world"
    return World("8x16", [2000, 2001], 3, ["t2m", "u10"], steps=(48,), members=3).write(folder)


def test_a_remote_zarr_is_streamed_as_it_is(world, memory):
    forecasts, truth = open_source(world), open_source(world / "truth")
    forecasts.to_zarr("memory://forecasts.zarr", consolidated=False)
    remote = open_source("memory://forecasts.zarr")
    assert remote["t2m"].chunks is not None
    batches = Batches(remote, "t2m", truth=truth, protocol=PROTOCOL, members=True)
    local = Batches(forecasts, "t2m", truth=truth, protocol=PROTOCOL, members=True)
    for one, other in zip(batches, local, strict=True):
        for key in one:
            np.testing.assert_array_equal(one[key], other[key], err_msg=key)


def test_a_prepared_store_is_read_from_a_url(world, memory, tmp_path):
    path = prepare(world, tmp_path / "store.zarr", truth=world / "truth")
    for file in path.rglob("*"):
        if file.is_file():
            memory.pipe(f"/store.zarr/{file.relative_to(path)}", file.read_bytes())
    url = "memory://store.zarr"
    expected = open_store(path, "sfc")["t2m"].to_numpy()
    np.testing.assert_array_equal(open_store(url, "sfc")["t2m"].to_numpy(), expected)
    remote, local = (Batches(p, "t2m", protocol=PROTOCOL) for p in (url, path))
    for one, other in zip(remote, local, strict=True):
        np.testing.assert_array_equal(one["features"], other["features"])
