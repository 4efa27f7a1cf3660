"""The fractions skill score."""

import warnings

import dask
import dask.array as da
import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from ens10.errors import ArgumentError, UnknownNameError
from ens10.metrics import merge_states
from ens10.metrics._call import RechunkWarning
from ens10.metrics.events import fractions_skill_score, fractions_sums

PLANE = {"latitude_dim": "lat", "longitude_dim": "lon"}


def case(seed=0, shape=(3, 12, 17)):
    rng = np.random.default_rng(seed)
    x, y = (ndimage.gaussian_filter(rng.normal(size=shape), 1.5, axes=(-1, -2)) for _ in range(2))
    return x, 0.5 * x + 0.5 * y


def named(*fields):
    dims = {3: ("time", "lat", "lon"), 4: ("time", "number", "lat", "lon")}
    return (xr.DataArray(f, dims=dims[f.ndim], coords={"time": np.arange(len(f))}) for f in fields)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 999),
    window=st.tuples(st.sampled_from([1, 3, 7]), st.sampled_from([1, 5, 11])),
)
def test_beside_another_library(seed, window):
    scores = pytest.importorskip("scores.spatial")
    x, y = named(*case(seed))
    sums = fractions_sums(
        x, y, threshold=0.1, window=window, periodic=False, edges="inside", **PLANE
    )
    options = {"event_threshold": 0.1, "window_size": window, "spatial_dims": ("lat", "lon")}
    for dims, total in ((["time"], sums), ([], sums.sum("time"))):
        wanted = (
            scores.fss_2d(x, y, preserve_dims=dims, **options)
            if dims
            else scores.fss_2d(x, y, **options)
        )
        got = fractions_skill_score(total)
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 999),
    window=st.tuples(st.sampled_from([1, 3, 11]), st.sampled_from([1, 5, 17])),
    periodic=st.booleans(),
    members=st.booleans(),
)
def test_fractions_beside_a_filter(seed, window, periodic, members):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(4, 12, 17)), rng.normal(size=(12, 17))
    w = rng.random((12, 1))
    p = (x > 0.2).mean(axis=0) if members else (x[0] > 0.2) * 1.0
    modes = ("constant", "wrap" if periodic else "constant")

    def mean(field):
        return ndimage.uniform_filter(field, window, mode=modes)

    cells = mean(np.ones(y.shape))
    f, o = mean(p) / cells, mean((y > 0.2) * 1.0) / cells
    options = {"threshold": 0.2, "window": window, "periodic": periodic, "weights": w}
    if members:
        sums = fractions_sums(x, y, latitude_dim=1, longitude_dim=2, member_dim=0, **options)
    else:
        sums = fractions_sums(x[0], y, latitude_dim=0, longitude_dim=1, **options)
    wanted = {"difference": (f - o) ** 2, "forecast": f**2, "observed": o**2, "weight": 1 + 0 * f}
    for name, values in wanted.items():
        assert float(sums[name]) == pytest.approx((w * values).sum(), rel=1e-12), name


def test_what_it_is_for():
    field = np.zeros((20, 30))
    field[8:11, 4:7] = 1
    moved = np.roll(field, 3, axis=1)
    scores = []
    for window in (1, 3, 5, 9, 19):
        sums = fractions_sums(
            field, moved, threshold=None, window=window, latitude_dim=0, longitude_dim=1
        )
        scores.append(float(fractions_skill_score(sums)))
    assert scores[0] == 0
    assert scores == sorted(scores)
    assert scores[-1] > 0.8
    options = {"threshold": 0.5, "latitude_dim": 0, "longitude_dim": 1}
    same = fractions_sums(field, field, window=3, **options)
    assert float(fractions_skill_score(same)) == 1
    none = fractions_skill_score(fractions_sums(0 * field, 0 * field, window=3, **options))
    assert np.isnan(none)
    assert none.attrs["units"] == "1"
    # a globe has no edge in longitude: turned together, fields score the same
    turned = [np.roll(a, 11, axis=1) for a in (field, moved)]
    first, second = (
        fractions_sums(*pair, window=5, **options) for pair in ((field, moved), turned)
    )
    xr.testing.assert_allclose(first, second, rtol=1e-13)


