"""Rank histograms: ties, random numbers that belong to points, missing members, libraries."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import chisquare

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics._call import RechunkWarning
from ens10.metrics._point_random import _bits, dimension_keys, scramble, uniform
from ens10.metrics.calibration import observation_ranks, rank_histogram

RNG = np.random.default_rng(0)
X, Y = np.round(RNG.normal(size=(6, 5, 4, 7)), 1), np.round(RNG.normal(size=(6, 4, 7)), 1)


def counts(*args, **options):
    return rank_histogram(*args, **{"seed": 0} | options)["count"].values


def named(x, y):
    time = np.datetime64("1969-12-30", "ns") + np.arange(6) * np.timedelta64(1, "D")
    coords = {"time": time, "latitude": [1.5, 1.0, 0.5, -0.0], "longitude": np.arange(7)}
    members = xr.DataArray(x, dims=("time", "number", "latitude", "longitude"), coords=coords)
    return members, xr.DataArray(y, dims=("time", "latitude", "longitude"), coords=coords)


def test_ranks_of_exchangeable_draws_are_uniform():
    x = np.random.default_rng(0).normal(size=(9, 40_000))
    found = rank_histogram(x[:8], x[8], member_dim=0, seed=1)
    assert found["count"].shape == (9,)
    assert int(found["count"].sum()) == 40_000
    assert chisquare(found["count"]).pvalue > 1e-3


def test_ranks_count_the_members_below():
    x = np.array([[1.0, 2.0, 3.0]] * 4)
    found = rank_histogram(x, np.array([0.0, 1.5, 2.5, 9.0]), member_dim=1, seed=0)
    assert found["rank"].values.tolist() == [0, 1, 2, 3]
    assert found["count"].values.tolist() == [1, 1, 1, 1]
    assert counts(x, np.array([2.5, 2.5, 2.6, 9.0]), member_dim=1).tolist() == [0, 0, 3, 1]


def test_ranks_agree_with_scores():
    scores = pytest.importorskip("scores")
    x, y = named(X, RNG.normal(size=Y.shape))
    wanted = scores.probability.rank_histogram(x, y, "number", preserve_dims=["latitude"])
    got = rank_histogram(x, y, member_dim="number", seed=0, dim=["time", "longitude"])
    assert got["count"].dims == ("latitude", "rank")
    np.testing.assert_allclose(got["count"] / 42, wanted.transpose("latitude", "rank"), atol=1e-14)


def test_ties_are_shared_at_random_by_a_seed():
    # wet and dry: the observation equals three members that are 0, and one is above
    x = np.repeat([[0.0], [0.0], [0.0], [1.0]], 8000, axis=1)
    found = counts(x, np.zeros(8000), member_dim=0, seed=5)
    assert found[4] == 0
    assert chisquare(found[:4]).pvalue > 1e-3
    assert found.tolist() == counts(x, np.zeros(8000), member_dim=0, seed=5).tolist()
    assert found.tolist() != counts(x, np.zeros(8000), member_dim=0, seed=-6).tolist()


def lazy(a):
    return da.from_array(a, chunks=(2, -1, 3, 5) if a.ndim == 4 else 2)


@pytest.mark.parametrize("kind", [torch.tensor, lazy, xr.DataArray])
def test_libraries_and_chunks_have_the_same_ties(kind):
    wanted = counts(X, Y, member_dim=1)
    if kind is xr.DataArray:
        points = ("dim_0", "dim_1", "dim_2")
        x = xr.DataArray(X, dims=(points[0], "number", *points[1:]))
        for chunks in ({}, {"dim_0": 4}, {"dim_2": 3}):
            y = xr.DataArray(Y, dims=points)
            found = rank_histogram(x.chunk(chunks), y, member_dim="number", seed=0)
            assert dask.is_dask_collection(found)
            np.testing.assert_array_equal(found["count"], wanted)
        with pytest.warns(RechunkWarning, match="rank_histogram .* 3 chunks are joined"):
            rank_histogram(x.chunk(number=2), y, member_dim="number", seed=0)
    else:
        np.testing.assert_array_equal(counts(kind(X), kind(Y), member_dim=1), wanted)


def test_dates_alone_have_the_ties_that_they_have_among_others():
    x, y = named(X, Y)
    whole = rank_histogram(x, y, member_dim="number", seed=3, dim=["time", "longitude"])
    parts = [
        rank_histogram(
            x.isel(time=dates).transpose("longitude", ...), y.isel(time=dates),
            member_dim="number", seed=3, dim=["time", "longitude"],
        )
        for dates in ([5, 0], [3], [1, 4, 2])
    ]  # fmt: skip
    xr.testing.assert_equal(sum(parts[1:], parts[0]), whole)
    shuffled = rank_histogram(x[::-1], y[::-1], member_dim="number", seed=3)
    np.testing.assert_array_equal(shuffled["count"], whole["count"].sum("latitude"))
    moved = y.assign_coords(time=y["time"] + np.timedelta64(9, "D"))
    other = rank_histogram(x.assign_coords(moved.coords), moved, member_dim="number", seed=3)
    assert (other["count"] != whole["count"].sum("latitude")).any()


@pytest.mark.parametrize("values", [1, 37, 200])
@pytest.mark.parametrize("dim", ["all", 0, (0, 2), (1,)])
def test_parts_that_fit_the_cache_sum_to_the_whole(monkeypatch, values, dim):
    wanted = rank_histogram(X, Y, member_dim=1, seed=0, dim=dim)
    monkeypatch.setattr("ens10.metrics.statistic._BLOCK_VALUES", values)
    xr.testing.assert_identical(rank_histogram(X, Y, member_dim=1, seed=0, dim=dim), wanted)


def test_one_point_and_none():
    assert counts(np.array([1.0, 2.0]), 1.5, member_dim=0).tolist() == [0, 1, 0]
    assert counts(np.zeros((2, 0)), np.zeros(0), member_dim=0).tolist() == [0, 0, 0]


def test_random_numbers_are_uniform_and_independent():
    keys = dimension_keys({"a": xr.DataArray(np.zeros((300, 400)), dims=("a", "b"))}, seed=9)
    u = uniform(keys[0].values, keys[1].values[:, None], keys[2].values)
    assert u.shape == (300, 400)
    assert chisquare(np.bincount((u * 64).astype(int).ravel(), minlength=64)).pvalue > 1e-3
    pairs = (u[:, 1:] * 8).astype(int) * 8 + (u[:, :-1] * 8).astype(int)
    assert chisquare(np.bincount(pairs.ravel(), minlength=64)).pvalue > 1e-3
    total = keys[0].values + keys[1].values[:, None] + keys[2].values
    np.testing.assert_array_equal(u, ((scramble(total) >> 41) + 0.5) / 2**23)
    same = uniform(keys[0].values, keys[1].values[:, None], keys[2].values, dtype=np.float32)
    np.testing.assert_array_equal(u, same)
    assert 0 < uniform(keys[0].values) < 1


def test_labels_have_the_same_bits_in_any_dtype():
    whole = np.array([0, 1, 7])
    for dtype in (np.int16, np.float32, np.uint8):
        np.testing.assert_array_equal(_bits(whole.astype(dtype)), _bits(whole))
    assert _bits(np.array([-0.0])) == _bits(np.array([0.0]))
    dates = np.array(["2001-01-01", "1900-01-01"], dtype="M8[s]")
    np.testing.assert_array_equal(_bits(dates), _bits(dates.astype("M8[ns]")))
    assert len(set(_bits(np.array(["a", "b", "ab"])).tolist())) == 3


def test_ranks_leave_out_missing_points_and_count_them():
    x, y = X.copy(), Y.copy()
    x[0, 2, 0, 0] = x[1, :, 3, 1] = y[0, 0, 0] = y[5, 1, 2] = np.nan
    found = rank_histogram(x, y, member_dim=1, seed=0, dim=(0, 2))
    assert found["missing"].values.tolist() == [1, 1, 0, 1]
    assert found["count"].sum("rank").values.tolist() == [41, 41, 42, 41]
    found = rank_histogram(x, y, member_dim=1, seed=0, nan="skip-members")
    assert int(found["missing"]) == 3
    x[0, 2, 0, 1] = np.nan
    assert int(rank_histogram(x, y, member_dim=1, seed=0, nan="skip-members")["missing"]) == 3
    assert int(rank_histogram(x, y, member_dim=1, seed=0)["missing"]) == 4


def test_ranks_among_the_members_that_are_there_stay_flat():
    x = np.random.default_rng(7).normal(size=(8, 60_000))
    y = x[7].copy()
    x[:7][np.random.default_rng(8).random((7, 60_000)) < 0.4] = np.nan
    found = counts(x[:7], y, member_dim=0, nan="skip-members")
    assert chisquare(found).pvalue > 1e-3
    low = counts(x[:7], np.full(60_000, -99.0), member_dim=0, nan="skip-members")
    assert low[-1] == 0


def test_ranks_of_float32_are_exact():
    x = np.float32(5e4) + np.arange(4, dtype=np.float32)[:, None] / 256
    assert counts(x, x[2:3].ravel() + np.float32(1 / 256), member_dim=0)[2:].sum() == 1
    below = np.nextafter(x[2], np.float32(0))
    assert counts(x, below, member_dim=0).tolist() == [0, 0, 1, 0, 0]


def test_observation_ranks():
    x = np.array([[1.0, 1.0, np.nan], [2.0, 1.0, 0.0]])
    got = observation_ranks(x, np.array([1.5, 1.0, 0.0]), np.array([0.9, 0.5, 0.0]))
    assert got.tolist() == [1, 1, -1]


def test_what_ranks_refuse():
    with pytest.raises(ArgumentError, match="y: shapes that do not fit each other"):
        rank_histogram(np.zeros((4, 3)), np.zeros((4, 3)), member_dim=0, seed=0)
    with pytest.raises(ArgumentError, match="number of one of the 2 axes of members, got 'number'"):
        rank_histogram(np.zeros((4, 3)), np.zeros(3), member_dim="number", seed=0)
    with pytest.raises(UnknownNameError, match="nan: 'propagate' is not known"):
        rank_histogram(X, Y, member_dim=1, seed=0, nan="propagate")
    for seed, says in (
        (None, "members equal to the obs.*: seed=0"),
        (1.5, "got 1.5"),
        (True, "True"),
    ):
        with pytest.raises(ArgumentError, match=f"seed: .*{says}"):
            rank_histogram(X, Y, member_dim=1, seed=seed)
    with pytest.raises(ArgumentError, match="members: an axis that is summed"):
        rank_histogram(np.zeros((0, 3)), np.zeros(3), member_dim=0, seed=0)
    x, y = named(X, Y)
    with pytest.raises(ArgumentError, match="no dimension 'x'"):
        rank_histogram(x, y, member_dim="number", seed=0, dim="x")
    with pytest.raises(ArgumentError, match="y: its longitude differs from that of members"):
        rank_histogram(x, y.assign_coords(longitude=range(1, 8)), member_dim="number", seed=0)
    units = [a.assign_attrs(units=u) for a, u in ((x, "K"), (y, "degC"))]
    with pytest.raises(ArgumentError, match="units differ"):
        rank_histogram(*units, member_dim="number", seed=0)
