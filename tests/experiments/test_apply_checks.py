"""`ens10 apply` refuses what `ens10 prepare` refuses, and takes members by their labels."""

import re
import shutil
import warnings
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import eccodes
import numpy as np
import pytest
import realruns
import torch
import xarray as xr
from scipy.stats import norm

import ens10
from ens10.cli import main
from ens10.convert import ensemble_moments, prepare
from ens10.errors import ArgumentError, DataNote, FileError, MissingDataError, UnknownNameError
from ens10.experiments.forecasts.apply import apply
from ens10.experiments.forecasts.bundle import bundle
from ens10.experiments.forecasts.input_checks import moments_of_present
from ens10.experiments.forecasts.load import BeyondTrainingWarning, TrainedModel
from ens10.experiments.forecasts.products import Products
from ens10.grib import scan
from ens10.inspection import inspect_path
from ens10.loader import EnsembleDataModule
from ens10.loader.training_members import choose_members
from ens10.source import open_source
from ens10.source.units import unit_of


@pytest.fixture(scope="module")
def today(world, tmp_path_factory):
    """One GRIB file: one day of the calendar in every year."""
    return shutil.copy(world.folder / "output.sfc.20180402", tmp_path_factory.mktemp("today"))


@pytest.fixture(scope="module")
def forecast(today):
    """Two dates of it, in memory: members 1 to 10."""
    return open_source(today)[["t2m", "u10"]].isel(time=[0, 3]).load()


@pytest.fixture(scope="module")
def member_runs(store, shared):
    """A run each of a network of members, and of a statistical method that corrects members."""

    def fill(folder):
        for name in ("transformer", "member_by_member"):
            options = ["--trainer.max_epochs", 1] if name == "transformer" else []
            inputs = ["--data.inputs", "[t2m, u10]"] if name == "transformer" else []
            size = "--model.init_args.network.init_args.in_channels"
            inputs += [size, 5] if inputs else []
            realruns.fit(name, store, folder / name, *options, *inputs)

    folder = shared("member_runs", fill)
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def emos(runs):
    return ens10.load_model(runs["emos_local"])


def changed(forecast, value, **places):
    """A copy of the forecast with t2m replaced at some places."""
    copy = forecast.copy(deep=True)
    copy["t2m"][places] = value
    return copy


def messages_of(path):
    """The messages of a GRIB file, by short name, date and member."""
    found = {}
    with Path(path).open("rb") as file:
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            names = ("shortName", "dataDate", "number")
            key = tuple(eccodes.codes_get(handle, name) for name in names)
            found[key] = eccodes.codes_get_message(handle)
            eccodes.codes_release(handle)
    return found


def values_of(message):
    handle = eccodes.codes_new_from_message(message)
    values = eccodes.codes_get_values(handle)
    eccodes.codes_release(handle)
    return values


def sizes_of(path):
    """Type, date and numberOfForecastsInEnsemble of each message, in the order of the file."""
    found = []
    with Path(path).open("rb") as file:
        while (handle := eccodes.codes_grib_new_from_file(file)) is not None:
            names = ("type", "dataDate", "numberOfForecastsInEnsemble")
            found.append(tuple(eccodes.codes_get(handle, name) for name in names))
            eccodes.codes_release(handle)
    return found


# ------------------------------------------------------------------ plausible values


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: changed(x - 273.15, np.nan, latitude=[0], longitude=[0]), "looks like Celsius"),
        (lambda x: changed(x, 9999, time=1, number=3, latitude=0, longitude=0),
         r"2003-04-02T00, step 48, t2m, number 4: t2m runs from .* to 9999.*missing value"),
    ],
)  # fmt: skip
def test_what_prepare_refuses_apply_refuses(runs, forecast, tmp_path, change, said):
    wrong = change(forecast)
    errors = []
    wrong.to_netcdf(tmp_path / "wrong.nc")
    for call in (
        lambda: prepare(tmp_path / "wrong.nc", tmp_path / "store"),
        lambda: apply([runs["emos_local"]], tmp_path / "wrong.nc", tmp_path / "out.nc"),
        lambda: ens10.load_model(runs["emos_local"])(wrong),
    ):
        with pytest.raises(FileError, match=f"{said}.*--any-values") as caught:
            call()
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
    assert not (tmp_path / "out.nc").exists()


