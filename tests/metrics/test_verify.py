"""States, their merging, and `verify` against a loop written by hand."""

import dask
import numpy as np
import properscoring
import pytest
import xarray as xr

from ens10.errors import ArgumentError, MissingDataError, UnknownNameError
from ens10.grid import area_weights
from ens10.metrics import area_weights as exported_weights
from ens10.metrics import score_states, summarise, verify
from ens10.metrics.verification import LeftOutWarning, block_scoring

N, M, H, W = 30, 5, 6, 8  # sizes of the world
KIND = r"attrs\['forecast_kind'\]"
LAG = np.timedelta64(48, "h")


def by_hand(fields, y, latitude):
    """Area-weighted means over the points that have truth, in plain loops."""
    rows = area_weights(latitude.to_numpy())
    totals, weight = dict.fromkeys(fields, 0.0), 0.0
    for n, i, j in np.ndindex(y.shape):
        if not np.isnan(y[n, i, j]):
            weight += rows[i]
            for name, field in fields.items():
                totals[name] += rows[i] * field[n, i, j]
    return {name: total / weight for name, total in totals.items()}


def test_verify_of_members_equals_a_loop_by_hand(world):
    ensemble, _, truth = world
    x, y = ensemble["members"].values, truth.values
    got = verify(ensemble, truth)
    plain = properscoring.crps_ensemble(y, x, axis=1)
    pairs = np.abs(x[:, :, None] - x[:, None]).sum(axis=(1, 2))
    fields = {
        "crps": plain,
        "crps_fair": np.abs(x - y[:, None]).mean(axis=1) - pairs / (2 * M * (M - 1)),
        "error2": (x.mean(axis=1) - y) ** 2,
        "variance": x.var(axis=1, ddof=1),
    }
    wanted = by_hand(fields, y, truth["latitude"])
    assert float(got["crps"]) == pytest.approx(wanted["crps"], rel=1e-12)
    assert float(got["crps_fair"]) == pytest.approx(wanted["crps_fair"], rel=1e-12)
    assert float(got["rmse"]) == pytest.approx(wanted["error2"] ** 0.5, rel=1e-12)
    ratio = ((M + 1) / M * wanted["variance"] / wanted["error2"]) ** 0.5
    assert float(got["spread_error"]) == pytest.approx(ratio, rel=1e-12)
    assert int(got["count"]) == N * H * W - 2 * W
    assert int(got["dates"]) == N
    assert int(got["rank_count"].sum()) == int(got["pit_count"].sum()) == int(got["count"])
    np.testing.assert_allclose(got["crps_map"], np.nanmean(plain, axis=0), rtol=1e-12)
    assert got["crps"].attrs == {
        "units": "K",
        "block_length": 1.0,
        "estimator": "plain",
        "long_name": "mean continuous ranked probability score",
    }
    assert got["rmse"].attrs["units"] == "K"
    assert got.attrs["weights"] == "cell"


def test_verify_of_normals_equals_a_loop_by_hand(world):
    _, normal, truth = world
    mu, sigma, y = normal["mu"].values, normal["sigma"].values, truth.values
    got = verify(normal, truth)
    fields = {
        "crps": properscoring.crps_gaussian(y, mu, sigma),
        "error2": (mu - y) ** 2,
        "variance": sigma**2,
    }
    wanted = by_hand(fields, y, truth["latitude"])
    assert float(got["crps"]) == pytest.approx(wanted["crps"], rel=1e-12)
    ratio = (wanted["variance"] / wanted["error2"]) ** 0.5
    assert float(got["spread_error"]) == pytest.approx(ratio, rel=1e-12)
    assert "crps_fair" not in got
    assert "rank_count" not in got
    for name in ("crps", "rmse", "spread_error"):
        assert float(got[f"{name}_lower"]) < float(got[name]) < float(got[f"{name}_upper"])


def test_unweighted_scores_are_plain_means(world):
    ensemble, _, truth = world
    got = verify(ensemble, truth, ("crps",), weights="none")
    plain = properscoring.crps_ensemble(truth.values, ensemble["members"].values, axis=1)
    assert float(got["crps"]) == pytest.approx(np.nanmean(plain), rel=1e-12)
    assert "rmse" not in got
    assert exported_weights is area_weights


@pytest.mark.parametrize("method", ["bootstrap", "student"])
def test_skill_against_the_raw_ensemble(method, world):
    ensemble, normal, truth = world
    got = verify(normal, truth, reference=ensemble, method=method)
    raw = verify(ensemble, truth)
    skill = 1 - float(got["crps"]) / float(raw["crps"])
    assert float(got["crpss"]) == pytest.approx(skill, rel=1e-12)
    assert float(got["crpss_lower"]) < skill < float(got["crpss_upper"])
    difference = float(got["crps"]) - float(raw["crps"])
    assert float(got["crps_difference"]) == pytest.approx(difference, rel=1e-9)
    np.testing.assert_allclose(got["crpss_map"], 1 - got["crps_map"] / raw["crps_map"])
    alone = verify(ensemble, truth, reference=ensemble.isel(time=slice(None, None, -1)))
    assert float(alone["crpss"]) == float(alone["crpss_lower"]) == 0.0
    assert float(alone["crpss_fair"]) == 0.0


