import shutil
from datetime import date, timedelta

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import ens10.quantiles.write
from ens10 import prepare
from ens10.errors import (
    ArgumentError,
    DamagedFileError,
    FileError,
    MissingDataError,
    UnknownNameError,
)
from ens10.quantiles import (
    ClimateOptions,
    model_climate,
    parse_climate,
    stored_climate,
    write_climate,
)
from ens10.quantiles.kernel import quantiles_of
from ens10.store import open_store
from ens10.synthetic import World

YEARS = range(2000, 2006)  # clean: trains on 2000-2002, validates 2003, tests 2004-2005
OPTIONS = ClimateOptions(("2t", "z850", "sst"), (48,), levels=11)


@pytest.fixture(scope="module")
def yearly(tmp_path_factory):
    """A store of 13 start dates a year, all round the year."""
    folder = tmp_path_factory.mktemp("climate")
    names = ["sst", "t2m", "z"]
    world = World("4x8", YEARS, 13, names, seed=4, members=2, levels=[850], steps=[48])
    world.write(folder / "w")
    prepare(folder / "w", folder / "s")
    return folder / "s"


@pytest.fixture
def copied(yearly, tmp_path):
    return shutil.copytree(yearly, tmp_path / "s")


def sample(store, name, month_days, years, **place):
    """Members by hand: every start date on these month-days, valid in these years, in float64."""
    field = open_store(store, "pl" if place else "sfc")[name].sel(step=48, **place).load()
    chosen = [
        n
        for n, (start, valid) in enumerate(
            zip(field.time.values, field.valid_time.values, strict=True)
        )
        if str(start)[5:10] in month_days and int(str(valid)[:4]) in years
    ]
    members = field.isel(time=chosen).transpose("time", "number", ...).to_numpy()
    return members.reshape(-1, *members.shape[2:]).astype(np.float64)


def month_days(store):
    return sorted({str(t)[5:10] for t in open_store(store, "sfc").time.values})


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
    monkeypatch.setattr("ens10.chunks.ChunkReader.read_into", None)
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


def test_a_store_keeps_its_climate(copied, monkeypatch):
    files = write_climate(copied, OPTIONS)
    assert len(files) == 3 * 13
    dates = open_store(copied, "sfc").time.values[-26:]  # 2004 and 2005
    for channel in ("t2m", "z850", "sst"):
        want = model_climate(copied, channel, step=48, dates=dates, levels=11)
        got = stored_climate(copied, channel, dates, step=48)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(got.members, want.members)
        assert got.attrs["units"] == want.attrs["units"]
    climate = open_store(copied, "climate")
    assert climate.attrs["years"] == [2000, 2001, 2002]
    assert climate.month_day.to_numpy().tolist() == [d.replace("-", "") for d in month_days(copied)]
    with pytest.raises(ArgumentError, match=r"\[2001\] are among the climate years"):
        stored_climate(copied, "t2m", [f"2001-{month_days(copied)[3]}"], step=48)
    with pytest.raises(UnknownNameError, match="did you mean 't2m'"):
        stored_climate(copied, "t2n", dates, step=48)


def test_paper_keeps_a_climate_for_each_test_year(copied):
    write_climate(copied, ClimateOptions(("t2m",), (48,), protocol="paper"))
    climate = open_store(copied, "climate")
    assert climate.judged_year.to_numpy().tolist() == [2004, 2005]
    assert climate.sizes["quantile"] == 21
    dates = open_store(copied, "sfc").time.values[-26:]
    want = model_climate(copied, "t2m", step=48, dates=dates, protocol="paper")
    np.testing.assert_array_equal(stored_climate(copied, "t2m", dates, step=48), want)


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_an_interrupted_climate_goes_on(copied, yearly, tmp_path, monkeypatch):
    whole = shutil.copytree(yearly, tmp_path / "whole")
    write_climate(whole, OPTIONS, workers=2)
    real, calls = ens10.quantiles.write.quantiles_of, []

    def broken(members, levels):
        calls.append(len(members))
        if len(calls) == 20:
            raise KeyboardInterrupt
        return real(members, levels)

    monkeypatch.setattr(ens10.quantiles.write, "quantiles_of", broken)
    monkeypatch.setattr(ens10.quantiles.write, "_WINDOW_BYTES", 1)
    monkeypatch.setattr(ens10.quantiles.write, "_RUN", 5)
    with pytest.raises(KeyboardInterrupt):
        write_climate(copied, OPTIONS, workers=1)
    done = [p for p in contents(copied / "climate") if "c" in p.parts and p.suffix != ".part"]
    assert 0 < len([p for p in done if p.parts[0] in ("t2m", "z_850", "sst")]) < 39
    assert [p for p in contents(copied / "climate") if p.suffix == ".part"]
    monkeypatch.setattr(ens10.quantiles.write, "quantiles_of", real)
    write_climate(copied, OPTIONS, workers=1)
    assert contents(copied / "climate") == contents(whole / "climate")
    monkeypatch.setattr(ens10.quantiles.write, "quantiles_of", None)
    write_climate(copied, OPTIONS)  # nothing is left to do


def test_only_what_is_missing_is_made(copied):
    files = write_climate(copied, OPTIONS)
    before = contents(copied / "climate")
    (copied / files[3]).unlink()
    with pytest.raises(FileError, match="the chunk is missing"):
        open_store(copied, "climate").load()
    write_climate(copied, OPTIONS)
    assert contents(copied / "climate") == before


def test_other_options_are_refused(copied):
    write_climate(copied, OPTIONS)
    with pytest.raises(FileError, match="other options"):
        write_climate(copied, ClimateOptions(("t2m",), (48,), levels=11))
    with pytest.raises(UnknownNameError, match="did you mean 't2m'"):
        write_climate(copied, ClimateOptions(("t3m",), (48,)))
    with pytest.raises(UnknownNameError, match="step"):
        write_climate(copied, ClimateOptions(("t2m",), (72,)))


def test_damaged_members_are_found(copied):
    for file in (copied / "sfc/t2m/c/7").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DamagedFileError):
        write_climate(copied, OPTIONS)


def test_words_of_the_command_line():
    options = parse_climate(["t2m@48", "z500@48"])
    assert options == ClimateOptions(("t2m", "z500"), (48,))
    assert parse_climate(["t2m@48,24"], levels=21).steps == (24, 48)
    for words, reason in (
        (["t2m"], "no CHANNEL@STEP"),
        (["t2m@x"], "no CHANNEL@STEP"),
        (["t2m@48", "z500@24"], "different steps"),
        ([], "no channel"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            parse_climate(words)
    with pytest.raises(UnknownNameError, match="did you mean 'clean'"):
        parse_climate(["t2m@48"], protocol="cleen")
    with pytest.raises(ArgumentError, match="no middle"):
        parse_climate(["t2m@48"], window=8)
    with pytest.raises(ArgumentError, match="1 quantile"):
        parse_climate(["t2m@48"], levels=1)