@pytest.mark.parametrize("options", [(), ("--missing", "skip")])
def test_damaged_values_are_one_line(runs, forecast, tmp_path, capsys, options):
    """A chunk of netCDF whose checksum differs; `prepare` gives the same error."""
    path = tmp_path / "f.nc"
    chunks = {"fletcher32": True, "chunksizes": (1, *forecast["t2m"].shape[1:])}
    forecast.to_netcdf(path, encoding={"t2m": chunks})
    content, pattern = path.read_bytes(), forecast["t2m"][1].to_numpy().tobytes()
    assert content.count(pattern) == 1
    path.write_bytes(content.replace(pattern, pattern[:-1] + bytes([pattern[-1] ^ 1])))
    out = tmp_path / "out.nc"
    assert main(["apply", str(runs["emos_local"]), str(path), "--out", str(out), *options]) == 1
    date = "" if options else f": {str(forecast['time'].to_numpy()[1])[:13]}, step 48"
    separator = ": " if options else ", "
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"ens10: {path}{date}{separator}t2m: the values cannot be read (")
    assert not out.exists()


def test_any_values_are_accepted_on_request(runs, emos, forecast, tmp_path):
    anomalies = forecast - 273.15
    anomalies["t2m"].attrs["units"] = "K"
    anomalies.to_netcdf(tmp_path / "in.nc")
    run, out = runs["emos_local"], tmp_path / "out.nc"
    realruns.command("apply", run, tmp_path / "in.nc", "--out", out, status=1)
    realruns.command("apply", run, tmp_path / "in.nc", "--out", out, "--any-values")
    expected = emos(anomalies, any_values=True)
    np.testing.assert_array_equal(xr.open_dataset(out)["mu"], expected["mu"])
    assert float(expected["mu"].mean()) < 100


# ------------------------------------------------------------------ missing fields


def test_a_missing_member_is_refused_with_its_place(runs, forecast, tmp_path, capsys):
    changed(forecast, np.nan, number=3, time=1).to_netcdf(tmp_path / "gap.nc")
    run, out = runs["emos_local"], tmp_path / "out.nc"
    realruns.command("apply", run, tmp_path / "gap.nc", "--out", out, status=1)
    (line,) = capsys.readouterr().err.splitlines()
    assert "gap.nc: 1 part is missing: time 2003-04-02T00 step 48 h number 4: t2m." in line
    assert not out.exists()
    with pytest.raises(UnknownNameError, match=r"missing: 'none'"):
        apply([run], tmp_path / "gap.nc", out, missing="none")


def test_missing_fields_of_a_date_become_nan_or_the_date_is_left_out(
    runs, emos, forecast, tmp_path
):
    whole = emos(forecast)
    changed(forecast, np.nan, number=3, time=1).to_netcdf(tmp_path / "gap.nc")
    for policy in ("nan", "skip"):
        path = apply([runs["emos_local"]], tmp_path / "gap.nc", tmp_path / f"{policy}.nc",
                     missing=policy)  # fmt: skip
        written = xr.open_dataset(path)
        np.testing.assert_array_equal(written["mu"][0], whole["mu"][0])
        assert written.sizes["time"] == {"nan": 2, "skip": 1}[policy]
        if policy == "nan":
            assert written["mu"][1].isnull().all()
    with pytest.raises(MissingDataError, match=r"No date is complete"):
        apply([runs["emos_local"]], changed(forecast, np.nan, number=3), tmp_path / "out.nc",
              missing="skip")  # fmt: skip


@pytest.mark.parametrize("suffix", [".nc", ".grib"])
def test_gaps_of_members_that_the_model_does_not_take_are_not_refused(
    runs, today, tmp_path, suffix
):
    """By default: a control that lacks a date; then a member of the training lacks one, too."""
    parts = {key: part for key, part in messages_of(today).items() if key[0] == "2t"}
    dates = sorted({date for _, date, _ in parts})
    control = eccodes.codes_new_from_message(parts["2t", dates[0], 1])
    eccodes.codes_set(control, "number", 0)
    parts["2t", dates[0], 0] = eccodes.codes_get_message(control)
    path, out = tmp_path / "in.grib", tmp_path / f"out{suffix}"
    path.write_bytes(b"".join(parts.values()))
    apply([runs["emos_local"]], path, out)
    expected = tmp_path / f"expected{suffix}"
    apply([runs["emos_local"]], today, expected)
    if suffix == ".nc":
        xr.testing.assert_equal(xr.load_dataset(out), xr.load_dataset(expected))
    else:
        mine, others = messages_of(out), messages_of(expected)
        assert mine.keys() == others.keys()
        for key, message in mine.items():
            np.testing.assert_array_equal(*map(values_of, (message, others[key])))
    del parts["2t", dates[2], 6]
    path.write_bytes(b"".join(parts.values()))
    with pytest.raises(MissingDataError, match="2002-04-02T00 step 48 h number 6: all fields") as e:
        apply([runs["emos_local"]], path, tmp_path / f"no{suffix}")
    assert "number 0" not in str(e.value)
    assert sorted(tmp_path.iterdir()) == sorted([path, out, expected])