def test_points_that_one_forecast_lacks_are_left_out_of_both(world):
    ensemble, normal, truth = world
    gaps = ensemble.copy(deep=True)
    gaps["members"][2, 1, 0] = np.nan
    got = verify(normal, truth, reference=gaps)
    masked = truth.copy(deep=True)
    masked[2, 0] = np.nan
    wanted = verify(normal, masked, reference=ensemble)
    xr.testing.assert_identical(got, wanted)
    with pytest.raises(ArgumentError, match="other points"):
        summarise(score_states(normal, truth), score_states(gaps, truth))


def test_lazy_input_gives_the_same_and_stays_lazy_outside(world):
    ensemble, normal, truth = world
    lazy, observed = ensemble.chunk(time=7, number=2, latitude=4), truth.chunk(time=5)
    got, wanted = score_states(lazy, observed), score_states(ensemble, truth)
    xr.testing.assert_allclose(got, wanted, rtol=1e-13)
    np.testing.assert_array_equal(got["rank_count"], wanted["rank_count"])
    assert dask.is_dask_collection(lazy["members"])
    xr.testing.assert_allclose(
        verify(
            normal.chunk(time=3).assign(mu=normal["mu"].chunk(time=4)), observed, reference=lazy
        ),
        verify(normal, truth, reference=ensemble),
        rtol=1e-12,
    )


def test_lazy_input_is_read_block_by_block(world, monkeypatch):
    ensemble, _, truth = world
    monkeypatch.setattr(block_scoring, "BLOCK_VALUES", ensemble["members"].isel(time=slice(5)).size)
    alive, most = set(), 0

    def read(block, block_info=None):
        nonlocal most
        where = block_info[0]["chunk-location"][0]
        alive.add(where)
        most = max(most, len(alive))
        return block

    lazy = ensemble.chunk(time=5)
    lazy["members"] = lazy["members"].copy(data=lazy["members"].data.map_blocks(read, dtype=float))
    seen = []

    class Scheduler(dask.callbacks.Callback):
        def _finish(self, *_):
            seen.append(len(alive))
            alive.clear()

    with Scheduler(), dask.config.set(scheduler="synchronous"):
        score_states(lazy, truth)
    assert most == 1
    assert sum(seen) == N // 5


def test_missing_truth_propagates_when_asked(world):
    ensemble, _, truth = world
    strict = verify(ensemble, truth, nan="propagate")
    assert np.isnan(strict["crps"])
    later = verify(ensemble.isel(time=slice(5, None)), truth, nan="propagate")
    assert np.isfinite(later["crps"])


def test_groups_of_dates_are_scored_apart(world):
    ensemble, normal, truth = world
    got = verify(normal, truth, by=("season",), reference=ensemble)
    assert got["season"].values.tolist() == ["DJF", "MAM", "SON"]
    season = ensemble["valid_time"].dt.season.values
    for name in got["season"].values:
        part = season == name
        alone = verify(normal.isel(time=part), truth, reference=ensemble.isel(time=part))
        for score in ("crps", "crpss", "crpss_lower", "rmse_upper", "count"):
            assert float(got[score].sel(season=name)) == pytest.approx(float(alone[score]))
    both = verify(normal, truth, by=("year", "month"))
    assert both["crps"].dims == ("year", "month")
    assert int(both["count"].sum()) == int(got["count"].sum())
    with pytest.raises(UnknownNameError, match="did you mean 'month'"):
        verify(normal, truth, by=("months",))


def test_truth_is_found_on_the_valid_date(world):
    _, normal, truth = world
    wanted = verify(normal, truth)
    shuffled = truth.isel(time=np.random.default_rng(0).permutation(N))
    xr.testing.assert_identical(verify(normal, shuffled), wanted)
    # as a store keeps it: by start and step, with the valid date beside
    steps = np.array([24, 48], dtype="timedelta64[h]").astype("timedelta64[ns]")
    start = normal["time"].values
    kept = xr.concat([truth * np.nan, truth], "step").transpose("time", "step", ...)
    kept = kept.assign_coords(
        time=start, step=steps, valid_time=(("time", "step"), start[:, None] + steps)
    )
    xr.testing.assert_identical(verify(normal, kept), wanted)
    xr.testing.assert_identical(verify(normal, kept.sel(step=LAG)), wanted)


