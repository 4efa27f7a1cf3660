"""Groups of points and dates: against boolean selection in numpy."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import area_weights
from ens10.metrics.groups import (
    BANDS,
    date_groups,
    group_masks,
    land_sea,
    latitude_bands,
    region_boxes,
)
from ens10.metrics.state_merging import merge_states
from ens10.metrics.states import finish_mean, group_state, mean_state, total_over

LAT, LON = np.linspace(90, -90, 37), np.arange(0, 360, 10.0)
ROWS = xr.DataArray(area_weights(LAT), dims="latitude", coords={"latitude": LAT})


def field(n=6, seed=0, start="2001-11-15", every=25):
    values = np.random.default_rng(seed).gamma(2.0, size=(n, LAT.size, LON.size))
    time = np.datetime64(start, "ns") + np.arange(n) * np.timedelta64(every, "D")
    coords = {"time": time, "latitude": LAT, "longitude": LON}
    return xr.DataArray(values, coords, ("time", "latitude", "longitude"), attrs={"units": "K"})


def test_bands_are_weighted_means_of_their_rows():
    score = field()
    state = mean_state("s", score, keep=("time",), weights=ROWS, by=latitude_bands(score.latitude))
    got = finish_mean(state, "s")
    assert got.dims == ("time", "latitude_band")
    assert got.attrs["units"] == "K"
    rows = {
        "tropics": np.abs(LAT) <= 20,
        "nh_extratropics": LAT > 20,
        "sh_extratropics": LAT < -20,
        "nh_polar": LAT > 60,
        "sh_polar": LAT < -60,
    }
    assert set(rows) == set(BANDS)
    for name, inside in rows.items():
        weights = np.broadcast_to(ROWS.values[inside, None], (inside.sum(), LON.size))
        wanted = np.average(score.values[:, inside], axis=(1, 2), weights=weights)
        np.testing.assert_allclose(got.sel(latitude_band=name), wanted, rtol=1e-12)
        count = state["s_count"].sel(latitude_band=name)
        assert (count == inside.sum() * LON.size).all()


def test_the_three_main_bands_add_up_to_the_globe():
    score = field()
    parts = latitude_bands(score.latitude, ["nh_extratropics", "tropics", "sh_extratropics"])
    for part in (total_over(mean_state("s", score, weights=ROWS, by=parts), "latitude_band"),):
        xr.testing.assert_allclose(part, mean_state("s", score, weights=ROWS), rtol=1e-13)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(-18, 18), min_size=2, max_size=8, unique=True).map(sorted))
def test_bands_between_edges_share_no_row_and_mirror_each_other(edges):
    edges = [5.0 * e for e in edges]
    made = latitude_bands(LAT, edges)
    south, north = edges[0], edges[-1]
    inside = np.array([south < row < north for row in LAT])
    assert set(made.sum("latitude_band").values[inside]) <= {1.0}
    assert made.max() == 1
    assert float(made.sum("latitude_band").max()) == 1
    for name, (south, north) in {"a": (5.0, 40.0)}.items():
        mirror = latitude_bands(-LAT, {name: (-north, -south)})
        np.testing.assert_array_equal(mirror, latitude_bands(LAT, {name: (south, north)}))


def test_rows_of_float32_lie_on_their_edges():
    lat = np.arange(90, -90.01, -0.1).astype(np.float32)
    made = latitude_bands(lat, ["tropics"])
    assert int(made.sum()) == 401
    assert made["latitude"].values[made[0].values > 0][0] == pytest.approx(20.0, abs=1e-4)


def test_land_and_sea():
    land = xr.DataArray([[0.0, 0.5], [0.51, 1.0]], dims=("latitude", "longitude"))
    score = xr.DataArray([[1.0, 2.0], [3.0, 5.0]], dims=("latitude", "longitude"))
    sharp = finish_mean(mean_state("s", score, by=land_sea(land)), "s")
    assert sharp["surface"].values.tolist() == ["land", "sea"]
    assert sharp.values.tolist() == [4.0, 1.5]
    shared = mean_state("s", score, by=land_sea(land, fractional=True))
    assert shared["s_count"].values.tolist() == [3, 3]
    assert shared["s_weight"].values == pytest.approx([2.01, 1.99])
    assert finish_mean(shared, "s").values == pytest.approx(
        [(1 + 1.53 + 5) / 2.01, (1 + 1 + 1.47) / 1.99]
    )
    gap = mean_state("s", score.where(score != 2.0), by=land_sea(land, fractional=True))
    assert gap["s_count"].values.tolist() == [2, 2]
    assert gap["s_weight"].values == pytest.approx([1.51, 1.49])
    assert gap["s_sum"].values == pytest.approx([1.53 + 5, 1 + 1.47])
    lower = mean_state("s", score, by=land_sea(land, threshold=0.4))
    assert lower["s_count"].values.tolist() == [3, 1]


@pytest.mark.parametrize("shift", [0.0, 180.0])
def test_boxes_cross_the_date_line_and_greenwich(shift):
    lon = (LON + shift) % 360 - shift  # 0..350, or -180..170
    boxes = {
        "pacific": (-30, 30, 160, -120),
        "europe": (35, 75, -10, 40),
        "again": (-30, 30, 160, 240),
        "belt": (0, 10, -180, 180),
    }
    made = region_boxes(boxes, LAT, lon)
    columns = {k: sorted(lon[made.sel(region=k).any("latitude").values] % 360) for k in boxes}
    assert columns["pacific"] == columns["again"] == list(np.arange(160, 241, 10.0))
    assert columns["europe"] == [0, 10, 20, 30, 40, 350]
    assert len(columns["belt"]) == LON.size
    assert LAT[made.sel(region="europe").any("longitude").values].tolist() == list(
        np.arange(75, 34, -5.0)
    )


def test_groups_cross_and_keep_levels():
    score = xr.concat([field(seed=i) for i in (1, 2)], xr.Variable("level", [500, 850]))
    land = xr.DataArray(
        np.random.default_rng(0).uniform(size=(LAT.size, LON.size)),
        coords=field()[0].drop_vars("time").coords,
    )
    bands = latitude_bands(LAT, [-90, 0, 90])
    got = mean_state("s", score, keep=("level",), by=[bands, land_sea(land)])
    assert dict(got.sizes) == {"level": 2, "latitude_band": 2, "surface": 2}
    inside = (land.values > 0.5) & (LAT >= 0)[:, None]
    one = finish_mean(got, "s").sel(level=850, latitude_band="0..90", surface="land")
    assert float(one) == pytest.approx(score.values[1][:, inside].mean(), rel=1e-12)


@pytest.mark.parametrize("by", ["season", "month", "year"])
def test_dates_are_grouped_when_all_are_merged(by):
    score = field(n=12)
    states = [mean_state("s", score[i : i + 1], keep=("time",), weights=ROWS) for i in range(12)]
    merged = merge_states(states)
    got = finish_mean(group_state(merged, date_groups(merged, by)), "s")
    wanted = score.weighted(ROWS).mean(("latitude", "longitude")).groupby(f"time.{by}").mean()
    np.testing.assert_allclose(got, wanted.sel({by: got[by]}), rtol=1e-12)
    maps = mean_state("map", score[0].drop_vars("time"), keep=("latitude", "longitude"))
    assert "map_sum" not in group_state(xr.merge([merged, maps]), date_groups(merged, by))
    if by == "season":
        assert got["season"].values.tolist() == ["DJF", "MAM", "JJA", "SON"]


def test_a_state_is_split_by_group_without_a_sum():
    """Each date's sums stand in its own group and are 0 in the others; a gap stays in its group."""
    score = field(n=12).isel(time=slice(12))
    score[3] = np.nan
    state = mean_state("s", score, keep=("time",), weights=ROWS, nan="propagate")
    by = date_groups(state, "season")
    got = group_state(state, by, over=())
    assert dict(got["s_sum"].sizes) == {"season": by.sizes["season"], "time": 12}
    for season in got["season"].values:
        inside = (score["time.season"] == season).to_numpy()
        for part in ("s_sum", "s_weight", "s_count"):
            wanted = np.where(inside, state[part].to_numpy(), 0)
            np.testing.assert_array_equal(got[part].sel(season=season), wanted)
    both = xr.merge([state, mean_state("map", score[0].drop_vars("time"), keep=("latitude",))])
    assert "map_sum" not in group_state(both, by, over=())