@pytest.mark.parametrize("kind", ["netcdf", "grib"])
def test_skip_ignores_members_that_the_model_does_not_take(runs, today, tmp_path, kind):
    """Of eleven members the control, which was not in the training, lacks a date; 6 another one."""
    parts = {key: part for key, part in messages_of(today).items() if key[0] == "2t"}
    dates = sorted({date for _, date, _ in parts})
    for date in dates:
        if date != dates[1]:
            control = eccodes.codes_new_from_message(parts["2t", date, 1])
            eccodes.codes_set(control, "number", 0)
            parts["2t", date, 0] = eccodes.codes_get_message(control)
    del parts["2t", dates[2], 6]
    path = tmp_path / "in.grib"
    path.write_bytes(b"".join(parts.values()))
    if kind == "netcdf":
        eleven, path = open_source(path, missing="nan").load(), tmp_path / "in.nc"
        eleven.to_netcdf(path)
    out = apply([runs["emos_local"]], path, tmp_path / "out.nc", missing="skip")
    written, complete = xr.load_dataset(out), open_source(today).isel(time=[0, 1, 3, 4, 5])
    np.testing.assert_array_equal(written["time"], complete["time"])
    expected = ens10.load_model(runs["emos_local"])(complete)
    np.testing.assert_array_equal(written["mu"], expected["mu"])


def test_points_that_some_members_lack_are_counted(runs, forecast, tmp_path):
    gaps = changed(forecast, np.nan, number=3, time=1, latitude=[2, 4], longitude=3)
    with pytest.warns(BeyondTrainingWarning, match=r"^emos_local: 2 points of 2003-04-02T00 lack"):
        out = apply([runs["emos_local"]], gaps, tmp_path / "out.nc")
    assert int(xr.open_dataset(out)["mu"].isnull().sum()) == 2


@pytest.fixture(scope="module")
def without_masks(store, shared):
    """A pointwise network whose features have no mask, of the sst over land neither."""

    def fill(folder):
        protocol = folder / "without_masks.yaml"
        protocol.write_text("masks: false\n")
        size = "--model.init_args.network.init_args.in_channels"
        realruns.fit("mlp", store, folder / "mlp", "--data.protocol", protocol, size, 25)

    return shared("without_masks", fill) / "mlp"


@pytest.mark.parametrize("missing", ["error", "nan"])
@pytest.mark.parametrize(
    ("name", "variable", "is_nan"),
    [
        ("mlp", "u10", True),
        ("mlp", "sst", False),  # which has a mask
        ("without_masks", "u10", True),
        ("without_masks", "sst", True),
    ],
)
def test_a_forecast_is_nan_where_an_input_without_a_mask_is(
    runs, without_masks, today, name, variable, is_nan, missing
):
    """A network reads 0 in place of a gap: only a mask distinguishes it from a value."""
    network = ens10.load_model({**runs, "without_masks": without_masks}[name])
    forecast = open_source(today).isel(time=[0, 3]).load()
    whole = network(forecast, members="ecc")
    assert whole["mu"].notnull().all()  # over land too, where sst is NaN as in the training
    is_sea = forecast["sst"].isel(time=0, step=0, number=0).notnull()
    row, column = np.argwhere(is_sea.to_numpy())[3]
    point = {"time": 1, "latitude": row, "longitude": column}
    forecast[variable][point] = np.nan
    found = network(forecast, missing=missing, members="ecc")
    assert set(found.data_vars) == {"mu", "sigma", "t2m"}
    for field in found.data_vars:
        assert set(np.isnan(found[field][point].to_numpy()).ravel().tolist()) == {is_nan}
        found[field][point] = whole[field][point]
    xr.testing.assert_equal(found, whole)


# ------------------------------------------------------------------ fewer members