def test_what_the_truth_lacks_is_listed(world):
    _, normal, truth = world
    with pytest.raises(MissingDataError, match=r"2 parts are missing: 2001-11-03T.*2001-11-17T"):
        verify(normal, truth.drop_isel(time=[0, 2]))
    with pytest.raises(MissingDataError, match="latitude 30"):
        verify(normal, truth.drop_isel(latitude=2))
    with pytest.raises(MissingDataError, match="order"):
        verify(normal, truth.isel(latitude=slice(None, None, -1)))
    with pytest.raises(MissingDataError, match="only in the reference"):
        verify(normal.isel(time=slice(5)), truth, reference=normal.isel(time=slice(6)))


def test_bad_forecasts_and_scores_are_named(world):
    ensemble, normal, truth = world
    bare = normal.drop_attrs(deep=False)
    kinds = r"to one of: normal, ensemble, quantiles, .*student_t.*\.$"
    with pytest.raises(ArgumentError, match=rf"^forecast: .* Set forecast\.{KIND} {kinds}"):
        verify(bare, truth)
    with pytest.raises(ArgumentError, match=rf"^reference: .* Set reference\.{KIND} {kinds}"):
        verify(normal, truth, reference=bare)
    with pytest.raises(UnknownNameError, match=rf"^forecast\.{KIND}: 'norml' .* mean 'normal'"):
        verify(normal.assign_attrs(forecast_kind="norml"), truth)
    with pytest.raises(
        ArgumentError, match=r"^forecast: no dimension 'number', only .* Name it: member_dim"
    ):
        verify(normal["mu"], truth)
    with pytest.raises(MissingDataError, match="sigma"):
        verify(normal.drop_vars("sigma"), truth)
    with pytest.raises(ArgumentError, match="forecast: dimensions"):
        verify(normal.isel(latitude=0), truth)
    with pytest.raises(ArgumentError, match="truth: dimensions"):
        verify(normal, truth.isel(latitude=0))
    with pytest.raises(ArgumentError, match="twice"):
        verify(normal.isel(time=[0, 0]), truth)
    with pytest.raises(UnknownNameError, match="did you mean 'crps'"):
        verify(normal, truth, ("crp",))
    with pytest.raises(ArgumentError, match="crps_fair is undefined for a normal"):
        verify(normal, truth, ("crps_fair",))
    spoilt = normal.copy(deep=True)
    spoilt["sigma"][0, 0, 0] = -1.0
    with pytest.raises(ArgumentError, match="sigma: 1 of"):
        verify(spoilt, truth)
    single = verify(ensemble.isel(number=[0]), truth)
    assert "crps_fair" not in single
    assert "spread_error" not in single
    assert float(single["crps"]) > 0


def test_dates_without_a_value_are_named_and_left_out_when_asked(world):
    ensemble, normal, truth = world
    gaps = truth.copy(deep=True)
    gaps[7] = np.nan
    broken = normal.copy(deep=True)
    broken["sigma"][9] = np.nan
    with pytest.raises(
        MissingDataError, match=r"2 parts are missing: 2001-12-20.*all truth.*2002-"
    ):
        verify(broken, gaps)
    with pytest.warns(LeftOutWarning, match="2 of 30 dates left out"):
        got = verify(broken, gaps, method="student", join="inner", reference=ensemble)
    rest = ~np.isin(np.arange(N), [7, 9])
    wanted = verify(
        normal.isel(time=rest),
        truth.isel(time=rest),
        method="student",
        reference=ensemble.isel(time=rest),
    )
    assert int(got["dates"]) == N - 2
    for name in ("crps_lower", "crps_upper", "rmse_upper", "crpss_lower", "spread_error_upper"):
        assert float(got[name]) == pytest.approx(float(wanted[name]), rel=1e-12)
    assert np.isnan(verify(normal, gaps, nan="propagate")["crps"])
    with pytest.raises(MissingDataError, match="30 parts"):
        verify(normal, truth * np.nan, join="inner")


def test_dates_of_one_alone_are_left_out_when_asked(world):
    ensemble, normal, truth = world
    with pytest.warns(LeftOutWarning, match=r"3 of 30 dates left out \(without truth\)"):
        got = verify(normal, truth.isel(time=slice(3, None)), join="inner")
    assert float(got["crps"]) == float(verify(normal.isel(time=slice(3, None)), truth)["crps"])
    with pytest.warns(LeftOutWarning, match="2 of 30 dates left out .in one forecast only"):
        verify(normal, truth, join="inner", reference=ensemble.isel(time=slice(2, None)))
    with pytest.raises(UnknownNameError, match="did you mean 'inner'"):
        verify(normal, truth, join="iner")
    with pytest.raises(ArgumentError, match="no date has truth"):
        verify(normal, truth.isel(time=slice(0)), join="inner")
