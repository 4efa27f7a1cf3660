"""States do not depend on blocks, schedulers or order; kernels against float64 numpy."""

import gc
import tracemalloc
from concurrent.futures import Future, ThreadPoolExecutor

import dask
import dask.array as da
import numpy as np
import properscoring
import pytest
import xarray as xr
from dask.callbacks import Callback
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import merge_states, score_states, verify
from ens10.metrics._field_sums import add_map, field_sums
from ens10.metrics._random_loops import date_key, rank_counts
from ens10.metrics._sorting_networks import exchanges
from ens10.metrics.distributions._sweep import LANES, scores_of_members
from ens10.metrics.verification import block_scoring

N = 30


@settings(deadline=None, max_examples=20)
@given(
    M=st.integers(1, 40),
    points=st.sampled_from([1, 7, LANES, LANES + 3]),
    seed=st.integers(0, 2**31),
    offset=st.sampled_from([0.0, 5e4, 1e5]),
)
def test_one_sweep_equals_float64_numpy(M, points, seed, offset):
    rng = np.random.default_rng(seed)
    x = (offset + rng.normal(scale=10, size=(M, points))).astype(np.float32)
    y = (offset + rng.normal(scale=10, size=points)).astype(np.float32)
    y[0] = x[0, 0]
    wide, observed = x.astype(np.float64), y.astype(np.float64)
    for got, tolerance in (
        (scores_of_members(x, y), 1e-6),
        (scores_of_members(wide, observed), 1e-12),
    ):
        crps = properscoring.crps_ensemble(observed, wide, axis=0)
        scale = crps.mean() + 1
        np.testing.assert_allclose(got["crps"], crps, rtol=tolerance, atol=tolerance * scale)
        np.testing.assert_allclose(
            got["error"], wide.mean(axis=0) - observed, rtol=0, atol=10 * tolerance * scale
        )
        np.testing.assert_array_equal(got["below"], (x < y).sum(axis=0))
        np.testing.assert_array_equal(got["equal"], (x == y).sum(axis=0))
        if M == 1:
            assert np.isnan(got["crps_fair"]).all()
            continue
        pairs = np.abs(wide[:, None] - wide).sum(axis=(0, 1))
        fair = np.abs(wide - observed).mean(axis=0) - pairs / (2 * M * (M - 1))
        bound = {"rtol": 2 * tolerance, "atol": 2 * tolerance * scale}
        np.testing.assert_allclose(got["crps_fair"], fair, **bound)
        np.testing.assert_allclose(got["variance"], wide.var(axis=0, ddof=1), rtol=2e-5)


@pytest.mark.parametrize("M", [*range(1, 20), 50])
def test_the_network_sorts(M):
    x = np.random.default_rng(M).normal(size=(M, 30))
    for i, j in exchanges(M):
        x[i], x[j] = np.minimum(x[i], x[j]), np.maximum(x[i], x[j])
    assert (np.diff(x, axis=0) >= 0).all()


def test_one_missing_member_or_truth_is_missing_everywhere():
    x, y = np.random.default_rng(0).normal(size=(5, 200)), np.zeros(200)
    x[3, 150], y[7] = np.nan, np.nan
    got = scores_of_members(x, y)
    for name in ("crps", "crps_fair", "error", "variance"):
        assert np.flatnonzero(np.isnan(got[name])).tolist() == [7, 150]
    assert np.flatnonzero(got["below"] < 0).tolist() == [7, 150]


def test_sums_of_fields():
    rng = np.random.default_rng(1)
    field, rows = rng.normal(size=(5, 131)), rng.uniform(size=5)
    field[2, 40:50] = np.nan
    zones = rng.integers(3, size=field.shape)
    zones[2, 40:50] = 1
    there = ~np.isnan(field)
    w = rows[:, None] * there
    for zone, number in ((None, 1), (zones, 3)):
        total, weight, count = field_sums(field, rows, zone, number)
        for n in range(number):
            inside = there if zone is None else there & (zones == n)
            np.testing.assert_allclose(total[n], (field * w)[inside].sum(), rtol=1e-12)
            np.testing.assert_allclose(weight[n], w[inside].sum(), rtol=1e-12)
            assert count[n] == inside.sum()
        strict = field_sums(field, rows, zone, number, propagate=True)[0]
        gaps = [bool((~there & ((zones == n) | (zone is None))).any()) for n in range(number)]
        np.testing.assert_array_equal(np.isnan(strict), gaps)
    added, counted = np.ones((5, 131)), np.ones((5, 131), np.int64)
    add_map(field, added, counted)
    np.testing.assert_array_equal(added, 1 + np.nan_to_num(field))
    np.testing.assert_array_equal(counted, 1 + there)


def test_random_ranks_are_even_and_belong_to_dates():
    below, equal = np.full(100_000, 2, np.int32), np.full(100_000, 3, np.int32)
    edges = np.arange(9) / 8
    ranks, pit = rank_counts(below, equal, edges, 16, date_key(0, 5))
    assert ranks[:2].tolist() == ranks[6:].tolist() == [0, 0]
    np.testing.assert_allclose(ranks[2:6], 25_000, rtol=0.03)
    np.testing.assert_allclose(pit[4:12], 12_500, rtol=0.04)
    assert pit.sum() == pit[4:12].sum() == 100_000
    again = rank_counts(below, equal, edges, 16, date_key(0, 5))
    np.testing.assert_array_equal(again[1], pit)
    for other in (date_key(1, 5), date_key(0, 6), date_key(0, -5)):
        assert (rank_counts(below, equal, edges, 16, other)[1] != pit).any()
    below[:10] = -1
    assert rank_counts(below, equal, edges, 16, date_key(0, 5))[0].sum() == 100_000 - 10