def test_window_1_is_the_brier_score_and_a_wide_one_the_frequency():
    x, y = case()
    options = {"threshold": 0.1, "latitude_dim": 1, "longitude_dim": 2, "dim": "all"}
    sums = fractions_sums(x, y, window=1, **options)
    assert float(sums["difference"]) == ((x > 0.1) != (y > 0.1)).sum()
    wide = fractions_sums(x, y, window=(11, 17), edges="inside", **options)
    f, o = ((a > 0.1)[:, :11].mean(axis=(1, 2)) for a in (x, y))
    rows = [((a > 0.1)[:, 1:].mean(axis=(1, 2))) for a in (x, y)]
    wanted = 17 * (((f - o) ** 2).sum() + ((rows[0] - rows[1]) ** 2).sum())
    assert float(wide["difference"]) == pytest.approx(wanted, rel=1e-12)


def test_all_libraries():
    rng = np.random.default_rng(0)
    m, y = rng.normal(size=(3, 4, 12, 17)), rng.normal(size=(3, 12, 17))
    options = {"threshold": 0.1, "window": 5, "dim": "all"}
    axes = {"latitude_dim": -2, "longitude_dim": 3, "member_dim": 1}
    wanted = fractions_sums(m, y, **axes, **options)
    got = fractions_sums(torch.tensor(m), torch.tensor(y), **axes, **options)
    xr.testing.assert_identical(got, wanted)
    swapped = fractions_sums(
        np.moveaxis(m, 1, -1), y, latitude_dim=1, longitude_dim=2, member_dim=-1, **options
    )
    xr.testing.assert_identical(swapped, wanted)
    lazy = fractions_sums(da.from_array(m, chunks=(1, 4, 12, 17)), y, **axes, **options)
    assert all(dask.is_dask_collection(v) for v in lazy.values())
    xr.testing.assert_allclose(lazy.compute(), wanted, rtol=1e-13)
    a, b = named(m, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = fractions_sums(
            a.chunk(time=1), b.chunk(time=2), member_dim="number", **PLANE, **options
        )
    xr.testing.assert_allclose(got.compute(), wanted, rtol=1e-13)
    with pytest.warns(RechunkWarning, match="its 3 chunks are joined"):
        got = fractions_sums(a, b.chunk(lat=4), member_dim="number", **PLANE, **options)
    xr.testing.assert_allclose(got.compute(), wanted, rtol=1e-13)
    single = m.astype(np.float32), y.astype(np.float32)
    xr.testing.assert_allclose(fractions_sums(*single, **axes, **options), wanted, rtol=1e-12)


def test_blocks_of_dates_merge():
    x, y = named(*case())
    area = xr.DataArray(np.cos(np.linspace(-1.5, 1.5, 12)), dims="lat")
    options = {"threshold": 0.0, "window": 3, "weights": area, **PLANE}
    whole = fractions_sums(x, y, dim="time", **options)
    parts = [fractions_sums(x[i : i + 1], y[i : i + 1], dim="time", **options) for i in range(3)]
    xr.testing.assert_allclose(merge_states(parts), whole, rtol=1e-13)
    plain = fractions_sums(x.values, y.values, threshold=0.0, window=3, latitude_dim=1,
                           longitude_dim=2, dim=0, weights=area.values[:, None])  # fmt: skip
    xr.testing.assert_allclose(plain, whole, rtol=1e-13)
    with pytest.raises(ArgumentError, match="different settings"):
        merge_states([parts[0], fractions_sums(x, y, dim="time", **{**options, "window": 5})])


def test_missing():
    x, y = case()
    x[0, 3, 4] = y[1, 0, 0] = np.nan
    options = {"threshold": 0.0, "window": 3, "latitude_dim": 1, "longitude_dim": 2}
    sums = fractions_sums(x, y, **options)
    np.testing.assert_array_equal(np.isnan(sums["difference"]), [True, True, False])
    got = fractions_sums(x, y, nan="omit", **options).isel(dim_0=0)
    there = ~np.isnan(x[0])
    cells = ndimage.uniform_filter(there * 1.0, 3, mode=("constant", "wrap"))
    f, o = (
        ndimage.uniform_filter((a > 0) * there * 1.0, 3, mode=("constant", "wrap")) / cells
        for a in (x[0], y[0])
    )
    assert float(got["difference"]) == pytest.approx(((f - o) ** 2).sum(), rel=1e-12)
    nothing = fractions_sums(x * np.nan, y, nan="omit", **options)
    assert float(nothing["weight"].sum()) == 0
    assert np.isnan(fractions_skill_score(nothing)).all()


def test_refused():
    x, y = case()
    axes = {"latitude_dim": 1, "longitude_dim": 2}
    for window in (2, 0, -1, (3, 19), (3, 3, 3), (13, 3)):
        with pytest.raises(ArgumentError, match="window: expected odd numbers of cells up to"):
            fractions_sums(x, y, threshold=0.0, window=window, **axes)
    with pytest.raises(UnknownNameError, match="edges: 'outside'"):
        fractions_sums(x, y, threshold=0.0, window=3, edges="outside", **axes)
    with pytest.raises(UnknownNameError, match="nan: 'omitt'"):
        fractions_sums(x, y, threshold=0.0, window=3, nan="omitt", **axes)
    with pytest.raises(ArgumentError, match=r"forecast: .* not between 0 and 1"):
        fractions_sums(x + 5, y, threshold=None, window=3, **axes)
    with pytest.raises(ArgumentError, match=r"weights: shape \(7,\) does not broadcast"):
        fractions_sums(x, y, threshold=0.0, window=3, weights=np.ones(7), **axes)
    with pytest.raises(ArgumentError, match="observed: longitude is 5 long, and 17 in forecast"):
        fractions_sums(x, y[..., :5], threshold=0.0, window=3, **axes)
    with pytest.raises(ArgumentError, match="number of one of the 3 axes of forecast, got 'lat'"):
        fractions_sums(x, y, threshold=0.0, window=3, **PLANE)
    a, b = named(x, y)
    with pytest.raises(ArgumentError, match=r"weights: dimensions \['z'\] that the grid lacks"):
        fractions_sums(
            a, b, threshold=0.0, window=3, weights=xr.DataArray([1.0], dims="z"), **PLANE
        )
    with pytest.raises(ArgumentError, match="units differ"):
        fractions_sums(
            a.assign_attrs(units="m"), b.assign_attrs(units="mm"), threshold=0.0, window=3, **PLANE
        )
    with pytest.raises(ArgumentError, match="sums: they are without difference, forecast"):
        fractions_skill_score(xr.Dataset())


def test_fields_of_whole_numbers():
    rng = np.random.default_rng(5)
    x, y = rng.integers(-2, 3, (3, 4, 6)), rng.integers(-2, 3, (4, 6))
    options = {"threshold": 0.5, "window": 3, "latitude_dim": 1, "longitude_dim": 2}
    got = fractions_sums(x, y, member_dim=0, **options)
    xr.testing.assert_identical(got, fractions_sums(x * 1.0, y * 1.0, member_dim=0, **options))


def test_no_fields_and_units():
    x = xr.DataArray(np.zeros((0, 4, 6)), dims=("time", "a", "b"), attrs={"units": "K"})
    got = fractions_sums(
        x, x, threshold=0.5, window=3, latitude_dim="a", longitude_dim="b", dim="time"
    )
    assert all(float(part) == 0 and part.attrs["units"] == "1" for part in got.values())


def test_a_window_lies_around_its_own_cell():
    x, y = (f[0] for f in case(3))
    plane = {"latitude_dim": 0, "longitude_dim": 1}
    for column in range(17):  # at the seam a window goes round
        alone = np.zeros(x.shape)
        alone[5, column] = 1.0
        sums = fractions_sums(x, y, threshold=0.05, window=(3, 5), weights=alone, **plane)
        around = np.arange(column - 2, column + 3) % 17
        f, g = ((field[4:7][:, around] > 0.05).mean() for field in (x, y))
        wanted = 1 - (f - g) ** 2 / (f**2 + g**2) if f + g else np.nan
        np.testing.assert_allclose(fractions_skill_score(sums), wanted, rtol=1e-12)