def test_seasons_are_those_of_the_valid_date_which_may_depend_on_the_step():
    time = np.array(["2001-02-20", "2001-07-01"], dtype="datetime64[ns]")
    step = np.array([2, 14]) * np.timedelta64(1, "D")
    score = xr.DataArray([[1.0, 2.0], [3.0, 5.0]], {"time": time, "step": step}, ("time", "step"))
    valid = score.time + score.step
    state = mean_state("s", score, keep=("time", "step")).assign_coords(valid_time=valid)
    got = group_state(state, date_groups(state, "season"), over=("time",))
    assert got["season"].values.tolist() == ["DJF", "MAM", "JJA"]
    table = finish_mean(got, "s").transpose("season", "step").values
    np.testing.assert_array_equal(table, [[1, np.nan], [np.nan, 2], [3, 5]])
    assert got["s_count"].dtype == np.int64


def test_any_labels_make_groups():
    basin = xr.DataArray(["a", "", "b", "a"], dims="x", name="basin")
    score = xr.DataArray([1.0, 9.0, 3.0, 4.0], dims="x")
    got = mean_state("s", score, by=group_masks(basin))
    assert finish_mean(got, "s").values.tolist() == [2.5, 3.0]
    assert finish_mean(got, "s")["basin"].values.tolist() == ["a", "b"]
    regime = xr.DataArray([2.0, np.nan, 1.0, 2.0], dims="x")
    made = group_masks(regime, name="regime", order=[2.0, 7.0])
    assert made.values.tolist() == [[1, 0, 0, 1], [0, 0, 0, 0]]
    kept = mean_state("s", score, keep=("x",))
    assert finish_mean(group_state(kept, made), "s").values[0] == 2.5