def bits(states):
    return {str(k): v.values.tobytes() for k, v in states.variables.items() if v.dtype != object}


@pytest.mark.parametrize("values", [1, 5 * 240, 10**6])
def test_blocks_leave_no_trace(values, world, monkeypatch):
    ensemble, _, truth = world
    wanted = score_states(ensemble, truth, by=("latitude_band",))
    monkeypatch.setattr(block_scoring, "BLOCK_VALUES", values)
    for forecast in (ensemble, ensemble.chunk(time=4, latitude=2), ensemble.chunk(number=2)):
        for scheduler in (None, "threads"):
            got = score_states(forecast, truth, by=("latitude_band",), scheduler=scheduler)
            xr.testing.assert_identical(got, wanted)
            assert bits(got) == bits(wanted)


def test_states_are_ordered_alike_however_a_store_lists_its_coordinates(world):
    ensemble, _, truth = world
    both = ["step", "valid_time"]
    forward, back = (
        ensemble.drop_vars(both).assign_coords({name: ensemble[name] for name in order})
        for order in (both, both[::-1])
    )
    assert list(forward.coords) != list(back.coords)
    made = [score_states(forecast, truth) for forecast in (forward, back)]
    assert list(made[0].variables) == list(made[1].variables)


def test_merged_states_of_dates_are_those_of_one_pass(world):
    ensemble, _, truth = world
    whole = score_states(ensemble, truth)
    parts = [score_states(ensemble.isel(time=[n]), truth) for n in range(N) if n != 4]
    parts.insert(4, score_states(ensemble.isel(time=[4]), truth))
    merged = merge_states(parts)
    assert bits(merged) == bits(whole)
    few = [score_states(ensemble.isel(time=s), truth) for s in (slice(9), slice(9, N))]
    for name, values in merge_states(few).items():
        if "_map_" not in str(name):
            np.testing.assert_array_equal(values, whole[name])
        np.testing.assert_allclose(values, whole[name], rtol=1e-14)


@pytest.mark.slow
def test_processes_and_a_client_give_the_same_bits(world):
    from distributed import Client

    ensemble, _, truth = world
    wanted = score_states(ensemble, truth)
    got = score_states(ensemble.chunk(time=3), truth, scheduler="processes")
    assert bits(got) == bits(wanted)
    with Client(n_workers=1, threads_per_worker=2, dashboard_address=None, processes=False) as c:
        assert bits(score_states(ensemble.chunk(time=3), truth, scheduler=c)) == bits(wanted)


def test_other_schedulers_are_refused(world):
    ensemble, _, truth = world
    with pytest.raises(UnknownNameError, match="did you mean 'threads'"):
        score_states(ensemble, truth, scheduler="thread")
    with pytest.raises(ArgumentError, match="type int is not a scheduler"):
        score_states(ensemble, truth, scheduler=3)


@pytest.mark.parametrize("scheduler", [None, "threads"])
def test_an_error_in_a_block_comes_through(world, scheduler):
    _, normal, truth = world
    spoilt = normal.copy(deep=True)
    spoilt["sigma"][20, 0, 0] = -1.0
    with pytest.raises(ArgumentError, match="sigma: 1 of"):
        score_states(spoilt.chunk(time=2), truth.chunk(time=2), scheduler=scheduler)


class AtOnce(ThreadPoolExecutor):
    """Runs each task when it is submitted: as many blocks are read ahead as may be, always."""

    def submit(self, task, /, *args, **kwargs):
        future = Future()
        future.set_result(task(*args, **kwargs))
        return future


def test_memory_does_not_grow_with_the_dates(monkeypatch):
    def peak(dates):  # the least of several, because other threads of the process add theirs
        shape, coords = (dates, 8, 45, 90), {"time": np.arange(dates).astype("datetime64[D]")}
        coords["time"] = coords["time"].astype("datetime64[ns]")
        grid = {"latitude": np.linspace(88, -88, 45), "longitude": np.arange(90) * 4.0}
        x = da.random.default_rng(0).normal(size=shape, chunks=(1, *shape[1:]))
        dims = ("time", "number", "latitude", "longitude")
        forecast = xr.Dataset({"members": (dims, x)}, coords | grid, {"forecast_kind": "ensemble"})
        truth = forecast["members"].isel(number=0) + 0.5
        tracemalloc.start()
        score_states(forecast, truth)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    monkeypatch.setattr(block_scoring, "BLOCK_VALUES", 8 * 45 * 90)
    # with threads, the load of the machine decides how many dates are held at once
    monkeypatch.setattr(block_scoring, "ThreadPoolExecutor", AtOnce)
    gc.freeze()  # a collection looks at what comes from here on, and is quick
    try:
        # what waits as garbage for its collection differs: it is collected after each task
        collected = Callback(posttask=lambda *_: gc.collect())
        with dask.config.set(scheduler="synchronous"), collected:
            peak(3)
            few, many = (min(peak(dates) for _ in range(2)) for dates in (8, 40))
    finally:
        gc.unfreeze()
    one = 8 * 8 * 45 * 90
    assert many - few < 2 * one < 32 * one / 4


def test_verify_takes_a_scheduler(world):
    ensemble, normal, truth = world
    wanted = verify(normal, truth, reference=ensemble)
    got = verify(normal, truth, reference=ensemble, scheduler="threads")
    xr.testing.assert_identical(got, wanted)
