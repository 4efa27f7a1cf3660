"""The order of dates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError
from ens10.loader.order import Ranks, jobs_of_epoch, order

SETTINGS = settings(max_examples=50, deadline=None)


@SETTINGS
@given(
    st.integers(0, 60), st.integers(0, 2**32), st.integers(0, 9), st.booleans(), st.integers(1, 7)
)
def test_ranks_are_disjoint_and_complete(count, seed, epoch, shuffle, world):
    parts = [
        order(count, seed=seed, epoch=epoch, shuffle=shuffle, rank=rank, world=world)
        for rank in range(world)
    ]
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    again = order(count, seed=seed, epoch=epoch, shuffle=shuffle, rank=world - 1, world=world)
    np.testing.assert_array_equal(again, parts[-1])


@SETTINGS
@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 5), st.integers(0, 9), st.booleans())
def test_jobs_of_all_ranks(count, world, size, epoch, shuffle):
    """Whatever the policy, no date counts twice; "pad" and None leave none out."""
    dates = np.arange(count) * 10
    for even in (None, "pad", *(["drop"] if count >= world else [])):
        ranks = [
            jobs_of_epoch(dates, Ranks(rank, world, even), size, 3, epoch, shuffle)
            for rank in range(world)
        ]
        jobs = [job for rank in ranks for job in rank]
        assert [job.number for job in ranks[0]] == list(range(len(ranks[0])))
        visited = np.concatenate([job.dates for job in jobs])
        once = visited[~np.concatenate([job.is_repeat for job in jobs])].tolist()
        assert len(set(once)) == len(once)
        if even == "drop":
            assert len(once) == count - count % world
        else:
            assert sorted(once) == dates.tolist()
        if even:
            assert len({sum(len(job.dates) for job in rank) for rank in ranks}) == 1
        for number, rank in enumerate(ranks):
            assert Ranks(number, world, even).count(count) == sum(len(job.dates) for job in rank)
        if even is None:
            want = [dates[order(count, seed=3, epoch=epoch, shuffle=shuffle, rank=r, world=world)]
                    for r in range(world)]  # fmt: skip
            np.testing.assert_array_equal(visited, np.concatenate(want))


def test_every_seed_and_epoch_has_its_own_order():
    pairs = [(seed, epoch) for seed in range(4) for epoch in range(4)]
    orders = {tuple(order(50, seed=s, epoch=e, shuffle=True).tolist()) for s, e in pairs}
    assert len(orders) == len(pairs)
    assert tuple(range(50)) not in orders


def test_order_of_time_without_shuffling():
    assert order(7, seed=3, epoch=2, shuffle=False).tolist() == list(range(7))
    assert order(7, seed=3, epoch=2, shuffle=False, rank=1, world=3).tolist() == [1, 4]


def test_shuffling_is_uniform():
    first = [order(4, seed=0, epoch=epoch, shuffle=True)[0] for epoch in range(2000)]
    assert np.abs(np.bincount(first, minlength=4) / 2000 - 0.25).max() < 0.05


@pytest.mark.parametrize(("rank", "world"), [(1, 1), (-1, 2), (0, 0), (5, 3)])
def test_ranks_outside_the_world(rank, world):
    with pytest.raises(ArgumentError, match=f"rank: {rank} is not among {world}"):
        order(4, seed=0, epoch=0, shuffle=True, rank=rank, world=world)
