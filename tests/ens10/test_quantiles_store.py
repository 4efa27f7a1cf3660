import shutil

import numpy as np
import pytest
from climatetools import month_days, yearly_store
from gribfiles import cube

import ens10.quantiles.write
from ens10 import prepare
from ens10.convert import verify
from ens10.errors import ArgumentError, DamagedFileError, FileError, UnknownNameError
from ens10.quantiles import (
    ClimateOptions,
    check_climate,
    model_climate,
    parse_climate,
    stored_climate,
    write_climate,
)
from ens10.store import open_store

OPTIONS = ClimateOptions(("2t", "z850", "sst"), (48,), levels=11)


@pytest.fixture(scope="module")
def yearly(tmp_path_factory):
    return yearly_store(tmp_path_factory.mktemp("climate"))


@pytest.fixture
def copied(yearly, tmp_path):
    return shutil.copytree(yearly, tmp_path / "s")


@pytest.fixture(scope="module")
def with_climate(yearly, tmp_path_factory):
    """A copy of the store, and the files of the climate that it got."""
    copy = shutil.copytree(yearly, tmp_path_factory.mktemp("with") / "s")
    return copy, write_climate(copy, OPTIONS)


def test_a_store_keeps_its_climate(with_climate):
    copied, files = with_climate
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
    done = [p for p in contents(copied / "climate") if "c" in p.parts and p.suffix != ".tmp"]
    made = [p for p in done if p.parts[0] in ("t2m", "z_850", "sst")]
    assert 0 < len(made) < 39
    file = copied / "climate" / made[0]
    file.with_name(".0.0123abcd.tmp").write_bytes(b"some")  # of a process that was killed
    file.unlink()
    monkeypatch.setattr(ens10.quantiles.write, "quantiles_of", real)
    write_climate(copied, OPTIONS, workers=1)
    assert contents(copied / "climate") == contents(whole / "climate")
    monkeypatch.setattr(ens10.quantiles.write, "quantiles_of", None)
    write_climate(copied, OPTIONS)  # nothing is left to do


def test_only_what_is_missing_is_made(with_climate):
    copied, files = with_climate
    before = contents(copied / "climate")
    (copied / files[3]).unlink()
    with pytest.raises(FileError, match="the chunk is missing"):
        open_store(copied, "climate").load()
    write_climate(copied, OPTIONS)
    assert contents(copied / "climate") == before


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (ClimateOptions(("t2m",), (48,), levels=11), FileError, "other options"),
        (ClimateOptions(("t3m",), (48,)), UnknownNameError, "did you mean 't2m'"),
        (ClimateOptions(("t2m",), (72,)), UnknownNameError, "step"),
    ],
    ids=["of another climate", "a channel", "a step"],
)
def test_other_options_are_refused(with_climate, options, error, words):
    with pytest.raises(error, match=words):
        write_climate(with_climate[0], options)


def test_data_without_a_year_to_train_on(with_climate):
    few = open_store(with_climate[0], "sfc").sel(time=slice("2004", None))
    with pytest.raises(ArgumentError, match="no years are left to train on"):
        check_climate(few, ClimateOptions(("t2m",), (48,)))


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
        (["t2m"], "not of the form CHANNEL@STEP"),
        (["t2m@x"], "not of the form CHANNEL@STEP"),
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


def test_a_climate_made_later_is_as_if_prepare_had_made_it(write, tmp_path):
    dates = [year * 10000 + day for year in range(2000, 2006) for day in (104, 702)]
    source = write(cube([("t2m", 0)], dates, (48,), members=2))
    options = ClimateOptions(("t2m",), (48,), levels=5)
    one = prepare(source, tmp_path / "one", climate=options)
    other = prepare(source, tmp_path / "other")
    write_climate(other, options)
    assert contents(other) == contents(one)
    assert verify(other).ok
    write_climate(other, options)
    assert contents(other) == contents(one)
