import pickle
from datetime import date, timedelta

import numpy as np
import pytest
import xarray as xr
from climatetools import month_days, sample, yearly_store
from hypothesis import given, settings
from hypothesis import strategies as st

from ens10.errors import ArgumentError, FileError, MissingDataError
from ens10.file_locks import folder_lock
from ens10.quantiles import model_climate
from ens10.quantiles.members import quantiles_of
from ens10.store import open_store


@pytest.fixture(scope="module")
def yearly(tmp_path_factory):
    return yearly_store(tmp_path_factory.mktemp("climate"))


def check(got, members, levels=11):
    want = np.nanquantile(members, np.linspace(0, 1, levels), axis=0)
    np.testing.assert_array_equal(got, want.astype(np.float32))


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 30), st.integers(2, 25), st.integers(0, 2**32))
def test_the_kernel_gives_numpys_quantiles(members, points, levels, seed):
    random = np.random.default_rng(seed)
    values = random.normal(300, 10, (members, points)).astype(np.float32)
    values[random.random(values.shape) < 0.2] = np.nan
    values[:, : points // 4] = np.nan
    cut = random.integers(0, members, endpoint=True)
    each = np.linspace(0, 1, levels)
    got = quantiles_of([values[:cut], values[cut:]], each)
    empty = np.isnan(values).all(axis=0)
    assert np.isnan(got[:, empty]).all()
    if empty.all():
        return
    want = np.nanquantile(values[:, ~empty].astype(np.float64), each, axis=0)
    np.testing.assert_array_equal(got[:, ~empty], want.astype(np.float32))


def test_more_points_than_a_block():
    values = np.random.default_rng(0).normal(size=(7, 1500)).astype(np.float32)
    got = quantiles_of([values], np.array([0.25, 0.5]))
    want = np.quantile(values.astype(np.float64), [0.25, 0.5], axis=0).astype(np.float32)
    np.testing.assert_array_equal(got, want)


def test_a_test_date_has_the_training_years_and_the_window(yearly):
    days = month_days(yearly)
    start = f"2005-{days[6]}"
    got = model_climate(yearly, "t2m", step=48, dates=[start], levels=11)
    members = sample(yearly, "t2m", days[2:11], {2000, 2001, 2002})
    assert len(members) == 9 * 3 * 2 == got.members.item()
    check(got[0], members)
    upper = model_climate(yearly, "z850", step=48, dates=[start], levels=11)
    check(upper[0], sample(yearly, "z", days[2:11], {2000, 2001, 2002}, level=850))
    assert upper.attrs["units"] == "m2 s-2"
    assert upper["quantile"].to_numpy().tolist() == np.linspace(0, 1, 11).tolist()


def test_the_window_goes_round_the_year(yearly):
    days = month_days(yearly)
    got = model_climate(yearly, "t2m", step=48, dates=[f"2005-{days[1]}"], levels=11)
    check(got[0], sample(yearly, "t2m", [*days[-3:], *days[:6]], {2000, 2001, 2002}))
    got = model_climate(yearly, "t2m", step=48, dates=[f"2005-{days[-1]}"], levels=11, window=3)
    check(got[0], sample(yearly, "t2m", [*days[-2:], days[0]], {2000, 2001, 2002}))


def test_the_year_judged_is_left_out_of_its_own_climate(yearly):
    days = month_days(yearly)
    got = model_climate(yearly, "t2m", step=48, dates=[f"2001-{days[6]}"], levels=11)
    check(got[0], sample(yearly, "t2m", days[2:11], {2000, 2002}))
    # Early in January, the days before lie in the year before: they are the same winter.
    early = model_climate(yearly, "t2m", step=48, dates=[f"2001-{days[0]}"], levels=11)
    near = sample(yearly, "t2m", days[:5], {2000, 2002})
    before = sample(yearly, "t2m", days[-4:], {2002})
    check(early[0], np.concatenate([near, before]))


def test_paper_includes_the_year_judged_and_cuts_the_window(yearly):
    days = month_days(yearly)
    got = model_climate(yearly, "t2m", step=48, dates=[f"2004-{days[1]}"], protocol="paper")
    assert got.sizes["quantile"] == 21
    check(got[0], sample(yearly, "t2m", days[:6], range(2000, 2005)), 21)


def test_paper_takes_nineteen_years():
    time = np.array([f"{year}-06-01" for year in range(1990, 2018)], "M8[ns]")
    field = np.arange(28.0, dtype="f4").reshape(28, 1, 1, 1)
    members = xr.DataArray(
        field,
        dims=("time", "number", "latitude", "longitude"),
        coords={"time": time, "valid_time": ("time", time), "latitude": [0.0], "longitude": [0.0]},
    )
    got = model_climate(members, dates=["2016-06-01"], protocol="paper", levels=2)
    assert got.to_numpy().ravel().tolist() == [8.0, 26.0]  # 1998 and 2016
    assert got.members.item() == 19


@pytest.mark.parametrize("protocol", ["clean", "paper"])
def test_every_test_date_of_ens10_has_a_climate(protocol):
    days = [date(2018, 1, 1) + timedelta(days=n) for n in range(365)]
    starts = sorted(
        np.datetime64(f"{year}-{d:%m-%d}", "ns")
        for d in days if d.weekday() in (0, 3) for year in range(1998, 2018)
    )  # fmt: skip
    time = np.array(starts)
    valid = time + np.timedelta64(48, "h")
    members = xr.DataArray(
        np.zeros((2100, 1, 1, 1), "f4"),
        dims=("time", "number", "latitude", "longitude"),
        coords={"time": time, "valid_time": ("time", valid), "latitude": [0.0], "longitude": [0.0]},
    )
    judged = time[np.isin(valid.astype("M8[Y]").astype(int) + 1970, [2016, 2017])]
    got = model_climate(members, dates=judged, protocol=protocol)
    assert got.sizes["time"] == 210
    counts = got.members.to_numpy()
    if protocol == "clean":  # 1998-2014; a window over New Year lacks what 1998 has no dates for
        assert counts.max() == 9 * 17
        assert counts.min() == 9 * 17 - 1
    else:
        assert counts.max() == 9 * 19
        assert counts[0] == 5 * 19  # 2015-12-31: the window is cut


def test_a_calendar_that_lacks_half_the_year_has_no_window_over_new_year():
    days = [f"{m:02d}-{d:02d}" for m in (4, 5, 6) for d in (1, 11, 21)]
    time = np.array(sorted(f"{y}-{d}" for y in range(2000, 2010) for d in days), "M8[ns]")
    field = np.arange(90.0, dtype="f4").reshape(90, 1, 1, 1)
    members = xr.DataArray(
        field,
        dims=("time", "number", "latitude", "longitude"),
        coords={"time": time, "valid_time": ("time", time), "latitude": [0.0], "longitude": [0.0]},
    )
    got = model_climate(members, dates=["2009-04-01"], levels=2, window=5)
    assert got.members.item() == 3 * 7


def test_gaps_are_left_out(yearly):
    sea = model_climate(yearly, "sst", step=48, levels=11).isel(time=[45]).compute()
    field = open_store(yearly, "sfc").sst.sel(step=48).load()
    land = field.isnull().all(("time", "number"))
    assert land.any()
    np.testing.assert_array_equal(sea[0, 0].isnull(), land)


def test_an_array_and_a_store_agree(yearly):
    dataset = open_store(yearly, "sfc")
    dates = dataset.time.values[[0, 40, 77]]
    with pytest.raises(ArgumentError, match="step"):
        model_climate(xr.concat([dataset.t2m, dataset.t2m], "step"), dates=dates)
    with pytest.raises(MissingDataError, match="valid_time"):
        model_climate(dataset.t2m.drop_vars("valid_time"), dates=dates)
    got = model_climate(dataset.t2m, step=48, dates=dates)
    want = model_climate(yearly, "t2m", step=48, dates=dates)
    xr.testing.assert_equal(got, want)


def test_a_future_date_may_be_judged(yearly):
    days = month_days(yearly)
    got = model_climate(yearly, "t2m", step=48, dates=[f"2018-{days[6]}"], levels=11)
    check(got[0], sample(yearly, "t2m", days[2:11], {2000, 2001, 2002}))
    with pytest.raises(ArgumentError, match="no date of the data starts on 1230"):
        model_climate(yearly, "t2m", step=48, dates=["2018-12-30"])


def test_nothing_is_read_before_it_is_computed(yearly, monkeypatch):
    monkeypatch.setattr("ens10.store.chunks.ChunkReader.read_into", None)
    monkeypatch.setattr("ens10.packed16.codec.Packed16._decode_sync", None)
    lazy = model_climate(yearly, "t2m", step=48)
    with pytest.raises(TypeError):
        lazy[0].compute()


def test_rows_are_read_in_blocks(yearly, monkeypatch):
    want = model_climate(yearly, "t2m", step=48, levels=11)[45].compute()
    monkeypatch.setattr("ens10.quantiles.model._BLOCK_BYTES", 1)
    got = model_climate(yearly, "t2m", step=48, levels=11)[45]
    assert got.chunksizes["latitude"] == (1, 1, 1, 1)
    xr.testing.assert_equal(got.compute(), want)
    elsewhere = pickle.loads(pickle.dumps(got))  # as a worker process gets it
    xr.testing.assert_equal(elsewhere.compute(), want)


def test_only_a_lock_is_taken_for_another_process(tmp_path):
    in_use = FileError(tmp_path, "another process is writing it")
    with pytest.raises(BlockingIOError, match="of the work"), folder_lock(tmp_path, in_use):
        raise BlockingIOError("of the work")
    with folder_lock(tmp_path, in_use):
        lock = folder_lock(tmp_path, in_use)
        with pytest.raises(FileError, match="another process is writing it"):
            lock.__enter__()
