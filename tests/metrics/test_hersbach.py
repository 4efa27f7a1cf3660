"""The decomposition of the mean CRPS from summed alpha and beta."""

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import crps_ensemble
from ens10.metrics.calibration import hersbach_decomposition, hersbach_sums, spread_bin_sums

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(6, 5, 4)), RNG.normal(size=(6, 4)) * 1.5
W = np.array([1.0, 2.0, 0.5, 3.0])


def plain_crps(x, y):
    """Mean distance to the observation less half of that between two members."""
    return abs(x - y).mean(axis=0) - abs(x[:, None] - x).mean(axis=(0, 1)) / 2


def decomposed(*args, **options):
    return hersbach_decomposition(hersbach_sums(*args, **options))


@settings(max_examples=30, deadline=None)
@given(
    M=st.integers(1, 12),
    points=st.integers(1, 20),
    seed=st.integers(0, 999),
    digits=st.integers(0, 3),
    level=st.sampled_from([0.0, 5e4]),
)
def test_parts_sum_to_the_mean_crps(M, points, seed, digits, level):
    rng = np.random.default_rng(seed)
    x, y = (np.round(rng.normal(size=s), digits) + level for s in ((M, points), points))
    w = rng.random(points) + 0.1
    found = decomposed(x, y, member_dim=0, weights=w)
    wanted = np.average(plain_crps(x - level, y - level), weights=w)
    assert float(found["crps"]) == pytest.approx(
        wanted, rel=1e-12 if not level else 1e-9, abs=1e-13
    )
    both = float(found["reliability"] + found["potential"])
    assert both == pytest.approx(float(found["crps"]), rel=1e-14)
    assert float(found["reliability"]) >= 0


def test_alpha_and_beta_of_earthkit():
    earthkit = pytest.importorskip("earthkit.meteo.score")
    x = xr.DataArray(X, dims=("time", "number", "x"))
    y = xr.DataArray(Y, dims=("time", "x"))
    wanted = earthkit.crps_from_ensemble(
        x, y, "number", return_components=True, decomposition_method="hersbach"
    )
    sums = hersbach_sums(x, y, member_dim="number", dim="time")
    for name in ("alpha", "beta"):
        summed = wanted[name].sum("time").transpose("x", "number")
        ours = sums[name].values
        if name == "alpha":  # earthkit sets alpha_0 to 1 below the ensemble; p_0 = 0 hides it
            ours, summed = ours[:, 1:], summed[:, 1:]
        else:
            ours, summed = ours[:, :-1], summed[:, :-1]
        np.testing.assert_allclose(ours, summed, rtol=1e-12)
    mean = wanted["crps"].mean("time")
    np.testing.assert_allclose(hersbach_decomposition(sums)["crps"], mean, rtol=1e-12)


def test_by_hand():
    # one below, one inside, one above the members 0 and 1
    sums = hersbach_sums(np.array([[0.0, 1.0]] * 3), np.array([-0.5, 0.25, 3.0]), member_dim=1)
    np.testing.assert_allclose(sums["alpha"], [0, 0.25 + 1, 2])
    np.testing.assert_allclose(sums["beta"], [0.5, 1 + 0.75, 0])
    assert [float(sums[n]) for n in ("below", "above", "weight")] == [1, 1, 3]
    found = hersbach_decomposition(sums)
    np.testing.assert_allclose(found["frequency"], [1 / 3, 1.75 / 3, 2 / 3])
    np.testing.assert_allclose(found["spread"], [0.5, 1, 2])
    g, o, p = np.array([0.5, 1, 2]), np.array([1 / 3, 1.75 / 3, 2 / 3]), np.array([0, 0.5, 1])
    assert float(found["reliability"]) == pytest.approx((g * (o - p) ** 2).sum())
    assert float(found["potential"]) == pytest.approx((g * o * (1 - o)).sum())


