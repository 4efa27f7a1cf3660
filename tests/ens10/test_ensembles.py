"""Smaller ensembles than the data have, and dates without truth."""

import numpy as np
import pytest
from batchtools import lazy, members_of, whole

from ens10 import prepare
from ens10.loader import Batches

INPUTS = ["t2m", "u10@24", "z500"]


@pytest.fixture(scope="module")
def both(tiny, tmp_path_factory):
    """A store with the statistics of the first two members."""
    path = tmp_path_factory.mktemp("both") / "s.zarr"
    return prepare(tiny / "w", path, truth=tiny / "w" / "truth", ensembles=[2])


@pytest.mark.parametrize("protocol", ["clean", "paper"])
def test_the_first_members_alone(tiny, store, both, protocol):
    settings = {"ensemble": 2, "members": True, "protocol": protocol, "split": "test"}
    data, truth = lazy(tiny)
    kept = Batches(both, "t2m", INPUTS, **settings)
    made = Batches(store, "t2m", INPUTS, **settings)
    lazily = Batches(data, "t2m", INPUTS, truth=truth, **settings)
    got = whole(kept)
    held = members_of(store, "t2m", 48)[kept.index, :2]
    ddof = 1 if protocol == "clean" else 0
    assert kept.samples.members == 2
    np.testing.assert_array_equal(got["members"], held.astype(np.float32))
    np.testing.assert_allclose(got["raw_mean"], held.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(got["raw_std"], held.std(axis=1, ddof=ddof), rtol=1e-5)
    wind = members_of(store, "u10", 24)[:, :2].mean(axis=1)
    years = range(2000, 2003) if protocol == "clean" else range(2000, 2006)
    valid = kept.samples.valid_time.astype("datetime64[Y]").astype(int) + 1970
    np.testing.assert_allclose(
        kept.normaliser.mean[2], wind[np.isin(valid, years)].mean(axis=0), rtol=1e-4, atol=1e-5
    )
    for other in (made, lazily):
        for key, values in whole(other).items():
            np.testing.assert_allclose(got[key], values, rtol=1e-5, atol=1e-5, err_msg=key)


def test_members_as_features_are_the_first_too(store, both):
    two = whole(Batches(both, "t2m", INPUTS, "test", kind="members", ensemble=2, normalise=False))
    four = whole(Batches(store, "t2m", INPUTS, "test", kind="members", normalise=False))
    np.testing.assert_array_equal(two["features"], four["features"][:, :2])


def test_all_members_asked_for_by_number(store):
    want = whole(Batches(store, "t2m", INPUTS))
    got = whole(Batches(store, "t2m", INPUTS, ensemble=4))
    for key, values in want.items():
        np.testing.assert_array_equal(got[key], values)


def test_dates_without_truth_are_left_out_of_training_alone(tiny, tmp_path):
    data, truth = lazy(tiny)
    holed = truth.load().copy(deep=True)
    gone = holed["time"].to_numpy()[[1, 4, 16]]
    holed["t2m"].loc[{"time": gone}] = np.nan
    holed["t2m"][2, ..., 0, 0] = np.nan  # one point is no reason
    path = prepare(data, tmp_path / "s", truth=holed, missing="nan")
    train, test = (Batches(path, "t2m", ["t2m"], split) for split in ("train", "test"))
    assert len(train.left_out) == 2
    assert len(test.left_out) == 0
    assert sorted([*train.index, *train.left_out]) == train.splits.index["train"].tolist()
    assert np.isin(train.samples.valid_time[train.left_out], gone).all()
    got = whole(train)
    assert len(got["dates"]) == len(train) == len(train.index)
    assert got["weights"].any(axis=(1, 2)).all()
    evaluated = whole(test)
    weighted = evaluated["weights"].any(axis=(1, 2))
    assert (~weighted).sum() == 1
    np.testing.assert_array_equal(
        evaluated["dates"][~weighted], gone[2:].astype("M8[s]").astype(int)
    )
    other = Batches(path, "z500", ["t2m"])
    assert len(other.left_out) == 0
