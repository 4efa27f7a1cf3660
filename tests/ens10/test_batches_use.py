"""How batches are asked for: order, size, statistics of another training, wrong arguments."""

import numpy as np
import pytest
from batchtools import lazy, whole

from ens10 import prepare
from ens10.climate import Normaliser
from ens10.errors import ArgumentError, MissingDataError, OverlapError, UnknownNameError
from ens10.loader import Batches
from ens10.protocol import Protocol

YEARS = range(2000, 2006)
INPUTS = ["t2m", "sst", "z500", "u10@24", "t2m@0"]


def test_order_epoch_and_ranks(store):
    batches = Batches(store, "t2m", ["t2m"], batch_size=2, seed=7)
    first, again = whole(batches)["dates"], whole(batches)["dates"]
    np.testing.assert_array_equal(first, again)
    batches.set_epoch(1)
    second = whole(batches)["dates"]
    assert not np.array_equal(first, second)
    assert (
        sorted(first) == sorted(second) == sorted(batches.dates.astype("datetime64[s]").astype(int))
    )
    still = whole(Batches(store, "t2m", ["t2m"], shuffle=False))["dates"]
    np.testing.assert_array_equal(still, np.sort(first))
    test = whole(Batches(store, "t2m", ["t2m"], "test", seed=1))["dates"]
    np.testing.assert_array_equal(test, np.sort(test))
    parts = [Batches(store, "t2m", ["t2m"], seed=7, rank=r, world=3) for r in range(3)]
    dates = np.concatenate([whole(part)["dates"] for part in parts])
    assert sorted(dates) == sorted(first)
    with pytest.raises(ArgumentError, match="rank"):
        list(Batches(store, "t2m", ["t2m"], rank=3, world=3))


def test_size_of_batches(store):
    batches = Batches(store, "t2m", ["t2m"], batch_size=3)
    sizes = [len(batch["dates"]) for batch in batches]
    count = len(batches.dates)
    assert count % 3
    assert sizes == [3] * (count // 3) + [count % 3]
    assert len(batches) == len(sizes)
    for world in (2, 3):
        for rank in range(world):
            part = Batches(store, "t2m", ["t2m"], batch_size=2, rank=rank, world=world)
            assert len(part) == len(list(part))


def test_normaliser_of_an_earlier_training(store):
    trained = Batches(store, "t2m", ["t2m", "sst"])
    other = Protocol(test=[2000], val=[2001])
    again = Batches(store, "t2m", ["t2m", "sst"], protocol=other, normaliser=trained.normaliser)
    assert again.normaliser is trained.normaliser
    assert again.channels[-1] == "sst:mask"
    for inputs in (["sst", "t2m"], ["t2m"], ["t2m", "sst@24"]):
        with pytest.raises(ArgumentError, match="not those of the training"):
            Batches(store, "t2m", inputs, normaliser=trained.normaliser)
    part = Normaliser(
        trained.channels, trained.normaliser.mean[:, 1:], trained.normaliser.scale[:, 1:]
    )
    with pytest.raises(ArgumentError, match=r"does not fit the normalisation statistics"):
        list(Batches(store, "t2m", ["t2m", "sst"], normaliser=part))


SAME = Protocol(test=[2004], val=[2004])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"target": "t2n"}, UnknownNameError, "target: 't2n' is not known; did you mean 't2m'"),
        ({"inputs": ["t2n"]}, UnknownNameError, "inputs: 't2n' is not known; did you mean 't2m'"),
        (
            {"inputs": ["t2m@25"]},
            UnknownNameError,
            "step of input 't2m@25': '25' is not known.*0, 24, 48",
        ),
        ({"split": "tset"}, UnknownNameError, "did you mean 'test'"),
        ({"extras": ["locatoin"]}, UnknownNameError, "did you mean 'location'"),
        ({"protocol": "claen"}, UnknownNameError, "did you mean 'clean'"),
        (
            {"target": "t2m@24"},
            ArgumentError,
            r"target: truth exists at the steps \[48\], not at 24",
        ),
        ({"batch_size": 0}, ArgumentError, "batch_size: 0"),
        ({"inputs": []}, ArgumentError, "no channel is given"),
        ({"data": 3}, ArgumentError, "int is neither a path nor a Dataset"),
        ({"protocol": SAME}, OverlapError, "2004"),
    ],
)
def test_wrong_arguments(store, settings, error, message):
    with pytest.raises(error, match=message):
        Batches(**{"data": store, "target": "t2m", **settings})


def test_a_store_without_truth(tiny, tmp_path):
    bare = prepare(tiny / "w", tmp_path / "bare", variables=["t2m"])
    with pytest.raises(MissingDataError, match=r"truth.*--truth"):
        Batches(bare, "t2m")


UNFIT = {
    "none": ("t2m@48", lambda truth: None, MissingDataError, r"data: .*the truth.*truth="),
    "without the first date": (
        "t2m", lambda truth: truth.isel(time=slice(1, None)), MissingDataError, "2000-01-06",
    ),
    "of fewer rows": (
        "t2m", lambda truth: truth.isel(latitude=slice(2, None)), ArgumentError, "latitudes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", UNFIT)
def test_truth_that_does_not_fit_a_dataset(tiny, which):
    target, part, error, message = UNFIT[which]
    data, truth = lazy(tiny)
    with pytest.raises(error, match=message):
        Batches(data, target, truth=part(truth))
