"""The world of each seed, made once."""

import shutil
from dataclasses import replace

import pytest

from ens10.errors import FileError
from ens10.experiments.runner.tasks import WorldSize, store_of
from ens10.experiments.runs.claims import claim
from ens10.store import open_store

SIZE = WorldSize("6x8", (2000, 2001), 2, levels=(500,), steps=(0, 48))


def test_a_store_of_all_variables_is_made_once_and_not_taken_for_another_size(tmp_path):
    store = store_of(tmp_path, 3, SIZE)
    assert {"sfc", "pl", "truth"} <= {path.name for path in store.iterdir()}
    assert open_store(store, "sfc").sizes["step"] == 2
    made = (store / "zarr.json").stat().st_mtime_ns
    assert store_of(tmp_path, 3, SIZE) == store
    assert (store / "zarr.json").stat().st_mtime_ns == made

    for change, message in (
        ({"dates": 3}, r"has 6x8 points, 2 dates .*; requested: 6x8 points, 3 dates in each"),
        ({"grid": "8x16"}, "has 6x8 points, .* requested: 8x16 points"),
        ({"years": (2001, 2002)}, "years 2000 2001; requested: .* years 2001 2002"),
        ({"world": "displaced"}, "is a pointwise world, not a displaced one"),
    ):
        with pytest.raises(FileError, match=message):
            store_of(tmp_path, 3, replace(SIZE, **change))
    message = r"requested: 46x96 points, 40 dates in .* 2006 2007\. .*work in another folder"
    with pytest.raises(FileError, match=message):
        store_of(tmp_path, 3)


def test_the_world_of_an_interrupted_call_is_not_taken_for_another_size(tmp_path):
    store = store_of(tmp_path, 3, SIZE)
    shutil.rmtree(store)  # as if the process had been killed before `prepare` ended
    with pytest.raises(FileError, match=r"2 dates .*; requested: .* 3 dates"):
        store_of(tmp_path, 3, replace(SIZE, dates=3))
    assert not store.exists()
    assert store_of(tmp_path, 3, SIZE).exists()


def test_a_world_half_written_is_written_again(tmp_path):
    (tmp_path / "world.partial").mkdir()
    (tmp_path / "world.partial" / "output.sfc.20180101").write_bytes(b"GRIB")
    assert store_of(tmp_path, 0, SIZE).exists()


def test_somebody_else_makes_it(tmp_path):
    with claim(tmp_path / "store.claim"), pytest.raises(FileError, match="is being made by proc"):
        store_of(tmp_path, 0, SIZE)
