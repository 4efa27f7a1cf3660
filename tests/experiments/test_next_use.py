"""The study of a cache by next use: against brute force and other caches, and a store behind it."""

import csv
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from ens10.experiments.runner.results import Results
from ens10.experiments.studies import next_use
from ens10.experiments.studies.json_cells import read_json_cells
from ens10.experiments.studies.next_use import DiskCache, by_next_use, least_recent, newest

RESULTS = Path(__file__).parents[2] / "experiments" / "results" / "next_use"


def fetches(order, capacity, rank, folder):
    """Return how many entries of one byte are fetched."""
    files = DiskCache(folder, capacity, rank, lambda key: key.encode())
    assert [files.read(key) for key in order] == [key.encode() for key in order]
    assert len(list(folder.iterdir())) <= capacity
    for file in folder.iterdir():
        file.unlink()
    return sum(files.fetched)


def fewest(order, capacity):
    """Return the fewest fetches of any cache, which may drop an entry at any time."""

    @cache
    def cost(place, entries):
        if place == len(order):
            return 0
        key = order[place]
        if key in entries:
            return cost(place + 1, entries)
        choices = [entries | {key}] if len(entries) < capacity else [entries]
        choices += [entries - {other} | {key} for other in entries]
        return 1 + min(cost(place + 1, one) for one in choices)

    return cost(0, frozenset())


@pytest.mark.parametrize("seed", range(12))
def test_by_next_use_no_cache_fetches_less(seed, tmp_path):
    rng = np.random.default_rng(seed)
    order = [*map(str, rng.integers(0, 5, 14))]
    capacity = int(rng.integers(0, 4))
    least = fetches(order, capacity, by_next_use(order), tmp_path)
    assert least == fewest(tuple(order), capacity)
    assert least <= fetches(order, capacity, least_recent, tmp_path)
    assert least <= fetches(order, capacity, newest, tmp_path)


def test_epochs_of_shuffled_dates(tmp_path):
    rng = np.random.default_rng(0)
    order = [chr(65 + key) for _ in range(4) for key in rng.permutation(20)]
    count = {
        name: fetches(order, 10, rank, tmp_path)
        for name, rank in (("lru", least_recent), ("first", newest), ("next", by_next_use(order)))
    }
    # a date is hit if it is kept from the epoch before: at most half of each later epoch
    assert count["first"] == count["next"] == 20 + 3 * 10
    assert count["lru"] > 60


def test_waiting_for_the_link(monkeypatch):
    monkeypatch.setattr(next_use, "BANDWIDTH", 1.0)
    monkeypatch.setattr(next_use, "LATENCY", 0.0)
    for name, value in {"BATCH": 1, "FILES": 1, "SECONDS": 2.0, "RING": 2}.items():
        monkeypatch.setattr(next_use, name, value)
    assert next_use.stall_of(np.array([5, 5, 5])) == 5 + 3 + 3
    assert next_use.stall_of(np.array([1, 1, 1])) == 1
    # the ring is full while the first two batches wait, and two reads lead the slow one
    assert next_use.stall_of(np.array([0, 0, 5])) == 3
    assert next_use.stall_of(np.array([0, 0, 0])) == 0


def test_only_chunks_of_dates_are_cached():
    folder = "127.0.0.1:80/store.zarr"
    assert next_use.date_of(f"{folder}/statistics/ensemble_std/c/46/0/0/0/0") == 46
    assert next_use.date_of(f"{folder}/truth/t2m/c/7/0/0/0") == 7
    assert next_use.date_of(f"{folder}/statistics/std_sum/c/5/0/0/0/0") is None
    assert next_use.date_of(f"{folder}/truth/t2m/zarr.json") is None


def test_the_kept_tables_are_those_of_the_cells():
    with Results(RESULTS).temporary_folder() as folder:
        results = read_json_cells(folder)
    files = next_use.tables(results.values())
    assert {name: (RESULTS / name).read_text() for name in files} == files


@pytest.mark.slow
def test_batches_through_the_cache_are_those_of_the_store(tmp_path, monkeypatch):
    smaller = {"EPOCHS": 3, "SECONDS": 0, "LATENCY": 0, "BANDWIDTH": 1e9}
    smaller["VARIANTS"] = ["none-0", "least recent-50", "next use-50"]
    for name, value in smaller.items():
        monkeypatch.setattr(next_use, name, value)
    changes = {"grid": "16x32", "years": range(2000, 2006), "dates": 4, "kind": "pointwise"}
    monkeypatch.setattr(next_use, "CHANGES", changes)
    command = [str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    assert next_use.main(command) == 0
    rows = csv.DictReader((tmp_path / "out" / "table.csv").read_text().splitlines())
    read = {row["variant"]: int(row["fetched"]) / int(row["size"]) for row in rows}
    assert read["none-0"] == 3
    assert read["next use-50"] == pytest.approx(2, abs=0.1)  # half of two epochs is hit
    assert read["next use-50"] < read["least recent-50"] < 3
    monkeypatch.delattr(next_use, "read_epoch")  # complete: nothing is read again
    assert next_use.main(command) == 0
