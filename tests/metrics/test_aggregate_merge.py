"""Merging of states, weights that do not fit, and skill scores of sums."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, MissingDataError
from ens10.metrics.state_merging import merge_states
from ens10.metrics.states import finish_mean, mean_state, skill_score, total_over

DAY = np.timedelta64(1, "D")


def points(n=12, steps=3, seed=0):
    values = np.random.default_rng(seed).gamma(2.0, size=(n, steps, 5))
    values[0, 0, 0] = np.nan
    when = np.datetime64("2001-01-01", "ns") + np.arange(n) * DAY
    coords = {"time": when, "step": np.arange(steps) * 24.0}
    return xr.DataArray(values, coords, ("time", "step", "x"), attrs={"units": "K"})


def state_of(score):
    state = mean_state("crps", score, keep=("time", "step"))
    maps = mean_state("map", score.drop_vars(["time", "step"]), keep=("x",))
    valid = score["time"] + (score["step"] * 3600e9).astype("timedelta64[ns]")
    return xr.merge([state, maps]).assign_coords(valid_time=valid).assign_attrs(weights="none")


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 2**32 - 1))
def test_blocks_of_dates_and_steps_merge_to_the_whole(seed):
    check_merge(seed, lazy=False)


@pytest.mark.parametrize("seed", [1, 5])
def test_lazy_states_merge_lazily(seed):
    check_merge(seed, lazy=True)


def check_merge(seed, lazy):
    rng = np.random.default_rng(seed)
    score = points(seed=seed % 7)
    cuts = np.sort(rng.choice(np.arange(1, 12), size=rng.integers(1, 8), replace=False))
    blocks = [
        score.isel(time=dates, step=s)
        for dates in np.split(np.arange(12), cuts)
        for s in ([0], [1, 2])
    ]
    parts = [
        state_of(blocks[i].chunk() if lazy else blocks[i]) for i in rng.permutation(len(blocks))
    ]
    merged, whole = merge_states(parts), state_of(score)
    assert (merged["crps_sum"].chunks is not None) == lazy
    xr.testing.assert_allclose(merged, whole, rtol=1e-13)
    assert merged.attrs == whole.attrs
    assert merged["crps_sum"].attrs == whole["crps_sum"].attrs
    for name in whole.variables:
        assert merged[name].dtype == whole[name].dtype, name
        assert merged[name].dims == whole[name].dims, name


def test_lazy_dates_are_put_side_by_side_not_padded():
    score = points(n=16).chunk(time=1)
    parts = [mean_state("s", score[i : i + 1], keep=("time", "step")) for i in range(16)]
    merged = merge_states([*parts[5:], *parts[:5]])
    assert merged["s_sum"].chunks[0] == (1,) * 16
    assert len(merged["s_sum"].__dask_graph__()) < 16 * 80
    xr.testing.assert_allclose(
        merged.compute(), mean_state("s", points(n=16), keep=("time", "step"))
    )


def test_the_work_of_a_merge_grows_with_the_states_not_with_their_pairs(calls_of):
    parts = [state_of(points(n=1).assign_coords(time=[np.datetime64(i, "D").astype("M8[ns]")]))
             for i in range(1)]  # fmt: skip
    one = parts[0]
    days = np.datetime64("2001-01-01", "ns") + np.arange(600) * DAY
    many = [one.assign_coords(time=[day]) for day in days]
    merged = merge_states(iter(many))
    assert merged.sizes["time"] == 600
    few, all_of_them = (calls_of(lambda n=n: merge_states(iter(many[:n]))) for n in (100, 600))
    assert all_of_them < 7 * few  # by pairs it is 36 times
    np.testing.assert_allclose(merged["map_sum"], 600 * one["map_sum"], rtol=1e-12)
    assert merged["map_count"].values.tolist() == (600 * one["map_count"]).values.tolist()


def test_falling_coordinates_and_names_keep_their_order():
    def piece(lat, season):
        coords = {"latitude": lat, "season": season}
        score = xr.DataArray(np.ones((len(lat), len(season))), coords, ("latitude", "season"))
        return mean_state("s", score, keep=("latitude", "season"))

    merged = merge_states([piece([30.0, 0.0], ["MAM", "SON"]), piece([90.0, 60.0], ["DJF", "SON"])])
    assert merged["latitude"].values.tolist() == [90, 60, 30, 0]
    assert merged["season"].values.tolist() == ["MAM", "SON", "DJF"]
    assert merged["s_sum"].values.tolist() == [[0, 1, 1], [0, 1, 1], [1, 1, 0], [1, 1, 0]]
    assert merged["s_count"].dtype == np.int64


def test_what_coincides_is_added_and_one_state_is_itself():
    state = state_of(points())
    twice = merge_states([state, state])
    np.testing.assert_array_equal(twice["crps_sum"], 2 * state["crps_sum"])
    np.testing.assert_array_equal(twice["valid_time"], state["valid_time"])
    xr.testing.assert_identical(merge_states([state]), state)


def test_coordinates_known_in_one_state_only_have_gaps():
    first = mean_state("s", points(n=2)[:, 0], keep=("time",)).drop_vars("step")
    second = mean_state("s", points(n=4)[2:, 0], keep=("time",)).drop_vars("step")
    first = first.assign_coords(year=("time", [2001, 2001]), label=("time", ["a", "b"]))
    second = second.assign_coords(year=("time", [2002, 2003]), label=("time", ["c", "d"]))
    merged = merge_states([second, first])
    assert merged["year"].values.tolist() == [2001, 2001, 2002, 2003]
    assert merged["label"].values.tolist() == ["a", "b", "c", "d"]
    loose = merge_states([state_of(points(n=2, steps=1)), state_of(points(n=3, steps=2)[2:, 1:])])
    assert np.isnat(loose["valid_time"].values).sum() == 3


def test_states_that_do_not_belong_together_are_refused():
    state = mean_state("s", points(), keep=("time",))
    level = state.assign_coords(level=500)
    for other, what in (
        (level.assign_coords(level=850), "levels"),
        (state, "levels"),
        (level.rename(s_sum="t_sum"), "variables"),
        (level.expand_dims(area=[1]), "dimensions"),
    ):
        with pytest.raises(ArgumentError, match=f"states: different .*{what}"):
            merge_states([level, other])
    bare = mean_state("s", points().drop_vars("time"), keep=("time",))
    with pytest.raises(ArgumentError, match="sizes of time"):
        merge_states([bare, bare.isel(time=slice(3))])
    with pytest.raises(ArgumentError, match="none along time"):
        merge_states([state, bare])
    with pytest.raises(ArgumentError, match="a time twice"):
        merge_states([state, xr.concat([state, state], "time")])


def test_weights_that_do_not_fit_are_refused():
    score = points()
    for weights, message in (
        (xr.DataArray([1.0, 2.0], dims="y"), "dimensions"),
        (xr.DataArray([1.0, 2.0], {"step": [0.0, 24.0]}, ("step",)), "step"),
        (xr.DataArray([1.0, 2.0, 3.0], {"step": [24.0, 0.0, 48.0]}, ("step",)), "step"),
        (xr.DataArray([1.0, -2.0, 3.0], dims="step"), "negative"),
        (xr.DataArray([1.0, np.nan, 3.0], dims="step"), "negative"),
    ):
        with pytest.raises(ArgumentError, match=f"weights: .*{message}"):
            mean_state("s", score, weights=weights)
    with pytest.raises(ArgumentError, match="keep: s has no dimension 'date'"):
        mean_state("s", score, keep=("date",))


def test_skill_is_that_of_the_sums_not_the_mean_of_skills():
    ours = xr.DataArray([1.0, 4.0], {"time": [0, 1]}, ("time",))
    other = xr.DataArray([0.5, 10.0], {"time": [0, 1]}, ("time",))
    a, b = (mean_state("crps", f, keep=("time",)) for f in (ours, other))
    daily = skill_score(a, b, "crps")
    assert daily.values.tolist() == [-1.0, 0.6]
    total = float(skill_score(total_over(a, "time"), total_over(b, "time"), "crps"))
    assert total == pytest.approx(1 - 5.0 / 10.5)
    assert float(daily.mean()) == pytest.approx(-0.2)  # better in sum, worse by the mean of ratios
    assert total > 0.5
    assert total == pytest.approx(1 - float(ours.mean() / other.mean()))


def test_skill_pairs_by_coordinates_and_refuses_other_points():
    a, b = (mean_state("s", points(seed=i), keep=("time", "step")) for i in (1, 2))
    shuffled = b.isel(time=slice(None, None, -1)).transpose("step", "time")
    xr.testing.assert_allclose(skill_score(a, shuffled, "s"), skill_score(a, b, "s"))
    perfect = b.assign(s_sum=b["s_sum"] * 0)
    assert np.isnan(skill_score(a, perfect, "s")).all()
    assert (skill_score(perfect, a, "s") == 1).all()
    with pytest.raises(MissingDataError, match=r"2001-01-12 00:00:00 .only in the forecast"):
        skill_score(a, b.isel(time=slice(11)), "s")
    with pytest.raises(MissingDataError, match=r"time .only in the reference"):
        skill_score(total_over(a, "time"), b, "s")
    for part in ("count", "weight"):
        with pytest.raises(ArgumentError, match=f"other points .*{part} differ"):
            skill_score(a, b.assign({f"s_{part}": 2 * b[f"s_{part}"]}), "s")
    b["s_sum"].attrs["units"] = "m"
    with pytest.raises(ArgumentError, match="other units"):
        skill_score(a, b, "s")


def test_a_mean_of_all_kept_points_is_the_points():
    score = points()
    state = mean_state("s", score, keep=("time", "step", "x"))
    xr.testing.assert_allclose(finish_mean(state, "s"), score, rtol=0)
    both = total_over(state, ("time", "x"))
    wanted = score.mean(("time", "x"))
    xr.testing.assert_allclose(finish_mean(both, "s"), wanted, rtol=1e-13)


@settings(deadline=None, max_examples=8)
@given(
    st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.sampled_from(["", "time", "time x"])
)
def test_complete_fields_give_the_sums_that_lazy_ones_do(seed, weighted, grouped, keep):
    rng = np.random.default_rng(seed)
    score = points(seed=seed % 11).fillna(1.0).astype(np.float32 if seed % 2 else np.float64)
    weights = xr.DataArray(rng.uniform(size=3), dims="step") if weighted else None
    shares = rng.uniform(size=(2, 5)).round()
    by = xr.DataArray(shares, {"g": ["a", "b"]}, ("g", "x")) if grouped else None
    options = {"keep": keep.split(), "weights": weights, "by": by}
    got = mean_state("s", score, **options)
    for other in (score.chunk(), score.where(score["time"] > score["time"][0])):
        again = mean_state("s", other, **options)
        if other.chunks is None:  # one date missing: the rest is the same
            rest = mean_state("s", score[1:], **options)
            again, wanted = (again.isel(time=slice(1, None)) if keep else again), rest
        else:
            wanted = got
        xr.testing.assert_allclose(again.compute(), wanted, rtol=1e-12)
        for name in wanted:
            assert again[name].dtype == wanted[name].dtype
            assert set(again[name].dims) == set(wanted[name].dims)
    assert got["s_sum"].attrs == {"units": "K"}
    assert got["s_count"].dtype == np.int64


def test_settings_that_come_back_from_a_file_as_arrays():
    state = xr.Dataset({"x_sum": 1.0}, attrs={"window": [3, 5], "edges": "cut"})
    stored = state.assign_attrs(window=np.array([3, 5]))
    for pair in ((stored, stored.copy()), (state, stored)):
        assert float(merge_states(pair)["x_sum"]) == 2.0
    with pytest.raises(ArgumentError, match="different settings"):
        merge_states([stored, state.assign_attrs(window=[3, 3])])