def test_a_reliable_ensemble_is_reliable():
    rng = np.random.default_rng(1)
    centre = rng.normal(size=100_000)
    x, y = centre + rng.normal(size=(50, 100_000)), centre + rng.normal(size=100_000)
    good = decomposed(x, y, member_dim=0)
    narrow = decomposed(centre + 0.5 * (x - centre), y, member_dim=0)
    # an ensemble of M exchangeable members keeps a reliability of order 1 / M^2
    assert float(good["reliability"]) < 1e-3
    assert float(narrow["reliability"]) > 0.02
    assert float(narrow["potential"]) == pytest.approx(float(good["potential"]), rel=0.05)


def test_uncertainty_is_the_crps_of_the_climate():
    y = np.random.default_rng(2).gamma(2, 3, 3000) + 5e4
    x = y + np.random.default_rng(3).normal(size=(4, 3000))
    exact = abs(y[:, None] - y).mean() / 2
    edges = np.linspace(5e4 - 1, 5e4 + 60, 200)
    found = decomposed(x, y, member_dim=0, edges=edges)
    assert float(found["uncertainty"]) == pytest.approx(exact, rel=1e-4)
    difference = found["uncertainty"] - found["potential"]
    assert float(found["resolution"]) == pytest.approx(float(difference))
    two = decomposed(x[:, :2], y[:2], member_dim=0, edges=edges)
    assert float(two["uncertainty"]) == pytest.approx(abs(y[0] - y[1]) / 4, abs=0.06)
    weighted = decomposed(x, y, member_dim=0, edges=edges, weights=np.arange(3000))
    again = np.repeat(np.arange(3000), np.arange(3000) // 100)
    repeated = decomposed(x[:, again], y[again], member_dim=0, edges=edges)
    assert float(weighted["uncertainty"]) == pytest.approx(float(repeated["uncertainty"]), rel=0.01)
    outside = decomposed(x, y, member_dim=0, edges=edges[:10])
    assert np.isnan(outside["uncertainty"])
    assert not np.isnan(outside["crps"])


def test_sums_of_blocks_add():
    options = {"member_dim": 1, "edges": np.linspace(-6, 6, 30), "weights": W}
    whole = hersbach_sums(X, Y, **options)
    parts = [hersbach_sums(X[i], Y[i], **options) for i in (slice(0, 2), slice(2, 6))]
    xr.testing.assert_allclose(parts[0] + parts[1], whole)
    decompositions = [hersbach_decomposition(p) for p in parts]
    mean = (decompositions[0] * 2 + decompositions[1] * 4) / 6
    assert abs(mean - hersbach_decomposition(whole))["reliability"] > 1e-3


@pytest.mark.parametrize("kind", ["torch", "dask", "xarray", "float32"])
def test_in_every_library(kind):
    x, y, w = X.copy(), Y, W
    x[2, 1, 3] = np.nan
    options = {"member_dim": 1, "dim": 0, "nan": "omit"}
    wanted = hersbach_sums(x, y, **options, weights=w)
    if kind == "torch":
        x, y, w = (torch.tensor(a) for a in (x, y, w))
    elif kind == "dask":
        x, y = da.from_array(x, chunks=(4, -1, 3)), da.from_array(y, chunks=2)
    elif kind == "xarray":
        x = xr.DataArray(x, dims=("dim_0", "m", "dim_1")).chunk(dim_0=2)
        y, w = xr.DataArray(y, dims=("dim_0", "dim_1")), xr.DataArray(w, dims="dim_1")
        options |= {"member_dim": "m", "dim": "dim_0"}
    else:
        x, y = x.astype(np.float32), y.astype(np.float32)
    found = hersbach_sums(x, y, **options, weights=w)
    assert dask.is_dask_collection(found) == (kind in ("dask", "xarray"))
    assert found["missing"].values.tolist() == [0, 0, 0, 1]
    assert found["count"].values.tolist() == [6, 6, 6, 5]
    xr.testing.assert_allclose(
        found.compute(), wanted, rtol=1e-5 if kind == "float32" else 1e-12, check_dim_order=True
    )
    finished = hersbach_decomposition(found)
    assert dask.is_dask_collection(finished) == (kind in ("dask", "xarray"))
    assert finished["reliability"].dims == ("dim_1",)


def test_float32_at_500_hpa():
    rng = np.random.default_rng(4)
    x = (5e4 + 20 * rng.normal(size=(10, 5000))).astype(np.float32)
    y = (5e4 + 25 * rng.normal(size=5000)).astype(np.float32)
    found = decomposed(x, y, member_dim=0)
    wanted = decomposed(x.astype(float), y.astype(float), member_dim=0)
    for name in ("crps", "reliability", "potential"):
        difference = abs(float(found[name] - wanted[name]))
        assert difference < 1e-6 * float(wanted["crps"])


def test_missing_points_propagate():
    y = Y.copy()
    y[1, 2] = np.nan
    found = decomposed(X, y, member_dim=1, dim=0)
    assert np.isnan(found["crps"]).values.tolist() == [False, False, True, False]
    assert np.isnan(decomposed(X, y * np.nan, member_dim=1, nan="omit")["crps"])


def test_what_it_refuses():
    with pytest.raises(ArgumentError, match="y: shapes that do not fit"):
        hersbach_sums(X, X, member_dim=1)
    with pytest.raises(ArgumentError, match="one of the 3 axes of members, got 3"):
        hersbach_sums(X, Y, member_dim=3)
    with pytest.raises(ArgumentError, match="members has no dimension 'member'"):
        hersbach_sums(xr.DataArray(X), xr.DataArray(Y), member_dim="member")
    with pytest.raises(UnknownNameError, match="nan: 'skip-members' is not known"):
        hersbach_sums(X, Y, member_dim=1, nan="skip-members")
    with pytest.raises(ArgumentError, match="edges: expected 2 or more"):
        hersbach_sums(X, Y, member_dim=1, edges=[0.0])
    with pytest.raises(ArgumentError, match="weights: some are negative"):
        hersbach_sums(X, Y, member_dim=1, weights=-W)
    with pytest.raises(
        ArgumentError, match=r"sums: variables missing: alpha.* Pass the result of hersbach_sums"
    ):
        hersbach_decomposition(xr.Dataset({"beta": 1}))


def test_weights_of_more_than_the_points():
    members, y = np.random.default_rng(0).normal(size=(3, 4)), np.zeros(4)
    x, observed = xr.DataArray(members, dims=("m", "t")), xr.DataArray(y, dims="t")
    wide = xr.DataArray(np.ones((2, 4)), dims=("level", "t"))
    with pytest.raises(ArgumentError, match=r"weights: dimensions \['level'\] that the points"):
        hersbach_sums(x, observed, member_dim="m", weights=wide)
    with pytest.raises(ArgumentError, match="y: t is 3 long, and 4 in members"):
        hersbach_sums(x, observed[:3], member_dim="m")
    with pytest.raises(ArgumentError, match="weights: a shape that does not broadcast"):
        spread_bin_sums(y, y + 1, y, edges=[1.0], weights=np.ones((2, 4)))


def test_observations_equal_to_members():
    """Dry members and observations: the terms add up to the CRPS, ties are not outside."""
    members = np.array([[0.0, 0.0, 1.0], [0.0, 2.0, 4.0], [1.0, 2.0, 3.0]])
    y = np.array([0.0, 2.0, 0.5])
    sums = hersbach_sums(members, y, member_dim=1)
    assert float(sums["below"]) == 1  # only the third one
    assert float(sums["above"]) == 0
    np.testing.assert_array_equal(sums["alpha"], [0, 2, 0, 0])
    np.testing.assert_array_equal(sums["beta"], [0.5, 1, 4, 0])
    found = hersbach_decomposition(sums)
    wanted = crps_ensemble(members, y, estimator="plain", member_dim=1).mean()
    assert float(found["crps"]) == pytest.approx(wanted, rel=1e-12)
    # spreads and frequencies of the three bins with a width
    o, p, g = np.array([1 / 3, 1 / 3, 1]), np.array([0, 1 / 3, 2 / 3]), np.array([1.5, 3, 4]) / 3
    assert float(found["reliability"]) == pytest.approx((g * (o - p) ** 2).sum())
    assert float(found["potential"]) == pytest.approx((g * o * (1 - o)).sum())