@pytest.mark.parametrize(("name", "gaps"), [("mlp", 1), ("emos_local", 0)])
def test_predictions_of_a_store_are_nan_where_an_input_without_a_mask_is(
    runs, world, tmp_path, name, gaps
):
    """As those of `apply`; the dates of the training have no gap, so that there is no mask."""
    run = shutil.copytree(runs[name], tmp_path / name)
    whole = xr.load_dataset(run / "predictions.zarr")
    forecast = open_source(world.folder).load()
    date = int(np.flatnonzero(forecast["time"] == whole["time"][1])[0])
    place = {"time": date, "number": 4, "latitude": 2, "longitude": 5}
    forecast["u10"][place] = np.nan  # which emos_local does not read
    prepare(forecast, tmp_path / "s.zarr", truth=world.folder / "truth")
    realruns.command("predict", "--run", run, "--data.store", tmp_path / "s.zarr", "--quiet")
    predicted = xr.load_dataset(run / "predictions.zarr")
    expected = whole["mu"].copy()
    expected[{"time": 1, "latitude": 2, "longitude": 5}] *= np.nan if gaps else 1
    np.testing.assert_array_equal(predicted["mu"], expected)
    np.testing.assert_array_equal(np.isnan(predicted["sigma"]), np.isnan(expected))
    np.testing.assert_array_equal(predicted["truth"], whole["truth"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BeyondTrainingWarning)
        applied = ens10.load_model(run)(tmp_path / "s.zarr")["mu"].sel(time=predicted["time"])
    np.testing.assert_array_equal(np.isnan(applied), np.isnan(expected))


def test_the_variance_of_fewer_members_needs_no_factor():
    """The mean over all choices of 9 of 10 members of their variance is that of the 10, exactly."""
    members = np.random.default_rng(0).normal(280, 3, (10, 4, 5)).astype("f4")
    variances = []
    for kept in combinations(range(10), 9):
        gap = np.full_like(members, np.nan)
        gap[list(kept)] = members[list(kept)]
        mean, std = moments_of_present(gap, 2)
        np.testing.assert_allclose(mean, members[list(kept)].astype("f8").mean(0), rtol=1e-7)
        variances.append(std.astype("f8") ** 2)
        few = ensemble_moments(members[list(kept)], axis=0)
        np.testing.assert_array_equal(np.stack([mean, std]), np.stack(few))
    exact = members.astype("f8").var(axis=0, ddof=1)
    np.testing.assert_allclose(np.mean(variances, axis=0), exact, rtol=1e-6)


def test_moments_of_points_with_too_few_members_are_nan():
    members = np.array([1.0, 3.0, np.nan, np.nan], "f4").reshape(4, 1, 1)
    two = np.concatenate([members, members.copy()], axis=2)
    two[1, 0, 1] = np.nan
    mean, std = moments_of_present(two, 2)
    np.testing.assert_allclose(mean, [[2.0, np.nan]])
    np.testing.assert_allclose(std, [[np.sqrt(2.0), np.nan]])


def emos_of_nine(emos, forecast, number):
    """The forecast of EMOS from nine members, by its own module."""
    nine = forecast["t2m"].drop_sel(number=number).squeeze("step").to_numpy()
    mean, std = nine.astype("f8").mean(1).astype("f4"), nine.astype("f8").std(1, ddof=1)
    seconds = forecast["valid_time"].squeeze().to_numpy().astype("M8[s]").astype(int)
    batch = {
        "raw_mean": torch.from_numpy(mean), "raw_std": torch.from_numpy(std.astype("f4")),
        "dates": torch.from_numpy(seconds), "features": torch.zeros(2, 1, 8, 16),
    }  # fmt: skip
    return emos._module(batch)


@pytest.mark.parametrize("whole", [True, False])
def test_a_forecast_from_nine_members(runs, emos, forecast, tmp_path, capsys, whole):
    gap = forecast.drop_sel(number=4) if whole else changed(forecast, np.nan, number=3)
    gap.to_netcdf(tmp_path / "gap.nc")
    run, out = runs["emos_local"], tmp_path / "out.nc"
    options = ["--missing", "fewer", "--members", "ecc"]
    realruns.command("apply", run, tmp_path / "gap.nc", "--out", out, *options)
    assert "emos_local: 9 of 10 members are used at 2 of 2 dates" in capsys.readouterr().err
    written = xr.open_dataset(out)
    assert written["members_used"].to_numpy().tolist() == [9, 9]
    assert written["members_used"].dims == ("time",)
    known = emos_of_nine(emos, forecast, 4)
    np.testing.assert_allclose(written["mu"], known.mu, rtol=1e-6)
    np.testing.assert_allclose(written["sigma"], known.sigma, rtol=1e-5)
    members = written["t2m"]
    assert members["number"].to_numpy().tolist() == list(range(1, 11))
    assert members.sel(number=4).isnull().all()
    others = members.drop_sel(number=4)
    raw = forecast["t2m"].squeeze("step").drop_sel(number=4)
    np.testing.assert_array_equal(others.argsort(axis=1), raw.argsort(axis=1))
    levels = norm.ppf((np.arange(9) + 0.5) / 9)[:, None, None]
    sorted_members = np.sort(others, axis=1)
    expected = written["mu"].to_numpy()[:, None] + written["sigma"].to_numpy()[:, None] * levels
    np.testing.assert_allclose(sorted_members, expected, rtol=1e-6)


def test_gaps_may_differ_between_dates_and_fields(runs, today, tmp_path):
    """Of ten members the first date lacks one, the second two, and another field another one."""
    forecast = open_source(today).isel(time=[0, 3]).load()
    gaps = changed(forecast, np.nan, number=3, time=0)
    gaps["t2m"][{"number": [1, 7], "time": 1}] = np.nan
    gaps["u10"][{"number": 5}] = np.nan
    with pytest.warns(BeyondTrainingWarning, match=r"fewer than 10 members, at least 8, .* 2 of 2"):
        out = apply([runs["emos_local"]], gaps, tmp_path / "a.nc", missing="fewer")
    written = xr.open_dataset(out)
    assert written["members_used"].to_numpy().tolist() == [9, 8]
    assert written["mu"].notnull().all()
    network = ens10.load_model(runs["unet"])
    whole = network(forecast)
    lacking = network(gaps, missing="fewer")
    assert lacking["members_used"].to_numpy().tolist() == [9, 8]
    assert lacking["mu"].notnull().all()
    assert 0 < float(abs(lacking["mu"] - whole["mu"]).max()) < 5
    lazy = network(gaps.chunk(time=1), missing="fewer")
    xr.testing.assert_identical(lazy.compute(), lacking)


def test_a_missing_grib_message(runs, today, tmp_path):
    """One message is missing: the same as a netCDF file without this field."""
    parts = messages_of(today)
    dates = sorted({date for _, date, _ in parts})
    del parts["2t", dates[2], 4]
    (tmp_path / "gap.grib").write_bytes(b"".join(parts.values()))
    run = runs["emos_local"]
    with pytest.raises(MissingDataError, match=r"number 4: all fields"):
        apply([run], tmp_path / "gap.grib", tmp_path / "out.nc")
    options = {"missing": "fewer", "products": Products(members="ecc")}
    with pytest.warns(BeyondTrainingWarning, match=r"9 of 10 members are used at 1 of 6 dates"):
        out = apply([run], tmp_path / "gap.grib", tmp_path / "out.nc", **options)
    written = xr.open_dataset(out)
    assert written["members_used"].to_numpy().tolist() == [10, 10, 9, 10, 10, 10]
    gap = changed(open_source(today).load(), np.nan, time=2, number=3)
    expected = ens10.load_model(run)(gap, members="ecc", missing="fewer")
    for name in ("mu", "sigma", "t2m"):
        np.testing.assert_array_equal(written[name], expected[name])
    with pytest.warns(BeyondTrainingWarning, match=r"the first 2002-04-02T00"):
        out = apply([run], tmp_path / "gap.grib", tmp_path / "out.grib", **options)
    numbers = [number for name, date, number in messages_of(out) if date == dates[2]]
    assert sorted(numbers) == [0, *[n for n in range(1, 11) if n != 4]]  # 0: mean and spread
    assert len(messages_of(out)) == 6 * 11 - 1
    two = tmp_path / "two.grib"
    with pytest.warns(BeyondTrainingWarning, match=r"the first 2002-04-02T00"):
        apply([run], tmp_path / "gap.grib", two, edition=2, **options)
    for path in (out, two):  # mean and spread of nine; the members keep their number of ten
        found = sizes_of(path)
        assert {size for kind, date, size in found if kind == "pf"} == {10}
        derived = [(date, size) for kind, date, size in found if kind in ("em", "es")]
        assert derived == [(date, 9 if date == dates[2] else 10) for date in dates for _ in "ms"]


def test_mean_and_spread_of_new_grib_headers_state_their_members(runs, forecast, tmp_path):
    """Of a forecast that is not GRIB: the members are counted, with and without a gap."""
    run, options = runs["emos_local"], {"missing": "fewer"}
    gap = changed(forecast, np.nan, number=3, time=1)
    out = apply([run], forecast, tmp_path / "whole.grib")
    assert [size for _, _, size in sizes_of(out)] == [10] * 4
    out = apply([run], gap, tmp_path / "gap.grib", **options)
    assert [size for _, _, size in sizes_of(out)] == [10, 10, 9, 9]


@pytest.mark.parametrize("name", ["transformer", "member_by_member"])
def test_models_of_members_take_those_that_are_there(member_runs, forecast, name):
    """The forecast from nine members is that of a model that is given nine."""
    model = ens10.load_model(member_runs[name])
    gap = changed(forecast, np.nan, number=3, time=1)
    found = model(gap, missing="fewer")
    assert found["members_used"].to_numpy().tolist() == [10, 9]
    whole = model(forecast)
    variable = "mu" if name == "transformer" else "members"
    np.testing.assert_array_equal(found[variable][0], whole[variable][0])
    model.members = 9
    model._training = replace(model._training, numbers=[])
    nine = model(forecast.isel(time=[1]).drop_sel(number=4))
    if name == "transformer":
        np.testing.assert_array_equal(found["mu"][1], nine["mu"][0])
        np.testing.assert_array_equal(found["sigma"][1], nine["sigma"][0])
    else:
        kept = [n for n in range(10) if n != 3]
        np.testing.assert_array_equal(found["members"][1, kept], nine["members"][0])
        assert found["members"][1, 3].isnull().all()
        assert found["number"].to_numpy().tolist() == list(range(1, 11))


def test_a_store_with_gaps_is_corrected_from_fewer_members(runs, emos, forecast, tmp_path):
    gap = changed(forecast, np.nan, number=3, time=1)
    expected = emos(gap, missing="fewer")
    store = prepare(gap, tmp_path / "gap.zarr", missing="nan")
    with pytest.raises(MissingDataError, match=r"number 4: t2m"):
        emos(store).compute()
    xr.testing.assert_identical(emos(store, missing="fewer").compute(), expected)
    nine = prepare(forecast.drop_sel(number=4), tmp_path / "nine.zarr")
    found = emos(nine, missing="fewer").compute()
    np.testing.assert_array_equal(found["mu"][1], expected["mu"][1])
    assert found["members_used"].to_numpy().tolist() == [9, 9]


def test_too_few_members(runs, member_runs, forecast, tmp_path):
    one = forecast.isel(number=[2])
    for run in (runs["emos_local"], member_runs["transformer"]):
        with pytest.raises(ArgumentError, match=r"needs 10 members, found 1\..*--missing fewer"):
            apply([run], one, tmp_path / "out.nc")
        with pytest.raises(ArgumentError, match=r"needs at least 2 members, found 1"):
            apply([run], one, tmp_path / "out.nc", missing="fewer")
    none = changed(forecast, np.nan, time=1)
    with pytest.raises(ArgumentError, match=r"at least 2 members, found 0 at 2003-04-02T00"):
        apply([runs["emos_local"]], none, tmp_path / "out.nc", missing="fewer")
    assert not (tmp_path / "out.nc").exists()


# ------------------------------------------------------------------ labels of members


def test_units_of_inputs_and_lead_times_are_those_of_the_training(runs, world, today, tmp_path):
    """Variables outside the catalogue are not converted: `gust` here, in m s-1 and in km/h."""
    whole = open_source(world.folder)[["t2m", "u10"]].rename(u10="gust").load()
    truth = open_source(world.folder / "truth")[["t2m"]].load()
    data = EnsembleDataModule(whole, "t2m", ["t2m", "gust"], truth=truth)
    data.setup("fit")
    units = data.state_dict()["trained"]["input_units"]
    assert {name: unit_of(text) for name, text in units.items()} == {"gust": "m s-1", "t2m": "K"}
    forecast = open_source(today)[["t2m", "u10"]].isel(time=[0, 3]).load()
    path = shutil.copytree(runs["emos_local"], tmp_path / "emos") / "checkpoints" / "best.ckpt"
    held = torch.load(path, weights_only=True)
    trained = held["EnsembleDataModule"]["trained"]
    trained["input_units"] = {"u10": "m/s"}
    torch.save(held, path)
    expected = ens10.load_model(runs["emos_local"])(forecast)
    xr.testing.assert_identical(ens10.load_model(tmp_path / "emos")(forecast), expected)
    trained["input_units"] = {"u10": "km/h"}
    torch.save(held, path)
    said = r"units: u10 of the forecast is in 'm s.*', that of the training was in 'km/h'"
    with pytest.raises(ArgumentError, match=said):
        apply([tmp_path / "emos"], forecast, tmp_path / "out.nc")
    trained["input_units"], trained["step_units"] = {}, "months"
    torch.save(held, path)
    said = r"the lead time of the forecast is in 'h', that of the training was in 'months'"
    with pytest.raises(ArgumentError, match=said):
        apply([tmp_path / "emos"], forecast, tmp_path / "out.nc")


@pytest.mark.parametrize(
    ("labels", "trained", "chosen", "said"),
    [
        (range(11), range(1, 11), range(1, 11), ""),
        ([3, 1, 2], [1, 2], [1, 2], ""),
        (range(5), [2, 1], [2, 1], ""),
        (range(11, 31), range(1, 11), range(11, 21), "first 10 perturbed.*11 to 20.*training"),
        (range(11), [], range(1, 11), "first 10 perturbed members.*records no labels"),
        (range(1, 11), [], range(1, 11), ""),
        (range(10), range(1, 11), range(10), "control member is used too.*9 perturbed"),
    ],
)  # fmt: skip
def test_which_members_are_used(labels, trained, chosen, said):
    found, note = choose_members(list(labels), len(chosen), list(trained), fewer=False)
    assert found == list(chosen)
    assert bool(re.search(said, note)) if said else note == ""


def test_the_members_of_the_training_are_taken_from_more(runs, emos, forecast, tmp_path, recwarn):
    control = (forecast.mean("number") + 3).expand_dims(number=[0])
    eleven = xr.concat([control, forecast], "number")
    for more in (eleven, eleven.isel(number=slice(None, None, -1))):
        found = emos(more, members="ecc")
        xr.testing.assert_identical(found, emos(forecast, members="ecc"))
    assert not [w for w in recwarn if issubclass(w.category, BeyondTrainingWarning)]
    other = forecast.assign_coords(number=forecast["number"] + 20)
    with pytest.warns(BeyondTrainingWarning, match=r"21 to 30.*since those of the training"):
        found = emos(other, members="ecc")
    np.testing.assert_array_equal(found["mu"], emos(forecast)["mu"])
    assert found["number"].to_numpy().tolist() == list(range(21, 31))
    with pytest.warns(BeyondTrainingWarning, match=r"control member is used too"):
        found = emos(eleven.isel(number=slice(10)))
    nine = eleven["t2m"].isel(number=slice(10)).mean("number").squeeze("step")
    difference = found["mu"] - emos(forecast)["mu"]
    shift = nine - forecast["t2m"].mean("number").squeeze("step")
    np.testing.assert_array_equal(np.sign(difference), np.sign(shift))
    unlabelled = eleven.isel(number=slice(1, None)).drop_vars("number")
    np.testing.assert_array_equal(emos(unlabelled)["mu"], emos(forecast)["mu"])


def test_the_order_of_members_is_that_of_the_labels(member_runs, forecast, recwarn):
    model = ens10.load_model(member_runs["member_by_member"])
    shuffled = forecast.isel(number=[3, 7, 0, 9, 1, 2, 8, 4, 6, 5])
    xr.testing.assert_identical(model(shuffled), model(forecast))
    assert not [w for w in recwarn if issubclass(w.category, BeyondTrainingWarning)]


def test_grib_members_keep_the_labels_of_the_raw_ones(runs, today, tmp_path):
    """A control forecast is added; the members are those of the file without it."""
    parts = messages_of(today)
    controls = []
    for (_, _, number), message in parts.items():
        if number == 1:
            handle = eccodes.codes_new_from_message(message)
            eccodes.codes_set(handle, "type", "cf")
            eccodes.codes_set(handle, "number", 0)
            eccodes.codes_set_values(handle, eccodes.codes_get_values(handle) + 3)
            controls.append(eccodes.codes_get_message(handle))
    (tmp_path / "eleven.grib").write_bytes(b"".join([*controls, *parts.values()]))
    products = Products(members="ecc")
    outs = [
        apply([runs["emos_local"]], source, tmp_path / f"{n}.grib", products=products)
        for n, source in enumerate((today, tmp_path / "eleven.grib"))
    ]
    ten, eleven = map(messages_of, outs)
    assert ten == eleven
    assert {number for _, _, number in ten} == set(range(11))


def test_runs_and_bundles_of_earlier_versions_record_no_labels(runs, forecast, tmp_path):
    run = shutil.copytree(runs["emos_local"], tmp_path / "emos")
    path = run / "checkpoints" / "best.ckpt"
    held = torch.load(path, weights_only=True)
    trained = held["EnsembleDataModule"]["trained"]
    assert trained.pop("numbers") == list(range(1, 11))
    assert trained.pop("windows") == {}
    torch.save(held, path)
    eleven = xr.concat([forecast.mean("number").expand_dims(number=[0]), forecast], "number")
    expected = ens10.load_model(runs["emos_local"])(forecast)
    for source in (run, bundle(run, tmp_path / "emos.ens10")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            xr.testing.assert_identical(ens10.load_model(source)(forecast), expected)
        with pytest.warns(BeyondTrainingWarning, match=r"1 to 10.*since the run records no labels"):
            found = ens10.load_model(source)(eleven)
        xr.testing.assert_identical(found, expected)


# ------------------------------------------------------------------ windows of sums


def test_another_window_than_that_of_the_training_is_refused(
    runs, store, forecast, world, tmp_path
):
    six = forecast.copy()
    six["t2m"] = six["t2m"].assign_attrs(accumulation="6 h")
    since = forecast.copy()
    since["t2m"] = since["t2m"].assign_attrs(accumulation="since start")
    emos = ens10.load_model(runs["emos_local"])
    xr.testing.assert_identical(emos(since), emos(forecast))
    with pytest.raises(
        ArgumentError, match=r"t2m is the sum of 6 h, the run was trained on sums si"
    ):
        emos(six)
    path = shutil.copytree(runs["emos_local"], tmp_path / "six") / "checkpoints" / "best.ckpt"
    held = torch.load(path, weights_only=True)
    held["EnsembleDataModule"]["trained"]["windows"] = {"t2m": "6 h"}
    torch.save(held, path)
    of_six = ens10.load_model(tmp_path / "six")
    xr.testing.assert_identical(of_six(six), emos(forecast))
    with pytest.raises(ArgumentError, match=r"t2m is the sum since the start, the .* sums of 6 h"):
        apply([tmp_path / "six"], since, tmp_path / "out.nc")


def test_the_windows_of_target_and_inputs_are_recorded(world, tmp_path):
    whole = open_source(world.folder)[["t2m", "u10", "v10"]].load()
    for name, window in (("u10", "6 h"), ("v10", "24 h")):
        whole[name].attrs["accumulation"] = window
    truth = open_source(world.folder / "truth")[["t2m"]].load()
    for store in (whole, str(prepare(whole, tmp_path / "store", truth=truth))):
        given = truth if store is whole else None
        data = EnsembleDataModule(store, "t2m", ["t2m", "u10"], truth=given)
        data.setup("fit")
        trained = data.state_dict()["trained"]
        assert trained["windows"] == {"u10": "6 h"}
        assert trained["numbers"] == list(range(1, 11))


# ------------------------------------------------------------------ output


def test_a_forecast_that_is_nan_without_need_is_an_error(runs, forecast, tmp_path, monkeypatch):
    """Missing input and points without coefficients give NaN; nothing else may."""
    run, out = runs["emos_local"], tmp_path / "out.nc"
    distributions = TrainedModel.distributions

    def failing(self, batch):
        result = tuple(replace(r, mu=r.mu.clone()) for r in distributions(self, batch))
        if batch["raw_mean"].abs().sum() > 0:  # not for the zeros that stand for any date
            with torch.inference_mode():
                result[self.place].mu[:, 2, 3:5] = np.nan
        return result

    with monkeypatch.context() as patch:
        patch.setattr(TrainedModel, "distributions", failing)
        said = (
            "emos_local gives NaN for mu of t2m at 2 of 128 points of 2000-04-02T00, step 48, "
            "where the input is complete; its values overflow"
        )
        with pytest.raises(ArgumentError, match=said):
            apply([run], forecast, out)
        assert not out.exists()
        assert not list((tmp_path / "out.nc.partial").glob("done/*"))
        gap = changed(forecast, np.nan, latitude=2, longitude=[3, 4])
        missing = xr.open_dataset(apply([run], gap, out))["mu"].isnull()
        assert int(missing.sum()) == 4


def test_a_run_whose_weights_are_no_numbers(runs, forecast, tmp_path):
    path = shutil.copytree(runs["emos_local"], tmp_path / "emos") / "checkpoints" / "best.ckpt"
    held = torch.load(path, weights_only=True)
    whole = {
        k: v for k, v in held["state_dict"].items() if v.dtype.is_floating_point and v.ndim > 1
    }
    for name, value in whole.items():  # no coefficients at one point: it is NaN, and no error
        held["state_dict"][name] = value.clone()
        held["state_dict"][name][..., 1, 1] = np.nan
    torch.save(held, path)
    missing = ens10.load_model(tmp_path / "emos")(forecast)["mu"].isnull()
    assert int(missing.sum()) == 2
    assert missing[:, 1, 1].all()
    for name in whole:
        held["state_dict"][name][...] = np.nan
    torch.save(held, path)
    with pytest.raises(ArgumentError, match=r"at 128 of 128 points.*weights are not numbers"):
        apply([tmp_path / "emos"], forecast, tmp_path / "out.nc")


# ------------------------------------------------------------------ what ens10 writes, it reads


@pytest.mark.parametrize("name", ["out.grib", "two.grib", "out.nc", "out.zarr"])
def test_the_output_of_apply_is_read_as_members(runs, world, tmp_path, name, capsys):
    source, out = world.folder / "output.sfc.20180402", tmp_path / name
    options = ["--members", "ecc", "--quantiles", "0.1", "0.9", "--probability", ">280"]
    options += ["--edition", "2"] if name == "two.grib" else []
    assert main(["apply", str(runs["emos_local"]), str(source), "--out", str(out), *options]) == 0
    with pytest.warns(DataNote, match="no members are left out"):
        got = open_source(out)
    assert list(got.data_vars) == ["t2m"]
    want = xr.load_dataset(tmp_path / "out.nc") if name == "out.nc" else None
    assert got.sizes["number"] == 10
    if want is not None:
        np.testing.assert_array_equal(got["t2m"].squeeze("step"), want["t2m"])
    rows = inspect_path(out)
    assert [row.status for row in rows] == ["ok"] * len(rows)
    capsys.readouterr()
    assert main(["prepare", str(out), str(tmp_path / "s.zarr")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert sum("no members are left out" in line for line in lines) == 1


def test_a_gap_in_a_variable_that_no_model_takes_stops_nothing(runs, world, tmp_path):
    """emos_local of t2m: a file whose u10 lacks a message."""
    source = world.folder / "output.sfc.20180402"
    messages = [m for m in scan(source) if m.meaning.name in ("t2m", "u10")]
    gap = next(m for m in messages if m.meaning.name == "u10")
    raw, path = source.read_bytes(), tmp_path / "f.grib"
    kept = [raw[m.offset : m.offset + m.length] for m in messages if m != gap]
    path.write_bytes(b"".join(kept))
    with pytest.raises(MissingDataError, match="u10"):
        open_source(path)
    apply([runs["emos_local"]], path, tmp_path / "out.nc")
    apply([runs["emos_local"]], source, tmp_path / "whole.nc")
    xr.testing.assert_equal(*(xr.load_dataset(tmp_path / f"{n}.nc") for n in ("out", "whole")))