@pytest.mark.parametrize("nan", ["omit", "propagate"])
@pytest.mark.parametrize("lazy", [False, True])
def test_missing_and_infinite_points_stay_in_their_groups(nan, lazy):
    score = field(n=2)
    score[0, 0, 0], score[1, -1, 3] = np.nan, np.inf
    land = xr.DataArray(np.zeros((37, 36)), score[0].drop_vars("time").coords)
    land[5:] = 1.0
    given = score.chunk(time=1, longitude=9) if lazy else score
    state = mean_state("s", given, keep=("time",), weights=ROWS, nan=nan, by=land_sea(land))
    assert (state["s_sum"].chunks is not None) == lazy
    got = state["s_sum"].transpose("time", "surface").values
    assert np.isfinite(got[0, 0])
    assert np.isnan(got[0, 1]) == (nan == "propagate")
    assert got[1, 0] == np.inf
    assert np.isfinite(got[1, 1])
    inside = slice(0, 5)
    w = np.broadcast_to(ROWS.values[inside, None], (5, 36))
    assert got[1, 1] == pytest.approx((score.values[1, inside] * w).sum(), rel=1e-12)
    assert state["s_count"].sel(surface="sea").values.tolist() == [5 * 36 - 1, 5 * 36]


def test_groups_that_do_not_fit_are_refused():
    score, bands = field(), latitude_bands(LAT)
    cases = {
        "by: 'latitude_band' is on another latitude": latitude_bands(LAT[::-1]),
        "duplicate grouping": [bands, bands],
        "no names": bands.drop_vars("latitude_band"),
        "outside": bands * 2,
        "is a dimension of the score": bands.rename(latitude_band="time"),
        "different coordinates": [bands, latitude_bands(LAT[1:]).rename(latitude_band="b")],
    }
    for message, by in cases.items():
        with pytest.raises(ArgumentError, match=message):
            mean_state("s", score, by=by) if "different" not in message else group_state(
                mean_state("s", score, keep=("latitude",)), by
            )
    state = mean_state("s", score, keep=("time",))
    by_step = date_groups(state.assign_coords(valid_time=state.time + xr.DataArray(
        np.arange(2) * np.timedelta64(1, "D"), dims="step")), "month")  # fmt: skip
    with pytest.raises(ArgumentError, match=r"has not kept \['step'\]"):
        group_state(state, by_step, over=("time",))
    with pytest.raises(ArgumentError, match=r"its time .6. is not that of the score .5."):
        group_state(state.isel(time=slice(5)), date_groups(state, "month"))
    with pytest.raises(ArgumentError, match="no variable has kept"):
        group_state(state, bands)
    with pytest.raises(ArgumentError, match="no groups"):
        group_state(state, [])
    half = land_sea(xr.full_like(score[0, 0], 0.5).drop_vars(["time", "latitude"]), fractional=True)
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        group_state(mean_state("s", score, keep=("longitude",)), half)


def test_bad_bands_boxes_and_masks_are_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'tropics'"):
        latitude_bands(LAT, ["tropic"])
    for bands in ([20, -20], [5], {"a": (30, 20)}, {"a": (0, 95)}):
        with pytest.raises(ArgumentError, match="bands"):
            latitude_bands(LAT, bands)
    for boxes in ({}, {"a": (30, 20, 0, 10)}, {"a": (1, 2, 1, 2)}):
        with pytest.raises(ArgumentError, match="boxes"):
            region_boxes(boxes, LAT, LON)
    land = xr.DataArray([0.0, np.nan], dims="x")
    for mask, threshold in ((land, 0.5), (land.fillna(2.0), 0.5), (land.fillna(0.0), 1.0)):
        with pytest.raises(ArgumentError, match=r"land|threshold"):
            land_sea(mask, threshold=threshold)
    with pytest.raises(UnknownNameError, match="'season'"):
        date_groups(field(), "seasons")
    with pytest.raises(ArgumentError, match="no dates"):
        date_groups(field()[0].drop_vars("time"), "year")
    with pytest.raises(ArgumentError, match="name"):
        group_masks(land)
    with pytest.raises(ArgumentError, match="no labels"):
        group_masks(land.where(False), name="g")


def test_one_band_by_its_name():
    rows = np.array([50.0, 0.0, -50.0])
    xr.testing.assert_identical(latitude_bands(rows, "tropics"), latitude_bands(rows, ["tropics"]))
